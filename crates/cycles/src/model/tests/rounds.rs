//! Chains through loops of several ways, by hand and against code that runs.

use super::*;
use crate::model::pipeline::Pipeline;

const ADD: [u8; 3] = [0x48, 0x01, 0xc8]; // add %rcx,%rax
const XOR: [u8; 4] = [0x48, 0x83, 0xf0, 0x03]; // xor $3,%rax
const SET: [u8; 5] = [0xb8, 0x07, 0x00, 0x00, 0x00]; // mov $7,%eax
const MULTIPLY: [u8; 4] = [0x48, 0x0f, 0xaf, 0xc1]; // imul %rcx,%rax

/// Least cycles of a loop of these blocks, executed so often.
fn least(code: &[(&[&[u8]], f64)], entries: f64) -> f64 {
    let (mut insns, mut blocks, mut executed) = (Vec::new(), Vec::new(), Vec::new());
    for (b, (body, n)) in code.iter().enumerate() {
        let start = insns.len();
        insns.extend(effects(&decode(&body.concat(), Svma(0x1000 + 0x100 * b as u64))));
        blocks.push(start..insns.len());
        executed.push((b, *n));
    }
    chain_of_rounds(&Core::default(), &insns, &blocks, &Rounds { blocks: &executed, entries })
}

#[test]
fn each_way_adds_what_it_does_to_the_chain() {
    let head: &[&[u8]] = &[&[0x84, 0xd2], &[0x74, 0x00]]; // test %dl,%dl; je
    // Two cycles one way, one the other.
    assert_eq!(least(&[(head, 1e6), (&[&ADD, &XOR], 5e5), (&[&ADD], 5e5)], 0.0), 1.5e6);
    assert_eq!(least(&[(head, 1e6), (&[&MULTIPLY], 1e5), (&[&ADD], 9e5)], 0.0), 1.2e6);
    // One way begins anew: nothing is known to be waited for.
    assert_eq!(least(&[(head, 1e6), (&[&ADD, &SET], 5e5), (&[&ADD], 5e5)], 0.0), 0.0);
    // Hardly ever: then it is, but for what can be done ahead.
    let seldom = least(&[(head, 1e6), (&[&ADD, &SET], 10.0), (&[&ADD], 1e6)], 0.0);
    assert!((0.9e6..1e6).contains(&seldom), "{seldom}");
    // A call ends what may be in any register, and what is loaded from an address need not wait for the address.
    assert_eq!(least(&[(&[&ADD, &[0xe8, 0, 0, 0, 0]], 1e6)], 0.0), 0.0);
    assert_eq!(least(&[(&[&[0x48, 0x8b, 0x00], &ADD, &XOR], 1e6)], 0.0), 0.0);
    // setc %al: some cores rename parts of registers.
    assert_eq!(least(&[(&[&[0x0f, 0x92, 0xc0]], 1e6)], 0.0), 0.0);
}

#[test]
fn short_loops_may_be_done_ahead() {
    let rounds = |entries: f64| least(&[(&[&ADD, &XOR, &[0x84, 0xd2], &[0x74, 0x00]], 1e6)], entries);
    assert_eq!(rounds(0.0), 2e6);
    assert!((1.9e6..2e6).contains(&rounds(100.0)), "{}", rounds(100.0));
    assert_eq!(rounds(1e5), 0.0, "ten rounds each, of which many fit into a reorder buffer");
}

/// Operations on four registers: rax, rcx, rdx, rbx.
fn operation() -> impl Strategy<Value = Vec<u8>> {
    (0_usize..9, 0_u8..4, 0_u8..4).prop_map(|(kind, to, from)| match kind {
        0 => vec![0x48, 0x01, 0xc0 | from << 3 | to],
        1 => vec![0x48, 0x0f, 0xaf, 0xc0 | to << 3 | from],
        2 => vec![0x48, 0x89, 0xc0 | from << 3 | to],
        3 => vec![0x48, 0xc1, 0xe0 | to, 0x05],
        4 => vec![0x48, 0x83, 0xf0 | to, 0x07],
        5 => vec![0x48, 0x83, 0xc0 | to, 0x01],
        6 => vec![0x48, 0x8b, 0x06 | to << 3],
        7 => vec![0x48, 0x8d, 0x04 | to << 3, from << 3 | 0x06],
        _ => vec![0x48, 0x31, 0xc0 | from << 3 | to],
    })
}

proptest! {
    /// Blocks of random operations in random order take no less in the pipeline.
    #[test]
    fn no_loop_runs_faster(
        ways in prop::collection::vec(prop::collection::vec(operation(), 1..8), 1..4),
        turns in prop::collection::vec(0_usize..4, 3000),
    ) {
        let core = Core::default();
        let (mut insns, mut blocks) = (Vec::new(), Vec::new());
        for way in &ways {
            let start = insns.len();
            insns.extend(effects(&decode(&way.concat(), Svma(0x1000 + 64 * start as u64))));
            blocks.push(start..insns.len());
        }
        let mut pipeline = Pipeline::new(Order::OutOfOrder);
        let (mut executed, mut took) = (vec![0.0; ways.len()], 0.0);
        for turn in turns {
            let b = turn % ways.len();
            executed[b] += 1.0;
            for i in blocks[b].clone() {
                took += f64::from(pipeline.step(&core, &insns[i], &core.work(&insns[i]), false, i as u32).gap);
            }
            pipeline = pipeline.rebased();
        }
        let executed: Vec<(usize, f64)> = executed.into_iter().enumerate().collect();
        let least = chain_of_rounds(&core, &insns, &blocks, &Rounds { blocks: &executed, entries: 0.0 });
        // What was done ahead of the first.
        prop_assert!(least <= took + 300.0, "{least} {took}");
    }
}

#[test]
fn taken_branches_per_cycle_are_measured_or_the_most_there_is() {
    let of = |taken| Core::from_facts(&CoreFacts { taken, ..CoreFacts::default() }).most_taken();
    assert_eq!((of(None), of(Some(f64::NAN))), (2.0, 2.0));
    assert!(near(of(Some(0.98)), 1.078, 1e-9) && near(of(Some(1.97)), 2.167, 1e-9));
    assert_eq!(of(Some(0.5)), 1.0, "one is taken per cycle everywhere");
}
