//! Call paths from a hand-made snapshot to text, JSON, HTML and folded stacks, against the recorded ones
//! (`cargo insta review` after a wanted change).

#![allow(clippy::unwrap_used)] // helpers of tests, outside #[test] functions

use whither_calls::{
    Analysis, CallProfile, Group, ListQuery, Metric, Names, Options, Sort, TreeQuery, compare, difference,
};
use whither_report::html::{CallsPage, calls_page};
use whither_report::text::{self, Layout};
use whither_report::{exports, json};
use whither_store::calls::*;

const NONE: u32 = u32::MAX;

/// A solver: `ks_congrad` waits at two sites of `wait_gather`, the first 20 times as long as the second,
/// and reduces; `MPI_Wait` calls `poll` inside, which is measured too.
fn snapshot() -> CallSnapshot {
    let frame = |kind, module, offset, caller| CallFrame { kind, module, offset, caller, by_frame_pointer: false };
    let at = |offset, caller| frame(FrameKind::Caller, 0, offset, caller);
    let frames = vec![
        frame(FrameKind::Caller, 1, 0x2724a, NONE),           // 0 libc, below main
        at(0x1010, 0),                                        // 1 main
        at(0x2020, 1),                                        // 2 update
        at(0x34c1, 2),                                        // 3 ks_congrad, first exchange
        at(0x3510, 2),                                        // 4 ks_congrad, second exchange
        at(0x4033, 3),                                        // 5 wait_gather, send, in the first
        at(0x4058, 3),                                        // 6 wait_gather, receive
        at(0x4033, 4),                                        // 7
        at(0x4058, 4),                                        // 8
        at(0x3600, 2),                                        // 9 ks_congrad, reduction
        frame(FrameKind::Caller, 1, 0x80010, NONE),           // 10 in MPI_Wait: the path goes on with the call around
        frame(FrameKind::Truncated, NONE, 0, NONE),           // 11
        frame(FrameKind::Caller, NONE, 0x7f00_0000_1000, 11), // 12 code without a file
    ];
    let hist = |bin: usize, n| {
        let mut hist = vec![0; 64];
        (hist[bin], hist[bin + 1]) = (n - n / 50, n / 50);
        Some(hist)
    };
    let path = |id, point, frame, parent, (calls, wall_ns, cpu_ns, min_ns, max_ns, bin)| CallPath {
        id,
        point,
        frame,
        parent,
        same: 0,
        folded: false,
        totals: PathTotals {
            calls,
            done: calls,
            wall_ns,
            cpu_ns,
            min_ns,
            max_ns,
            hist: hist(bin, calls),
            ..PathTotals::default()
        },
        threads: Vec::new(),
    };
    let paths = vec![
        path(1, 0, 5, None, (87_696, 60_740_000_000, 58_000_000_000, 1_100, 18_300_000, 19)),
        path(2, 0, 6, None, (87_696, 3_080_000_000, 2_900_000_000, 900, 2_200_000, 14)),
        path(3, 0, 7, None, (1_200, 800_000_000, 700_000_000, 1_200, 900_000, 19)),
        path(4, 0, 8, None, (1_200, 42_000_000, 40_000_000, 950, 80_000, 14)),
        path(5, 1, 9, None, (10_000, 26_000_000_000, 3_000_000_000, 500, 9_000_000, 21)),
        path(6, 2, 10, Some(1), (500_000, 30_000_000_000, 29_000_000_000, 200, 70_000, 15)),
        path(7, 1, 12, None, (3, 6_000, 6_000, 1_500, 2_500, 10)),
    ];
    let point = |id, names: &[&str], module, offset| CallPoint {
        id,
        names: names.iter().map(|n| (*n).to_owned()).collect(),
        module,
        offset,
        size: 0x100,
        patch: Some(PatchKind::Jump),
        state: PointState::On,
        entry_only: None,
        refused: None,
        values: Vec::new(),
    };
    let module = |path: &str, id| CallModule {
        path: path.into(),
        id: Some(whither_image::ImageId([id; 20])),
        bias: 0,
        start: 0,
        end: 0x10_0000,
    };
    let refused = CallPoint {
        patch: None,
        state: PointState::Refused,
        refused: Some("only 4 bytes long, with no padding behind it".into()),
        ..point(4, &["<script>tiny"], 1, 0x90000)
    };
    CallSnapshot {
        at_ns: 71_200_000_000,
        whole: Whole {
            wall_ns: 71_200_000_000,
            cpu_ns: 279_900_000_000,
            thread_ns: 284_800_000_000,
            threads: 4,
            ..Whole::default()
        },
        processes: vec![CallProcess {
            pid: 4711,
            exe: "/opt/su3_rmd".into(),
            command: "su3_rmd in.48".into(),
            ..CallProcess::default()
        }],
        modules: vec![module("/opt/su3_rmd", 1), module("/usr/lib/libmpi.so.40", 2)],
        points: vec![
            point(1, &["MPI_Wait", "PMPI_Wait"], 1, 0x80000),
            point(2, &["MPI_Allreduce"], 1, 0x81000),
            point(3, &["opal_progress"], 1, 0x82000),
            refused,
        ],
        frames,
        paths,
        in_progress: vec![InProgress { tid: 4712, pid: 4711, path: 5, elapsed_ns: 4_000_000, ..InProgress::default() }],
        lost: CallLost { busy: 2, jumped: 5, ..CallLost::default() },
        own_cost: OwnCost { inside_ps: 9_000, whole_ps: 20_000, step_ps: 10_000, ..OwnCost::default() },
        notes: vec!["perf events are refused: CPU times cost two system calls per call".into()],
        ..CallSnapshot::default()
    }
}

