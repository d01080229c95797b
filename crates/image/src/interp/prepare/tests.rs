//! Random code, executed step by step by the kernel side's rules (compiled here for user space) and by this crate's own
//! interpreter: what both call known must be the same. (Where a load takes bytes of a store and others, the former merges them
//! and the latter gives up.)

use super::super::lower::lower;
use super::super::machine::{Machine, Memory};
use super::super::value::{Value, holds};
use super::*;
use std::io::Write;
use std::process::{Command, Stdio};

/// Memory of all addresses: this, again and again.
const PERIOD: usize = 1 << 16;

struct Pattern(Vec<u8>);

impl Pattern {
    fn new() -> Self {
        // Many small numbers, as memory holds.
        let byte = |i: usize| if i.is_multiple_of(5) { (i * 31 + i / 257) as u8 } else { (i % 7 / 6) as u8 };
        Self((0..PERIOD + 64).map(byte).collect())
    }
}

impl Data for Pattern {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        self.0.get(at.0 as usize % PERIOD..)?.get(..len)
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn register(&mut self) -> u64 {
        match self.next() % 4 {
            0 => self.next() % 8,
            1 => 0x7fff_0000_0000 + self.next() % 0x2000,
            2 => u64::MAX - self.next() % 300,
            _ => self.next(),
        }
    }
}

struct Case {
    gpr: [u64; 16],
    flags: u64,
    raw: Vec<Instruction>,
    ops: Vec<path::Op>,
}

const LONGEST: usize = 24;

fn case(code: &[u8], random: &mut Random) -> Case {
    let mut gpr = [0; 16];
    gpr.iter_mut().for_each(|r| *r = random.register());
    gpr[4] = 0x7fff_1000_0000 + 8 * (random.next() % 512);
    let mut out = Case { gpr, flags: random.next() & 0x8c5, raw: Vec::new(), ops: Vec::new() };
    let mut preparer = Preparer::default();
    for raw in Decoder::with_ip(64, code, 0x40_0000, DecoderOptions::NONE).into_iter().take(LONGEST) {
        let prepared = preparer.prepared(&raw);
        out.raw.push(raw);
        out.ops.push(prepared.op);
        if prepared.next.is_none() || prepared.target.is_some() {
            break;
        }
    }
    out
}

/// What the C side says after an instruction.
struct State {
    went: u64,
    gpr: Vec<u64>,
    known: u64,
    flags: u64,
    flags_known: u64,
    to: u64,
}

fn run_c(cases: &[Case], pattern: &Pattern) -> Vec<Vec<State>> {
    let dir = tempfile::tempdir().expect("a directory");
    let (source, program) = (dir.path().join("walk.c"), dir.path().join("walk"));
    std::fs::write(&source, PROGRAM).expect("written");
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Werror", "-I", include, "-o"]).arg(&program).arg(&source);
    assert!(compiler.status().expect("a C compiler is needed to build whither at all").success());
    let mut input = pattern.0.clone();
    for case in cases {
        input.extend((case.ops.len() as u64).to_le_bytes());
        case.gpr.iter().chain([&case.flags]).for_each(|r| input.extend(r.to_le_bytes()));
        case.ops.iter().for_each(|op| input.extend(op.bytes()));
    }
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("just built");
    let mut stdin = child.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || stdin.write_all(&input).expect("read to its end"));
    let out = child.wait_with_output().expect("ended");
    writer.join().expect("no panic");
    assert!(out.status.success(), "{:?}", out.status);
    let mut words = out.stdout.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
    let mut word = || words.next().expect("a word");
    let mut state = || State {
        went: word(),
        gpr: (0..16).map(|_| word()).collect(),
        known: word(),
        flags: word(),
        flags_known: word(),
        to: word(),
    };
    cases
        .iter()
        .map(|case| {
            let mut states = Vec::new();
            for _ in &case.ops {
                states.push(state());
                if states.last().is_some_and(|s| s.went != 0) {
                    break;
                }
            }
            states
        })
        .collect()
}

const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
static unsigned char memory[65536 + 64];
static int copy(void *to, unsigned size, unsigned long long from) { memcpy(to, memory + from % 65536, size); return 0; }
#define WH_READ_USER(to, size, from) copy((to), (size), (from))
#include "whither_walk.h"
#define BIAS 0x555555554000ull
static void out(unsigned long long v) { fwrite(&v, 8, 1, stdout); }
static struct wh_walk w;
int main(void) {
    unsigned long long n, flags;
    if (fread(memory, sizeof memory, 1, stdin) != 1) return 1;
    while (fread(&n, 8, 1, stdin) == 1) {
        struct wh_op op[64];
        w.number++;
        if (fread(w.gpr, 8, 16, stdin) != 16 || fread(&flags, 8, 1, stdin) != 1 || fread(op, sizeof *op, n, stdin) != n) return 2;
        w.known = 0xffff; w.bias = BIAS; w.flags = flags; w.flags_known = WH_STATUS; w.fs = 0;
        for (unsigned i = 0; i < n; i++) {
            int went = wh_walk_step(&w, &op[i]);
            out(went);
            for (int r = 0; r < 16; r++) out(w.gpr[r]);
            out(w.known); out(w.flags); out(w.flags_known); out(w.to);
            if (went) break;
        }
    }
    return 0;
}
"#;

