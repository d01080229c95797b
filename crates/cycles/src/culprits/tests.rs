//! Every rule with code that makes it guilty, and with an innocent twin.

mod branches;
mod convictions;
mod pieces;
mod places;

use super::*;
use crate::analysis::{Refills, Threads};
use crate::model::Core;
use crate::results::analysis::InsnAnalysis;
use proptest::prelude::*;
use std::ops::Range;
use whither_image::{Effects, Svma, decode, effects};

/// Code with one block per range, ways between them, and one stall.
struct Case {
    insns: Vec<Effects>,
    blocks: Vec<Range<usize>>,
    flows: Vec<Flow>,
    executions: Vec<f64>,
    branch: Option<BranchSeen>,
    kernel_share: f64,
    fault_share: f64,
    refills: Option<Refills>,
    threads: Threads,
    core: Core,
    certainty: Certainty,
    /// Samples of each instruction.
    samples: f64,
}

impl Case {
    /// Straight code, entered from outside once and left.
    fn straight(at: u64, code: &[u8]) -> Self {
        let insns = effects(&decode(code, Svma(at)));
        let n = insns.len();
        let whole = 0..n;
        Self::of(insns, vec![whole], vec![way(9, 0, 1.0), way(0, 9, 1.0)])
    }

    /// One block that goes round a thousand times per entry.
    fn looped(code: &[u8]) -> Self {
        let insns = effects(&decode(code, Svma(0x1000)));
        let n = insns.len();
        let whole = 0..n;
        Self::of(insns, vec![whole], vec![way(9, 0, 1.0), way(0, 0, 999.0), way(0, 9, 1.0)])
    }

    fn of(insns: Vec<Effects>, blocks: Vec<Range<usize>>, flows: Vec<Flow>) -> Self {
        let into = |b: usize| flows.iter().filter(|f| f.to == b).map(|f| f.executions).sum();
        let executions = (0..blocks.len()).map(into).collect();
        let core = Core::default();
        let certainty = Certainty::Known;
        Self {
            insns,
            blocks,
            flows,
            executions,
            branch: None,
            kernel_share: 0.0,
            fault_share: 0.0,
            refills: None,
            threads: Threads::default(),
            core,
            certainty,
            samples: 1e4,
        }
    }

    fn decided(mut self, taken: f64, decided: f64) -> Self {
        let rarer = (taken.min(1.0 - taken) * decided).floor();
        self.branch = Some(BranchSeen { taken, decided, rarer });
        self
    }

    /// What is said of a stall of so many cycles at one instruction; all others cost nothing.
    fn judge(&self, i: usize, stall: f64) -> Judged {
        let mut stalls = vec![0.0; self.insns.len()];
        stalls[i] = stall;
        self.judge_all(&stalls).swap_remove(i)
    }

    fn judge_all(&self, stalls: &[f64]) -> Vec<Judged> {
        self.seen(stalls, judge)
    }

    /// What a rule makes of a stall.
    fn suspect(&self, rule: Rule, i: usize, stall: f64) -> Option<Likelihood> {
        let mut stalls = vec![0.0; self.insns.len()];
        stalls[i] = stall;
        self.seen(&stalls, |scene| rule(&Lay::new(scene), i)).map(|s| s.likelihood)
    }

