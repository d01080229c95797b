//! Both forms there and back, old and broken files, and what the answer says about a profile of Coz.

use super::*;
use crate::{AnalyseOptions, analyse};
use proptest::prelude::*;
use whither_store::causal::{DropReason, PointKind, PointVisits, ProgressPoint, TargetSamples};

const OLD: &str = "startup\ttime=1415880321185373496\n\
    experiment\tselected=a/b.cpp:287\tspeedup=0.85\tduration=94120166\tselected-samples=25\n\
    progress-point\tname=b.cpp:337\ttype=source\tdelta=86\n\
    experiment\tselected=a/b.cpp:284\tspeedup=0.00\tduration=100065636\tselected-samples=103\n\
    progress-point\tname=b.cpp:337\ttype=source\tdelta=90\n\
    shutdown\ttime=5\n\
    runtime\ttime=300000000\n\
    samples\tlocation=a/b.cpp:287\tcount=250\n";

const NEW: &str = r#"{"type":"startup","time":7}
{"type":"experiment","selected":"x.c:3","speedup":0.35,"duration":500000000,"selected_samples":40}
{"type":"throughput-point","name":"done","delta":12}
{"type":"latency-point","name":"request","arrivals":10,"departures":8,"difference":5}
{"type":"runtime","time":900000000}
{"type":"samples","location":"x.c:3","count":77}
"#;

#[test]
fn files_of_the_paper_are_read() {
    let run = import(OLD).unwrap();
    assert_eq!((run.targets.len(), run.windows.len(), run.points.len(), run.meta.runs), (2, 2, 1, 1));
    let window = &run.windows[0];
    assert_eq!((window.percent, window.hits, window.delay_ns), (85, 25, 21_250_000));
    assert_eq!(value(window, Measure::Period(0)), Some((94_120_166.0 / 86.0, 86.0)));
    assert_eq!((run.targets[0].file.as_str(), run.targets[0].line, run.targets[0].unit), ("a/b.cpp", 287, Unit::Line));
    assert_eq!((run.samples[0].all, run.meta.duration_ns), (250, 300_000_000));
}

#[test]
fn json_lines_are_read_and_latency_is_that_of_one_instant() {
    let run = import(NEW).unwrap();
    assert_eq!(run.points.iter().map(|p| p.end).collect::<Vec<_>>(), [None, Some(2), None]);
    // W = L / lambda = 5 / (10 / 0.5 s).
    assert_eq!(value(&run.windows[0], Measure::Latency(1, 2)), Some((250e6, 10.0)));
    assert_eq!(run.windows[0].visits[1].under_way, 3);
}

#[test]
fn broken_lines_are_told_and_others_kept() {
    let text = format!("{OLD}experiment\tselected=a\tspeedup=7\tduration=1\n{{\"type\":\nexperiment\tselec");
    let run = import(&text).unwrap();
    assert_eq!((run.windows.len(), run.notes.len()), (2, 6), "{:?}", run.notes);
    assert!(run.notes[1].contains("line 9") && run.notes[1].contains("speed-up of 7"), "{:?}", run.notes);
    assert_eq!(import(""), Err(CozError::NoExperiment { lines: 0, problem: None }));
    let refused = import("experiment\tselected=a").unwrap_err().to_string();
    assert!(refused.contains("experiment without speedup"), "{refused}");
}

