//! Fetching around taken branches, against loops that were measured (AMD family 25 model 17).

use super::*;

fn measured() -> Core {
    let cpu = "AMD EPYC family 25 model 17 stepping 1".to_owned();
    let facts = CoreFacts { cpu, width: Some(5.95), taken: Some(0.98), alus: Some(3.92), ..CoreFacts::default() };
    Core::from_facts(&facts)
}

/// Best case of a round through blocks that end behind these instructions, each behind the one before.
fn round(core: &Core, code: &[u8], ends: &[usize]) -> f64 {
    let insns = effects(&decode(code, Svma(0x1000)));
    let mut from = 0;
    let blocks: Vec<Range<usize>> = ends.iter().map(|&to| std::mem::replace(&mut from, to)..to).collect();
    let n = blocks.len();
    let s = schedule(core, &insns, &blocks, &|b| vec![((b + n - 1) % n, 1.0)]);
    s.blocks.iter().map(|b| b.best_cycles).sum()
}

/// Seven slots, one taken branch, five units: measured 1.57 cycles; the units allow 1.25.
const SEARCH: [u8; 28] = [
    0x49, 0x89, 0xd0, 0x49, 0x21, 0xf0, 0x47, 0x0f, 0xb6, 0x04, 0x02, 0x41, 0x39, 0xc8, 0x7c, 0xe4, 0x48, 0x31, 0xf7,
    0x48, 0x83, 0xc6, 0x01, 0x49, 0x39, 0xf1, 0x75, 0xe4,
];

#[test]
fn what_a_taken_branch_leads_to_enters_beside_what_came_before() {
    let whole = round(&measured(), &SEARCH, &[9]);
    assert!((1.15..=1.57).contains(&whole), "{whole}");
    let parts = round(&measured(), &SEARCH, &[5, 9]);
    assert!((1.15..=1.57).contains(&parts), "{parts}");
}

#[test]
fn loops_take_no_less_than_their_jumps() {
    // jmp to itself, on a core that goes by one in a cycle and one that does by two.
    let itself = [0xeb, 0xfe];
    let one = round(&measured(), &itself, &[1]);
    assert!(near(one, 1.0, 0.05), "measured 1.00: {one}");
    let two = round(&Core { measured_taken: 1.95, ..measured() }, &itself, &[1]);
    assert!(near(two, 0.5, 0.05), "{two}");
}

/// lea 1(%rsi) into so many registers; dec %r12; jnz: measured 1.00, 1.24, 1.49 and 1.76 for 3 to 6.
#[test]
fn a_fused_pair_is_one_operation() {
    let lea = [[0x48, 0x8d, 0x46, 1], [0x48, 0x8d, 0x5e, 1], [0x48, 0x8d, 0x4e, 1], [0x48, 0x8d, 0x7e, 1]];
    for (n, took) in [(3_usize, 1.0), (4, 1.24), (5, 1.49), (6, 1.76)] {
        let mut code = lea.iter().cycle().take(n).flatten().copied().collect::<Vec<u8>>();
        code.extend([0x49, 0xff, 0xcc, 0x75]);
        code.push((-(code.len() as i64) - 1) as i8 as u8);
        let best = round(&measured(), &code, &[n + 2]);
        assert!(near(best, took, 0.06), "{n}: {best}");
    }
}
