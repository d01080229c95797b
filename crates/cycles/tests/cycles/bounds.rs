//! Bounds of executions against programs whose executions and times were measured (AMD family 25 model 17): what goes on beside something
//! else must not be counted as time of its own.

use crate::world::World;
use whither_cycles::analysis::{AnalyseQuery, analyse};
use whither_cycles::results::analysis::{Analysis, Cause, Scale};
use whither_image::ImageOffset;
use whither_store::CoreFacts;
use whither_store::model::{EdgeSample, EdgeSource, ImageKind, Way};

const CLOCK: f64 = 3.69e9;
/// Cycles of a sample.
const SAMPLE: f64 = CLOCK / 1e3;

/// One procedure `f` at 0x1000 and what it calls at 0x2000, sampled at these offsets; ways that its branches were seen to go.
fn analysed(code: &[u8], samples: &[(u64, u32)], called: u32, ways: &[(u64, Way, u32)]) -> Analysis {
    let mut w = World::new("cpu-clock");
    w.profile.epochs[0].core = Some(CoreFacts {
        cpu: "AMD EPYC family 25 model 17 stepping 1".into(),
        method: 5,
        clock_hz: Some(CLOCK),
        div32: Some(9.0),
        div64: Some(9.0),
        div_every: Some(6.0),
        width: Some(5.95),
        taken: Some(0.98),
        alus: Some(3.92),
        latencies: [("cpuid".to_owned(), 3255.0)].into(),
        ..CoreFacts::default()
    });
    let image = w.image(ImageKind::Elf, "/usr/bin/a");
    let p = w.process(7, "a", "");
    w.function(image, 0x1000, code.len() as u64, "f");
    w.function(image, 0x2000, 16, "g");
    let mut all = code.to_vec();
    all.resize(0x1000, 0x90);
    all.extend([0xc3; 16]);
    w.readable_code(image, 0x1000, &all);
    for (at, count) in samples {
        w.sample(image, p, 0x1000 + at, *count);
    }
    w.sample(image, p, 0x2004, called);
    for (branch, way, count) in ways {
        let branch = ImageOffset(0x1000 + branch);
        let source = EdgeSource::Registers;
        w.profile.edges.push(EdgeSample { image, pc: branch, branch, way: *way, source, count: *count });
    }
    w.profile.samples.sort();
    analyse(&w.profile, &w.symbols, "f", &AnalyseQuery::default()).unwrap()
}

/// Executions of the block that takes most time.
fn hottest(a: &Analysis) -> f64 {
    assert_eq!(a.scale, Scale::Bounded, "{:?}", a.notes);
    a.blocks.iter().max_by(|x, y| x.samples.total_cmp(&y.samples)).unwrap().frequency.value
}

/// A round takes 7.07 cycles, of which the callee is waited for most of the time: 178 samples stand in the loop, 846 in the callee.
#[test]
fn what_a_call_hides_is_no_time_of_its_callers() {
    // mov 0x606889(%rip),%rax; mov %rbx,%rdi; and %rbx,%rax; add $1,%rbx; movzbl (%r13,%rax),%eax; and $15,%eax; call *(%r14,%rax,8);
    // add %rax,%rbp; cmp %rbx,%r12; jne 0; ret
    let code = [
        0x48, 0x8b, 0x05, 0x89, 0x68, 0x60, 0x00, 0x48, 0x89, 0xdf, 0x48, 0x21, 0xd8, 0x48, 0x83, 0xc3, 0x01, 0x41,
        0x0f, 0xb6, 0x44, 0x05, 0x00, 0x83, 0xe0, 0x0f, 0x41, 0xff, 0x14, 0xc6, 0x48, 0x01, 0xc5, 0x49, 0x39, 0xdc,
        0x75, 0xda, 0xc3,
    ];
    let samples = [(0x7, 1), (0xd, 166), (0x17, 4), (0x1a, 4), (0x21, 3)];
    let ways = [(0x1a, Way::To(ImageOffset(0x2000)), 1210), (0x24, Way::Taken, 1210), (0x24, Way::Fall, 1)];
    let a = analysed(&code, &samples, 846, &ways);
    let truth = 1024.0 * SAMPLE / 7.07;
    let told = hottest(&a);
    assert!(told >= truth, "{told:.3e} for {truth:.3e}");
    assert!(told <= 8.0 * truth, "it bounds something: {told:.3e} for {truth:.3e}");
    // At best cases there would be room for fewer than there were: calls hide some. It is no bound, and told as none.
    let at_best = a.at_best.expect("the bound is loose");
    let best: f64 = a.blocks.iter().map(|b| b.best_cycles * b.frequency.value).sum();
    assert!((at_best * best / (178.0 * SAMPLE) - 1.0).abs() < 0.02, "{at_best} of {best:.3e} cycles");
    assert!((0.3..1.0).contains(&(at_best * told / truth)), "{:.3e} for {truth:.3e}", at_best * told);
    let guessed = |c: &&whither_cycles::results::analysis::Culprit| {
        c.cause == Cause::Mispredict && c.at.is_some_and(|at| a.insns[at].address == 0x101a)
    };
    assert_eq!(a.insns.iter().flat_map(|i| &i.culprits).find(guessed), None, "one target of 1,210");
}

