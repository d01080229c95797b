//! Verdicts on programs with a known answer: shares of functions, threads, generated code and
//! short-lived processes. The truth is what each program printed of itself; tolerances are those of
//! its EXPECTED.md. No retries: the tolerances hold in every run, also on a busy machine.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::process::Command;

use crate::support::{alone, need_root, record, record_system, tolerance, workload};

#[test]
fn four_functions_have_their_printed_shares() {
    need_root!();
    let _alone = alone();
    let run = record(&[], &[workload("shares"), "2".into()]);
    let procs = run.prof(&["--by", "proc", "--all"]);
    procs.assert_shares(&run.truth(), str::to_owned, 2.0);
    let four: u64 = ["alpha", "beta", "gamma_", "delta"].iter().map(|n| procs.samples(n)).sum();
    assert!(four as f64 >= 0.97 * procs.total() as f64, "{four} of {}", procs.total());
    procs.assert_cpu_time(run.truth().number("cpu_s"));
}

#[test]
fn lockstep_does_not_fool_the_sampler() {
    need_root!();
    let _alone = alone();
    // 5,000 Hz is in step with the program's turns of 100 us; 4,999 Hz nearly so.
    for rate in ["5000", "4999"] {
        let run = record(&["--rate", rate], &[workload("phase"), "2".into()]);
        let share = run.prof(&["--all"]).shares_among(&["turn_a", "turn_b"])[0];
        assert!((share - 50.0).abs() <= 5.0, "at {rate} Hz turn_a has {share:.1} %, truth 50 %");
    }
}

#[test]
fn every_grouping_adds_up_to_the_total() {
    need_root!();
    let _alone = alone();
    let run = record_system(&["--threads"], &[workload("life"), "1".into()]);
    let total = run.prof(&[]).total();
    assert!(total > 1000, "{total} samples");
    for by in ["proc", "image", "line", "insn", "file", "process", "thread", "cgroup", "process,proc", "image,thread"] {
        for limit in [&["--all"][..], &["-n", "3"][..]] {
            let listing = run.prof(&[&["--by", by], limit].concat());
            assert_eq!(listing.sum(), total, "--by {by} {limit:?}");
            assert_eq!(listing.total(), total, "--by {by} {limit:?}");
        }
    }
}

#[test]
fn processes_of_a_few_milliseconds_are_known() {
    need_root!();
    let _alone = alone();
    let run = record_system(&[], &[workload("life"), "3".into()]);
    let procs = run.prof(&["--all"]);
    assert!(procs.unknown() < 0.0005, "{:.4} % unknown: {}", 100.0 * procs.unknown(), procs.0["provenance"]);
    let truth = run.truth();
    // Copies of one program, gone before anybody could read their symbols: they are known as images.
    let (gone, named): (Vec<_>, Vec<_>) = truth.shares().into_iter().partition(|(name, _)| name.starts_with("lone_"));
    let copies = procs.samples_where(|l| l[1].contains("short-lived") || l[1].contains("memfd:no-file"));
    let named: Vec<(u64, f64)> = named.into_iter().map(|(name, share)| (procs.samples(name), share)).collect();
    let total = copies + named.iter().map(|(n, _)| n).sum::<u64>();
    assert!(total > 2_000, "{total} samples: {:?}", procs.rows());
    for (samples, share) in named.iter().copied().chain([(copies, gone.iter().map(|(_, share)| share).sum())]) {
        let measured = 100.0 * samples as f64 / total as f64;
        let good = (measured - share).abs() <= tolerance(2.0, share, total);
        let mut largest = procs.rows();
        largest.truncate(20);
        assert!(good, "{measured:.2} %, truth {share:.2} %, {total} samples: {largest:?}");
    }
}