    fn seen<R>(&self, stalls: &[f64], look: impl FnOnce(&Scene<'_>) -> R) -> R {
        let branch = |_: usize| self.branch;
        let samples = vec![self.samples; self.insns.len()];
        let scene = Scene {
            core: &self.core,
            insns: &self.insns,
            samples: &samples,
            blocks: &self.blocks,
            flows: &self.flows,
            executions: &self.executions,
            cycles: stalls,
            stalls,
            told: stalls,
            branch: &branch,
            kernel_share: self.kernel_share,
            fault_share: self.fault_share,
            all_samples: samples.iter().sum(),
            refills: self.refills,
            threads: self.threads,
            certainty: self.certainty,
        };
        look(&scene)
    }

    fn causes(&self, i: usize, stall: f64) -> Vec<Cause> {
        self.judge(i, stall).culprits.iter().map(|c| c.cause).collect()
    }
}

fn way(from: usize, to: usize, executions: f64) -> Flow {
    Flow { from, to, executions }
}

const LOAD: [u8; 3] = [0x48, 0x8b, 0x00]; // mov (%rax),%rax
const ADD: [u8; 3] = [0x48, 0x01, 0xca]; // add %rcx,%rdx
const BACK: u8 = 0xeb; // jmp

/// A loop of `body` with a jump back.
fn around(body: &[&[u8]]) -> Vec<u8> {
    let mut code = body.concat();
    let back = code.len() as i64 + 2;
    assert!(back < 128, "short jumps only");
    code.extend([BACK, (-back) as i8 as u8]);
    code
}

#[test]
fn a_missing_load_is_the_data_cache_at_the_load() {
    let case = Case::looped(&around(&[&LOAD, &ADD]));
    let judged = case.judge(0, 300.0);
    assert_eq!(judged.culprits[0].cause, Cause::DCache);
    assert_eq!(judged.culprits[0].at, Some(0));
    assert_eq!(judged.culprits.iter().map(|c| c.cause).collect::<Vec<_>>(), [Cause::DCache, Cause::Dtlb]);
    assert_eq!(judged.unexplained, 0.0);
}

/// Its registers stay what they are, its places do not.
#[test]
fn a_gather_in_a_loop_goes_to_memory() {
    let gather = [0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x88]; // vpgatherdd %ymm2,(%rax,%ymm1,4),%ymm0
    let case = Case::looped(&around(&[&gather, &ADD]));
    assert_eq!(case.causes(0, 300.0), [Cause::DCache, Cause::Dtlb, Cause::Assist]);
}

#[test]
fn without_a_load_data_is_innocent() {
    let case = Case::looped(&around(&[&LOAD, &ADD]));
    let judged = case.judge(1, 300.0);
    assert!(judged.culprits.is_empty(), "an addition in a loop: {judged:?}");
    assert_eq!(judged.unexplained, 300.0);
}

#[test]
fn the_same_bytes_just_before_prove_the_data_cache_innocent() {
    // mov (%rax),%rcx; mov (%rax),%rdx
    let same = Case::straight(0x1000, &[0x48, 0x8b, 0x08, 0x48, 0x8b, 0x10, 0x90, 0x90]);
    assert!(!same.causes(1, 9.0).contains(&Cause::DCache) && !same.causes(1, 9.0).contains(&Cause::Dtlb));
    // mov (%rax),%rcx; mov 8(%rax),%rdx: another line once in eight times, another page once in 512.
    let near = Case::straight(0x1000, &[0x48, 0x8b, 0x08, 0x48, 0x8b, 0x50, 0x08, 0x90]);
    let judged = near.judge(1, 500.0);
    let max = |c: Cause| judged.culprits.iter().find(|x| x.cause == c).map_or(0.0, |x| x.max_cycles);
    assert!((max(Cause::DCache) - 2.0 * 450.0 / 8.0).abs() < 1e-9 && max(Cause::Dtlb) < 2.0, "{judged:?}");
    // mov (%rax),%rcx; add $64,%rax; mov (%rax),%rdx: another place.
    let other = Case::straight(0x1000, &[0x48, 0x8b, 0x08, 0x48, 0x83, 0xc0, 0x40, 0x48, 0x8b, 0x10, 0x90]);
    assert!(other.causes(2, 9.0).contains(&Cause::DCache));
}

#[test]
fn the_stack_needs_no_translation() {
    let case = Case::straight(0x1000, &[0x48, 0x8b, 0x44, 0x24, 0x08, 0x90]); // mov 8(%rsp),%rax
    assert!(!case.causes(0, 9.0).contains(&Cause::Dtlb));
    assert!(case.causes(0, 9.0).contains(&Cause::DCache));
    let looped = Case::looped(&around(&[&[0x48, 0x8b, 0x44, 0x24, 0x08]]));
    assert!(!looped.causes(0, 9.0).contains(&Cause::DCache), "the same slot in every round");
}

#[test]
fn a_new_line_may_miss_the_instruction_cache_and_the_same_line_not() {
    let nops = [0x90; 8];
    let case = Case::straight(0x103c, &nops); // the fifth begins a line
    assert!(case.causes(3, 20.0).starts_with(&[Cause::ICache]), "{:?}", case.causes(3, 20.0));
    assert!(!case.causes(3, 20.0).contains(&Cause::Mispredict) || case.causes(3, 20.0)[0] == Cause::ICache);
    assert!(!case.causes(5, 20.0).contains(&Cause::ICache));
    let page = Case::straight(0x1ffc, &nops);
    assert!(page.causes(3, 20.0).contains(&Cause::Itlb));
    assert!(!case.causes(3, 20.0).contains(&Cause::Itlb));
}

#[test]
fn code_that_nothing_can_have_pushed_out_is_at_hand() {
    // Nops across the end of a line and of a page.
    let mut case = Case::straight(0x1ffc, &[0x90; 8]);
    let guilty = |case: &Case| {
        let causes = case.causes(3, 20.0);
        (causes.contains(&Cause::ICache), causes.contains(&Cause::Itlb))
    };
    assert_eq!(guilty(&case), (true, true), "nothing is known");
    // The instruction has 1 % of the samples.
    let refills = |line, page| Some(Refills { samples: 1e6, line, page });
    case.refills = refills(1e-4, 1e-4);
    assert_eq!(guilty(&case), (false, false));
    assert!(case.judge(3, 20.0).unlikely > 0.0, "but it counts in the bound");
    case.refills = refills(0.02, 1e-4);
    assert_eq!(guilty(&case), (true, false), "its lines were pushed out all the time, its pages not");
    case.samples = 10.0;
    case.refills = Some(Refills { samples: 1e4, line: 2e-4, page: 0.0 });
    assert!(guilty(&case).0, "four samples are expected, ten may be by chance");
}

#[test]
fn a_small_loop_that_runs_long_keeps_its_code() {
    let nops = [0x90; 70];
    let case = Case::looped(&around(&[&nops]));
    let judged = case.judge(63, 20.0);
    assert!(
        !judged.culprits.iter().any(|c| c.cause == Cause::ICache),
        "once per entry is not worth a word: {judged:?}"
    );
    assert!(judged.unlikely > 0.4 && judged.unlikely < 0.5 && judged.unexplained > 18.0, "{judged:?}");
}

#[test]
fn a_rare_way_to_another_line_is_passed_over() {
    // 0: nop; jne 2 (other line)   block 1: nop in the same line   block 2 elsewhere
    let mut insns = effects(&decode(&[0x90, 0x75, 0x7e, 0x90, 0x90, 0x90], Svma(0x1000)));
    insns[4].address = 0x1100;
    let flows = |rare: f64| vec![way(9, 0, 1.0), way(0, 1, 1.0 - rare), way(0, 2, rare)];
    let blocks = vec![0..2, 2..4, 4..5];
    let rare = Case::of(insns.clone(), blocks.clone(), flows(0.01)).decided(0.01, 1e6);
    assert!(!rare.causes(1, 20.0).contains(&Cause::ICache));
    let common = Case::of(insns, blocks, flows(0.3)).decided(0.3, 1e6);
    assert!(common.causes(1, 20.0).contains(&Cause::ICache));
}

#[test]
fn a_branch_that_goes_both_ways_is_mispredicted_and_one_that_does_not_is_not() {
    // 0: test %eax,%eax   1: jne 0   2: nop
    let code = [0x85, 0xc0, 0x75, 0xfc];
    let even = Case::looped(&code).decided(0.5, 1000.0);
    let judged = even.judge(0, 12.0);
    assert_eq!((judged.culprits[0].cause, judged.culprits[0].at), (Cause::Mispredict, Some(1)), "the pair is one");
    assert_eq!(even.causes(1, 12.0)[0], Cause::Mispredict);
    let foreseen = Case::looped(&code).decided(0.999, 1000.0);
    assert!(!foreseen.causes(0, 12.0).contains(&Cause::Mispredict));
    let few = Case::looped(&code).decided(1.0, 10.0);
    assert!(few.causes(0, 12.0).contains(&Cause::Mispredict), "ten samples prove nothing");
    let seldom = Case::looped(&code).decided(0.97, 10_000.0);
    let bounded = seldom.judge(0, 12.0);
    assert!(bounded.culprits[0].max_cycles < 1.1 && bounded.unexplained > 10.0, "{bounded:?}");
}

#[test]
fn behind_a_branch_work_begins_late() {
    // 0: test; jne 1   block 1: lea (%rax),%rcx; nops
    let code = [[0x85, 0xc0, 0x75, 0x00, 0x48, 0x8d, 0x08].as_slice(), &[0x90; 24]].concat();
    let insns = effects(&decode(&code, Svma(0x1000)));
    let n = insns.len();
    let case = |p: f64| {
        let flows = vec![way(9, 0, 1.0), way(0, 1, 1.0), way(1, 9, 1.0)];
        Case::of(insns.clone(), vec![0..2, 2..n], flows).decided(p, 1000.0)
    };
    assert_eq!(case(0.5).causes(2, 5.0)[0], Cause::Mispredict);
    assert_eq!(case(0.5).judge(2, 5.0).culprits[0].at, Some(1));
    assert!(!case(1.0).causes(2, 5.0).contains(&Cause::Mispredict));
    assert!(!case(0.5).causes(n - 1, 5.0).contains(&Cause::Mispredict), "far behind");
}

#[test]
fn stores_in_a_row_fill_their_buffer() {
    // 0: mov %rcx,(%rdi)   1: add $64,%rdi   2: jmp 0
    let code = around(&[&[0x48, 0x89, 0x0f], &[0x48, 0x83, 0xc7, 0x40]]);
    let case = Case::looped(&code);
    assert_eq!(case.causes(2, 40.0)[0], Cause::StoreBuffer, "the store is what comes next");
    assert_eq!(case.judge(2, 40.0).culprits[0].at, Some(0));
    // One store in a straight line.
    assert_eq!(case.causes(1, 40.0)[0], Cause::StoreBuffer, "or just came");
    let one = Case::straight(0x1000, &[0x90, 0x48, 0x89, 0x0f, 0x90]);
    assert!(!one.causes(0, 40.0).contains(&Cause::StoreBuffer));
    // A loop whose rounds take so long that any memory keeps up.
    assert!(!case.causes(2, 2000.0).contains(&Cause::StoreBuffer));
    // Past the caches: movnti %ecx,(%rdi)
    let streaming = Case::straight(0x1000, &[0x90, 0x0f, 0xc3, 0x0f, 0x90]);
    assert_eq!(streaming.causes(1, 40.0)[0], Cause::StoreBuffer);
}

#[test]
fn a_load_wider_than_the_store_before_it_cannot_take_its_bytes() {
    // mov %ecx,(%rsp); mov %edx,4(%rsp); mov (%rsp),%rax
    let narrow = [0x89, 0x0c, 0x24, 0x89, 0x54, 0x24, 0x04, 0x48, 0x8b, 0x04, 0x24, 0x90];
    let case = Case::straight(0x1000, &narrow);
    assert_eq!(case.causes(2, 12.0)[0], Cause::Forwarding);
    // mov %rcx,(%rsp); mov (%rsp),%eax
    let wide = Case::straight(0x1000, &[0x48, 0x89, 0x0c, 0x24, 0x8b, 0x04, 0x24, 0x90]);
    let most = wide.judge(1, 12.0).culprits.iter().find(|c| c.cause == Cause::Forwarding).map(|c| c.max_cycles);
    assert!(most.is_some_and(|most| most < 10.0), "it is passed on, which takes a few cycles at most: {most:?}");
    assert!(!wide.causes(1, 200.0).contains(&Cause::Forwarding));
    // mov %ecx,(%rdi); add $4,%rdi; mov (%rdi),%rax: other bytes.
    let moved = Case::straight(0x1000, &[0x89, 0x0f, 0x48, 0x83, 0xc7, 0x04, 0x48, 0x8b, 0x07, 0x90]);
    assert!(!moved.causes(2, 12.0).contains(&Cause::Forwarding));
}

#[test]
fn locked_operations_order_and_plain_ones_do_not() {
    // lock addl $1,(%rax); add; add
    let case = Case::straight(0x1000, &[[0xf0, 0x83, 0x00, 0x01].as_slice(), &ADD, &ADD, &ADD].concat());
    assert_eq!(case.causes(0, 200.0)[0], Cause::Synchronisation);
    assert!(case.causes(1, 200.0).contains(&Cause::Synchronisation));
    assert!(!case.causes(2, 200.0).contains(&Cause::Synchronisation));
    // lock cmpxchg %rcx,(%rdx); jne back; add; add
    let retried = [[0xf0, 0x48, 0x0f, 0xb1, 0x0a].as_slice(), &[0x75, 0xf9], &ADD, &ADD].concat();
    let insns = effects(&decode(&retried, Svma(0x1000)));
    let ways = vec![way(9, 0, 1.0), way(0, 0, 0.01), way(0, 1, 1.0), way(1, 9, 1.0)];
    let case = Case::of(insns, vec![0..2, 2..4], ways);
    assert!(case.causes(2, 200.0).contains(&Cause::Synchronisation));
    assert!(!case.causes(3, 200.0).contains(&Cause::Synchronisation));
    let plain = Case::straight(0x1000, &[[0x83, 0x00, 0x01].as_slice(), &ADD].concat());
    assert!(!plain.causes(0, 200.0).contains(&Cause::Synchronisation));
    let pause = Case::straight(0x1000, &[0xf3, 0x90, 0x90]);
    assert_eq!(pause.causes(0, 100.0)[0], Cause::Synchronisation);
}

#[test]
fn dividers_are_busy_and_what_comes_behind_them_is_not() {
    let case = Case::looped(&around(&[&[0x48, 0xf7, 0xf1], &ADD])); // div %rcx; add
    assert_eq!(case.causes(0, 20.0), [Cause::Unit]);
    assert!(case.causes(1, 20.0).is_empty());
    let root = Case::looped(&around(&[&[0xf2, 0x0f, 0x51, 0xc1]])); // sqrtsd
    assert_eq!(root.causes(0, 20.0)[0], Cause::Unit);
    assert_eq!(case.judge(0, 1000.0).unexplained, 1000.0 - 90.0, "slow cases have an end");
}

#[test]
fn tiny_numbers_and_microcode_need_help() {
    let add = Case::looped(&around(&[&[0xf2, 0x0f, 0x58, 0xc1]])); // addsd
    assert_eq!(add.causes(0, 150.0), [Cause::Assist]);
    let rep = Case::straight(0x1000, &[0x90, 0xf3, 0x48, 0xab, 0x90]);
    assert!(rep.causes(1, 900.0).contains(&Cause::Assist));
    let integer = Case::looped(&around(&[&[0x66, 0x0f, 0xfe, 0xc1]])); // paddd
    assert!(integer.causes(0, 150.0).is_empty());
}

#[test]
fn the_kernel_is_a_suspect_where_it_was_seen() {
    let mut case = Case::looped(&around(&[&ADD]));
    assert!(case.causes(0, 5.0).is_empty());
    case.kernel_share = 0.1;
    let judged = case.judge(0, 5.0);
    assert_eq!(judged.culprits.len(), 1);
    assert!((judged.culprits[0].max_cycles - 0.5).abs() < 1e-9, "a tenth of all: {judged:?}");
}

#[test]
fn page_faults_are_suspects_where_the_kernel_handled_many() {
    let mut case = Case::looped(&around(&[&LOAD, &ADD]));
    assert!(!case.causes(0, 900.0).contains(&Cause::PageFault), "none was handled");
    case.fault_share = 0.5;
    assert_eq!(case.causes(0, 900.0)[0], Cause::PageFault);
    assert!(!case.causes(1, 900.0).contains(&Cause::PageFault), "an addition does not fault");
}

#[test]
fn a_page_at_hand_does_not_fault() {
    let faults = |mut case: Case, i: usize, share: f64| {
        case.fault_share = share;
        case.causes(i, 900.0).contains(&Cause::PageFault)
    };
    // mov (%rax),%rcx; mov (%rax),%rdx
    let again = || Case::straight(0x1000, &[0x48, 0x8b, 0x08, 0x48, 0x8b, 0x10, 0x90, 0x90]);
    assert!(faults(again(), 0, 0.5) && !faults(again(), 1, 0.5));
    // movslq (%rdi,%rdx,4),%rdx; add %rdi,%rdx; jmp *%rdx
    let table = [[0x48, 0x63, 0x14, 0x97].as_slice(), &[0x48, 0x01, 0xfa], &[0xff, 0xe2]].concat();
    assert!(!faults(Case::straight(0x1000, &table), 0, 0.5));
    // The handler had 2 % of the time, which is not enough for a stall of nearly all of it.
    let mut case = Case::straight(0x1000, &[0x48, 0x8b, 0x08, 0x90]);
    case.fault_share = 0.02;
    let bound = |case: &Case| {
        let judged = case.judge(0, 900.0);
        judged.culprits.iter().find(|c| c.cause == Cause::PageFault).map_or(0.0, |c| c.max_cycles)
    };
    case.samples = 1e6;
    assert!(bound(&case) > 0.0 && bound(&case) < 900.0, "{}", bound(&case));
    case.fault_share = 0.5;
    assert!(bound(&case) >= 900.0);
}

#[test]
fn with_least_cycles_alone_all_time_may_be_a_stall() {
    let mut case = Case::looped(&around(&[&LOAD, &ADD]));
    assert!(case.causes(0, 0.1).is_empty(), "too short to be told from nothing");
    case.certainty = Certainty::AtLeast;
    let judged = case.judge(0, 0.1);
    assert_eq!(judged.culprits[0].cause, Cause::DCache, "it has all of the time, however long that is: {judged:?}");
    assert_eq!(judged.culprits[0].min_cycles, 0.0, "its translation may have taken it");
}

/// 0: test %cl,%cl; je 3   1: add; add   2: jmp 4   3: add; add   4: mov (%rax),%rax; add; jmp 0
fn load_behind_a_branch(time_of_load: f64) -> Vec<Judged> {
    let code = [[0x84, 0xc9, 0x74, 0x08].as_slice(), &ADD, &ADD, &[BACK, 0x06], &ADD, &ADD, &LOAD, &ADD, &[BACK, 0xe6]]
        .concat();
    let insns = effects(&decode(&code, Svma(0x1000)));
    let ways = vec![way(9, 0, 1.0), way(0, 1, 500.0), way(1, 3, 500.0), way(0, 2, 500.0), way(2, 3, 500.0)];
    let back = [way(3, 0, 999.0), way(3, 9, 1.0)];
    let case = Case::of(insns, vec![0..2, 2..5, 5..7, 7..10], ways.into_iter().chain(back).collect());
    let mut cycles = vec![0.0; case.insns.len()];
    (cycles[2], cycles[5], cycles[7]) = (10.0, 10.0, time_of_load);
    case.decided(0.5, 500.0).judge_all(&cycles)
}

#[test]
fn a_load_that_a_wrong_guess_exposed_did_not_miss_first_of_all() {
    let first = |time: f64| load_behind_a_branch(time)[7].culprits[0].cause;
    assert_eq!(
        first(5.0),
        Cause::Mispredict,
        "the way to the right instructions takes ten, what is exposed behind it five"
    );
    assert_eq!(first(40.0), Cause::DCache, "no wrong guess exposes so much");
}

#[test]
fn entries_of_jump_tables_and_the_stack_are_at_hand() {
    // movslq (%rdi,%rdx,4),%rdx; add %rdi,%rdx; jmp *%rdx
    let table = [[0x48, 0x63, 0x14, 0x97].as_slice(), &[0x48, 0x01, 0xfa], &[0xff, 0xe2]].concat();
    let last = |causes: Vec<Cause>| causes.contains(&Cause::DCache) && causes[0] != Cause::DCache;
    assert!(last(Case::straight(0x1000, &table).causes(0, 5.0)));
    // The same without the jump, and what is popped.
    assert_eq!(Case::straight(0x1000, &[&table[..7], &ADD].concat()).causes(0, 5.0)[0], Cause::DCache);
    let mut popped = Case::straight(0x1000, &[0x90, 0x5b, 0x90]); // pop %rbx
    assert_eq!(popped.causes(1, 5.0), [Cause::DCache], "it waits, and there is nobody else");
    popped.certainty = Certainty::AtLeast;
    assert!(popped.judge(1, 0.1).culprits.is_empty());
}

/// Denormal numbers are far-fetched while nothing is known to stall; but all of the time may be theirs.
#[test]
fn what_is_not_named_still_counts_in_the_bound() {
    let mut case = Case::looped(&around(&[&[0xf2, 0x0f, 0x58, 0xc1]])); // addsd
    case.certainty = Certainty::AtLeast;
    let judged = case.judge(0, 0.1);
    assert!(judged.culprits.is_empty() && (judged.unlikely - 0.1).abs() < 1e-9, "{judged:?}");
    let insn = InsnAnalysis {
        samples: 100.0,
        best_cycles: 2.0,
        cycles: Some(2.0),
        stall_cycles: Some(0.0),
        unlikely: 2.0,
        ..InsnAnalysis::default()
    };
    let s = summary([(&insn, 1e9)], Certainty::AtLeast, 0.0);
    assert_eq!((s.dynamic_range, s.unlikely), ((0.0, 1.0), 1.0), "{s:?}");
    let named: f64 = s.causes.iter().filter(|c| !c.cause.is_static()).map(|c| c.max).sum();
    assert_eq!(named, 0.0, "{s:?}");
}

#[test]
fn a_few_samples_convict_nobody() {
    let mut case = Case::looped(&around(&[&LOAD, &ADD]));
    for certainty in [Certainty::Known, Certainty::AtLeast] {
        (case.certainty, case.samples) = (certainty, 9.0);
        let judged = case.judge(0, 300.0);
        assert!(judged.culprits.is_empty() && judged.unjudged, "{certainty:?} {judged:?}");
        let can = judged.in_sums.iter().map(|c| c.1).sum::<f64>();
        assert!(can >= 300.0 && judged.unexplained == 0.0, "of many such the load may be guilty: {judged:?}");
        case.samples = 10.0;
        let judged = case.judge(0, 300.0);
        assert!(
            !judged.culprits.is_empty() && !judged.unjudged && judged.in_sums.is_empty(),
            "{certainty:?} {judged:?}"
        );
    }
    let rest = case.judge(0, 0.0);
    assert!(rest.culprits.is_empty() && rest.unjudged, "no share of the time worth a look: {rest:?}");
}

#[test]
fn a_block_whose_time_is_scattered_is_judged_as_a_whole() {
    let mut case = Case::straight(0x1000, &[0x90; 400]);
    case.certainty = Certainty::AtLeast;
    // Every line's first instruction may have missed the cache, whichever was sampled.
    case.samples = 1.0;
    let judged = case.judge(63, 20.0);
    assert_eq!((judged.culprits[0].cause, judged.unjudged), (Cause::ICache, false), "{judged:?}");
    assert_eq!(judged.culprits[0].min_cycles, 0.0, "one sample proves nothing of this one");
    case.samples = 0.2;
    assert!(case.judge(63, 20.0).unjudged, "80 samples are too few for that");
}

#[test]
fn the_summary_adds_up() {
    let culprit = |cause, min_cycles, max_cycles| Culprit { cause, min_cycles, max_cycles, at: None };
    let insns = [
        InsnAnalysis {
            samples: 60.0,
            best_cycles: 4.0,
            cycles: Some(30.0),
            stall_cycles: Some(26.0),
            static_stall: Some(culprit(Cause::Operand, 4.0, 4.0)),
            culprits: vec![culprit(Cause::DCache, 0.0, 20.0), culprit(Cause::Dtlb, 0.0, 20.0)],
            unexplained: 6.0,
            ..InsnAnalysis::default()
        },
        InsnAnalysis {
            samples: 1.0,
            best_cycles: 1.0,
            cycles: Some(0.5),
            stall_cycles: Some(-0.5),
            ..InsnAnalysis::default()
        },
    ];
    let s = summary(insns.iter().zip([2.0, 2.0]), Certainty::Known, 0.0);
    assert!(!s.bounded);
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
    near(s.execution, 2.0 / 61.0);
    near(s.static_stall, 8.0 / 61.0);
    near(s.dynamic, 52.0 / 61.0);
    near(s.unexplained_stall, 12.0 / 61.0);
    near(s.unexplained_gain, 1.0 / 61.0);
    near(s.sampling_error, 0.0);
    near(s.causes.iter().find(|c| c.cause == Cause::DCache).unwrap().max, 40.0 / 61.0);
    near(s.cpi.unwrap(), 30.5 / 2.0);
    near(s.samples, 61.0);
    near(s.dynamic_range.1, s.dynamic);
    near(s.static_range.0, s.static_stall);
    near(s.execution_range.0, s.execution);
}

fn suspected(cause: Cause, min_cycles: f64, max_cycles: f64) -> Culprit {
    Culprit { cause, min_cycles, max_cycles, at: None }
}

/// A pointer chase over memory: by the model it may be all waiting for the first cache, and is all waiting for memory.
#[test]
fn bounded_figures_are_told_as_bounds() {
    let load = InsnAnalysis {
        samples: 980.0,
        best_cycles: 4.0,
        cycles: Some(3.9),
        stall_cycles: Some(-0.1),
        static_stall: Some(suspected(Cause::Operand, 0.0, 4.0)),
        culprits: vec![suspected(Cause::DCache, 0.0, 3.9), suspected(Cause::Dtlb, 0.0, 3.9)],
        ..InsnAnalysis::default()
    };
    let rest = InsnAnalysis { samples: 5.0, cycles: Some(0.02), stall_cycles: Some(0.02), ..InsnAnalysis::default() };
    let unjudged = InsnAnalysis { unjudged: true, samples: 5.0, ..rest.clone() };
    let s = summary([(&load, 1e9), (&rest, 1e9), (&unjudged, 1e9)], Certainty::AtLeast, 0.0);
    let row = |c: Cause| s.causes.iter().find(|x| x.cause == c).map(|x| (x.min, x.max)).unwrap();
    assert!(s.bounded);
    assert!(row(Cause::Operand).0 == 0.0 && row(Cause::Operand).1 <= 1.0, "{s:?}");
    assert!(row(Cause::DCache).0 == 0.0 && row(Cause::DCache).1 > 0.98, "{s:?}");
    assert!(s.dynamic_range.0 == 0.0 && s.dynamic_range.1 > 0.98, "{s:?}");
    assert!(s.static_range.0 == 0.0 && s.static_range.1 <= 1.0 && s.execution_range.0 == 0.0, "{s:?}");
    assert_eq!((s.unexplained_gain, s.sampling_error), (0.0, 0.0));
    assert!(s.cpi.unwrap() >= s.best_cpi.unwrap(), "{s:?}");
}

#[test]
fn what_is_left_of_bounded_time_is_dynamic() {
    let slow = InsnAnalysis {
        samples: 100.0,
        best_cycles: 2.0,
        cycles: Some(10.0),
        stall_cycles: Some(8.0),
        static_stall: Some(suspected(Cause::Operand, 0.0, 1.0)),
        culprits: vec![suspected(Cause::DCache, 8.0, 10.0)],
        ..InsnAnalysis::default()
    };
    let few = InsnAnalysis {
        samples: 8.0,
        cycles: Some(0.8),
        stall_cycles: Some(0.8),
        unjudged: true,
        unexplained: 0.2,
        in_sums: vec![(Cause::ICache, 0.6)],
        ..InsnAnalysis::default()
    };
    let s = summary([(&slow, 3.0), (&few, 3.0)], Certainty::AtLeast, 0.0);
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b} {s:?}");
    near(s.dynamic, 8.8 / 10.8);
    near(s.dynamic_range.1, 1.0);
    near(s.static_range.1, 1.0 / 10.8);
    near(s.execution_range.1, 1.0 / 10.8);
    near(s.unexplained_stall, 0.2 / 10.8);
    let fetch = s.causes.iter().find(|x| x.cause == Cause::ICache).map(|x| (x.min, x.max)).unwrap();
    near(fetch.0, 0.0);
    near(fetch.1, 0.6 / 10.8);
}

