//! Known answers (workloads/calls): call counts, paths, CPU and wall times, shares and marks are what the
//! program measured of itself. Bars by their numbers in the design.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::calls_live::{Probed, number, run};
use crate::support::{alone, need_root, text, workload};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// The `key value` lines of the program.
fn truth(run: &Probed) -> BTreeMap<String, f64> {
    let pair = |line: &str| line.split_once(' ').and_then(|(k, v)| Some((k.to_owned(), v.parse().ok()?)));
    run.stdout.lines().filter_map(pair).collect()
}

/// A run that must succeed, with every function it tells of counted right.
fn measured(args: &[&str], words: &[&str]) -> Probed {
    let run = run(args, words);
    assert_eq!(run.code, 0, "{words:?}:\n{}", run.stderr);
    assert!(run.document.is_object(), "no document:\n{}{}", run.stdout, run.stderr);
    for (name, told) in &run.told {
        if !run.functions(name).is_empty() {
            assert_eq!(run.calls(name), told.calls, "calls of {name}; lost {}", run.document["lost"]);
        }
    }
    run.assert_sums();
    run
}

fn near(what: &str, measured: f64, truth: f64, relative: f64, absolute: f64) {
    let apart = (measured - truth).abs();
    assert!(apart <= truth.abs() * relative + absolute, "{what}: {measured}, truth {truth}, {apart} apart");
}

#[test]
fn bar_11_counts_are_exact_with_two_threads() {
    need_root!();
    let _alone = alone();
    for words in
        [&["calls-callcost", "-t", "2", "-r", "2", "-n", "500000"][..], &["calls-callcost", "--random", "-n", "500000"]]
    {
        let run = measured(&["-f", "target"], words);
        assert_eq!(run.calls("target") as f64, truth(&run)["calls_target"]);
        let paths = run.paths("target").len();
        assert_eq!(paths, if words[1] == "--random" { 256 } else { 3 }, "{words:?}");
        for path in run.paths("target").iter().filter(|p| p["truncated"] == false) {
            let own = run.frames(path).iter().filter(|(module, _)| module == "calls-callcost").count();
            assert!(own >= 8, "a path of {own} frames of the program: {:?}", run.frames(path));
        }
    }
}

/// `even` ends in a jump to `odd_even`, which ends in one to `even`, and both in one to `tail_end`: neither is on a stack when these run.
#[test]
fn callers_that_ended_in_jumps_are_told() {
    need_root!();
    let run = measured(&["-f", "odd_even|even|tail_end"], &["nasty-entries"]);
    let tails = |run: &Probed, function: &str| -> Vec<String> {
        let frames = run.document["frames"].as_array().unwrap();
        let mut found = Vec::new();
        for path in run.paths(function) {
            let of_path = path["frames"].as_array().unwrap().iter().map(|f| &frames[number(f) as usize]);
            let tails = of_path.filter(|f| f["kind"] == "tail");
            found.extend(tails.map(|f| f["name"].as_str().unwrap().to_owned()));
        }
        found
    };
    for (function, callers) in [("odd_even", &["even [tail]"][..]), ("tail_end", &["even [tail]", "odd_even [tail]"])] {
        let found = tails(&run, function);
        assert!(
            !found.is_empty() && found.iter().all(|name| callers.contains(&name.as_str())),
            "{function}: {found:?}"
        );
    }
    assert_eq!(tails(&run, "even"), Vec::<String>::new(), "it is what is called");
    let straight = measured(&["-f", "target"], &["calls-callcost", "-n", "1000"]);
    assert_eq!(tails(&straight, "target"), Vec::<String>::new());
}

