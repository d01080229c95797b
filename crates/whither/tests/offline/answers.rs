//! The answering verbs on a recording that needs no rights: a perf.data file kept in the repository,
//! imported. What two verbs say of the same samples must agree.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{answer, text, whither};
use serde_json::Value;
use std::path::{Path, PathBuf};

struct Imported(tempfile::TempDir);

impl Imported {
    fn new(file: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf-data").join(file);
        let done = whither().arg("import").arg(data).arg("-o").arg(dir.path().join("run.wh")).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
        Self(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("run.wh")
    }

    fn json(&self, verb: &str, args: &[&str]) -> Value {
        answer(whither().arg(verb).arg(self.path()).args(args).arg("--json"))
    }
}

fn samples(listing: &Value) -> u64 {
    let events = listing["provenance"]["events"].as_array().unwrap();
    events.iter().map(|e| e["samples"].as_u64().unwrap()).sum()
}

#[test]
fn an_export_holds_what_a_listing_with_the_same_filters_counts() {
    let run = Imported::new("system.data");
    let all = run.json("prof", &["--by", "command", "--all"]);
    let command = all["rows"][0]["labels"][0].as_str().unwrap().to_owned();
    let mut counted = Vec::new();
    for filter in [vec![], vec!["--process", &command], vec!["--kernel"], vec!["--user"]] {
        let expected = samples(&run.json("prof", &filter));
        let csv = whither().args(["export", "csv"]).arg(run.path()).args(&filter).output().unwrap();
        assert!(csv.status.success(), "{}", text(&csv.stderr));
        let lines = text(&csv.stdout);
        let column = lines.lines().next().unwrap().split(',').position(|c| c == "samples").unwrap();
        let reader = lines.lines().skip(1).map(|l| fields(l)[column].parse::<u64>().unwrap());
        assert_eq!(reader.sum::<u64>(), expected, "{filter:?}");
        counted.push(expected);
    }
    assert_eq!(counted[0], counted[2] + counted[3], "kernel and user are all");
    assert!(counted[1] > 0 && counted[1] < counted[0], "{counted:?}");
}

/// Fields of a CSV line without doubled quotes.
fn fields(line: &str) -> Vec<String> {
    let (mut out, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => out.push(String::new()),
            c => out.last_mut().unwrap().push(c),
        }
    }
    out
}

#[test]
fn a_recording_does_not_differ_from_itself_by_any_grouping() {
    let run = Imported::new("system.data");
    for by in
        ["image", "proc", "line", "insn", "file", "process", "command", "thread", "cgroup", "slice", "process,proc"]
    {
        let d = answer(whither().arg("diff").args([run.path(), run.path()]).args(["--all", "--json", "--by", by]));
        let rows = d["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{by}");
        assert!(rows.iter().all(|r| r["verdict"] == "same" && r["change"][0] == 0.0), "{by}: {rows:?}");
        assert_eq!(d["by"][0], by.split(',').next().unwrap());
        let listed = run.json("prof", &["--all", "--by", by]);
        assert!(rows.len() <= listed["rows"].as_array().unwrap().len(), "{by}: rows that have one name are one");
    }
}

#[test]
fn a_range_of_time_that_holds_nothing_is_refused_and_slices_count_whole() {
    let run = Imported::new("flat.data");
    let ask = |args: &[&str]| whither().arg("prof").arg(run.path()).args(args).output().unwrap();
    for args in [["--since", "2s", "--until", "1s"], ["--since", "1s", "--until", "1s"]] {
        let refused = ask(&args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {}", text(&refused.stdout));
        assert!(text(&refused.stderr).contains("--since must be earlier than --until"), "{}", text(&refused.stderr));
    }
    // It began in the middle of a second.
    let (whole, all) = (run.json("prof", &["--since", "0s", "--until", "60s"]), run.json("prof", &[]));
    assert_eq!((samples(&whole), &whole["provenance"]["skipped"]), (samples(&all), &all["provenance"]["skipped"]));
    let nothing = ask(&["--since", "900s"]);
    assert_eq!(nothing.status.code(), Some(1), "{}", text(&nothing.stdout));
    assert!(text(&nothing.stderr).contains("no sample matches time since 20"), "{}", text(&nothing.stderr));
}

#[test]
fn an_export_that_has_nothing_to_say_blames_no_file_and_leaves_none() {
    let run = Imported::new("flat.data");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out.csv");
    let (image, output) = (["--image", "nosuch"], ["-o", file.to_str().unwrap()]);
    let refused = whither().args(["export", "csv"]).arg(run.path()).args(image).args(output).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).starts_with("whither: no sample matches image nosuch"), "{}", text(&refused.stderr));
    assert!(!file.exists());
}