/// Euclid's algorithm on 19 rounds a call, call after call: 6.02 cycles a round, though a division has a latency of nine.
#[test]
fn chains_that_begin_anew_pass_beside_each_other() {
    // mov %edi,%eax; mov %esi,%edx; test %esi,%esi; je 0x20; nopl 0(%rax,%rax); 0x10: mov %edx,%ecx; xor %edx,%edx; div %ecx; mov %ecx,%eax;
    // test %edx,%edx; jne 0x10; mov %ecx,%eax; ret; nop; 0x20: mov %edi,%ecx; mov %ecx,%eax; ret
    let code = [
        0x89, 0xf8, 0x89, 0xf2, 0x85, 0xf6, 0x74, 0x18, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x89, 0xd1,
        0x31, 0xd2, 0xf7, 0xf1, 0x89, 0xc8, 0x85, 0xd2, 0x75, 0xf4, 0x89, 0xc8, 0xc3, 0x90, 0x89, 0xf9, 0x89, 0xc8,
        0xc3,
    ];
    let samples = [(0x4, 13), (0x12, 19), (0x14, 10_363), (0x18, 2_465), (0x1a, 12), (0x1e, 165)];
    let ways = [(0x6, Way::Fall, 3032), (0x1a, Way::Taken, 56_095), (0x1a, Way::Fall, 3132)];
    let a = analysed(&code, &samples, 1, &ways);
    let truth = 13_038.0 * SAMPLE / 6.02;
    let told = hottest(&a);
    assert!(told >= truth, "{told:.3e} for {truth:.3e}");
    assert!(told <= 1.5 * truth, "the divider bounds it: {told:.3e} for {truth:.3e}");
    // The division is what is waited for, and has its row.
    let division = a.insns.iter().find(|i| i.address == 0x1014).unwrap();
    assert!(division.samples > 10_000.0 && division.culprits[0].cause == Cause::Unit, "{division:?}");
    let unit = a.summary.causes.iter().find(|c| c.cause == Cause::Unit).unwrap();
    assert!(unit.max > 0.75, "{unit:?}");
}

/// A hypervisor does it: 3,300 cycles a round, measured, and nothing goes on meanwhile.
#[test]
fn what_serialises_bounds_by_what_it_takes() {
    // xor %eax,%eax; cpuid; dec %esi; jne 0; ret
    let code = [0x31, 0xc0, 0x0f, 0xa2, 0xff, 0xce, 0x75, 0xf8, 0xc3];
    let a = analysed(&code, &[(0x4, 1000)], 1, &[(0x6, Way::Taken, 3000), (0x6, Way::Fall, 1)]);
    let (truth, told) = (1000.0 * SAMPLE / 3300.0, hottest(&a));
    assert!(told >= truth, "{told:.3e} for {truth:.3e}");
    assert!(told <= 1.8 * truth, "it bounds something: {told:.3e} for {truth:.3e}");
}

#[test]
fn what_time_does_not_bound_is_said_to_have_none() {
    let told = |code: &[u8], samples: u32| {
        let a = analysed(code, &[(0x7, samples)], 10, &[(0x9, Way::Taken, 3000), (0x9, Way::Fall, 1)]);
        (a.scale, a.notes.join("\n"))
    };
    // mov $512,%ecx; rep movsb; dec %edx; jne 0; ret
    let repeated = told(&[0xb9, 0, 2, 0, 0, 0xf3, 0xa4, 0xff, 0xca, 0x75, 0xf5, 0xc3], 1000);
    assert!(repeated.0 == Scale::Relative && repeated.1.contains("no bound: 100 % of the time"), "{repeated:?}");
    // mov $110,%eax; syscall; dec %edx; jne 0; ret
    let calls = told(&[0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xff, 0xca, 0x75, 0xf5, 0xc3], 1000);
    assert!(calls.0 == Scale::Relative && calls.1.contains("the kernel does most"), "{calls:?}");
    // mov $512,%ecx; add %ecx,%eax; dec %edx; jne 0; ret
    let quick = told(&[0xb9, 0, 2, 0, 0, 0x01, 0xc8, 0xff, 0xca, 0x75, 0xf5, 0xc3], 1000);
    assert!(quick.0 == Scale::Bounded && !quick.1.contains("no bound"), "{quick:?}");
}