#[test]
fn bar_12_wall_time_per_call() {
    need_root!();
    let _alone = alone();
    let run = measured(&["-f", "span_.*"], &["calls-spans", "2"]);
    let truth = truth(&run);
    for name in ["span_20ns", "span_200ns", "span_5us", "span_200us", "span_20ms"] {
        let totals = &run.function(name)["totals"];
        let (cpu, wall, calls) = (number(&totals["cpu_ns"]), number(&totals["wall_ns"]), number(&totals["calls"]));
        // Of long calls the time of the very same slices is known, in which the probe is nothing.
        let of = if matches!(name, "span_20ns" | "span_200ns") { "ns" } else { "loop" };
        let truth = truth[&format!("{of}_{name}")];
        // Wide cores read their clock at the end before the work of the call is done: up to 20 ns on AMD's Zen 5, up to 40 on
        // an Intel Xeon (2026), by phases of minutes. The README says so.
        near(
            &format!("CPU per call of {name}"),
            cpu as f64 / calls as f64,
            truth,
            0.02,
            if of == "loop" { 60.0 } else { 45.0 },
        );
        // Nothing in there waits: wall is CPU, but for what others took, which the shortest call tells.
        // One too short for this clock is said to be below what it tells.
        let told = if totals["min_ns"].is_null() { &totals["min_below_ns"] } else { &totals["min_ns"] };
        let shortest = number(told) as f64;
        assert!(truth < 50.0 || totals["min_ns"].is_u64(), "{name}: {totals}");
        let short = truth < 1e6;
        // What the clock cannot tell is a bound: its steps and the probe's cost above the truth, never below it.
        let most = if totals["min_ns"].is_null() { 45.0 } else { 10.0 };
        assert!(!short || shortest <= truth * 1.02 + most, "{name}: {shortest} ns at best, truth {truth}");
        assert!(
            !totals["min_ns"].is_null() || shortest >= truth * 0.98,
            "{name}: said to be below {shortest} ns, truth {truth}"
        );
        assert!(wall >= cpu * 98 / 100, "{name}: {totals}");
    }
}

/// What the kernel's breakpoints cost is as long as a call of 5 us, and is not told as the call's.
#[test]
fn times_by_uprobes_are_rid_of_what_breakpoints_cost() {
    need_root!();
    let _alone = alone();
    let run = measured(&["--safe", "-f", "span_.*"], &["calls-spans", "1"]);
    let truth = truth(&run);
    let functions = run.document["functions"].as_array().unwrap();
    let calls: u64 = functions.iter().map(|f| number(&f["totals"]["calls"])).sum();
    let hit = number(&run.document["own_cost"]["kernel_ns"]) as f64 / (2 * calls) as f64;
    for name in ["span_5us", "span_200us", "span_20ms"] {
        let totals = &run.function(name)["totals"];
        let per_call = number(&totals["cpu_ns"]) as f64 / number(&totals["calls"]) as f64;
        near(
            &format!("CPU per call of {name}, hits of {hit} ns"),
            per_call,
            truth[&format!("ns_{name}")],
            0.1,
            hit / 2.0,
        );
    }
    let short = &run.function("span_20ns")["totals"];
    assert!(short["rough"] == true || short["wall_below_ns"].is_u64(), "{short}");
    assert!(number(&short["min_below_ns"]) as f64 <= 1.1 * hit, "{short}");
}

#[test]
fn bar_13_cpu_time_under_three_hogs() {
    need_root!();
    let _alone = alone();
    let run = measured(&["-f", "burn_.*", "-f", "nap"], &["calls-cputruth", "3", "3"]);
    let truth = truth(&run);
    for name in ["burn_10us", "burn_200us", "burn_5ms", "nap"] {
        let totals = &run.function(name)["totals"];
        let (cpu, wall) = (number(&totals["cpu_ns"]) as f64, number(&totals["wall_ns"]) as f64);
        let calls = truth[&format!("calls_{name}")];
        near(&format!("CPU of {name}"), cpu, truth[&format!("cpu_ns_{name}")], 0.01, 50.0 * calls);
        // What a hog takes between the program's reading of the clock and ours is not the call's.
        let truth = truth[&format!("wall_ns_{name}")];
        // But for long ones, at whose end we ask the kernel before we read the clock.
        let least = if name == "burn_5ms" { 0.97 } else { 0.7 };
        assert!(wall <= truth * 1.01 + 100.0 * calls && wall >= truth * least, "wall of {name}: {wall}, truth {truth}");
        // Short ones are preempted between calls, where the program asks the kernel for the time.
        assert!(name != "burn_5ms" || wall > 1.2 * cpu, "{name} was not contended: wall {wall}, CPU {cpu}");
    }
}