#[test]
fn a_profile_that_was_cut_off_is_told() {
    let told = |text: &str| import(text).unwrap().notes.iter().any(|n| n.contains("cut off"));
    assert!(!told(OLD) && !told(NEW) && !told(NEW.trim_end()));
    // A count that may be half of one.
    let half = "progress-point\tname=b.cpp:337\ttype=source\tdelta=9";
    let cut = &OLD[..OLD.find(half).unwrap() + half.len()];
    assert!(told(cut) && import(cut).unwrap().windows[1].visits.is_empty());
    // Whole lines, and no end.
    assert!(told(&OLD[..OLD.find("shutdown").unwrap()]) && told(&NEW[..NEW.find(r#"{"type":"runtime"#).unwrap()]));
    assert!(told(&format!("{NEW}{{\"type\":\"expe")));
}

#[test]
fn targets_that_begin_on_one_line_stay_apart() {
    let of = |unit, name: &str, path: &[&str]| Target {
        unit,
        name: name.to_owned(),
        path: path.iter().map(|p| (*p).to_owned()).collect(),
        ..import(OLD).unwrap().targets[0].clone()
    };
    let targets = vec![
        of(Unit::Path, "ns::helper", &["reader", "main"]),
        of(Unit::Path, "ns::helper", &["writer"]),
        of(Unit::Function, "f(a::b)", &[]),
        of(Unit::Inclusive, "f", &[]),
        of(Unit::Line, "a/b.cpp:287", &[]),
    ];
    let window = |target| Window { target, ..import(OLD).unwrap().windows[0].clone() };
    let mut run = CausalRun { windows: (0..5).map(window).collect(), targets: targets.clone(), ..import(OLD).unwrap() };
    for format in [Format::Tabs, Format::JsonLines] {
        let exported = export(&run, format);
        assert!(exported.shared == 0 && exported.text.contains("a/b.cpp:287 ns::helper < writer"), "{}", exported.text);
        let again = import(&exported.text).unwrap();
        assert_eq!(again.targets, targets);
        assert_eq!(again.windows.iter().map(|w| w.target).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
    run.targets[1] = run.targets[0].clone();
    assert_eq!(export(&run, Format::Tabs).shared, 2);
    // One that is alone at its place is written as Coz would.
    run.targets.truncate(1);
    run.windows.truncate(1);
    assert!(export(&run, Format::Tabs).text.contains("selected=a/b.cpp:287\tspeedup"));
}

#[test]
fn the_executor_is_the_one_of_the_profile() {
    let executor = |text: &str| {
        let meta = import(text).unwrap().meta;
        (meta.executor, meta.executor_reason)
    };
    assert_eq!(executor(OLD), (Executor::Sleep, "as Coz does".to_owned()));
    let mut run = import(OLD).unwrap();
    (run.meta.pid, run.meta.executor) = (7, Executor::Spin);
    for format in [Format::Tabs, Format::JsonLines] {
        assert_eq!(executor(&export(&run, format).text), (Executor::Spin, "told by the profile".to_owned()));
    }
    let ours = OLD.replacen("496\n", "496\tperiod=250000\n", 1);
    assert!(executor(&ours).1.starts_with("not known"), "{:?}", executor(&ours));
}

/// Intervals are wider for dear ticks and for threads that spin: after import as before.
#[test]
fn what_makes_intervals_wide_is_written_and_read() {
    use crate::analyse::tests::two;
    let mut run = two().run(300, 1);
    (run.meta.pid, run.meta.period_ns) = (7, 1_000_000);
    (run.overhead.tick_cost_ns, run.overhead.spun) = (50_000, 0.2);
    let half = |run: &CausalRun| {
        let gain = analyse(run, &AnalyseOptions::default()).targets[0].gain.unwrap();
        (gain.high - gain.low) / 2.0
    };
    let own = half(&run);
    for format in [Format::Tabs, Format::JsonLines] {
        let again = import(&export(&run, format).text).unwrap();
        let imported = half(&again);
        assert!(own > 0.03 && imported > 0.8 * own && imported < 1.2 * own, "{own} {imported}");
        assert!(analyse(&again, &AnalyseOptions::default()).warnings.iter().any(|w| w.contains("spin")));
        assert!(again.notes.iter().all(|n| !n.contains("does not tell")), "{:?}", again.notes);
    }
    // Nobody knows of a profile of Coz.
    assert!(import(OLD).unwrap().notes.iter().any(|n| n.contains("does not tell what its ticks cost")));
}

#[test]
fn several_runs_in_a_file_stay_apart() {
    let run = import(&format!("{OLD}{OLD}")).unwrap();
    assert_eq!(run.windows.iter().map(|w| (w.run, w.stratum)).collect::<Vec<_>>(), [(0, 0), (0, 0), (1, 1), (1, 1)]);
    assert_eq!((run.meta.runs, run.samples[0].all, run.targets.len()), (2, 500, 2));
}

#[test]
fn a_profile_of_coz_gets_verdicts() {
    let mut text = "startup\ttime=1\n".to_owned();
    for i in 0..240_u64 {
        let percent = if i % 2 == 0 { 0 } else { 5 * (1 + i / 2 % 20) };
        let duration = 500_000_000 * (100 - percent.min(40)) / 100 + i % 7 * 1_000_000;
        let _ = writeln!(text, "experiment\tselected=x.c:9\tspeedup={}\tduration={duration}", percent as f64 / 100.0);
        text.push_str("throughput-point\tname=p\tdelta=50\n");
    }
    let answer = analyse(&import(&text).unwrap(), &AnalyseOptions::default());
    let row = &answer.targets[0];
    assert!(row.gain.unwrap().low > 0.25 && (row.fit.knee.unwrap() - 40.0).abs() < 5.0, "{row:?}");
}

#[test]
fn what_coz_has_no_notion_of_is_counted() {
    let mut run = import(OLD).unwrap();
    run.targets[1].unit = Unit::OffCpu;
    run.windows.push(run.windows[0].clone());
    run.windows[2].dropped = Some(DropReason::Ended);
    let exported = export(&run, Format::Tabs);
    assert_eq!((exported.left_out, exported.text.matches("experiment").count()), (1, 1));
    assert!(exported.text.contains("selected=a/b.cpp:287\tspeedup=0.85\tduration=94120166\tselected-samples=25\n"));
}

#[test]
fn stamped_windows_are_written_from_visit_to_visit() {
    let visits = PointVisits {
        visits: 11,
        first_ns: 5_000_000,
        last_ns: 105_000_000,
        first_virtual_ns: 4_000_000,
        last_virtual_ns: 84_000_000,
        ..PointVisits::default()
    };
    let run = CausalRun {
        points: vec![ProgressPoint { name: "p\tq".to_owned(), kind: PointKind::Probe, end: None }],
        targets: import(OLD).unwrap().targets,
        windows: vec![Window { wall_ns: 110_000_000, percent: 20, visits: vec![visits], ..Window::default() }],
        samples: vec![TargetSamples { target: Some(0), plain: 4, plain_ns: 9, all: 7, ..TargetSamples::default() }],
        ..CausalRun::default()
    };
    let text = export(&run, Format::Tabs).text;
    assert!(text.contains("duration=80000000") && text.contains("name=p q\tdelta=10\n"), "{text}");
    assert!(text.ends_with("runtime\ttime=9\nsamples\tlocation=a/b.cpp:287\tcount=4\n"), "{text}");
}

#[test]
fn windows_that_were_all_delay_are_no_experiments() {
    let window = |percent, delay_ns| Window { percent, wall_ns: 100_000_000, delay_ns, ..Window::default() };
    let run = CausalRun {
        points: vec![ProgressPoint { name: "p".to_owned(), kind: PointKind::Probe, end: None }],
        targets: import(OLD).unwrap().targets,
        windows: vec![window(100, 100_000_000), window(50, 50_000_000)],
        ..CausalRun::default()
    };
    let exported = export(&run, Format::Tabs);
    let of = |what: &str| exported.text.lines().filter(|l| l.starts_with(what)).count();
    assert_eq!((of("experiment"), of("throughput-point"), exported.left_out), (1, 1, 0), "{}", exported.text);
    assert!(exported.text.contains("duration=50000000"), "{}", exported.text);
}

/// A line of half the time of one thread, sampled four times as often as Coz does: what is read back gains as much as what was
/// written. Taken for Coz's, the delays were four times as long and the run shorter by them.
#[test]
fn our_own_profiles_keep_their_gains() {
    let mut text = String::from("startup\ttime=1\tperiod=250000\n");
    for percent in [0, 30, 0, 60, 0, 90, 0, 30, 0, 60, 0, 90] {
        let virtual_ns = 100_000_000 - 500_000 * percent;
        text.push_str(&format!(
            "experiment\tselected=a.c:1\tspeedup={:.2}\tduration={virtual_ns}\tselected-samples=200\n",
            percent as f64 / 100.0
        ));
        text.push_str("throughput-point\tname=p\tdelta=50\n");
    }
    text.push_str("runtime\ttime=600000000\nsamples\tlocation=a.c:1\tcount=1200\n");
    let run = import(&text).unwrap();
    let gain = |run: &CausalRun| analyse(run, &AnalyseOptions::default()).targets[0].gain.unwrap().y;
    assert!((gain(&run) - 0.15).abs() < 0.01, "{}", gain(&run));
    let again = import(&export(&run, Format::Tabs).text).unwrap();
    assert!((gain(&again) - gain(&run)).abs() < 1e-6, "{} and {}", gain(&again), gain(&run));
}

fn profiles() -> impl Strategy<Value = String> {
    let experiment = ("[a-z/. \"\\\\]{1,9}", 1..5000_u32, 0..=100_u32, 1..10_u64.pow(12), 0..9999_u64, 1..9999_u64);
    prop::collection::vec(experiment, 1..40).prop_map(|all| {
        let lines = all.into_iter().map(|(file, line, percent, duration, hits, delta)| {
            let speedup = f64::from(percent) / 100.0;
            format!(
                "experiment\tselected={file}:{line}\tspeedup={speedup:.2}\tduration={duration}\tselected-samples={hits}\n\
                 throughput-point\tname=p\tdelta={delta}\n"
            )
        });
        lines.collect()
    })
}

proptest! {
    #[test]
    fn there_and_back(text in profiles(), json in any::<bool>()) {
        let run = import(&text).unwrap();
        let format = if json { Format::JsonLines } else { Format::Tabs };
        let exported = export(&run, format);
        prop_assert_eq!(exported.left_out, 0);
        let again = import(&exported.text).unwrap();
        prop_assert_eq!(&run.windows, &again.windows);
        prop_assert_eq!(&run.targets, &again.targets);
        prop_assert_eq!(&run.points, &again.points);
    }

    #[test]
    fn any_text_is_read_without_harm(text in "([a-z-]{0,12}[\t={}\":,.0-9a-z-]{0,60}\n){0,12}", tail in any::<String>()) {
        let _ = import(&text);
        if let Ok(run) = import(&format!("{OLD}{text}{tail}")) {
            let _ = export(&run, Format::JsonLines);
            let _ = analyse(&run, &AnalyseOptions::default());
        }
    }
}
