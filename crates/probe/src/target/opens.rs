//! A file that the target opens by a name that need not be there: its loader takes names only, and the agent's is one of
//! `/proc`, which a target in a chroot or a mount namespace may not have. So the system call that opens this name
//! is made another one, which gives a second descriptor of the file: at its begin, where the kernel asks the tracer.

use whither_kernel::memory::Memory;
use whither_kernel::ptrace::Regs;

/// A name, and the descriptor in the target that opening it gives.
#[derive(Clone, Debug)]
pub(super) struct Opens {
    pub(super) name: String,
    pub(super) fd: u64,
}

/// `F_DUPFD_CLOEXEC` with the least number 0.
const DUPLICATE: u64 = libc::F_DUPFD_CLOEXEC as u64;

impl Opens {
    /// At the begin of a system call: what to make instead of it, if it opens the name.
    pub(super) fn instead(&self, memory: &Memory, regs: &Regs) -> Option<Regs> {
        let begins = regs.rax as i64 == -i64::from(libc::ENOSYS);
        let name = match regs.orig_rax as i64 {
            libc::SYS_open => regs.rdi,
            libc::SYS_openat => regs.rsi,
            _ => return None,
        };
        let same = begins && memory.text(name, self.name.len() + 1).is_some_and(|text| text == self.name.as_bytes());
        same.then_some(Regs { orig_rax: libc::SYS_fcntl as u64, rdi: self.fd, rsi: DUPLICATE, rdx: 0, ..*regs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_replaced_at_the_begin_of_opening_it_only() {
        let memory = Memory::open(std::process::id()).unwrap();
        let (name, longer) = (c"/proc/thread-self/fd/7", c"/proc/thread-self/fd/77");
        let opens = Opens { name: name.to_str().unwrap().into(), fd: 7 };
        // SAFETY: registers are numbers.
        let mut regs: Regs = unsafe { std::mem::zeroed() };
        (regs.rax, regs.orig_rax) = (-i64::from(libc::ENOSYS) as u64, libc::SYS_openat as u64);
        (regs.rdi, regs.rsi, regs.rdx, regs.r10) = (libc::AT_FDCWD as u64, name.as_ptr() as u64, 5, 6);
        let got = opens.instead(&memory, &regs).expect("replaced");
        assert_eq!((got.orig_rax, got.rdi, got.rsi, got.r10), (libc::SYS_fcntl as u64, 7, DUPLICATE, 6));
        assert!(opens.instead(&memory, &Regs { rax: 3, ..regs }).is_none(), "its end");
        assert!(opens.instead(&memory, &Regs { rsi: longer.as_ptr() as u64, ..regs }).is_none(), "another file");
        assert!(opens.instead(&memory, &Regs { rsi: 1, ..regs }).is_none(), "no name");
        assert!(opens.instead(&memory, &Regs { orig_rax: libc::SYS_read as u64, ..regs }).is_none());
        let open = Regs { orig_rax: libc::SYS_open as u64, rdi: name.as_ptr() as u64, ..regs };
        assert!(opens.instead(&memory, &open).is_some(), "musl");
    }
}