/// The paths a program prints of itself.
fn true_paths(program: &str, arguments: &[&str]) -> BTreeMap<String, u64> {
    let output = Command::new(workload(program)).args(arguments).output().unwrap();
    let line =
        |l: &str| l.strip_prefix("path ")?.split_once(' ').map(|(n, path)| (path.to_owned(), n.parse().unwrap()));
    let truth: BTreeMap<String, u64> = text(&output.stdout).lines().filter_map(line).collect();
    assert!(truth.len() > 400, "{program}: {} paths", truth.len());
    truth
}

/// Paths to `target` by name, of the frames that are to be looked at.
fn found_paths(run: &Probed, looked_at: &dyn Fn(&str, &str) -> bool) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for path in run.paths("target") {
        assert_eq!(path["truncated"], false, "truncated: {:?}", run.frames(path));
        let frames =
            run.frames(path).into_iter().filter(|(module, name)| looked_at(module, name.trim_end_matches(".cold")));
        // What gcc splits off a function for its rare parts is still that function.
        let name = |name: String| name.trim_end_matches(".cold").to_owned();
        let names: Vec<String> = frames.map(|(_, n)| name(n)).chain(["target".to_owned()]).collect();
        *all.entry(names.join(" > ")).or_default() += number(&path["calls"]);
    }
    all
}

fn compare(program: &str, truth: &BTreeMap<String, u64>, found: &BTreeMap<String, u64>) {
    let wrong: Vec<_> = found.iter().filter(|(path, n)| truth.get(*path) != Some(n)).take(3).collect();
    let missing: Vec<_> = truth.iter().filter(|(path, n)| found.get(*path) != Some(n)).take(3).collect();
    assert!(wrong.is_empty() && missing.is_empty(), "{program}: found {wrong:#?}, truth {missing:#?}");
}

#[allow(clippy::print_stdout, reason = "a skip must be seen")]
fn built(program: &str) -> bool {
    let there = workload(program).exists();
    if !there {
        println!("SKIP: {program} is not built: its compiler is not installed");
    }
    there
}

/// Every frame of the program itself is compared.
#[test]
fn bar_10_paths_are_the_true_ones() {
    need_root!();
    let _alone = alone();
    let truth = true_paths("calls-pathtruth-truth", &[]);
    for build in ["O0", "O1", "O2", "O3", "Os", "fp", "clangO2", "clangO3"] {
        let name = format!("calls-pathtruth-{build}");
        if built(&name) {
            let run = measured(&["-f", "target"], &[&name]);
            compare(&name, &truth, &found_paths(&run, &|module, frame| module == name && frame != "_start"));
        }
    }
}

/// C++ and Rust put frames of their libraries in between: only functions that the program names count.
#[test]
fn bar_10_paths_of_cpp_and_rust() {
    need_root!();
    let _alone = alone();
    for build in ["O1", "O2", "O3", "clang", "rust"] {
        let name = format!("calls-shapes-{build}");
        if built(&name) {
            let truth = true_paths(&name, &["truth"]);
            let named: std::collections::BTreeSet<&str> = truth.keys().flat_map(|path| path.split(" > ")).collect();
            let run = measured(&["-f", "target"], &[&name]);
            compare(&name, &truth, &found_paths(&run, &|_, frame| named.contains(frame)));
        }
    }
}

#[test]
fn bar_14_recursion_counts_once() {
    need_root!();
    let _alone = alone();
    let run = measured(&["-f", "descend", "-f", "tree", "-f", "bounce"], &["calls-recur", "20"]);
    let truth = truth(&run);
    let totals = &run.function("descend")["totals"];
    // Calls of all levels, times of the outermost: never more than the program saw around them.
    assert_eq!(number(&totals["calls"]) as f64, truth["calls_descend"]);
    let wall = number(&totals["wall_ns"]) as f64;
    assert!(wall <= truth["wall_ns_descend"] * 1.01, "{wall} ns in {} ns", truth["wall_ns_descend"]);
    let outer: u64 = run.paths("descend").iter().filter(|p| p["level"] == 0).map(|p| number(&p["calls"])).sum();
    assert_eq!(outer as f64, truth["outer_descend"], "outermost activations");
    // Three call sites in main.
    assert!(run.paths("descend").len() <= 3 * 66, "levels beyond 64 fold into one row");
    // Bar 9: what a call costs does not grow with depth. Beyond 1,024 calls in progress none is a quick one any more, as those at depth
    // 10 are.
    let (shallow, deep) = (truth["ns_shallow"], truth["ns_deep"]);
    assert!(deep < 3.0 * shallow + 150.0, "{deep} ns per call at depth 10 000, {shallow} at depth 10");
}