#[test]
fn the_hypervisor_took_no_more_than_it_was_seen_to_take() {
    let insn = InsnAnalysis {
        samples: 100.0,
        best_cycles: 1.0,
        cycles: Some(10.0),
        stall_cycles: Some(9.0),
        culprits: vec![suspected(Cause::Kernel, 1.5, 2.0)],
        ..InsnAnalysis::default()
    };
    for certainty in [Certainty::Known, Certainty::AtLeast] {
        let s = summary([(&insn, 1.0), (&insn, 1.0)], certainty, 0.1);
        let k = s.causes.iter().find(|x| x.cause == Cause::Kernel).unwrap();
        assert_eq!((k.min, k.max), (0.1, 0.1), "{certainty:?}");
    }
}

#[test]
fn what_takes_too_long_for_any_core_may_be_done_by_the_hypervisor() {
    let cpuid = Case::straight(0x1000, &[0x0f, 0xa2, 0xc3]);
    assert!(cpuid.causes(0, 5000.0).contains(&Cause::Kernel) && !cpuid.causes(0, 300.0).contains(&Cause::Kernel));
    let insn = InsnAnalysis {
        samples: 100.0,
        cycles: Some(5000.0),
        stall_cycles: Some(5000.0),
        culprits: vec![suspected(Cause::Kernel, 0.0, 5000.0)],
        ..InsnAnalysis::default()
    };
    let s = summary([(&insn, 1.0)], Certainty::Known, 0.02);
    assert!(s.causes.iter().any(|x| x.cause == Cause::Kernel && x.max > 0.99), "{s:?}");
}

