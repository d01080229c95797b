//! Code whose best case is known: from the paper, or by counting.

mod fetch;
mod kinds;
mod rounds;

use super::*;
use crate::results::analysis::Cause;
use proptest::prelude::*;
use std::ops::Range;
use whither_image::{MemRef, OpClass, RegSet, Svma, decode, effects};
use whither_store::CoreFacts;

/// One block that is its own predecessor.
fn looped(code: &[u8]) -> Schedule {
    let insns = effects(&decode(code, Svma(0x1000)));
    schedule(&Core::default(), &insns, std::slice::from_ref(&(0..insns.len())), &|_| vec![(0, 99.0), (1, 1.0)])
}

fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance
}

#[test]
fn a_chain_of_multiplications_costs_its_latency_at_the_multiplication() {
    // 0: imul %rax,%rax   1: dec %ecx   2: jne 0
    let s = looped(&[0x48, 0x0f, 0xaf, 0xc0, 0xff, 0xc9, 0x75, 0xf8]);
    assert!(near(s.blocks[0].best_cycles, 3.0, 0.01), "{s:?}");
    assert!(near(s.insns[0].best_cycles, 3.0, 0.01) && s.insns[1].best_cycles == 0.0, "{s:?}");
    let stall = s.insns[0].static_stall.unwrap();
    assert_eq!((stall.cause, stall.at), (Cause::Operand, Some(0)));
    assert!(near(s.blocks[0].c_min, 3.0, 0.01));
}

#[test]
fn a_pointer_chase_hits_the_first_cache_at_best() {
    // 0: mov (%rax),%rax   1: dec %ecx   2: jne 0
    let s = looped(&[0x48, 0x8b, 0x00, 0xff, 0xc9, 0x75, 0xf9]);
    assert!(near(s.insns[0].best_cycles, 4.0, 0.01), "{s:?}");
    assert_eq!(s.insns[0].static_stall.unwrap().at, Some(0));
    assert!(s.blocks[0].c_min <= 1.0, "loads may be taken from stores at once: {s:?}");
}

#[test]
fn independent_work_costs_the_width() {
    // Twelve lea %r8(..) of different registers are bound by five units; twelve nops by six slots.
    let mut nops = [0x0f, 0x1f, 0x40, 0x00].repeat(12);
    nops.extend([0xeb, 0xce]); // jmp 0
    let s = looped(&nops);
    assert!(near(s.blocks[0].best_cycles, 13.0 / 6.0, 0.05), "{s:?}");
    assert!(near(s.blocks[0].c_min, 13.0 / 12.0, 0.01));
    let mut adds: Vec<u8> = (0..10).flat_map(|r: u8| vec![0x4c, 0x01, 0xc0 | ((r & 3) << 3)]).collect(); // add %r8..,%rax
    adds.extend([0xeb, 0xe0]);
    let chain = looped(&adds);
    assert!(near(chain.blocks[0].best_cycles, 10.0, 0.3), "each addition needs the one before: {chain:?}");
}

#[test]
fn one_multiplier_is_a_port() {
    // imul %r8,%rdi and three others with sources that never change
    let code = [0x4d, 0x6b, 0xc0, 3, 0x4d, 0x6b, 0xc9, 3, 0x4d, 0x6b, 0xd2, 3, 0x4d, 0x6b, 0xdb, 3, 0xeb, 0xee];
    let s = looped(&code);
    assert!(near(s.blocks[0].best_cycles, 4.0, 0.1), "four through one multiplier: {s:?}");
    assert!(s.insns.iter().any(|i| i.static_stall.is_some_and(|x| x.cause == Cause::Port)), "{s:?}");
}

