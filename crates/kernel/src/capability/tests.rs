//! One machine per test: what it can, what the verdict says, and that every "no" names a remedy or
//! there is none.

use super::fake::Fake;
use super::{Answer, Diagnosis, Linux, diagnose};

/// The findings that are not a plain yes, as `id=no` words.
fn lacking(d: &Diagnosis) -> Vec<String> {
    let short = |a: Answer| if a == Answer::No { "no" } else { "partly" };
    d.findings.iter().filter(|f| f.answer != Answer::Yes).map(|f| format!("{}={}", f.id, short(f.answer))).collect()
}

fn fix<'a>(d: &'a Diagnosis, id: &str) -> &'a str {
    &d.finding(id).expect("the finding exists").fix
}

#[test]
fn root_on_bare_metal_lacks_nothing() {
    let d = diagnose(&Fake::bare_metal_intel());
    assert_eq!(lacking(&d), Vec::<String>::new());
    assert_eq!(
        d.verdict,
        "whither record samples the whole system by hardware cycles, aggregated in the kernel by BPF"
    );
    assert_eq!(d.machine.kind, "bare metal");
    assert_eq!(d.machine.cpu, "Intel(R) Xeon(R) Gold 6338");
}

#[test]
fn a_virtual_machine_without_counters_says_so() {
    let d = diagnose(&Fake::vm_without_pmu());
    assert_eq!(lacking(&d), ["hardware-cycles=no", "precise=no", "branch-records=no"]);
    assert!(d.verdict.contains("cpu-clock timer, aggregated in the kernel"), "{}", d.verdict);
    assert!(fix(&d, "hardware-cycles").contains("virtual PMU"));
}

#[test]
fn counters_that_do_not_move_are_no_counters() {
    let d = diagnose(&Fake::vm_with_dead_counters());
    let finding = d.finding("hardware-cycles").expect("it is there");
    assert_eq!(finding.answer, Answer::No);
    assert!(finding.detail.contains("stays at 0"), "{}", finding.detail);
    assert!(d.verdict.contains("cpu-clock"), "{}", d.verdict);
}

#[test]
fn a_user_at_paranoid_2_samples_own_processes() {
    let d = diagnose(&Fake::unprivileged_paranoid_2());
    assert_eq!(
        d.verdict,
        "whither record samples only your own processes by the cpu-clock timer, without the kernel's part, through perf rings"
    );
    assert!(fix(&d, "whole-system").contains("setcap cap_perfmon=ep"), "{}", fix(&d, "whole-system"));
    assert!(fix(&d, "whole-system").contains("perf_event_paranoid=0 (now 2)"));
    assert!(fix(&d, "kernel-samples").contains("perf_event_paranoid=1 (now 2)"));
    assert!(fix(&d, "bpf").contains("cap_bpf,cap_perfmon=ep"));
    assert!(fix(&d, "kernel-symbols").contains("cap_syslog"));
}

#[test]
fn a_user_at_paranoid_4_samples_nothing() {
    let d = diagnose(&Fake::unprivileged_paranoid_4());
    assert!(d.verdict.contains("cannot sample here"), "{}", d.verdict);
    assert_eq!(d.findings[0].id, "own-process", "the verdict points at the first failed line");
    assert!(fix(&d, "own-process").contains("perf_event_paranoid=2 (now 4)"));
}

#[test]
fn lockdown_is_named_as_the_cause() {
    let d = diagnose(&Fake::locked_down());
    for id in ["whole-system", "bpf", "lockdown"] {
        assert!(fix(&d, id).contains("lockdown"), "{id}: {}", fix(&d, id));
    }
    assert!(d.verdict.contains("own processes"), "{}", d.verdict);
}

#[test]
fn a_container_is_told_its_own_flags() {
    let d = diagnose(&Fake::container_without_capabilities());
    assert_eq!(d.machine.kind, "virtual machine, in a container");
    assert!(fix(&d, "bpf").contains("--cap-add BPF --cap-add PERFMON"), "{}", fix(&d, "bpf"));
    assert!(fix(&d, "process-view").contains("--pid=host"));
    assert!(!fix(&d, "whole-system").contains("setcap"), "a file capability does not help in a container");
}

#[test]
fn rights_that_suffice_but_fail_point_at_seccomp() {
    let d =
        diagnose(&Fake::bare_metal_intel().file("/proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"));
    assert_eq!(d.finding("own-process").map(|f| f.answer), Some(Answer::Yes));
    let blank = diagnose(&Fake::blank().file("/proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"));
    assert!(fix(&blank, "own-process").contains("seccomp"), "{}", fix(&blank, "own-process"));
}

#[test]
fn a_machine_that_shows_nothing_gives_no_panic() {
    let d = diagnose(&Fake::blank());
    assert!(d.verdict.contains("cannot sample"), "{}", d.verdict);
    assert!(lacking(&d).len() > 10);
}

#[test]
fn every_no_tells_what_is_lost() {
    let machines = [
        Fake::vm_without_pmu(),
        Fake::unprivileged_paranoid_2(),
        Fake::unprivileged_paranoid_4(),
        Fake::locked_down(),
        Fake::container_without_capabilities(),
        Fake::blank(),
    ];
    for d in machines.iter().map(|m| diagnose(m)) {
        for f in d.findings.iter().filter(|f| f.answer != Answer::Yes) {
            assert!(!f.lost.is_empty(), "{} does not tell what is lost", f.id);
            assert!(!f.detail.is_empty(), "{} does not tell what was seen", f.id);
        }
    }
}

#[test]
fn ids_are_unique() {
    let d = diagnose(&Fake::bare_metal_intel());
    let mut ids: Vec<_> = d.findings.iter().map(|f| f.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), d.findings.len());
}

#[test]
fn the_running_kernel_answers_every_question() {
    let d = diagnose(&Linux::new(&|| Err("not tried in this test".into())));
    assert_eq!(d.finding("bpf").map(|f| f.detail.as_str()), Some("not tried in this test"));
    assert_eq!(d.findings.len(), diagnose(&Fake::blank()).findings.len());
    assert_eq!(d.machine.uid, super::effective_uid());
}