#[test]
fn what_takes_so_much_by_itself_blames_no_guess() {
    // loop -2: microcode on many cores.
    let judged = Case::looped(&[0xe2, 0xfe]).decided(0.99, 1e5).judge(0, 5.0);
    assert_eq!(judged.culprits.first().map(|c| (c.cause, c.max_cycles)), Some((Cause::Assist, 5.0)), "{judged:?}");
    // rep stos %al,(%rdi)
    assert_eq!(Case::straight(0x1000, &[0xf3, 0xaa, 0xc3]).judge(0, 5e4).culprits[0].cause, Cause::StoreBuffer);
}

#[test]
fn a_store_of_the_round_before_is_found_whichever_way_went_by_it() {
    // 0: mov (%rax),%rcx; cmp %ecx,%edx; jge 2   1: mov %rcx,(%rax)   2: add $4,%rax; cmp %rsi,%rax; jne 0
    let code = [
        0x48, 0x8b, 0x08, 0x39, 0xca, 0x7d, 0x03, 0x48, 0x89, 0x08, 0x48, 0x83, 0xc0, 0x04, 0x48, 0x39, 0xf0, 0x75,
        0xed,
    ];
    let ways = |stored: f64| {
        let round = [way(2, 0, 999.0), way(9, 0, 1.0), way(2, 9, 1.0), way(1, 2, stored)];
        [&round[..], &[way(0, 1, stored), way(0, 2, 1000.0 - stored)]].concat()
    };
    let case =
        |stored, code: &[u8]| Case::of(effects(&decode(code, Svma(0x1000))), vec![0..3, 3..4, 4..7], ways(stored));
    let of = |case: Case| case.judge(0, 10.0).culprits.into_iter().find(|c| c.cause == Cause::Forwarding);
    let found = of(case(400.0, &code)).expect("half of what is loaded was stored a round before");
    assert!(found.max_cycles > 3.0, "{found:?}");
    // add $8,%rax: it is another place each round.
    let mut other = code;
    other[13] = 8;
    assert_eq!(of(case(400.0, &other)), None);
}