#[test]
fn a_counter_in_memory_waits_for_its_own_store() {
    // 0: addl $1,0x8(%rsp)   1: dec %ecx   2: jne 0
    let s = looped(&[0x83, 0x44, 0x24, 0x08, 0x01, 0xff, 0xc9, 0x75, 0xf7]);
    assert!(near(s.insns[0].best_cycles, 5.0, 0.1), "forwarding and addition: {s:?}");
    assert_eq!(s.insns[0].static_stall.unwrap().cause, Cause::Operand);
    assert!(s.blocks[0].c_min < 1.0, "some cores rename memory");
}

#[test]
fn a_chain_over_two_blocks_is_seen() {
    // block 0: imul %rax,%rax; test %ecx,%ecx; je 1   block 1: imul %rax,%rax; jmp 0
    let insns = effects(&decode(
        &[0x48, 0x0f, 0xaf, 0xc0, 0x85, 0xc9, 0x74, 0x00, 0x48, 0x0f, 0xaf, 0xc0, 0xeb, 0xf2],
        Svma(0x1000),
    ));
    let s = schedule(&Core::default(), &insns, &[0..3, 3..5], &|b| vec![(1 - b, 1.0)]);
    assert!(near(s.blocks[0].best_cycles + s.blocks[1].best_cycles, 6.0, 0.1), "{s:?}");
    assert!(s.blocks.iter().all(|b| b.c_min < 1.0), "no loop of one block");
}

#[test]
fn serialising_instructions_cost_at_themselves() {
    // 0: nop   1: lock addl $1,(%rax)   2: dec %ecx   3: jne 0
    let s = looped(&[0x90, 0xf0, 0x83, 0x00, 0x01, 0xff, 0xc9, 0x75, 0xf7]);
    assert!(s.insns[1].best_cycles >= 17.0, "{s:?}");
    assert!(s.insns.iter().enumerate().all(|(i, x)| i == 1 || x.best_cycles <= 4.0), "{s:?}");
}

/// Measured (AMD family 25 model 17): a chain of nine cycles with `lock add` (eight) beside it takes 9.3, not 18.
#[test]
fn work_goes_on_beside_a_locked_operation() {
    // lock addl $1,(%rax); imul %rdx,%rdx nine times; jmp
    let beside = |n: usize| {
        let mut code = vec![0xf0, 0x83, 0x00, 0x01];
        code.extend([0x48, 0x0f, 0xaf, 0xd2].repeat(n));
        code.extend([0xeb, (-(code.len() as i64) - 2) as i8 as u8]);
        looped(&code).blocks[0].best_cycles
    };
    assert!(near(beside(9), 27.0, 0.5), "{}", beside(9));
    assert!(near(beside(1), 18.0, 0.5), "one locked operation after the other: {}", beside(1));
    // lock xadd %rcx,(%rax); add %rcx,%rcx; jmp: what needs the result waits.
    let chained = looped(&[0xf0, 0x48, 0x0f, 0xc1, 0x08, 0x48, 0x01, 0xc9, 0xeb, 0xf6]).blocks[0].best_cycles;
    assert!((18.9..=24.0).contains(&chained), "{chained}");
}

/// Executions are bounded by best cases: what nobody measured takes the least that any core needs.
#[test]
fn what_nobody_measured_takes_little() {
    // popcnt %rax,%rax; add $77,%rax; jmp
    assert!(looped(&[0xf3, 0x48, 0x0f, 0xb8, 0xc0, 0x48, 0x83, 0xc0, 0x4d, 0xeb, 0xf5]).blocks[0].best_cycles <= 2.01);
    // xchg %rcx,%rdx twice; jmp
    assert!(looped(&[0x48, 0x87, 0xd1, 0x48, 0x87, 0xd1, 0xeb, 0xf8]).blocks[0].best_cycles <= 1.01);
    // lfence; add %rdx,%rcx; jmp
    assert!(looped(&[0x0f, 0xae, 0xe8, 0x48, 0x01, 0xd1, 0xeb, 0xf8]).blocks[0].best_cycles <= 8.01);
    // pushfq; pop %rcx; jmp
    assert!(looped(&[0x9c, 0x59, 0xeb, 0xfc]).blocks[0].best_cycles <= 6.01);
}