#[test]
fn a_program_whose_file_is_deleted_while_it_runs_keeps_its_names() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("vanishing");
    std::fs::copy(workload("shares"), &copy).unwrap();
    let script = format!("{0} 2 & sleep 0.5; rm {0}; wait", copy.display());
    let run = record(&[], &["sh", "-c", &script]);
    assert!(!copy.exists());
    run.prof(&["--all"]).assert_shares(&run.truth(), str::to_owned, 2.0);
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn libraries_that_take_turns_at_one_place_are_told_apart() {
    need_root!();
    let _alone = alone();
    let run = record(&[], &[workload("swap"), "2".into()]);
    if run.truth().get("same_place") != "1" {
        println!("SKIP: the loader put the libraries at different places");
        return;
    }
    run.prof(&["--all"]).assert_shares(&run.truth(), str::to_owned, 2.0);
}

#[test]
fn a_program_of_a_container_keeps_its_names() {
    need_root!();
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bin")).unwrap();
    let (source, program) = (
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/cycles/shares/shares.c"),
        root.path().join("bin/fresh"),
    );
    // A build of its own: names of one that was seen before are known from then.
    let id = format!("-Wl,--build-id=0x{:032x}", std::process::id());
    let made = Command::new("gcc").args(["-O2", "-static", &id, "-o"]).arg(&program).arg(source).status();
    let entered = Command::new("unshare").args(["-m", "true"]).status();
    if ![made, entered].into_iter().all(|done| done.is_ok_and(|status| status.success())) {
        println!("SKIP: no static C program or no mount namespace can be made");
        return;
    }
    let inside: Vec<&str> = vec!["unshare", "-m", "chroot", root.path().to_str().unwrap(), "/bin/fresh", "2"];
    let run = record(&[], &inside);
    run.prof(&["--all"]).assert_shares(&run.truth(), str::to_owned, 2.0);
}

#[test]
fn threads_that_have_ended_keep_name_and_share() {
    need_root!();
    let _alone = alone();
    let run = record(&["--threads"], &[workload("threads"), "2".into()]);
    let truth = run.truth();
    run.prof(&["--all"]).assert_shares(&truth, |name| format!("work_{name}"), 2.0);
    let threads = run.prof(&["--by", "thread,proc", "--all"]);
    let total = threads.samples_where(|l| l[1].starts_with("work_")) as f64;
    for (name, share) in truth.shares() {
        // One thread id has all samples of the function.
        let of = format!("work_{name}");
        let rows: Vec<_> = threads.rows().into_iter().filter(|(l, _)| l[1] == of).collect();
        assert_eq!(rows.len(), 1, "{of} ran in one thread: {rows:?}");
        assert!(rows[0].0[0].contains(&format!("thread {name} (")), "its name: {rows:?}");
        let off = (100.0 * rows[0].1 as f64 / total - share).abs();
        assert!(off <= tolerance(2.0, share, total as u64), "{rows:?} of {total}, truth {share} %");
        let only = run.prof(&["--thread", name, "--all"]);
        assert_eq!(only.samples(&of), rows[0].1, "{name} picked by name: {:?}", only.rows());
    }
}

#[test]
fn programs_that_are_removed_when_they_have_run_are_named() {
    need_root!();
    let _alone = alone();
    let here = tempfile::tempdir().unwrap();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do cp \"$0\" p$i; ./p$i 0.1 > /dev/null; rm p$i; done";
    let inside = format!("cd {} && {script}", here.path().display());
    let command: Vec<PathBuf> =
        ["sh", "-c", &inside].map(PathBuf::from).into_iter().chain([workload("shares")]).collect();
    let procs = record(&[], &command).prof(&["--all"]);
    let four: u64 = ["alpha", "beta", "gamma_", "delta"].iter().map(|n| procs.samples(n)).sum();
    let nameless = procs.samples_where(|labels| labels[0].starts_with('['));
    // Reading twice a second would name two or three of them.
    assert!(four as f64 > 0.8 * (four + nameless) as f64, "{four} named, {nameless} not: {:?}", procs.rows());
}

