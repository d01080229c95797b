//! Programs that are hard to instrument (workloads/nasty): each does exactly what it does unprobed, and
//! every call it says it made is counted, or its loss or refusal is admitted. The table of what is nasty
//! about which stands in workloads/nasty/README.md.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::calls_live::{plain, probed, run};
use crate::support::{alone, need_root, workload};

/// One test per program: name, command, extra arguments for whither.
macro_rules! nasty {
    ($($name:ident: $words:expr $(, $args:expr)?;)*) => { $(
        #[test]
        fn $name() {
            need_root!();
            let words: &[&str] = &$words;
            if !workload(words[0]).exists() {
                println!("SKIP: {} is not built: its compiler is not installed", words[0]);
                return;
            }
            let _alone = alone();
            #[allow(unused_mut, unused_assignments)]
            let mut args: &[&str] = &[];
            $(args = &$args;)?
            probed(args, words).assert_told();
        }
    )* };
}

nasty! {
    n01_exceptions: ["nasty-throw"];
    n01_exceptions_static: ["nasty-throw-static"];
    n01_exceptions_static_uprobes: ["nasty-throw-static"], ["--safe"];
    n02_panics: ["nasty-panic"];
    n03_longjmp: ["nasty-jump"];
    n03_longjmp_static: ["nasty-jump-static"];
    n03_longjmp_musl: ["nasty-jump-musl"];
    n04_threads_ending_inside: ["nasty-threadend"];
    n04_threads_ending_inside_static: ["nasty-threadend-static"];
    n05_signals_at_3_khz: ["calls-signals", "1"];
    n05_alternate_stack: ["nasty-altstack"];
    n06_coroutines: ["nasty-coroutine", "local"];
    n07_coroutines_across_threads: ["nasty-coroutine", "threads"];
    n08_fork_storm: ["nasty-family", "fork"];
    n08_vfork: ["nasty-family", "vfork"];
    n08_posix_spawn: ["nasty-family", "spawn"];
    n08_clone_vm: ["nasty-family", "clone"];
    n09_thread_churn: ["nasty-churn"];
    n10_dlclose: ["nasty-reload"];
    n11_to_16_odd_entries: ["nasty-entries"];
    n17_deep_recursion: ["nasty-deep"];
    n18_arguments: ["nasty-args"];
    n18_arguments_entry_only: ["nasty-args"], ["--entry-only"];
    n18_arguments_all_metrics: ["nasty-args"], ["-m", "count,wall,cpu,hist,faults"];
    n18_arguments_o0: ["nasty-args-O0"];
    n18_arguments_os: ["nasty-args-Os"];
    n18_arguments_frame_pointers: ["nasty-args-fp"];
    n20_odd_frames: ["nasty-frames"];
    n21_exit_inside: ["nasty-noreturn", "exit"];
    n21_abort_inside: ["nasty-noreturn", "abort"];
    n21_exec_inside: ["nasty-noreturn", "exec"];
    n21_quick_exit_inside: ["nasty-noreturn", "quick"];
    n21_killed_inside: ["nasty-noreturn", "kill"];
    n22_libc_itself: ["nasty-libc"];
    n23_ifunc: ["nasty-ifunc"];
    n24_static_glibc: ["nasty-args-static"];
    n24_static_musl: ["nasty-args-musl"];
    n25_stripped: ["nasty-args-stripped"];
    n26_fixed_address: ["nasty-args-nopie"];
    n28_seccomp_filter: ["nasty-seccomp", "filter"];
    n30_not_dumpable: ["nasty-shut", "dump"];
    n33_no_new_code: ["nasty-shut", "mdwe"];
    n31_go: ["nasty-go"], ["-f", r"runtime\.goexit.*"];
    n36_job_control: ["nasty-stops"];
    n39_address_sanitizer: ["nasty-args-asan"];
    n39_thread_sanitizer: ["nasty-args-tsan"];
    n41_stacks_below_16_tib: ["nasty-coroutine-nopie", "brk"];
    n45_return_twice: ["nasty-twice"];
    n49_restartable_sequences: ["nasty-percpu"];
    n51_traps_and_vectors_at_entries: ["nasty-traps"];
    n56_the_first_thread_ends: ["nasty-survivor"];
    n57_neighbours_of_coroutines_unmapped: ["nasty-unmapped", "coroutines"];
    n57_stacks_used_to_their_ends: ["nasty-unmapped", "ends"];
    n57_blocks_above_threads_unmapped: ["nasty-unmapped", "threads"];
    n58_stacks_copied_by_the_program_itself: ["nasty-copied"];
    n59_own_thread_pointers: ["nasty-ownfs"];
    n60_a_full_stack_caught_by_the_program: ["nasty-overflow"];
    n52_traps_and_vectors_under_uprobes: ["nasty-traps"], ["--safe"];
}