struct Symbols;

impl Names for Symbols {
    fn place(&self, module: &CallModule, address: u64) -> CallPlace {
        let functions: &[(u64, &str, &str)] = if module.path.ends_with("su3_rmd") {
            &[
                (0x1000, "main", "control.c"),
                (0x2000, "update", "update.c"),
                (0x3000, "ks_congrad", "d_congrad.c"),
                (0x4000, "wait_gather", ""),
            ]
        } else {
            &[(0x27000, "__libc_start_call_main", ""), (0x80000, "MPI_Wait", ""), (0x81000, "MPI_Allreduce", "")]
        };
        let Some((start, name, file)) = functions.iter().rev().find(|(start, ..)| *start <= address) else {
            return CallPlace::default();
        };
        let position =
            |function: &str, line| CallPosition { function: function.into(), file: format!("/src/{file}"), line };
        let mut positions = Vec::new();
        if !file.is_empty() {
            if *name == "update" {
                positions.push(position("step<inline>", 7));
            }
            positions.push(position(name, (address - start) as u32));
        }
        CallPlace { function: (*name).into(), start: Some(*start), positions, ..CallPlace::default() }
    }
}

fn shown(group: Group, sort: Sort, top: Option<usize>, min_share: f64, width: usize) -> String {
    let snapshot = snapshot();
    let analysis = Analysis::new(&snapshot, &Symbols, Options::default());
    let listing = analysis.listing(&ListQuery { group, sort, top, min_share, at_least: 0 }).unwrap();
    text::calls(&analysis.profile(), &listing, &[], &Layout { width, ..Layout::default() })
}

#[test]
fn table_of_paths() {
    insta::assert_snapshot!(shown(Group::Path, Sort::Wall, None, 0.001, 400));
}

