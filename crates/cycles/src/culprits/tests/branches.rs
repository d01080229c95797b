//! Fetching past taken branches, and branches through pointers.

use super::*;
use crate::culprits::{fetch, jumps};

/// So many blocks of a line each (add $1,%rax; xor %rax,%rcx; add %rcx,%rdx; jmp), one after the other, a thousand rounds.
fn lines(n: usize) -> Case {
    let (mut insns, mut blocks, mut flows) = (Vec::new(), Vec::new(), vec![way(n + 1, 0, 1.0), way(n - 1, n + 1, 1.0)]);
    let body = [0x48, 0x83, 0xc0, 0x01, 0x48, 0x31, 0xc1, 0x48, 0x01, 0xca, 0xe9, 0, 0, 0, 0];
    for b in 0..n {
        blocks.push(insns.len()..insns.len() + 4);
        insns.extend(effects(&decode(&body, Svma(0x1000 + 64 * b as u64))));
        flows.push(way(b, (b + 1) % n, if b + 1 < n { 1000.0 } else { 999.0 }));
    }
    Case::of(insns, blocks, flows)
}

#[test]
fn where_all_is_jumps_fetching_past_them_is_suspected() {
    // Measured (AMD family 25 model 17): 256 such blocks take 1.56 cycles each, 1 of them at best.
    let case = lines(256);
    let cycles = vec![0.5; case.insns.len()];
    let judged = &case.judge_all(&cycles)[41];
    assert!(judged.culprits.iter().any(|c| c.cause == Cause::FrontEnd && c.max_cycles == 0.5), "{judged:?}");
    assert_eq!(judged.unexplained, 0.0);
    assert_eq!(case.suspect(jumps::taken_branches, 41, 0.5), Some(Likelihood::Usual));
    assert_eq!(lines(8).suspect(jumps::taken_branches, 1, 0.5), Some(Likelihood::Faint));
}

#[test]
fn a_loop_that_takes_longer_than_its_jumps_leaves_fetching_idle() {
    let twin = Case::looped(&around(&[&LOAD, &ADD]));
    assert_eq!(twin.suspect(jumps::taken_branches, 0, 30.0), None);
    assert_eq!(twin.suspect(jumps::taken_branches, 0, 1.0), Some(Likelihood::Faint));
    // Without a taken branch near there is nothing to get past.
    let nops = Case::straight(0x1000, &[0x90; 40]);
    assert_eq!(nops.suspect(jumps::taken_branches, 30, 1.0), None);
}

/// Many accesses, each of which may have been all of the faults.
#[test]
fn page_faults_took_no_more_than_their_handler_had_time_for() {
    let insn = || InsnAnalysis {
        samples: 500.0,
        cycles: Some(9.0),
        stall_cycles: Some(9.0),
        culprits: vec![Culprit { cause: Cause::PageFault, min_cycles: 0.0, max_cycles: 9.0, at: None }],
        ..InsnAnalysis::default()
    };
    let (a, b) = (insn(), insn());
    let mut s = summary([(&a, 1.0), (&b, 1.0)], Certainty::AtLeast, 0.0);
    cap_page_faults(&mut s, 0.01, 1e6);
    let faults =
        |s: &crate::results::analysis::Summary| s.causes.iter().find(|c| c.cause == Cause::PageFault).map(|c| c.max);
    assert_eq!(faults(&s), Some(1.0), "of a program that is a thousandth of all it may be all");
    let mut s = summary([(&a, 1.0), (&b, 1.0)], Certainty::AtLeast, 0.0);
    cap_page_faults(&mut s, 0.01, 1e3);
    let most = faults(&s).unwrap_or(f64::NAN);
    assert!((0.08..0.15).contains(&most), "{most}");
}

#[test]
fn a_call_through_a_pointer_that_went_to_one_place_is_foreseen() {
    // call *(%rax); add %rcx,%rdx; jmp
    let code = around(&[&[0xff, 0x10], &ADD]);
    let seen = |decided, rarer| {
        let mut case = Case::looped(&code);
        case.branch = Some(BranchSeen { taken: 1.0 - rarer / decided, decided, rarer });
        case.suspect(fetch::mispredict, 0, 2.0)
    };
    assert_eq!(Case::looped(&code).suspect(fetch::mispredict, 0, 2.0), Some(Likelihood::Usual), "not seen");
    assert_ne!(seen(1210.0, 0.0), Some(Likelihood::Usual));
    assert!(seen(1210.0, 0.0) != Some(Likelihood::Plain));
    assert_eq!(seen(1000.0, 700.0), Some(Likelihood::Plain), "many targets");
    assert_eq!(seen(40.0, 0.0), Some(Likelihood::Unseen));
}
