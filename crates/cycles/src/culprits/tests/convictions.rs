//! What is proved by there being nobody else.

use super::*;

fn proof(sure: f64) -> Proof {
    Proof { sure, beyond_models: false }
}

#[test]
fn least_and_most_of_each_suspect() {
    let ten = Stall { least: 10.0, most: 10.0 };
    let suspect = |cause, bound| Suspect { cause, bound, at: 0, likelihood: Likelihood::Usual };
    let judged = share_out(ten, proof(10.0), vec![suspect(Cause::DCache, 8.0), suspect(Cause::ICache, 3.0)]);
    let range: Vec<(f64, f64)> = judged.iter().map(|c| (c.min_cycles, c.max_cycles)).collect();
    assert_eq!(range, [(7.0, 8.0), (2.0, 3.0)]);
    // Six were taken by somebody unknown, who may have taken all.
    let judged = share_out(ten, proof(10.0), vec![suspect(Cause::DCache, 4.0)]);
    assert_eq!((judged[0].min_cycles, judged[0].max_cycles), (0.0, 4.0));
    let judged =
        share_out(ten, proof(10.0), vec![Suspect { likelihood: Likelihood::Plain, ..suspect(Cause::Unit, 4.0) }]);
    assert_eq!(judged[0].min_cycles, 4.0, "but for what the code shows outright");
}

#[test]
fn a_residue_within_what_clocks_and_models_are_off_condemns_nobody() {
    let sure = |least: f64, cycles: f64| Stall { least, most: least }.sure(cycles);
    assert_eq!(sure(0.7, 4.7), 0.0);
    assert!((sure(10.0, 12.0) - 8.2).abs() < 1e-9);
    // x *= y takes its 4 cycles, and a little.
    let suspects = vec![Suspect { cause: Cause::Assist, bound: 200.0, at: 0, likelihood: Likelihood::Faint }];
    let judged = share_out(Stall { least: 0.7, most: 0.7 }, proof(sure(0.7, 4.7)), suspects);
    assert_eq!((judged[0].min_cycles, judged[0].max_cycles), (0.0, 0.7));
}

#[test]
fn the_far_fetched_is_proved_by_what_no_model_misses_only() {
    let add = Case::looped(&around(&[&[0xf2, 0x0f, 0x58, 0xc1]])); // addsd
    let least = |stall: f64| {
        let judged = add.judge(0, stall);
        assert_eq!(judged.culprits[0].cause, Cause::Assist);
        judged.culprits[0].min_cycles
    };
    assert_eq!(least(12.0), 0.0, "twelve cycles may be anything");
    assert!(least(150.0) > 120.0, "150 are an assist");
}

#[test]
fn a_branch_that_was_never_seen_to_go_the_other_way_is_not_convicted() {
    // 0: ucomisd %xmm0,%xmm1; ja out   1: sqrtsd %xmm0,%xmm0; jmp 0
    let code = [0x66, 0x0f, 0x2e, 0xc8, 0x77, 0x06, 0xf2, 0x0f, 0x51, 0xc0, 0xeb, 0xf4];
    let flows = vec![way(9, 0, 1.0), way(0, 1, 1000.0), way(1, 0, 999.0), way(0, 9, 1.0)];
    let case = |taken: f64| {
        Case::of(effects(&decode(&code, Svma(0x1000))), vec![0..2, 2..4], flows.clone()).decided(taken, 132.0)
    };
    let guess = |case: Case, stall: f64| {
        case.judge(1, stall).culprits.into_iter().find(|c| c.cause == Cause::Mispredict).map(|c| c.min_cycles)
    };
    assert!(guess(case(0.0002), 2.6).is_none_or(|min| min == 0.0));
    assert!(guess(case(0.0002), 0.5).is_none_or(|min| min == 0.0));
    assert!(guess(case(0.4), 8.0).is_some_and(|min| min > 6.0), "and one that was is");
}

#[test]
fn multipliers_are_not_busy_with_one_multiplication() {
    let multiply = [0x48, 0x0f, 0xaf, 0xc1]; // imul %rcx,%rax
    let guilty = |body: &[&[u8]], cycles: f64| {
        let case = Case::looped(&around(body));
        let mut stalls = vec![0.0; case.insns.len()];
        stalls[0] = cycles;
        case.judge_all(&stalls)[0].culprits.iter().any(|c| c.cause == Cause::Unit)
    };
    assert!(!guilty(&[&multiply, &ADD], 4.5), "it waits for itself");
    // imul $7,%rax and three others
    let four: [&[u8]; 4] =
        [&[0x48, 0x6b, 0xc0, 7], &[0x48, 0x6b, 0xf6, 7], &[0x48, 0x6b, 0xc9, 7], &[0x48, 0x6b, 0xd2, 7]];
    assert!(!guilty(&four, 4.8), "one per cycle is the best case");
    assert!(guilty(&four, 8.3), "a slow one needs two cycles for each");
    assert!(!guilty(&four, 20.0), "no multiplier does");
    let straight = Case::straight(0x1000, &[&multiply[..], &ADD, &multiply, &[0x90]].concat());
    assert!(straight.causes(0, 3.0).contains(&Cause::Unit));
}

