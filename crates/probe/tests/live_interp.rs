//! The interpreter of `image` against the processor: programs are single-stepped, and every decision made from
//! the registers at a step (and from what the recipe's loads find in memory then) must be what happens next.
//! Random instructions check the evaluator, real programs check it together with aliases, tables and paths.

#![allow(clippy::unwrap_used, clippy::print_stdout, unsafe_code, reason = "tests: a panic is the verdict")]

#[path = "interp_live/forms.rs"]
mod forms;
#[path = "interp_live/stepped.rs"]
mod stepped;

use forms::{Dice, instruction};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};
use stepped::{Stepped, Stop, sampled, set};
use whither_image::interp::{Decision, Ending, Registers, Slice};
use whither_image::jump_tables::Data;
use whither_image::{Bytes, StatedBytes, Svma};

/// Code at a runtime address.
struct Snippet(u64, Vec<u8>);

impl Data for Snippet {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.0.checked_sub(self.0)?).ok()?;
        self.1.get(from..from.checked_add(len)?)
    }
}

/// Maps memory that may be written and executed into a child that stands still.
fn map(child: &Stepped, bytes: u64) -> u64 {
    let before = child.registers();
    child.memory.write_all_at(&[0x0f, 0x05], before.rip).unwrap();
    let call = libc::user_regs_struct {
        rax: libc::SYS_mmap as u64,
        rdi: 0,
        rsi: bytes,
        rdx: (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64,
        r10: (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64,
        r8: u64::MAX,
        r9: 0,
        ..before
    };
    child.set_registers(&call);
    assert_eq!(child.step(0), Stop::Trap);
    let at = child.registers().rax;
    assert_eq!(at % 4096, 0, "mapped");
    at
}

/// `WHITHER_SNIPPETS` asks for more.
const SNIPPETS: usize = 6_000;

#[test]
fn random_instructions_do_as_the_processor() {
    let Some(child) = Stepped::start(&mut Command::new("/bin/true")) else {
        println!("SKIP: /bin/true cannot be traced");
        return;
    };
    let base = map(&child, 0x10000);
    let (mut dice, mut asked, mut told, mut run) = (Dice(7), 0_u64, 0_u64, 0_u64);
    let snippets = number("WHITHER_SNIPPETS", SNIPPETS);
    for n in 0..snippets {
        let count = 1 + dice.below(5);
        let parts: Vec<Vec<u8>> = (0..count).map(|_| instruction(&mut dice)).collect();
        let code = parts.concat();
        let mut start = Registers { gpr: std::array::from_fn(|_| dice.value()), flags: 0x202 | dice.word() & 0x8d5 };
        start.gpr[1] = if dice.below(2) == 0 { dice.word() & 31 } else { start.gpr[1] };
        (start.gpr[3], start.gpr[4], start.gpr[5]) = (base + 0x8000, base + 0x8010, base + 0x8020);
        if dice.below(2) == 0 {
            (start.gpr[6], start.gpr[7]) = (base + 0x8008, base + 0x8018);
        }
        let scratch: Vec<u8> = (0..256).map(|_| dice.word() as u8).collect();
        child.memory.write_all_at(&code, base).unwrap();
        child.memory.write_all_at(&scratch, base + 0x7fc0).unwrap();
        // Asked before the code has run: memory is as it was then.
        let answers = answers(&child, base, &code, &start);
        let mut regs = child.registers();
        set(&mut regs, &start);
        (regs.rip, regs.orig_rax) = (base, u64::MAX);
        child.set_registers(&regs);
        let whole = (0..count).all(|_| child.step(0) == Stop::Trap);
        let after = child.registers();
        if !whole || after.rip != base + code.len() as u64 {
            continue;
        }
        run += 1;
        let end = sampled(&after);
        for (which, answer) in answers.into_iter().enumerate() {
            let truth =
                if which < 16 { Answer::Value(end.gpr[which]) } else { Answer::Taken(holds(which - 16, end.flags)) };
            asked += 1;
            if let Some(answer) = answer {
                told += 1;
                assert_eq!(answer, truth, "snippet {n} {parts:02x?} register or condition {which} from {start:x?}");
            }
        }
    }
    println!("{run} snippets, {told} of {asked} values told");
    assert!(run > snippets as u64 / 3, "only {run} snippets ran");
    assert!(told as f64 > 0.7 * asked as f64, "only {told} of {asked} told");
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Value(u64),
    Taken(bool),
}

/// What the interpreter says of each register and each condition behind the code.
fn answers(child: &Stepped, base: u64, code: &[u8], regs: &Registers) -> Vec<Option<Answer>> {
    (0..32_u8)
        .map(|which| {
            let mut code = code.to_vec();
            match which {
                0..16 => code.extend([0x40 | which >> 3, 0xff, 0xe0 | which & 7]),
                _ => code.extend([0x60 + which, 0]),
            }
            let slice = Slice::new(&Snippet(base, code), Svma(base));
            let loads = child.loads(slice.recipe(), regs, 0);
            match slice.decide(regs, &loads, 0).first()? {
                Decision::Target { to, .. } => Some(Answer::Value(*to)),
                Decision::Branch { taken, .. } => Some(Answer::Taken(*taken)),
            }
        })
        .collect()
}

fn holds(condition: usize, flags: u64) -> bool {
    let f = |n: u32| flags >> n & 1 == 1;
    let rule = match condition >> 1 {
        0 => f(11),
        1 => f(0),
        2 => f(6),
        3 => f(0) || f(6),
        4 => f(7),
        5 => f(2),
        6 => f(7) != f(11),
        _ => f(6) || f(7) != f(11),
    };
    rule != (condition & 1 == 1)
}

/// Where a file is mapped executable.
struct Place {
    range: std::ops::Range<u64>,
    image: usize,
    bias: u64,
}

/// Files mapped by a process.
#[derive(Default)]
struct Places {
    places: Vec<Place>,
    images: Vec<StatedBytes>,
    names: HashMap<String, usize>,
}

impl Places {
    fn of(&mut self, pid: i32, pc: u64) -> Option<(usize, u64)> {
        if !self.places.iter().any(|p| p.range.contains(&pc)) {
            self.scan(pid);
        }
        self.places.iter().find(|p| p.range.contains(&pc)).map(|p| (p.image, p.bias))
    }

    fn scan(&mut self, pid: i32) {
        self.places.clear();
        for line in std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default().lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let &[range, rights, offset, _, _, path] = words.as_slice() else { continue };
            if !rights.contains('x') || !path.starts_with('/') {
                continue;
            }
            let number = |s: &str| u64::from_str_radix(s, 16).unwrap();
            let (from, to) = range.split_once('-').map(|(a, b)| (number(a), number(b))).unwrap();
            let Ok(file) = std::fs::read(path) else { continue };
            let Ok(summary) = whither_image::ElfSummary::parse(&file) else { continue };
            let Some(stated) = whither_image::to_svma(&summary.segments, whither_image::ImageOffset(number(offset)))
            else {
                continue;
            };
            let image = *self.names.entry(path.to_owned()).or_insert_with(|| {
                self.images.push(StatedBytes::from_elf(&Bytes::from(file)).unwrap().unchanging());
                self.images.len() - 1
            });
            self.places.push(Place { range: from..to, image, bias: from.wrapping_sub(stated.0) });
        }
    }
}

/// Decisions made at one step.
struct Said {
    step: usize,
    bias: u64,
    decisions: Vec<Decision>,
}

/// What a program's steps showed.
#[derive(Default)]
struct Tally {
    steps: usize,
    by_registers: usize,
    by_loads: usize,
    decisions: usize,
    reads: usize,
    endings: HashMap<Ending, usize>,
    slices: usize,
    making: Duration,
    deciding: Duration,
}

/// Single-steps a program and checks every decision; `None` when there is no such program.
fn check(command: &mut Command, warm: Duration, steps: usize) -> Option<Tally> {
    let child = Stepped::start(command)?;
    if !warm.is_zero() && child.run_for(warm) != Stop::Signal(libc::SIGSTOP) {
        return None;
    }
    let (mut places, mut slices) = (Places::default(), HashMap::new());
    let (mut trace, mut said, mut tally) = (Vec::new(), Vec::new(), Tally::default());
    for step in 0..steps {
        let raw = child.registers();
        trace.push(raw.rip);
        if let Some((image, bias)) = places.of(child.pid, raw.rip) {
            tally.steps += 1;
            let at = Svma(raw.rip.wrapping_sub(bias));
            let slice = slices.entry((image, at)).or_insert_with(|| {
                let begin = Instant::now();
                let slice = Slice::new(&places.images[image], at);
                tally.making += begin.elapsed();
                slice
            });
            *tally.endings.entry(slice.ending()).or_default() += 1;
            let regs = sampled(&raw);
            let loads = child.loads(slice.recipe(), &regs, bias);
            tally.reads += loads.len();
            let alone = slice.decide_with(&places.images[image], &regs, &[], bias);
            let begin = Instant::now();
            let full = slice.decide(&regs, &loads, bias);
            tally.deciding += begin.elapsed();
            tally.by_registers += usize::from(!alone.is_empty());
            tally.by_loads += usize::from(!full.is_empty());
            tally.decisions += full.len();
            said.extend([alone, full].into_iter().filter(|d| !d.is_empty()).map(|decisions| Said {
                step,
                bias,
                decisions,
            }));
        }
        match child.step(0) {
            Stop::Trap => {}
            Stop::Signal(signal) if child.step(signal) == Stop::Trap => {}
            _ => break,
        }
    }
    tally.slices = slices.len();
    for said in &said {
        verify(said, &trace, &places);
    }
    Some(tally)
}

/// Follows the steps that were really made and compares branch for branch.
fn verify(said: &Said, trace: &[u64], places: &Places) {
    let mut step = said.step;
    for decision in &said.decisions {
        let (Decision::Branch { at, .. } | Decision::Target { at, .. }) = *decision;
        // The next instruction that could go elsewhere must be the one decided.
        let place = loop {
            let (Some(&pc), Some(_)) = (trace.get(step), trace.get(step + 1)) else { return };
            let image = places.places.iter().find(|p| p.range.contains(&pc)).map(|p| &places.images[p.image]);
            let Some(insn) = image.and_then(|i| one(i, Svma(pc.wrapping_sub(said.bias)))) else {
                panic!("step {step} of {decision:x?} is at {pc:#x}, outside of the image");
            };
            match insn.flow {
                whither_image::Flow::Branch(_)
                | whither_image::Flow::IndirectJump
                | whither_image::Flow::IndirectCall => {
                    break (pc, insn);
                }
                _ => step += 1,
            }
        };
        let next = trace[step + 1];
        assert_eq!(place.0, at.0.wrapping_add(said.bias), "decided {decision:x?} at step {}", said.step);
        let truth = match decision {
            Decision::Branch { .. } => Decision::Branch { at, taken: next != place.1.end().0.wrapping_add(said.bias) },
            Decision::Target { .. } => Decision::Target { at, to: next },
        };
        assert_eq!(*decision, truth, "decided at {:#x}", trace[said.step].wrapping_sub(said.bias));
        step += 1;
    }
}

fn one(image: &StatedBytes, at: Svma) -> Option<whither_image::Insn> {
    let bytes = (1..=15).rev().find_map(|len| image.bytes(at, len))?;
    whither_image::decode(bytes, at).first().copied()
}

fn report(name: &str, t: &Tally) {
    let share = |n: usize| 100.0 * n as f64 / t.steps as f64;
    println!(
        "{name}: {} steps, {} addresses; decided by registers {:.1} %, with loads {:.1} %; {:.2} decisions and {:.2} reads \
         per step; {:.0} ns per decide, {:.1} us per slice",
        t.steps,
        t.slices,
        share(t.by_registers),
        share(t.by_loads),
        t.decisions as f64 / t.steps as f64,
        t.reads as f64 / t.steps as f64,
        t.deciding.as_nanos() as f64 / t.steps as f64,
        t.making.as_micros() as f64 / t.slices as f64,
    );
    let mut endings: Vec<_> = t.endings.iter().map(|(e, n)| (share(*n), e)).collect();
    endings.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("  first met: {}", endings.iter().map(|(s, e)| format!("{e:?} {s:.1} %")).collect::<Vec<_>>().join(", "));
}

/// Steps per program: `WHITHER_STEPS` asks for more.
fn steps() -> usize {
    number("WHITHER_STEPS", 40_000)
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

fn real(name: &str, command: &mut Command, warm: u64) {
    let Some(tally) = check(command, Duration::from_millis(warm), steps()) else {
        println!("SKIP: {name} is not here, or over too soon");
        return;
    };
    report(name, &tally);
    assert!(tally.steps > 10_000, "{name}: only {} steps", tally.steps);
    assert!(tally.by_registers * 100 > tally.steps * 15, "{name}: registers decide too little");
    assert!(tally.by_loads * 100 > tally.steps * 30, "{name}: loads decide too little");
}

#[test]
fn a_small_program_from_its_start() {
    real("ls", Command::new("ls").arg("/usr/bin"), 0);
}

#[test]
fn an_interpreter() {
    let work = "d={}\nwhile True:\n for i in range(1000): d[str(i)]=sorted([i%7,3,i%5]); d.pop(str(i//2),0)";
    real("python3", Command::new("/usr/bin/python3").args(["-c", work]), 300);
}

#[test]
fn a_database() {
    let query = "with recursive n(i) as (select 1 union all select i+1 from n) select sum(length(printf('%d %s',i,hex(i)))) \
                 from n where i%3=1 and i like '%7%';";
    real("sqlite3", Command::new("sqlite3").args([":memory:", query]), 100);
}

#[test]
fn a_compiler() {
    let Ok(found) = Command::new("gcc").arg("-print-prog-name=cc1").output() else {
        println!("SKIP: no gcc");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("big.c");
    let function = |n: u32| {
        format!(
            "int f{n}(int *a,int n){{int s={n};for(int i=0;i<n;i++)switch(a[i]%9){{case 0:s+=i;break;case 1:s^=a[i];break;\
                 case 2:s*=3;break;case 3:s-=a[s&7];break;case 5:s+=f{n}(a,n-1);}}return s;}}\n"
        )
    };
    std::fs::write(&source, (0..400).map(function).collect::<String>()).unwrap();
    let cc1 = String::from_utf8(found.stdout).unwrap();
    real("cc1", Command::new(cc1.trim()).args(["-O2", "-quiet", "-o", "/dev/null"]).arg(&source), 300);
}

/// Compressors branch on bytes that they find at sums of indices.
fn compressor(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text");
    let words = ["branch", "of", "a", "loop", "that", "was", "sampled", "at", "once", "\n"];
    let mut dice = Dice(11);
    let text: String = (0..2_000_000).map(|_| format!("{} ", dice.pick(&words))).collect();
    std::fs::write(&file, text).unwrap();
    real(name, Command::new(name).args(["-9", "-c"]).arg(&file), 200);
}

#[test]
fn a_compressor_by_matches() {
    compressor("gzip");
}

#[test]
fn a_compressor_by_sorting() {
    compressor("bzip2");
}
