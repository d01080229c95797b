//! Events other than time, several at once, and processes in a world of their own, live.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{alone, need_root, record, workload};
use std::process::Command;

/// A shell that makes `pages` page faults more than a bare one, by writing to fresh memory.
fn faulting(pages: u64) -> [String; 3] {
    let program = format!("import mmap; m = mmap.mmap(-1, {pages} * 4096)\nfor i in range({pages}): m[i * 4096] = 1");
    ["python3".into(), "-c".into(), program]
}

fn events(run: &crate::support::Recording) -> Vec<(String, u64)> {
    let answer = run.prof(&["--all"]).0;
    let list = answer["provenance"]["events"].as_array().expect("events").clone();
    list.iter().map(|e| (e["name"].as_str().expect("name").into(), e["samples"].as_u64().expect("count"))).collect()
}

#[test]
fn page_faults_are_counted_one_by_one_beside_time() {
    need_root!();
    let _alone = alone();
    // A rate would hold for faults too.
    let few = record(&["-e", "cpu-clock,page-faults", "--budget", "20%"], &faulting(1));
    let many = record(&["-e", "cpu-clock,page-faults", "--budget", "20%"], &faulting(20_001));
    let (few, many) = (events(&few), events(&many));
    assert_eq!((few[0].0.as_str(), few[1].0.as_str()), ("cpu-clock", "page-faults"));
    let more = many[1].1 - few[1].1;
    // Huge pages are off for such a mapping, so each page is one fault; starting python varies a little.
    assert!((19_800..20_200).contains(&more), "20,000 pages gave {more} faults");
}

#[test]
fn events_that_take_turns_stand_for_all_of_their_time() {
    need_root!();
    let _alone = alone();
    // A steady stream of faults for two seconds; the program counts them itself.
    let program = "import mmap, resource, time\nend = time.time() + 2\n\
        while time.time() < end:\n  m = mmap.mmap(-1, 50 * 4096)\n  for i in range(50): m[i * 4096] = 1\n  m.close()\n\
        print('faults', resource.getrusage(resource.RUSAGE_SELF).ru_minflt)";
    let run = record(&["--mux", "page-faults,minor-faults", "--rate", "999"], &["python3", "-c", program]);
    let truth = run.truth().number("faults");
    let list = run.prof(&["--all"]).0["provenance"]["events"].as_array().unwrap().clone();
    assert_eq!(list.len(), 3, "time keeps a counter of its own: {list:?}");
    for event in &list[1..] {
        // Each was switched on for half of the time, in turns of some 10 ms.
        let weight = event["weight"].as_u64().unwrap() as f64;
        assert!((weight / truth - 1.0).abs() < 0.15, "{event} of {truth}");
        assert!((event["samples"].as_u64().unwrap() as f64) < 0.7 * truth, "{event} was on all the time");
    }
}

#[test]
fn events_without_a_rate_are_sampled_less_often_where_they_cost_too_much() {
    need_root!();
    let _alone = alone();
    let program = "import mmap, resource, time\nend = time.time() + 2\n\
        while time.time() < end:\n  m = mmap.mmap(-1, 500 * 4096)\n  for i in range(500): m[i * 4096] = 1\n  m.close()\n\
        print('faults', resource.getrusage(resource.RUSAGE_SELF).ru_minflt)";
    let run = record(&["-e", "cpu-clock,page-faults", "--budget", "0.3%"], &["python3", "-c", program]);
    let truth = run.truth().number("faults");
    let answer = run.prof(&["--all"]).0;
    let event = answer["provenance"]["events"][1].clone();
    let (samples, weight) = (event["samples"].as_u64().unwrap() as f64, event["weight"].as_u64().unwrap() as f64);
    assert!(samples < 0.6 * truth, "{samples} samples of {truth} faults: not thinned");
    assert!((weight / truth - 1.0).abs() < 0.03, "{weight} of {truth}");
    // A page fault's sample takes no interrupt: at 13 us each they would be more than the whole machine.
    let cost = answer["provenance"]["own_cost"].as_f64().unwrap();
    assert!(cost < 0.25, "{cost}");
    assert!(answer["provenance"]["notes"].to_string().contains("page-faults is sampled once every"), "{answer}");
}

#[test]
fn a_program_in_a_mount_namespace_of_its_own_keeps_its_names() {
    need_root!();
    let _alone = alone();
    let script =
        format!("mount -t tmpfs none /mnt && cp {} /mnt/inside && /mnt/inside 2", workload("shares").display());
    let apart = Command::new("unshare").args(["-m", "true"]).status();
    if !apart.is_ok_and(|s| s.success()) {
        println!("SKIP: mount namespaces are not allowed here");
        return;
    }
    let run = record(&[], &["unshare", "-m", "--propagation", "private", "sh", "-c", &script]);
    assert!(!std::path::Path::new("/mnt/inside").exists(), "the file exists in the namespace only");
    run.prof(&["--all"]).assert_shares(&run.truth(), str::to_owned, 2.0);
}

#[test]
fn a_command_says_for_how_long_others_are_sampled() {
    need_root!();
    let _alone = alone();
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let pid = busy.id().to_string();
    let command = ["python3", "-c", "import time\nend = time.time() + 1\nwhile time.time() < end: pass"];
    let whole = record(&["-a", "--rate", "999"], &command);
    let one = record(&["-p", &pid, "--rate", "999"], &command);
    busy.kill().unwrap();
    busy.wait().unwrap();
    let of = |run: &crate::support::Recording, name: &str| -> u64 {
        let rows = run.prof(&["--by", "process", "--all"]).rows();
        rows.iter().filter(|(labels, _)| labels[0].starts_with(name)).map(|(_, n)| n).sum()
    };
    // About a second of each, on 2 CPUs or more; a quarter of it on a loaded machine.
    assert!(
        of(&whole, "sh") > 250 && of(&whole, "python3") > 250,
        "{:?}",
        whole.prof(&["--by", "process", "--all"]).rows()
    );
    assert!(of(&one, "sh") > 250 && of(&one, "python3") == 0, "{:?}", one.prof(&["--by", "process", "--all"]).rows());
}

#[test]
fn a_recording_that_was_killed_says_so_until_its_first_part_is_stored() {
    need_root!();
    let _alone = alone();
    let (mut sampling, directory) = crate::support::start(&["-a", "--rate", "999"]);
    crate::support::send("KILL", sampling.id());
    sampling.wait().unwrap();
    let asked = crate::support::whither().arg("prof").arg(directory.path().join("run.wh")).output().unwrap();
    let said = crate::support::text(&asked.stderr);
    assert!(!asked.status.success() && said.contains("interrupted before its first part was stored"), "{said}");
}