/// Of 11 samples four more than the even share are chance, of 400 so many more are a stall.
#[test]
fn what_chance_explains_is_no_stall_of_one_instruction() {
    let mut case = Case::straight(0x1000, &[0x90; 100]);
    let judged = |case: &Case| {
        let (mut stalls, mut cycles) = (vec![0.0; 100], vec![1.0; 100]);
        (stalls[63], cycles[63]) = (0.6, 1.7);
        case.seen(&stalls, |scene| judge(&Scene { cycles: &cycles, ..*scene }).swap_remove(63))
    };
    case.samples = 400.0;
    assert_eq!(judged(&case).culprits.first().map(|c| c.cause), Some(Cause::ICache));
    case.samples = 11.0;
    let few = judged(&case);
    assert!(few.culprits.is_empty() && few.unjudged, "{few:?}");
    assert_eq!(few.in_sums.first().map(|s| s.0), Some(Cause::ICache), "over thousands it adds up: {few:?}");
}

/// 0: cmpb $0,(%rdi); jl 2   1: xor %ecx,%edx; jmp 0   2: add %rcx,%rdx; inc %rcx; jmp 0. The branch is taken in so large a part.
fn seldom(taken: f64, decided: f64) -> Case {
    let code = [0x80, 0x3f, 0x00, 0x7c, 0x04, 0x31, 0xca, 0xeb, 0xf7, 0x48, 0x01, 0xca, 0x48, 0xff, 0xc1, 0xeb, 0xef];
    let (often, n) = (1e6 * (1.0 - taken), 1e6 * taken);
    let flows = vec![way(9, 0, 1.0), way(0, 1, often), way(0, 2, n), way(1, 0, often), way(2, 0, n)];
    Case::of(effects(&decode(&code, Svma(0x1000))), vec![0..2, 2..4, 4..7], flows).decided(taken, decided)
}

#[test]
fn where_a_branch_seldom_goes_each_arrival_may_be_guessed_wrongly() {
    let guess = |case: &Case, i: usize| {
        case.judge(i, 15.0).culprits.into_iter().find(|c| c.cause == Cause::Mispredict).map_or(0.0, |c| c.max_cycles)
    };
    for taken in [0.05, 0.02, 0.008, 0.001] {
        let case = seldom(taken, 5000.0);
        assert_eq!(guess(&case, 4), 15.0, "{taken}: where it is taken to");
        assert_eq!(case.judge(4, 15.0).unexplained, 0.0);
        assert!(guess(&case, 2) < 0.1 * 20.0, "{taken}: not so where it usually goes on, {}", guess(&case, 2));
        assert!(guess(&case, 1) < 0.1 * 20.0, "{taken}: nor at all of its executions");
    }
    assert_eq!(guess(&seldom(0.001, 5000.0), 2), 0.0, "foreseen as good as always");
    // In a round of two cycles 0.8 % are a tenth of the time, if each costs twenty.
    let short = seldom(0.008, 5000.0).judge(2, 2.0);
    let most = |c: &Culprit| c.cause == Cause::Mispredict && (0.16..0.4).contains(&c.max_cycles);
    assert!(short.culprits.iter().any(most), "{short:?}");
    // What nobody can have taken is unexplained, of all that is told as the stall.
    let case = seldom(0.02, 5000.0);
    let (mut told, mut sure) = (vec![0.0; case.insns.len()], vec![0.0; case.insns.len()]);
    (told[4], sure[4]) = (60.0, 20.0);
    let judged = case.seen(&sure, |scene| {
        let scene = Scene { cycles: &told, told: &told, certainty: Certainty::AtLeast, ..*scene };
        judge(&scene).swap_remove(4)
    });
    let all = judged.culprits.iter().map(|c| c.max_cycles).sum::<f64>() + judged.unlikely + judged.unexplained;
    assert!(all >= 60.0 - 1e-9 && judged.unexplained > 10.0, "{judged:?}");
}

#[test]
fn a_branch_never_seen_to_go_the_other_way_has_no_least() {
    let code = [0x66, 0x0f, 0x2e, 0xc8, 0x77, 0x06, 0xf2, 0x0f, 0x51, 0xc0, 0xeb, 0xf4];
    let flows = vec![way(9, 0, 1.0), way(0, 1, 1000.0), way(1, 0, 999.0), way(0, 9, 1.0)];
    let guess = |decided: f64, rarer: f64| {
        let mut case = Case::of(effects(&decode(&code, Svma(0x1000))), vec![0..2, 2..4], flows.clone());
        case.branch = Some(BranchSeen { taken: 0.0012, decided, rarer });
        case.judge(1, 2.7).culprits.into_iter().find(|c| c.cause == Cause::Mispredict).map(|c| c.min_cycles)
    };
    for decided in [1.0, 24.0, 132.0] {
        assert!(guess(decided, 0.0).is_none_or(|least| least == 0.0), "{decided}: {:?}", guess(decided, 0.0));
    }
    assert_eq!(guess(24.0, 0.0), Some(0.0), "too little to pass it over");
    assert_eq!(guess(300.0, 0.0), None, "seen often enough to be ruled out");
    assert!(guess(24.0, 1.0).is_some_and(|least| least > 1.0), "and one that was seen to: nobody else is there");
}