/// Starts one program after another under one process id, then tells what all of it took.
const ONE_PID: &str = "
import os, sys
first = None
for i in range(80):
    if first:
        open('/proc/sys/kernel/ns_last_pid', 'w').write(str(first - 1))
    pid = os.posix_spawn(sys.argv[1], [sys.argv[1], '0.02'], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, '/dev/null', 1, 0)])
    first = first or pid
    os.waitpid(pid, 0)
t = os.times()
print('cpu_seconds', t.user + t.system + t.children_user + t.children_system)
";

#[test]
fn a_target_whose_pid_is_used_again_at_once_stays_a_target() {
    need_root!();
    let _alone = alone();
    let run = record(&["--rate", "1999"], &["python3".into(), "-c".into(), ONE_PID.into(), workload("shares")]);
    let seen = run.prof(&["--all"]).0["provenance"]["events"][0]["weight"].as_u64().unwrap() as f64 / 1e9;
    let took = run.truth().number("cpu_seconds");
    // Half of it was missing; the first milliseconds of a process are within what clocks tell apart.
    assert!(seen > 0.9 * took, "{seen} s were seen of {took} s");
}

#[test]
fn generated_code_is_named_by_its_map() {
    need_root!();
    generated_code(&[workload("jit"), "2".into()]);
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn generated_code_of_a_container_that_has_ended_is_named_by_its_map() {
    need_root!();
    // By a descriptor, as what is mounted may hide the program.
    let inside = "exec 9< \"$0\" && mount -t tmpfs tmpfs /tmp && cd / && exec /proc/self/fd/9 1";
    let namespaces = ["unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c", inside];
    let command: Vec<PathBuf> = namespaces.iter().map(PathBuf::from).chain([workload("jit")]).collect();
    generated_code(&command);
}

#[test]
fn a_map_that_is_written_at_the_end_names_what_was_sampled_before() {
    need_root!();
    generated_code(&[workload("jit"), "2".into(), "late".into()]);
}

fn generated_code(command: &[PathBuf]) {
    let _alone = alone();
    let run = record(&[], command);
    let truth = run.truth();
    let procs = run.prof(&["--all"]);
    let _ = std::fs::remove_file(truth.get("map"));
    let total = procs.total() as f64;
    for (name, label) in [("jit_hot", "jit_hot"), ("jit_cold", "jit cold(int)")] {
        let (measured, share) = (100.0 * procs.samples(label) as f64 / total, truth.number(&format!("share_{name}")));
        let good = (measured - share).abs() <= tolerance(3.0, share, procs.total());
        assert!(good, "{label}: {measured:.2} %, truth {share} %: {:?}", procs.rows());
    }
}

#[test]
fn inlined_code_is_found_by_line_and_by_chain() {
    need_root!();
    let _alone = alone();
    let run = record(&[], &[workload("inline"), "2".into()]);
    let procs = run.prof(&["--all"]);
    procs.assert_shares(&run.truth(), |name| format!("demo::{name}(unsigned long)"), 2.0);
    let lines = run.prof(&["--by", "line", "--all"]);
    let hot = lines.samples_where(|l| l[0].contains("hot.hpp:"));
    assert!(hot as f64 >= 0.95 * lines.total() as f64, "{hot} of {}: {:?}", lines.total(), lines.rows());
    let chains = run.prof(&["--inlined", "--all"]);
    let hot = chains.samples_where(|l| l[0].contains("inlined_hot"));
    assert!(hot as f64 >= 0.95 * chains.total() as f64, "{hot} of {}: {:?}", chains.total(), chains.rows());
}

#[test]
fn a_storm_of_system_calls_shows_user_and_kernel() {
    need_root!();
    let _alone = alone();
    let run = record(&[], &[workload("irqoff"), "2".into()]);
    let (kernel, listing) = (run.prof(&["--kernel", "--all"]).total(), run.prof(&["--all"]));
    let truth = run.truth();
    listing.assert_cpu_time(truth.number("user_s") + truth.number("system_s"));
    let all = listing.total();
    let share = kernel as f64 / all as f64;
    assert!(share > 0.2 && share < 0.98, "{kernel} of {all} samples in the kernel");
}