const STATUS: u64 = 0x8c5;
/// As in the program.
const BIAS: u64 = 0x5555_5555_4000;

/// Steps that were compared, and how many ended a case as not known.
fn compare(case: &Case, states: &[State], pattern: &Pattern) -> (usize, usize) {
    let mut machine = Machine {
        gpr: case.gpr.map(Value::exact),
        flags: Value::exact(case.flags),
        memory: Memory::new(&[], pattern, 0),
        bias: BIAS,
    };
    let mut infos = InstructionInfoFactory::new();
    for (n, state) in states.iter().enumerate() {
        let raw = &case.raw[n];
        let said = || format!("{raw} ({:?}) after {:?} from {:x?}", case.ops[n], &case.raw[..n], case.gpr);
        // String instructions are compared with the processor.
        if state.went >= 3 || raw.is_string_instruction() {
            return (n, usize::from(state.went == 3));
        }
        match lower(raw, &mut infos) {
            Ok(step) => match step.op {
                // This memory is not read-only data, of which nothing needs to be forgotten.
                Op::Forget { written: Written::Anything, .. } => return (n, 0),
                Op::Jump(_) => assert_eq!(state.went, 1),
                Op::Branch { condition, .. } => {
                    let taken = holds(condition, machine.flags).unwrap_or(state.went == 1);
                    assert_eq!(state.went == 1, taken, "{}", said());
                }
                Op::BranchIfNone { size, .. } => {
                    let taken = machine.gpr[1].get(size).map_or(state.went == 1, |n| n == 0);
                    assert_eq!(state.went == 1, taken, "{}", said());
                }
                Op::IndirectJump | Op::IndirectCall => {
                    let to = machine.read(step.dst, &step).get(8).unwrap_or(state.to);
                    assert_eq!((state.went, state.to), (2, to), "{}", said());
                }
                _ => {
                    assert_eq!(state.went, 0, "{}", said());
                    // The program ends there; divisions of bytes and words are only forgotten.
                    if machine.execute(&step).is_err() {
                        return (n, 0);
                    }
                    // As above: written where it is not known.
                    if machine.memory.is_forgotten() {
                        return (n, 0);
                    }
                }
            },
            Err(Barrier::Call) => assert_eq!(state.went, 1),
            Err(Barrier::Return) => {
                assert_eq!((state.went, state.to), (2, machine.pop().get(8).unwrap_or(state.to)), "{}", said());
            }
            Err(_) => panic!("not to be passed: {}", said()),
        }
        if state.went > 0 {
            return (n + 1, 0);
        }
        for (r, value) in state.gpr.iter().enumerate().filter(|(r, _)| state.known >> r & 1 == 1) {
            assert_eq!(machine.gpr[r].get(8).unwrap_or(*value), *value, "register {r} of {}", said());
        }
        for bit in (0..12).filter(|b| state.flags_known & STATUS & 1 << b != 0) {
            let set = state.flags >> bit & 1 == 1;
            assert_eq!(machine.flags.bit(bit).unwrap_or(set), set, "flag {bit} of {}", said());
        }
    }
    (states.len(), 0)
}

fn all(cases: &[Case]) -> (usize, usize) {
    let pattern = Pattern::new();
    let states = run_c(cases, &pattern);
    let told = cases.iter().zip(&states).map(|(case, states)| compare(case, states, &pattern));
    told.fold((0, 0), |sum, n| (sum.0 + n.0, sum.1 + n.1))
}

/// Code of this test's own program, from random places on.
#[test]
fn compiled_code_is_walked_as_it_is_interpreted() {
    let bytes = std::fs::read(std::env::current_exe().expect("a running test")).expect("readable");
    let code = crate::ElfSummary::parse(&crate::Bytes::from(bytes.clone())).expect("ELF").segments[0];
    let text = &bytes[code.offset as usize..][..code.size as usize];
    let mut random = Random(0x1234_5678_9abc_def1);
    let cases: Vec<Case> = (0..20_000)
        .map(|_| {
            let from = random.next() as usize % text.len();
            case(&text[from..text.len().min(from + 400)], &mut random)
        })
        .collect();
    let (steps, lost) = all(&cases);
    assert!(steps > 60_000 && lost < 12_000, "{steps} steps, {lost} of {} cases lost", cases.len());
}

/// Bytes that are instructions by chance: forms that compilers do not make.
#[test]
fn strange_code_is_walked_as_it_is_interpreted() {
    let mut random = Random(0x0dd_b411);
    let cases: Vec<Case> = (0..60_000)
        .map(|_| {
            let bytes: Vec<u8> = (0..4).flat_map(|_| random.next().to_le_bytes()).collect();
            case(&bytes, &mut random)
        })
        .collect();
    assert!(all(&cases).0 > 60_000);
}