#[test]
fn the_tree_of_the_stacks_is_printed_whole_and_cut() {
    let run = Imported::new("stacks.data");
    let tree = run.json("prof", &["--tree"]);
    assert_eq!((&tree["schema"], &tree["kind"]), (&"whither.cycles/1".into(), &"calltree".into()));
    assert!(tree["tree"]["total"].as_u64().unwrap() > 0 && !tree["tree"]["children"].as_array().unwrap().is_empty());
    let lines = |least: &str| {
        let output = whither().arg("prof").arg(run.path()).args(["--tree", "--least", least]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().count()
    };
    assert!(lines("0.1%") > lines("60%"), "small branches are summed up");
    let output = whither().arg("prof").arg(run.path()).args(["--tree", "-n", "2"]).output().unwrap();
    assert!(
        output.status.success() && text(&output.stdout).lines().count() < lines("0.1%"),
        "{}",
        text(&output.stdout)
    );
    let none = whither().arg("prof").arg(Imported::new("flat.data").path()).arg("--tree").output().unwrap();
    assert_eq!(none.status.code(), Some(2), "{}", text(&none.stderr));
    assert!(text(&none.stderr).contains("record with -g"), "{}", text(&none.stderr));
}

#[test]
fn a_page_says_what_changed_since_another_recording() {
    let run = Imported::new("flat.data");
    let page = run.0.path().join("page.html");
    let made =
        whither().arg("report").arg(run.path()).arg("--against").arg(run.path()).arg("-o").arg(&page).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(std::fs::read_to_string(page).unwrap().contains("id=\"diff\""));
}

#[test]
fn strict_is_told_by_the_status() {
    let (whole, broken) = (Imported::new("flat.data"), Imported::new("stacks.data"));
    let status = |more: &[&str]| {
        let both = whither().arg("prof").arg(whole.path()).arg(broken.path()).args(more).output().unwrap();
        both.status.code()
    };
    assert_eq!((status(&[]), status(&["--strict"])), (Some(0), Some(0)));
    let samples = broken.path().join("seg-000001-000001/samples.parquet");
    let mut bytes = std::fs::read(&samples).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&samples, bytes).unwrap();
    assert_eq!((status(&[]), status(&["--strict"])), (Some(0), Some(4)));
}

#[test]
fn an_export_of_one_event_is_of_that_event() {
    let run = Imported::new("flat.data");
    let export = |event: &str| whither().args(["export", "pprof", "-e", event]).arg(run.path()).output().unwrap();
    let event = run.json("prof", &[])["provenance"]["events"][0]["name"].as_str().unwrap().to_owned();
    assert!(export(&event).status.success());
    let absent = export("absent");
    assert!(!absent.status.success() && absent.stdout.is_empty(), "{}", text(&absent.stderr));
    assert!(text(&absent.stderr).contains(&event), "{}", text(&absent.stderr));
}

#[test]
fn the_store_can_be_named_either_way() {
    let run = Imported::new("flat.data");
    for args in [vec![], vec!["--db"]] {
        let output = whither().args(["db", "check"]).args(&args).arg(run.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stdout).ends_with("run.wh: sound\n"), "{}", text(&output.stdout));
    }
    let both = whither().args(["db", "check"]).arg(run.path()).arg("--db").arg(run.path()).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "one store at a time");
}

