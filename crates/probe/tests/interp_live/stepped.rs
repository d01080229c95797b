//! A child that is single-stepped, its registers and its memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use whither_image::interp::{RecipeStep, Registers, Source};

/// A child stopped before its first instruction, single-stepped from here on. Killed when dropped.
pub(crate) struct Stepped {
    pub(crate) pid: i32,
    pub(crate) memory: File,
    child: std::process::Child,
}

/// What a step led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Trap,
    Signal(i32),
    Gone,
}

impl Stepped {
    /// `None` when there is no such program.
    pub(crate) fn start(command: &mut Command) -> Option<Self> {
        // SAFETY: a request with plain numbers.
        let traced = || match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        };
        // SAFETY: the closure makes one system call and nothing else.
        unsafe { command.pre_exec(traced) };
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let pid = child.id() as i32;
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem")).unwrap();
        let it = Self { pid, memory, child };
        assert_eq!(it.wait(), Stop::Trap, "the stop at exec");
        // SAFETY: a request with plain numbers.
        unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_EXITKILL) };
        Some(it)
    }

    pub(crate) fn wait(&self) -> Stop {
        let mut status = 0;
        // SAFETY: writes one status word of ours.
        unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
        match libc::WIFSTOPPED(status) {
            true if libc::WSTOPSIG(status) == libc::SIGTRAP => Stop::Trap,
            true => Stop::Signal(libc::WSTOPSIG(status)),
            false => Stop::Gone,
        }
    }

    pub(crate) fn step(&self, signal: i32) -> Stop {
        // SAFETY: a request with plain numbers.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, signal) };
        self.wait()
    }

    /// Lets it run for a while.
    pub(crate) fn run_for(&self, time: Duration) -> Stop {
        // SAFETY: a request with plain numbers.
        unsafe { libc::ptrace(libc::PTRACE_CONT, self.pid, 0, 0) };
        std::thread::sleep(time);
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(self.pid, libc::SIGSTOP) };
        self.wait()
    }

    pub(crate) fn registers(&self) -> libc::user_regs_struct {
        // SAFETY: a plain struct of words, for which zero is a value.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: writes a struct of ours of the size that the request wants.
        let got = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut regs) };
        assert_eq!(got, 0);
        regs
    }

    pub(crate) fn set_registers(&self, regs: &libc::user_regs_struct) {
        // SAFETY: reads a struct of ours of the size that the request wants.
        let got = unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0, std::ptr::from_ref(regs)) };
        assert_eq!(got, 0);
    }

    pub(crate) fn read(&self, at: u64, width: u8) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes[..usize::from(width)], at).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Values of the recipe's loads at this moment, its steps taken as the kernel side takes them.
    pub(crate) fn loads(&self, recipe: &[RecipeStep], regs: &Registers, bias: u64) -> Vec<Option<u64>> {
        let (mut values, mut loads): (Vec<Option<u64>>, Vec<Option<u64>>) = (Vec::new(), Vec::new());
        for step in recipe {
            let sum = step.terms.iter().flatten().try_fold(step.disp as u64, |sum, term| {
                let value = match term.source {
                    Source::Gpr(n) => regs.gpr[usize::from(n)],
                    Source::Step(n) => values[usize::from(n)]?,
                };
                Some(sum.wrapping_add(value.wrapping_mul(term.scale as u64)))
            });
            let value = sum.map(|s| {
                let s = s.wrapping_add(if step.image_relative { bias } else { 0 });
                let part = u128::from(s >> step.field.from) & ((1 << step.field.bits) - 1);
                let below = step.field.signed && part >> (step.field.bits - 1) == 1;
                if below { part.wrapping_sub(1 << step.field.bits) as u64 } else { part as u64 }
            });
            match step.load {
                Some(width) => {
                    loads.push(value.and_then(|at| self.read(at, width)));
                    values.push(loads[loads.len() - 1]);
                }
                None => values.push(value),
            }
        }
        loads
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn sampled(r: &libc::user_regs_struct) -> Registers {
    let gpr =
        [r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15];
    Registers { gpr, flags: r.eflags }
}

pub(crate) fn set(r: &mut libc::user_regs_struct, from: &Registers) {
    let places = [
        &mut r.rax, &mut r.rcx, &mut r.rdx, &mut r.rbx, &mut r.rsp, &mut r.rbp, &mut r.rsi, &mut r.rdi, &mut r.r8,
        &mut r.r9, &mut r.r10, &mut r.r11, &mut r.r12, &mut r.r13, &mut r.r14, &mut r.r15,
    ];
    for (place, value) in places.into_iter().zip(from.gpr) {
        *place = value;
    }
    r.eflags = from.flags;
}