#[test]
fn bar_26_a_tree_of_500_processes() {
    need_root!();
    let _alone = alone();
    let run = measured(&["-f", "leafwork"], &["calls-forktree", "500"]);
    let told = &run.told["leafwork"];
    assert_eq!(told.calls, 500 * 100 + 499 * 500 / 2, "the program's own count");
    assert_eq!(run.calls("leafwork"), told.calls);
}

#[test]
fn children_that_are_not_followed_count_nothing() {
    need_root!();
    let _alone = alone();
    // Its four children, one of which is forked and executes nothing, call it as well; its own calls are 100.
    let run = run(&["-f", "leafwork", "--follow", "none"], &["calls-forktree", "5"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.told["leafwork"].calls, 5 * 100 + 1 + 2 + 3 + 4, "the program's own count");
    assert_eq!(run.calls("leafwork"), 100);
    assert!(run.document["lost"].as_object().unwrap().values().all(|n| number(n) == 0), "{}", run.document["lost"]);
}

#[test]
fn the_look_up_case() {
    need_root!();
    let _alone = alone();
    let functions = ["-f", "find_func_by_addr|triggered_in_stack_frame|catch_up|insert_instrumentation|resolve_calls"];
    let run = measured(&functions, &["calls-lookup", "hash", "1000"]);
    let truth = truth(&run);
    // The program's truth is about its requests: by shares of the whole execution its preparations would count too,
    // which a busy machine lengthens.
    let cpu = |name: &str| number(&run.function(name)["totals"]["cpu_ns"]) as f64;
    let share = |name: &str| 100.0 * cpu(name) / cpu("insert_instrumentation");
    near("share of catch_up", share("catch_up"), truth["share_catch_up"], 0.0, 4.0);
    near("share of find_func_by_addr", share("find_func_by_addr"), truth["share_find"], 0.0, 4.0);
    let whole = 100.0 * run.function("insert_instrumentation")["totals"]["share_exec"].as_f64().unwrap();
    assert!((80.0..=100.5).contains(&whole), "all requests are {whole} % of the execution");
    let all = run.calls("find_func_by_addr") as f64;
    let calls = |path: &&&Value| run.frames(path).last().is_some_and(|(_, name)| name == "triggered_in_stack_frame");
    let from: u64 = run.paths("find_func_by_addr").iter().filter(calls).map(|p| number(&p["calls"])).sum();
    near("calls from one caller, %", 100.0 * from as f64 / all, 81.0, 0.0, 1.0);
    let marked = run.document["marks"].as_array().unwrap().iter().any(|m| {
        m["kind"] == "one-caller" && m["caller"].as_str().is_some_and(|c| c.contains("triggered_in_stack_frame"))
    });
    assert!(marked, "marks: {}", run.document["marks"]);
    let fixed = measured(&functions, &["calls-lookup", "tree", "1000"]);
    let time = |run: &Probed| number(&run.function("find_func_by_addr")["totals"]["wall_ns"]);
    assert!(time(&fixed) * 4 < time(&run), "the tree takes {} ns, the hash {}", time(&fixed), time(&run));
}

#[test]
fn the_halo_case() {
    need_root!();
    let _alone = alone();
    // Long enough that the program can lose its processor a few times between its own clock and the probes'.
    let words = ["calls-halo", "original", "240"];
    let run = measured(&["-f", "MPI_Wait", "-f", "MPI_Allreduce", "-f", "ks_congrad"], &words);
    let truth = truth(&run);
    let wait = run.function("MPI_Wait");
    let names: Vec<&str> = wait["names"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    assert!(names.contains(&"PMPI_Wait"), "one address, two names: {names:?}");
    let paths = run.paths("MPI_Wait");
    assert_eq!(paths.len(), 16, "{paths:#?}");
    let solver = number(&run.function("ks_congrad")["totals"]["wall_ns"]) as f64;
    let part = |name: &str| 100.0 * number(&run.function(name)["totals"]["wall_ns"]) as f64 / solver;
    // The ranks share two CPUs with whatever else runs: what they wait is partly for a CPU.
    near("waiting, % of the solver", part("MPI_Wait"), truth["share_wait"], 0.05, 3.0);
    near("reducing, % of the solver", part("MPI_Allreduce"), truth["share_reduce"], 0.05, 3.0);
    let mut averages: Vec<f64> = paths.iter().map(|p| p["average_ns"].as_f64().unwrap()).collect();
    averages.sort_by(f64::total_cmp);
    let (second, first): (f64, f64) = (averages[..8].iter().sum(), averages[8..].iter().sum());
    // All second waits together last 0.1 s: one loss of the processor that only one of the clocks sees is a tenth.
    near("first wait over second", first / second, truth["first_over_second"], 0.35, 0.0);
}

#[test]
fn a_library_function_is_seen_from_every_caller() {
    need_root!();
    let _alone = alone();
    let run = measured(&["-f", "calls-target.so!target"], &["calls-callcost-lib", "-n", "300000", "-r", "1"]);
    assert_eq!(run.calls("target") as f64, truth(&run)["calls_target"]);
    assert!(run.function("target")["module"].as_str().unwrap().ends_with("calls-target.so"));
}

/// A summed argument: `y` of `target(x, y)` runs from 0 to 63 in every chunk.
#[test]
fn arguments_are_summed() {
    need_root!();
    let _alone = alone();
    let run = measured(&["-f", "target", "-m", "count,y=arg2"], &["calls-callcost", "-n", "192000", "-r", "1"]);
    let value = &run.function("target")["totals"]["values"]["y"];
    assert_eq!(value["sum"].as_i64(), Some(192_000 / 64 * (63 * 64 / 2)), "{value}");
}

#[test]
fn histograms_hold_every_call() {
    need_root!();
    let _alone = alone();
    let run = measured(&["-f", "span_.*", "-m", "count,wall,hist"], &["calls-spans", "1"]);
    for name in ["span_200ns", "span_200us"] {
        let totals = &run.function(name)["totals"];
        let bins: Vec<u64> = totals["hist"].as_array().unwrap().iter().map(number).collect();
        assert_eq!(bins.iter().sum::<u64>(), number(&totals["calls"]), "{name}: {bins:?}");
        // The shortest call lies in the first bin that holds any, the longest in the last: nothing is shared out.
        let held = |bin: Option<usize>| bin.map(|b| (1_u64 << b)..(2_u64 << b)).unwrap();
        let (min, max) = (number(&totals["min_ns"]), number(&totals["max_ns"]));
        let (first, last) = (bins.iter().position(|&n| n > 0), bins.iter().rposition(|&n| n > 0));
        assert!(held(first).contains(&min), "{name}: shortest {min} ns, {bins:?}");
        assert!(held(last).contains(&max), "{name}: longest {max} ns, {bins:?}");
        // A neighbour on the core may have lengthened the twin's slices more than those of the probed calls, or less:
        // the truth lies between what either took. A bin is a factor of two, so a wrong one still shows.
        let told = truth(&run);
        let (twin, own) = (told[&format!("ns_{name}")], told[&format!("loop_{name}")]);
        let (low, high) = (number(&totals["p50"]["low_ns"]) as f64, number(&totals["p50"]["high_ns"]) as f64);
        let fits = low <= twin.max(own) * 1.5 && high >= twin.min(own) * 0.9;
        assert!(fits, "{name}: median in [{low}, {high}], its twin took {twin}, its own slices {own} with the probe");
    }
}

#[test]
fn what_matches_nothing_is_said_with_the_nearest_names() {
    need_root!();
    let _alone = alone();
    let run = run(&["-f", "targte"], &["calls-callcost", "-n", "1000", "-r", "1"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("target"), "no suggestion:\n{}", run.stderr);
}
