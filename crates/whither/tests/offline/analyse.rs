//! The verbs of instruction-level analysis on a recording that needs no rights: a perf.data file kept in the
//! repository, imported. Its programs are not here, so most of this is what must be said when little is known.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{answer, text, whither};
use std::path::{Path, PathBuf};
use std::process::Output;

struct Imported(tempfile::TempDir);

impl Imported {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf-data/system.data");
        let done = whither().arg("import").arg(data).arg("-o").arg(dir.path().join("run.wh")).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
        Self(dir)
    }

    fn run(&self) -> PathBuf {
        self.0.path().join("run.wh")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn refused(output: &Output, code: i32, says: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "nothing but answers goes to stdout");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|e| e.unwrap().path()) {
        let to = to.join(entry.file_name().unwrap());
        match entry.is_dir() {
            true => copy(&entry, &to),
            false => assert!(std::fs::copy(&entry, &to).is_ok(), "{}", entry.display()),
        }
    }
}

#[test]
fn an_annotation_in_json_has_an_analysis_beside_its_listing() {
    let run = Imported::new();
    let analysed = answer(whither().arg("annotate").arg(run.run()).arg("--json"));
    let plain = answer(whither().arg("annotate").arg(run.run()).args(["--plain", "--json"]));
    assert_eq!((&analysed["kind"], &plain["kind"]), (&"annotation".into(), &"annotation".into()));
    assert_eq!(analysed["insns"], plain["insns"]);
    assert!(analysed["analysis"]["blocks"].is_array() && plain.get("analysis").is_none());
}

#[test]
fn a_run_does_not_vary_against_itself() {
    let run = Imported::new();
    let s = answer(whither().arg("stats").args([run.run(), run.run(), run.run()]).args(["--json", "--least", "0.1%"]));
    let rows = s["rows"].as_array().unwrap();
    assert!(!rows.is_empty() && s["sets"].as_array().unwrap().len() == 3);
    for row in rows {
        assert_eq!((row["range"].as_f64(), row["n"].as_u64()), (Some(0.0), Some(3)), "{row}");
        assert_eq!(row["two_peaks"], false);
    }
    let sum: f64 = rows.iter().map(|r| r["share"].as_f64().unwrap()).sum();
    assert!(sum > 0.5 && sum < 1.0 + 1e-9, "shares of rows add up to {sum}");
}

#[test]
fn work_must_be_given_for_each_run() {
    let run = Imported::new();
    let out = whither().arg("stats").args([run.run(), run.run()]).args(["--per", "3"]).output().unwrap();
    refused(&out, 2, "1 figures of work for 2 runs");
}

#[test]
fn a_graph_needs_a_known_ending_and_a_known_procedure() {
    let run = Imported::new();
    let png = run.file("g.png");
    let out = whither().arg("cfg").arg(run.run()).arg("-o").arg(&png).output().unwrap();
    refused(&out, 2, "end its name in .svg, .html or .dot");
    let svg = run.file("g.svg");
    let out = whither().args(["cfg", "no_such_procedure"]).arg(run.run()).arg("-o").arg(&svg).output().unwrap();
    refused(&out, 1, "no sampled procedure matches `no_such_procedure`");
    assert!(!svg.exists() && !png.exists());
}

#[test]
fn filters_that_leave_nothing_are_named() {
    let run = Imported::new();
    let svg = run.file("g.svg");
    let asks: [&[&str]; 6] = [
        &["annotate"],
        &["annotate", "--plain"],
        &["summary"],
        &["cfg", "-o", svg.to_str().unwrap()],
        &["export", "blocks"],
        &["export", "autofdo"],
    ];
    for ask in asks {
        let out = whither().args(ask).arg(run.run()).args(["--image", "nosuch"]).output().unwrap();
        refused(&out, 1, "no sample matches image nosuch");
    }
}

#[test]
fn a_file_beside_a_recording_is_a_name_and_never_read_as_one() {
    let run = Imported::new();
    let file = run.file("bin.dat");
    std::fs::write(&file, "x").unwrap();
    let out = whither().arg("annotate").args([&run.run(), &file]).output().unwrap();
    refused(&out, 1, "`whither prof` lists those with samples");
    let out = whither().arg("prof").arg(&file).output().unwrap();
    refused(&out, 2, "is no recording");
}

#[test]
fn a_run_without_samples_is_left_out_and_named() {
    let run = Imported::new();
    let empty = run.file("empty.wh");
    copy(&run.run(), &empty);
    let segments = std::fs::read_dir(&empty).unwrap().map(|e| e.unwrap().path());
    for segment in segments.filter(|p| p.file_name().unwrap().to_str().unwrap().starts_with("seg-")) {
        std::fs::remove_dir_all(segment).unwrap();
    }
    let s = answer(whither().arg("stats").args([&run.run(), &empty, &run.run()]).args(["--per", "5,6,7", "--json"]));
    assert_eq!(s["sets"].as_array().unwrap().len(), 2);
    let notes = s["notes"].to_string();
    assert!(notes.contains("nothing was sampled") && notes.contains("empty.wh"), "{notes}");
    let out = whither().arg("stats").arg(&empty).output().unwrap();
    refused(&out, 1, "holds no samples");
}

#[test]
fn exact_counts_that_are_none_are_refused_by_name() {
    let run = Imported::new();
    let exact = run.file("exact.out");
    let ask = || whither().args(["accuracy", "--exact"]).arg(&exact).arg(run.run()).output().unwrap();
    refused(&ask(), 3, "exact.out");
    std::fs::write(&exact, "hello\n").unwrap();
    refused(&ask(), 2, "exact.out");
}

#[test]
fn a_summary_says_what_it_left_out() {
    let run = Imported::new();
    let output = whither().arg("summary").arg(run.run()).output().unwrap();
    let told = text(&output.stdout) + &text(&output.stderr);
    // Without the programs' code nothing can be analysed, which is an error; with it there are figures. Never neither.
    let refused_all = output.status.code() == Some(1) && told.contains("no procedure could be analysed");
    assert!(refused_all || output.status.success() && told.contains("total tallied"), "{told}");
    let out = whither().args(["summary", "no_such_thing"]).arg(run.run()).output().unwrap();
    refused(&out, 1, "no sampled procedure matches `no_such_thing`");
}

#[test]
fn a_processor_model_that_makes_no_sense_is_refused_with_the_figure() {
    let run = Imported::new();
    let file = run.file("core.toml");
    let ask = || whither().arg("annotate").arg(run.run()).arg("--core").arg(&file).output().unwrap();
    refused(&ask(), 3, "cannot read the processor model");
    for (text, says) in
        [("dispatch = 0", "between 1 and 32"), ("latency = 3", "does not parse"), ("width = 3", "core.toml lists")]
    {
        std::fs::write(&file, text).unwrap();
        refused(&ask(), 2, says);
    }
    let good =
        whither().arg("annotate").arg(run.run()).arg("--core").arg("../../docs/reference/core.toml").output().unwrap();
    assert!(good.status.success(), "{}", text(&good.stderr));
    let calls = whither().arg("annotate").arg(run.run()).args(["--calls", "0"]).output().unwrap();
    refused(&calls, 2, "no number above 0");
}