#[test]
fn narrow_table_keeps_the_ends_of_paths() {
    let text = shown(Group::Path, Sort::Count, Some(3), 0.0, 130);
    let rows = text.lines().skip(1).take_while(|l| !l.starts_with("..."));
    assert!(rows.into_iter().all(|l| l.chars().count() <= 130), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn tables_of_groups() {
    let all: Vec<String> =
        [Group::Callsite, Group::Caller, Group::Function].map(|g| shown(g, Sort::Wall, None, 0.0, 200)).into();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn warnings_tell_cause_and_remedy() {
    let snapshot = snapshot();
    let profile = Analysis::new(&snapshot, &Symbols, Options::default()).profile();
    insta::assert_snapshot!(text::calls_warnings(&profile, text::FEW_NAMES).join("\n"));
}

#[test]
fn trees_and_folded_stacks() {
    let snapshot = snapshot();
    let analysis = Analysis::new(&snapshot, &Symbols, Options { inlines: true });
    let mut all = String::new();
    for metric in [Metric::Wall, Metric::Count] {
        let tree = analysis.tree(&TreeQuery { metric: metric.clone(), ..TreeQuery::default() });
        all.push_str(&text::call_tree(&tree, &metric, text::Least { any: 0.001, probed: 0.001 }, &Layout::default()));
        let mut folded = Vec::new();
        exports::calls::folded(&analysis, &TreeQuery { metric, ..TreeQuery::default() }, &mut folded).unwrap();
        let folded = String::from_utf8(folded).unwrap();
        let sum: u64 = folded.lines().map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, tree.total);
        all.push_str(&folded);
    }
    insta::assert_snapshot!(all);
    let nothing = CallSnapshot::default();
    let nothing = Analysis::new(&nothing, &Symbols, Options::default());
    assert!(exports::calls::folded(&nothing, &TreeQuery::default(), &mut Vec::new()).is_err());
}

#[test]
fn json_is_one_line_with_its_schema() {
    let snapshot = snapshot();
    let profile = Analysis::new(&snapshot, &Symbols, Options::default()).profile();
    let line = json::calls(&profile);
    assert!(
        line.starts_with(r#"{"schema":"whither.calls/1","#) && line.ends_with("}\n") && line.matches('\n').count() == 1
    );
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    for field in ["target", "whole", "functions", "paths", "frames", "in_progress", "lost", "refused", "own_cost"] {
        assert!(!value[field].is_null(), "{field}");
    }
    insta::assert_snapshot!(serde_json::to_string_pretty(&value).unwrap());
}

#[test]
fn a_function_without_calls_is_told() {
    let mut snapshot = snapshot();
    let silent = CallPoint { id: 9, names: vec!["PMPI_Barrier".into()], ..snapshot.points[0].clone() };
    let namesake = CallPoint { id: 10, module: 0, names: snapshot.points[0].names.clone(), ..silent.clone() };
    snapshot.points.extend([silent, namesake]);
    let analysis = Analysis::new(&snapshot, &Symbols, Options::default());
    let listing = analysis.listing(&ListQuery::default()).unwrap();
    let profile = analysis.profile();
    let text = text::calls(&profile, &listing, &[], &Layout::default());
    let module = profile.functions.iter().find(|f| f.id == 10).unwrap().module.rsplit('/').next().unwrap().to_owned();
    // The snapshot has calls that were not counted: these may have been theirs.
    let told = format!("no call counted (some were not): PMPI_Barrier, MPI_Wait ({module})");
    assert!(text.lines().any(|line| line == told), "{told}: {text}");
    assert_eq!(profile.functions.iter().filter(|f| f.totals.calls == 0).count(), 2, "the document has them");
}

#[test]
fn before_and_after() {
    let before = snapshot();
    let mut after = snapshot();
    after.modules[0].id = Some(whither_image::ImageId([9; 20]));
    after.paths[0].totals.wall_ns /= 10;
    after.paths.remove(4);
    (5..9).for_each(|f| after.frames[f].offset += 0x80);
    let profile = |s| Analysis::new(s, &Symbols, Options::default()).profile();
    let d = compare(&profile(&before), &profile(&after));
    let same = compare(&profile(&before), &profile(&before));
    assert!(!same.rebuilt && same.paths.iter().all(|r| r.before == r.after));
    insta::assert_snapshot!(text::calls_difference(&d, 4, &Layout::default()));
}

/// What recording cost besides is told where there is much of it, with the causes that apply.
#[test]
fn what_recording_cost_besides_is_told_with_its_causes() {
    let mut profile = Analysis::new(&snapshot(), &Symbols, Options::default()).profile();
    profile.lost.jumped = 0;
    let cpu = profile.whole.cpu_ns;
    let told = |p: &CallProfile| text::calls_warnings(p, 1).into_iter().find(|l| l.contains("went into recording"));
    profile.own_cost.apart_ns = cpu / 20;
    assert_eq!(told(&profile), None, "waits slow down nobody");
    profile.own_cost.apart_ns = cpu / 5;
    let waits = told(&profile).unwrap();
    assert!(
        waits.contains(" of CPU time (20.00 %) went into recording calls on other stacks or behind waits; "),
        "{waits}"
    );
    profile.own_cost.apart_ns = cpu / 20;
    profile.paths[0].level = 1;
    let recursive = told(&profile).unwrap();
    assert!(
        recursive.ends_with("calls by paths that keep changing; times of calls around them are told without"),
        "{recursive}"
    );
    profile.lost.jumped = 3;
    assert!(told(&profile).unwrap().contains("calls by paths that keep changing, left by jumps; "));
    profile.own_cost.apart_ns = cpu / 200;
    assert_eq!(told(&profile), None, "below 1 %");
}

#[test]
fn what_was_probed_later_is_told() {
    let mut snapshot = snapshot();
    let waits = snapshot.points[0].id;
    snapshot.late = vec![LatePoint { id: waits, after_ns: 3_240_000_000, spent: None }];
    let analysis = Analysis::new(&snapshot, &Symbols, Options::default());
    let (profile, listing) = (analysis.profile(), analysis.listing(&ListQuery::default()).unwrap());
    let text = text::calls(&profile, &listing, &[], &Layout::default());
    let line = "probed later, with numbers and shares of the time since only: MPI_Wait (+3.2 s)";
    assert!(text.lines().any(|l| l == line), "{text}");
    assert!(json::calls(&profile).contains("\"after_ns\":3240000000"));
    let first = CallSnapshot { late: Vec::new(), ..snapshot.clone() };
    let mut earlier = first.clone();
    earlier.whole.wall_ns = 3_000_000_000;
    let mut later = snapshot;
    later.at_ns = later.at_ns.max(earlier.at_ns);
    assert_eq!(difference(&later, &earlier).late, [LatePoint { id: waits, after_ns: 240_000_000, spent: None }]);
    earlier.whole.wall_ns = 4_000_000_000;
    assert!(difference(&later, &earlier).late.is_empty(), "there all the time of the interval");
}

/// Function totals have the order of the rows.
#[test]
fn function_totals_are_ordered_as_the_rows() {
    let totals = |sort: Sort| -> Vec<String> {
        let text = shown(Group::Path, sort, None, 0.0, 400);
        let names = text.lines().filter_map(|l| l.strip_prefix("function total: "));
        names.filter_map(|l| l.split(' ').next()).map(str::to_owned).collect()
    };
    let by_calls = totals(Sort::Count);
    assert_ne!(by_calls, totals(Sort::Wall));
    assert_eq!(by_calls[0], "opal_progress", "{by_calls:?}");
}

/// Small nodes are added up, those of functions that were asked for later than others.
#[test]
fn what_was_asked_for_by_name_is_folded_last() {
    let node = |name: &str, func, total, children| whither_calls::TreeNode {
        name: name.into(),
        func,
        calls: u64::from(func.is_some()),
        total,
        children,
        ..whither_calls::TreeNode::default()
    };
    let asked = node("asked", Some(1), 300, Vec::new());
    let around = node("around", None, 300, vec![asked]);
    let large = node("large", None, 99_000, Vec::new());
    let children = vec![large, node("other", None, 300, Vec::new()), around, node("tiny", Some(2), 50, Vec::new())];
    let root = node("all", None, 100_000, children);
    let shown = |probed| text::call_tree(&root, &Metric::Wall, text::Least { any: 0.005, probed }, &Layout::default());
    let lines = |text: String| {
        text.lines().skip(2).filter_map(|l| l.split_whitespace().last().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(lines(shown(0.001)), ["large", "around", "asked", "smaller)"]);
    assert_eq!(lines(shown(0.005)), ["large", "smaller)"]);
}

/// The arrow stands at the column that rows were asked to be ordered by, whatever else has the same order.
#[test]
fn the_page_marks_the_column_of_the_order() {
    let snapshot = snapshot();
    let analysis = Analysis::new(&snapshot, &Symbols, Options::default());
    let profile = analysis.profile();
    let marked = |sort: Sort| {
        let listing = analysis.listing(&ListQuery { sort, top: Some(1), ..ListQuery::default() }).unwrap();
        let (title, listings, trees) = (String::new(), vec![listing], Vec::new());
        let page = calls_page(&CallsPage { title, profile: &profile, listings, trees, difference: None });
        let table = page.split("id=\"list-0-t\"").nth(1).unwrap().split("</thead>").next().unwrap().to_owned();
        let head = table.split("aria-sort=\"descending\">").nth(1).map(|t| t.split('<').next().unwrap().to_owned());
        (head, table.matches("aria-sort").count())
    };
    for (sort, title) in [(Sort::Count, "calls"), (Sort::Wall, "total"), (Sort::Cpu, "cpu"), (Sort::Min, "min")] {
        assert_eq!(marked(sort), (Some(title.to_owned()), 1));
    }
    assert_eq!(marked(Sort::SelfCpu), (None, 0));
}

/// A program without unwind tables: the note tells all, and no sentence of losses or of cut paths repeats it.
#[test]
fn calls_of_code_without_unwind_tables_are_told_once() {
    let mut profile = Analysis::new(&snapshot(), &Symbols, Options::default()).profile();
    let note = "500,000 calls were counted without times, for they came from code without unwind tables";
    profile.notes = vec![note.into()];
    let of = |p: &mut whither_calls::PathRow| p.figures.calls;
    let calls = profile.paths.iter_mut().find(|p| p.truncated).map(of).unwrap();
    (profile.lost.shadow, profile.lost.foreign) = (calls, 0);
    let told = |p: &_| text::calls_warnings(p, usize::MAX);
    let mentions = |lines: &[String], what: &str| lines.iter().filter(|l| l.contains(what)).count();
    let both = told(&profile);
    assert_eq!((mentions(&both, "left alone"), mentions(&both, "truncated")), (1, 1), "{both:?}");
    profile.lost.foreign = calls;
    let timed = told(&profile);
    assert_eq!((mentions(&timed, "left alone"), mentions(&timed, "truncated")), (0, 1), "another cut path: {timed:?}");
    profile.paths.iter_mut().filter(|p| p.truncated).for_each(|p| p.figures.done = 0);
    let once = told(&profile);
    assert_eq!((mentions(&once, "truncated"), mentions(&once, note)), (0, 1), "{once:?}");
}

/// Times that the single report marks are marked in the comparison as well, and so is what follows from them.
#[test]
fn before_and_after_have_the_signs_of_the_single_report() {
    let analysed = |s| Analysis::new(s, &Symbols, Options::default()).profile();
    let (before, mut after) = (analysed(&snapshot()), analysed(&snapshot()));
    let compared = |before: &_, after: &_| text::calls_difference(&compare(before, after), 4, &Layout::default());
    let line = |text: &str, what: &str| {
        let line = text.lines().find(|l| l.ends_with(&format!("  {what}"))).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let plain = compared(&before, &after);
    assert!(!plain.contains(['~', '<']), "{plain}");
    for f in &mut after.functions {
        match f.names[0].as_str() {
            "opal_progress" => {
                f.totals.rough = true;
                f.totals.wall_ns /= 2;
                f.totals.unsure_ns = 2_000_000_000;
            }
            "MPI_Allreduce" => f.totals.wall_below_ns = Some(2_000_000_000),
            _ => (f.totals.untimed, f.totals.lacking) = (3, true),
        }
    }
    let text = compared(&before, &after);
    let progress = "30.00 s ~15.00 s ~-50.0 % 60.0 us ~60.0 us =";
    assert!(line(&text, "opal_progress").starts_with(progress), "{text}");
    assert!(line(&text, "MPI_Allreduce").starts_with("26.00 s+ <2.00 s - "), "{text}");
    assert!(line(&text, "MPI_Wait").contains(" >"), "{text}");
    for sign in ["< of totals: ", "~ of times: ", "> at least: "] {
        assert_eq!(text.lines().filter(|l| l.starts_with(sign)).count(), 1, "{sign} {text}");
    }
    let unsure = after.functions.iter_mut().find(|f| f.names[0] == "opal_progress").unwrap();
    unsure.totals.unsure_ns = 16_000_000_000;
    let text = compared(&before, &after);
    assert!(line(&text, "opal_progress").starts_with("30.00 s ~15.00 s within ~ 60.0 us ~60.0 us ="), "{text}");
    assert_eq!(text.lines().filter(|l| l.starts_with("within ~: ")).count(), 1, "{text}");
    let json = json::calls(&compare(&before, &after));
    assert!(json.contains("\"rough\":true") && json.contains("\"wall_below_ns\":2000000000"), "{json}");
}

fn page() -> String {
    let mut before = snapshot();
    before.paths[0].totals.wall_ns *= 2;
    let snapshot = snapshot();
    let analysis = Analysis::new(&snapshot, &Symbols, Options::default());
    let list = |group| analysis.listing(&ListQuery { group, ..ListQuery::default() }).unwrap();
    let profile = analysis.profile();
    let tree = |metric: Metric| (metric.clone(), analysis.tree(&TreeQuery { metric, ..TreeQuery::default() }));
    let before = Analysis::new(&before, &Symbols, Options::default()).profile();
    calls_page(&CallsPage {
        title: "calls <of> su3_rmd".into(),
        profile: &profile,
        listings: [Group::Path, Group::Callsite, Group::Function].map(list).into(),
        trees: [Metric::Wall, Metric::Cpu, Metric::Off, Metric::Count].map(tree).into(),
        difference: Some(compare(&before, &profile)),
    })
}

#[test]
fn page_of_call_paths() {
    let page = page();
    let (start, end) = (page.find("<body>").unwrap(), page.rfind("<footer>").unwrap());
    insta::assert_snapshot!(page[start..end].replace("><", ">\n<"));
    assert!(!page.contains("<script>tiny"), "a name of the target became an element");
}

#[test]
fn page_runs_in_a_browser() {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).flat_map(|d| browsers.map(|b| d.join(b))).find(|p| p.is_file());
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls.html");
    std::fs::write(&file, page()).unwrap();
    let Some(browser) = found else {
        println!("SKIP: no Chromium on this machine; the page's script was not run");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let out = std::process::Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
        .args(["--window-size=1400,2000", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", home.path().display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&out.stdout);
    assert!(dom.contains("data-ready=\"1\"") && !dom.contains("data-js-error"), "the script failed");
    assert!(dom.matches("role=\"treeitem\"").count() >= 6, "the flame graph was not drawn");
}

#[test]
fn an_interval_without_calls_says_so() {
    let snapshot = CallSnapshot { in_progress: Vec::new(), ..snapshot() };
    let nothing = difference(&snapshot, &snapshot);
    let analysis = Analysis::new(&nothing, &Symbols, Options::default());
    let listing = analysis.listing(&ListQuery::default()).unwrap();
    let text = text::calls(&analysis.profile(), &listing, &[], &Layout::default());
    assert!(text.contains("no call was seen"), "{text}");
}

#[test]
fn what_is_true_of_many_functions_is_said_once() {
    let names = |n: usize| (0..n).map(|i| format!("f{i}")).collect::<Vec<_>>();
    let said = [0, 1, 2, 3, 4].map(|n| text::some_are(&names(n), 3));
    assert_eq!(said, ["nothing is", "f0 is", "f0 and f1 are", "f0, f1 and f2 are", "f0, f1, f2 and 1 more are"]);
    let snapshot = snapshot();
    let mut profile = Analysis::new(&snapshot, &Symbols, Options::default()).profile();
    profile.notes = ["g: later", "h: later", "a sentence", "k: sooner", "i: later"].map(String::from).to_vec();
    profile.refused = Vec::new();
    let lines = text::calls_warnings(&profile, 2);
    assert_eq!(lines[lines.len() - 3..], ["g, h and 1 more: later", "a sentence", "k: sooner"]);
}

/// Of several causes it is not known which call had which: the parts are those of all.
#[test]
fn parts_of_calls_without_time_add_up() {
    let mut profile = Analysis::new(&snapshot(), &Symbols, Options::default()).profile();
    profile.paths.iter_mut().for_each(|path| path.figures.untimed = 0);
    let func = profile.paths[0].func;
    (profile.paths[0].figures.untimed, profile.paths[0].figures.lacking) = (1_040, true);
    (profile.lost.jumped, profile.lost.shadow, profile.lost.foreign) = (1_000, 50, 0);
    let name = profile.functions.iter().find(|f| f.id == func).unwrap().names[0].clone();
    let told = |p: &_| text::calls_warnings(p, usize::MAX).into_iter().filter(|l| l.contains("without time")).collect();
    let lines: Vec<String> = told(&profile);
    let all = format!("1,040 calls counted without time, of {name} (1,040): times shown with > are at least so long; ");
    assert!(lines.len() == 1 && lines[0].starts_with(&all), "{lines:?}");
    assert!(lines[0].ends_with(
        "1,000 left by longjmp, an exception or the end of the thread, 50 whose return addresses had to be left alone"
    ));
    (profile.lost.jumped, profile.lost.shadow) = (1_100, 0);
    let lines: Vec<String> = told(&profile);
    assert!(
        lines[0].starts_with("1,100 calls") && lines[0].contains(&format!("of {name} (1,040), others (60)")),
        "{lines:?}"
    );
}

/// The signs of the table, and what they mean below it.
#[test]
fn trees_have_the_signs_of_tables() {
    let snapshot = snapshot();
    let analysis = Analysis::new(&snapshot, &Symbols, Options::default());
    let mut tree = analysis.tree(&TreeQuery::default());
    let shown =
        |tree: &_, metric| text::call_tree(tree, &metric, text::Least { any: 0.0, probed: 0.0 }, &Layout::default());
    (tree.times.rough, tree.own_rough) = (true, true);
    let text = shown(&tree, Metric::Wall);
    let line = text.lines().nth(1).unwrap();
    assert!(line.trim_start().starts_with('~') && line.matches('~').count() == 3, "{text}");
    assert!(text.lines().any(|l| l.starts_with("~ of times: ")) && text.lines().any(|l| l.starts_with("~ of own %: ")));
    (tree.times.untimed, tree.times.lacking) = (3, true);
    assert!(shown(&tree, Metric::Wall).lines().nth(1).unwrap().contains('>'), "{text}");
    assert!(!shown(&tree, Metric::Count).lines().nth(1).unwrap().contains(['~', '>']), "calls are exact");
}

/// Both ends of what measuring cost; a number alone only where they are the same for the eye.
#[test]
fn own_cost_is_told_by_its_ends() {
    let mut profile = Analysis::new(&snapshot(), &Symbols, Options::default()).profile();
    let mut told = |least: f64, most: f64, open: bool| {
        (profile.own_cost.share, profile.own_cost.share_most) = (least, most);
        (profile.own_cost.open, profile.own_cost.rough, profile.own_cost.ns) = (open, false, 1);
        let header = text::calls_header(&profile);
        header.split_once("own cost ").unwrap().1.to_owned()
    };
    assert_eq!(told(0.34, 0.76, false), "34 to 76 % of CPU");
    assert_eq!(told(0.0781, 0.41, false), "7.81 to 41 % of CPU");
    assert_eq!(told(0.000_01, 0.000_02, false), "<0.01 % of CPU");
    assert_eq!(told(0.4211, 1.0, false), "more than 42.11 % of CPU");
    assert_eq!(told(0.02, 0.05, true), "more than 2.00 % of CPU");
    assert_eq!(told(0.02, f64::NAN, false), "2.00 % of CPU");
}