proptest! {
    #[test]
    fn ranges_are_sound_on_any_code(
        code in prop::collection::vec(any::<u8>(), 1..120),
        cuts in prop::collection::vec(0_usize..40, 0..6),
        ways in prop::collection::vec((0_usize..9, 0_usize..9, 0.0_f64..9.0), 0..20),
        stall in LEAST_STALL..500.0,
        share in 0.0_f64..1.0,
    ) {
        let insns = effects(&decode(&code, Svma(0x1000)));
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c % insns.len()).chain([0, insns.len()]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let blocks: Vec<Range<usize>> = cuts.windows(2).map(|w| w[0]..w[1]).collect();
        let mut case = Case::of(insns, blocks, ways.into_iter().map(|(a, b, x)| way(a, b, x)).collect());
        case.kernel_share = share;
        for i in 0..case.insns.len() {
            let judged = case.judge(i, stall);
            let (min, max): (f64, f64) = judged.culprits.iter().fold((0.0, 0.0), |s, c| (s.0 + c.min_cycles, s.1 + c.max_cycles));
            prop_assert!(judged.culprits.iter().all(|c| 0.0 <= c.min_cycles && c.min_cycles <= c.max_cycles && c.max_cycles <= stall));
            prop_assert!(min <= stall + 1e-9 && max + judged.unlikely + judged.unexplained >= stall - 1e-9);
            prop_assert!(judged.culprits.iter().all(|c| c.at.is_some_and(|a| a < case.insns.len())));
        }
    }
}