#[test]
fn copies_cost_nothing_and_pass_chains_on() {
    // 0: mov %rax,%rdx   1: mov %rdx,%rax   2: imul %rax,%rax   3: jmp 0
    let s = looped(&[0x48, 0x89, 0xc2, 0x48, 0x89, 0xd0, 0x48, 0x0f, 0xaf, 0xc0, 0xeb, 0xf4]);
    assert!(near(s.blocks[0].best_cycles, 3.0, 0.1), "{s:?}");
    assert!(near(s.blocks[0].c_min, 3.0, 0.01));
    // 0: xor %eax,%eax   1: imul %rax,%rax   2: jmp 0: no chain
    let s = looped(&[0x31, 0xc0, 0x48, 0x0f, 0xaf, 0xc0, 0xeb, 0xf8]);
    assert!(s.blocks[0].best_cycles <= 1.5 && s.blocks[0].c_min < 1.0, "{s:?}");
}

#[test]
fn tables_are_text() {
    let core =
        Core::from_toml("name = \"small\"\ndispatch = 2\n[latency]\nimul = 5\n[penalty]\nmispredict = 9.0\n").unwrap();
    assert_eq!((core.dispatch, core.latency.imul, core.latency.load), (2, 5, 4));
    assert_eq!(core.penalty.mispredict, 9.0);
    let again = Core::from_toml(&toml::to_string(&core).unwrap()).unwrap();
    assert_eq!(core, again);
    assert!(Core::from_toml("dispatch = 0").unwrap_err().to_string().contains("between 1 and 32"));
    for (text, field) in [("[latency]\nimul = 60000", "latency.imul"), ("[penalty]\nl2 = nan", "penalty.l2")] {
        let error = Core::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(field) && error.contains("between 0 and 10000"), "{error}");
    }
    assert!(Core::from_toml("width = 3").unwrap_err().to_string().contains("does not parse"));
}

#[test]
fn measured_figures_replace_defaults() {
    let facts = CoreFacts {
        cpu: "x".into(),
        imul: Some(4.02),
        width: Some(3.9),
        alus: Some(2.9),
        forward: Some(5.1),
        dram: Some(300.0),
        fp_add: Some(f64::NAN),
        ..CoreFacts::default()
    };
    let core = Core::from_facts(&facts);
    assert_eq!((core.latency.imul, core.dispatch, core.alus, core.latency.forward), (4, 4, 3, 4));
    assert_eq!((core.penalty.dram, core.latency.fp_add), (300.0, 2));
    assert!(near(core.most_slots(), 4.29, 0.01));
}

/// The Alpha 21164 as far as the paper's copy loop needs it: two integer pipes, both load, one stores.
struct Alpha;

impl CoreModel for Alpha {
    fn name(&self) -> &str {
        "Alpha 21164 (subset)"
    }
    fn order(&self) -> Order {
        Order::InOrder
    }
    fn dispatch_width(&self) -> u32 {
        4
    }
    fn retire_width(&self) -> u32 {
        4
    }
    fn fuses(&self, _: &Effects, _: &Effects) -> bool {
        false
    }
    fn work(&self, insn: &Effects) -> Work {
        let ports = if insn.class == OpClass::Branch { 0b10 } else { 0b11 };
        Work { latency: 1, late: 0, merge_late: 0, ports, busy: 1, load_latency: 2, alone: false }
    }
    fn load_ports(&self) -> u32 {
        0b11
    }
    fn store_ports(&self) -> u32 {
        0b01
    }
    fn forward_latency(&self) -> u16 {
        2
    }
    fn most_slots(&self) -> f64 {
        4.0
    }
    fn most_taken(&self) -> f64 {
        1.0
    }
    fn least_latency(&self, _: &Effects) -> u16 {
        1
    }
}