/// A handler that walks the stack while its thread is inside a stub finds no unwind rules there: such walks
/// are cut short. That is a few in a thousand, and nothing else may change.
#[test]
fn n44_backtraces_inside() {
    need_root!();
    let _alone = alone();
    let names = plain(&["nasty-backtraces"]).told.into_keys().flat_map(|name| ["-f".to_owned(), name]);
    let names: Vec<String> = names.collect();
    let run = run(&names.iter().map(String::as_str).collect::<Vec<_>>(), &["nasty-backtraces"]);
    let broken = run.stdout.strip_prefix("wrong 0, broken ").and_then(|n| n.trim().parse::<u32>().ok());
    assert!(broken.is_some_and(|n| n <= 20), "{}", run.stdout);
}

#[test]
fn n05_signals_lose_at_most_one_call_in_10_000() {
    need_root!();
    let _alone = alone();
    let run = probed(&[], &["calls-signals", "1"]);
    let truth: u64 = run.told.values().map(|t| t.calls).sum();
    let counted: u64 = run.told.keys().map(|name| run.calls(name)).sum();
    assert_eq!(counted + run.lost("busy"), truth, "counted + lost = truth; {}", run.document["lost"]);
    assert!(run.lost("busy") * 10_000 <= truth, "{} of {truth} lost", run.lost("busy"));
}

#[test]
fn n27_a_checksum_of_its_own_text() {
    need_root!();
    let _alone = alone();
    let changed = |args: &[&str]| {
        let run = probed(args, &["nasty-checksum"]);
        run.assert_told();
        run.told["#text_changed"].calls
    };
    assert_eq!(changed(&[]), 0, "the sums differ among themselves while probes stay in place");
}

/// Strict mode lets a thread only read, write and exit: no probe may cost a system call.
#[test]
fn n28_seccomp_strict() {
    need_root!();
    let _alone = alone();
    for metrics in ["count", "count,wall", "count,wall,cpu"] {
        probed(&["-m", metrics], &["nasty-seccomp", "strict"]).assert_told();
    }
}

/// A runtime whose machine code has no unwind information: the frames below it are marked as missing.
#[test]
fn n32_generated_code() {
    need_root!();
    let _alone = alone();
    let Some(node) = ["/usr/bin/node", "/usr/local/bin/node"].into_iter().find(|p| std::path::Path::new(p).exists())
    else {
        println!("SKIP: node is not installed");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/nasty/jit.js");
    probed(&[], &[node, script]).assert_told();
}

/// Nothing fits in there: it is measured or refused, in words; the program runs or was never begun.
#[test]
fn n34_limits() {
    need_root!();
    let _alone = alone();
    for mode in ["memory", "files"] {
        let words = ["nasty-shut", mode];
        let plain = plain(&words);
        let run = run(&["-f", "inside"], &words);
        if run.code == 3 {
            assert!(run.stdout.is_empty(), "refused, but it ran: {}", run.stdout);
            assert!(run.stderr.contains("whither: "), "{mode}: {}", run.stderr);
        } else {
            run.assert_unharmed(&plain, &words);
            let counted = run.calls("inside");
            assert!(counted == run.told["inside"].calls || !run.stderr.is_empty(), "{counted} calls, and no word");
        }
    }
}