#[test]
fn a_run_that_is_named_twice_is_one_run() {
    let run = Imported::new("flat.data");
    let twice = format!("{0},{0}", run.path().display());
    let output = whither().args(["diff", &twice, &twice, "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).matches("is named twice and taken once").count(), 2, "{}", text(&output.stderr));
    assert_ne!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["variance"], "runs");
}

/// Each epoch with the steps that were taken in it, by the whole document and by the list.
#[test]
fn the_steps_of_a_recording_are_told_and_none_are_made_up() {
    use whither_store::call_steps::{CallChange, CallFunction, CallScript, CallStep};
    use whither_store::calls::{CallEpoch, CallRecording, CallSnapshot};
    let solve = CallFunction { name: "solve".into(), file: None };
    let changes = [
        CallChange::Expand { function: solve.clone(), only: None },
        CallChange::Reset { label: "warm".into() },
        CallChange::Remove { functions: vec![solve] },
    ];
    let steps = (1..).zip(changes).map(|(s, change)| CallStep { after_ns: s * 6_500_000_000, change }).collect();
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run.wh");
    let saved = |script| {
        let epoch = |name: &str| CallEpoch { name: name.into(), snapshot: CallSnapshot::default() };
        let recording = CallRecording { script, epochs: vec![epoch("warm"), epoch("2")], ..CallRecording::default() };
        whither_store::calls_recording::save(&run, &recording, whither_store::OnExisting::Replace).unwrap();
    };
    let said = |args: &[&str]| {
        let output = whither().args(["calls", "report"]).arg(&run).args(args).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    saved(Some(CallScript { steps, ..CallScript::default() }));
    let listed = said(&[]);
    let list: Vec<&str> =
        listed.lines().skip_while(|l| !l.starts_with("steps (whither calls --replay ")).skip(1).collect();
    let all = ["    +6.50 s  expand solve", "   +13.00 s  reset --label 'warm'", "   +19.50 s  remove solve"];
    assert_eq!(list, all, "{listed}");
    assert!(said(&["--epoch", "2"]).ends_with(&format!("{}\n", all[2])));
    let documents: Vec<Value> = said(&["--json"]).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let told: Vec<Vec<&str>> = documents
        .iter()
        .map(|d| d["steps"].as_array().unwrap().iter().map(|s| s["step"].as_str().unwrap()).collect())
        .collect();
    assert_eq!(told, [vec!["expand", "reset"], vec!["remove"]]);
    assert_eq!(documents[0]["steps"][0]["function"]["name"], "solve");

    // Made before steps were kept: nothing to tell, and nothing to take again.
    saved(None);
    assert!(!said(&[]).contains("steps") && !said(&["--json"]).contains("steps"));
    let replay = whither().args(["calls", "--replay"]).arg(&run).args(["--", "true"]).output().unwrap();
    assert_eq!(replay.status.code(), Some(2));
    assert!(text(&replay.stderr).contains("which kept no steps"), "{}", text(&replay.stderr));
    let file = run.join("calls.json");
    let damaged = std::fs::read_to_string(&file).unwrap().replace("warm", "worm");
    std::fs::write(&file, damaged).unwrap();
    let replay = whither().args(["calls", "--replay"]).arg(&run).args(["--", "true"]).output().unwrap();
    assert_eq!(replay.status.code(), Some(3));
    assert!(text(&replay.stderr).contains("checksum does not match"), "{}", text(&replay.stderr));
}

/// Columns that were asked for when measuring are there when the recording is read.
#[test]
fn a_recording_of_calls_is_told_with_the_metrics_it_was_made_with() {
    use whither_store::calls::{
        CallEpoch, CallModule, CallPath, CallPoint, CallRecording, CallSnapshot, PatchKind, PathTotals, PointState,
        Whole,
    };
    let point = CallPoint {
        id: 1,
        names: vec!["solve".into()],
        module: 0,
        offset: 0x1000,
        size: 64,
        patch: Some(PatchKind::Jump),
        state: PointState::On,
        entry_only: None,
        refused: None,
        values: Vec::new(),
    };
    let totals = PathTotals {
        calls: 2,
        done: 2,
        wall_ns: 9_000,
        cpu_ns: 4_000,
        min_ns: 4_000,
        max_ns: 5_000,
        ..Default::default()
    };
    let path = CallPath {
        id: 1,
        point: 0,
        frame: u32::MAX,
        parent: None,
        same: 0,
        folded: false,
        totals,
        threads: Vec::new(),
    };
    let snapshot = CallSnapshot {
        whole: Whole { wall_ns: 9_000, cpu_ns: 9_000, thread_ns: 9_000, threads: 1, ..Whole::default() },
        modules: vec![CallModule { path: "/bin/app".into(), id: None, bias: 0, start: 0, end: 1 << 20 }],
        points: vec![point],
        paths: vec![path],
        ..CallSnapshot::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let head = |metrics: &[&str]| {
        let run = dir.path().join(format!("{}.wh", metrics.len()));
        let recording = CallRecording {
            metrics: metrics.iter().map(|m| (*m).to_owned()).collect(),
            epochs: vec![CallEpoch { name: "1".into(), snapshot: snapshot.clone() }],
            ..CallRecording::default()
        };
        whither_store::calls_recording::save(&run, &recording, whither_store::OnExisting::Refuse).unwrap();
        let output = whither().args(["calls", "report"]).arg(run).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let table = text(&output.stdout);
        assert!(table.contains("solve"), "{table}");
        table.lines().nth(1).unwrap().to_owned()
    };
    assert!(!head(&[]).contains("off cpu"));
    let asked = head(&["wall", "off"]);
    assert!(asked.contains(" cpu ") && asked.contains("off cpu"), "{asked}");
}