/// The copy loop of the paper's figures 2 and 7, with registers t1 1, t2 2, t4 4, t5 5, t6 6, a0 7, t0 8, v0 9.
fn copy_loop() -> Vec<Effects> {
    let place = |base: u8, disp: i64| MemRef {
        base: Some(base),
        index: None,
        scale: 1,
        disp,
        width: 8,
        rip_relative: false,
        stack: false,
        non_temporal: false,
        segment: false,
        vector: false,
    };
    let g = |r: u8| RegSet::gpr(u32::from(r));
    let load = |to: u8, base: u8, disp: i64| Effects {
        reads: g(base),
        address_reads: g(base),
        writes: g(to),
        load: Some(place(base, disp)),
        class: OpClass::Load,
        ..Effects::default()
    };
    let store = |from: u8, base: u8, disp: i64| Effects {
        reads: g(base).with(g(from)),
        address_reads: g(base),
        store: Some(place(base, disp)),
        class: OpClass::Store,
        ..Effects::default()
    };
    let add = |to: u8, from: u8| Effects { reads: g(from), writes: g(to), class: OpClass::Alu, ..Effects::default() };
    let mut loops = vec![
        load(4, 1, 0),
        add(8, 8),
        load(5, 1, 8),
        load(6, 1, 16),
        load(7, 1, 24),
        add(1, 1),
        store(4, 2, 0),
        Effects { reads: g(8).with(g(9)), writes: g(4), class: OpClass::Alu, ..Effects::default() },
        store(5, 2, 8),
        store(6, 2, 16),
        store(7, 2, 24),
        add(2, 2),
        Effects { reads: g(4), class: OpClass::Branch, conditional: true, ..Effects::default() },
    ];
    for (i, insn) in loops.iter_mut().enumerate() {
        (insn.address, insn.len) = (0x9810 + 4 * i as u64, 4);
    }
    loops
}

#[test]
fn the_papers_copy_loop_takes_eight_cycles_where_the_paper_says() {
    let insns = copy_loop();
    let s = schedule(&Alpha, &insns, std::slice::from_ref(&(0..insns.len())), &|_| vec![(0, 1.0)]);
    let gaps: Vec<f64> = s.insns.iter().map(|i| i.best_cycles).collect();
    assert_eq!(gaps, [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0], "M_i of figure 7");
    assert_eq!(s.blocks[0].best_cycles, 8.0);
}

fn random_code() -> impl Strategy<Value = (Vec<u8>, Vec<usize>, Vec<(usize, f64)>)> {
    (
        prop::collection::vec(any::<u8>(), 1..160),
        prop::collection::vec(0_usize..40, 0..8),
        prop::collection::vec((0_usize..12, -1.0_f64..9.0), 0..24),
    )
}

proptest! {
    #[test]
    fn any_code_gives_finite_figures((code, cuts, edges) in random_code()) {
        let insns = effects(&decode(&code, Svma(0x1000)));
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c % insns.len()).chain([0, insns.len()]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let blocks: Vec<Range<usize>> = cuts.windows(2).map(|w| w[0]..w[1]).collect();
        let preds = |b: usize| edges.iter().skip(b).step_by(blocks.len()).copied().collect();
        let s = schedule(&Core::default(), &insns, &blocks, &preds);
        prop_assert_eq!(s.insns.len(), insns.len());
        for i in &s.insns {
            prop_assert!(i.best_cycles.is_finite() && i.best_cycles >= 0.0);
        }
        for (b, block) in s.blocks.iter().zip(&blocks) {
            prop_assert!(b.c_min.is_finite() && b.c_min >= block.len() as f64 / 24.1 - 1.0);
            prop_assert!(s.insns[block.clone()].iter().filter_map(|i| i.static_stall).all(|x| x.cause.is_static()));
        }
    }
}

#[test]
fn the_documented_table_is_the_default() {
    let documented = Core::from_toml(include_str!("../../../../docs/reference/core.toml")).unwrap();
    assert_eq!(documented, Core { name: documented.name.clone(), ..Core::default() });
}
