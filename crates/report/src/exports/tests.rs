//! Every export of one hand-made profile is read back and its totals compared with the profile's;
//! `go tool pprof` reads the pprof file where Go is installed.

use super::*;
use flate2::read::GzDecoder;
use proptest::prelude::*;
use prost::Message;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use whither_image::{
    Function, FunctionTable, IdKind, ImageId, ImageKind, ImageOffset, NameSource, Segment, SourceFrame,
};
use whither_store::model::{
    EpochMeta, Event, EventUnit, Frame, Image, ImageIx, Losses, Precision, Process, ProcessIx, Sample, Stack, StackEnd,
    StackIx, StackSample,
};

/// Functions of 0x100 bytes from 0x1000 on; `inlined` at 0x1140 is inlined into the second one.
struct Fake {
    names: Vec<String>,
}

impl Symbols for Fake {
    fn functions(&self, image: &Image) -> Arc<FunctionTable> {
        if matches!(image.kind, ImageKind::Jit | ImageKind::Anon) {
            return Arc::default();
        }
        let functions = self.names.iter().enumerate().map(|(i, name)| Function {
            start: ImageOffset(0x1000 + 0x100 * i as u64),
            size: 0x100,
            name: name.as_str().into(),
            source: NameSource::Symbol,
        });
        Arc::new(FunctionTable::new(functions.collect(), ImageOffset(0x10_0000)))
    }

    fn frames(&self, image: &Image, at: ImageOffset) -> Vec<SourceFrame> {
        if image.kind != ImageKind::Elf || at.0 != 0x1140 {
            return vec![];
        }
        let frame = |name: &str, line| SourceFrame {
            function: Some(name.into()),
            file: Some("/src/a.c".into()),
            line,
            column: 0,
        };
        vec![frame("inlined", 7), frame("second", 42)]
    }

    fn code(&self, _: &Image, _: Range<ImageOffset>) -> Option<Vec<u8>> {
        None
    }

    fn source(&self, _: &str) -> Option<Arc<Vec<String>>> {
        None
    }

    fn problems(&self) -> Vec<String> {
        vec![]
    }
}

fn fake() -> Fake {
    Fake { names: ["first", "second", "third<int, a;b>", "\"quoted\", and\nbroken"].map(String::from).to_vec() }
}

fn image(byte: u8, kind: ImageKind, path: &str, address: u64) -> Image {
    let segments =
        if kind == ImageKind::Elf { vec![Segment { offset: 0x1000, address, size: 0x9000 }] } else { vec![] };
    let id_kind = if kind == ImageKind::Elf { IdKind::BuildId } else { IdKind::Synthetic };
    Image { id: ImageId([byte; 20]), id_kind, kind, path: path.into(), segments, size: 0xa000 }
}

fn sample(event: u16, process: u32, image: u32, offset: u64, slice: u32, count: u32) -> Sample {
    Sample {
        image: ImageIx(image),
        event: EventIx(event),
        process: ProcessIx(process),
        tid: 0,
        slice,
        offset: ImageOffset(offset),
        period: if event == 0 { 200_000 } else { 100 },
        count,
    }
}

/// Whole stacks, a leaf with stacks for a part of its samples, a leaf whose stacks weigh too much,
/// samples without any, an event without any, unknown and generated code.
fn profile() -> Profile {
    let event = |name: &str, unit| Event { name: name.into(), unit, precision: Precision::Unknown };
    let process = |pid: u32, comm: &str| Process {
        key: pid.into(),
        pid,
        start_ns: 0,
        comm: comm.into(),
        exe: String::new(),
        cgroup: "/a".into(),
    };
    let frame = |image, offset| Frame { image: ImageIx(image), offset: ImageOffset(offset) };
    let stack = |frames: &[Frame], end| Stack { frames: frames.to_vec(), end };
    let with_stack = |stack, count, period| StackSample {
        stack: StackIx(stack),
        event: EventIx(0),
        process: ProcessIx(0),
        tid: 0,
        slice: 100,
        period,
        count,
    };
    Profile {
        edges: Vec::new(),
        exact: Vec::new(),
        laps: Vec::new(),
        threads: Vec::new(),
        epochs: vec![EpochMeta {
            host: "h".into(),
            scope: "whole system".into(),
            start_ns: 100_000_000_000,
            end_ns: 110_000_000_000,
            slice_s: 1,
            notes: vec!["cpu-clock: no PMU here".into()],
            losses: Losses { dropped: 3, ..Losses::default() },
            ..EpochMeta::default()
        }],
        events: vec![event("cpu-clock", EventUnit::Nanoseconds), event("page-faults", EventUnit::Count)],
        images: vec![
            image(1, ImageKind::Elf, "/usr/bin/app", 0x40_1000),
            image(2, ImageKind::Elf, "/usr/lib/lib,c.so.6", 0x1000),
            image(3, ImageKind::Kernel, "[kernel]", 0),
            image(4, ImageKind::Unknown, "[unknown: gone]", 0),
            image(5, ImageKind::Jit, "[jit]", 0),
        ],
        processes: vec![process(10, "app"), process(0, "cc1;\"x\"")],
        samples: vec![
            sample(0, 0, 0, 0x1010, 100, 10),
            sample(0, 0, 0, 0x1140, 100, 4),
            sample(0, 0, 2, 0x1210, 100, 1),
            sample(0, 0, 0, 0x1010, 101, 5),
            sample(0, 1, 1, 0x1310, 100, 7),
            sample(0, 1, 3, 0, 100, 1),
            sample(0, 1, 4, 0x7fff_1234_5678, 102, 2),
            sample(1, 0, 1, 0x1010, 100, 3),
        ],
        stacks: vec![
            stack(&[frame(0, 0x1010), frame(0, 0x1150)], StackEnd::Complete),
            stack(&[frame(0, 0x1010), frame(1, 0x1250)], StackEnd::Truncated),
            stack(&[frame(2, 0x1210), frame(0, 0x1010), frame(0, 0x1150)], StackEnd::Complete),
        ],
        stack_samples: vec![with_stack(0, 6, 200_000), with_stack(1, 1, 200_000), with_stack(2, 1, 300_000)],
        rates: vec![],
    }
}

/// Samples and weight per event.
fn totals(p: &Profile) -> Vec<(u64, u64)> {
    let mut sums = vec![(0, 0); p.events.len()];
    for s in &p.samples {
        let sum: &mut (u64, u64) = &mut sums[usize::from(s.event.0)];
        *sum = (sum.0 + u64::from(s.count), sum.1 + s.weight());
    }
    sums
}

fn export(format: Format, p: &Profile, symbols: &Fake, options: &Options) -> Vec<u8> {
    let mut out = Vec::new();
    write(format, p, symbols, options, &mut out).unwrap();
    out
}

fn with_lines() -> Options {
    Options { lines: true, ..Options::default() }
}

fn pprof_of(p: &Profile, symbols: &Fake) -> pprof_proto::Profile {
    let mut bytes = Vec::new();
    GzDecoder::new(&export(Format::Pprof, p, symbols, &with_lines())[..]).read_to_end(&mut bytes).unwrap();
    pprof_proto::Profile::decode(&bytes[..]).unwrap()
}

#[test]
fn rows_sum_to_the_samples_by_every_key() {
    let p = profile();
    let mut by_leaf: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for r in rows::rows(&p) {
        let sum = by_leaf.entry((r.event, r.process, r.slice, r.leaf)).or_default();
        *sum = (sum.0 + r.samples, sum.1 + r.weight);
    }
    assert_eq!(by_leaf.len(), p.samples.len());
    for s in &p.samples {
        let leaf = Frame { image: s.image, offset: s.offset };
        assert_eq!(by_leaf[&(s.event, s.process, s.slice, leaf)], (u64::from(s.count), s.weight()));
    }
}

#[test]
fn folded_lines_are_these() {
    let p = profile();
    let text =
        String::from_utf8(export(Format::Folded, &p, &fake(), &Options { figure: Figure::Samples, ..with_lines() }))
            .unwrap();
    let expected = "\
app;[no stack];first 8
app;[no stack];second;inlined_[i] 4
app;[stack cut short];third<int, a:b>;first 1
app;second;first 6
app;second;first;third<int, a:b>_[k] 1
cc1:\"x\";[no stack];\"quoted\", and broken 7
cc1:\"x\";[no stack];[jit]_[j] 2
cc1:\"x\";[no stack];[unknown: gone] 1
";
    assert_eq!(text, expected);
}

#[test]
fn thinned_stacks_are_scaled_to_their_process() {
    let mut p = profile();
    for s in &mut p.stack_samples {
        s.period *= 10;
        s.count = 1;
    }
    let text =
        String::from_utf8(export(Format::Folded, &p, &fake(), &Options { figure: Figure::Samples, ..with_lines() }))
            .unwrap();
    // 20 samples of `app` over stacks of weight 20 : 20 : 30.
    let expected = "\
app;[stack cut short];third<int, a:b>;first 5
app;second;first 6
app;second;first;third<int, a:b>_[k] 9
cc1:\"x\";[no stack];\"quoted\", and broken 7
cc1:\"x\";[no stack];[jit]_[j] 2
cc1:\"x\";[no stack];[unknown: gone] 1
";
    assert_eq!(text, expected);
}

#[test]
fn folded_weights_sum_to_the_profile() {
    let p = profile();
    for (event, total) in p.events.iter().zip(totals(&p)) {
        let options = Options { event: Some(event.name.clone()), ..Options::default() };
        let text = String::from_utf8(export(Format::Folded, &p, &fake(), &options)).unwrap();
        let sum: u64 = text.lines().map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, total.1, "{}", event.name);
    }
}

#[test]
fn an_event_without_stacks_has_no_stack_marks() {
    let options = Options { event: Some("page-faults".into()), ..Options::default() };
    let text = String::from_utf8(export(Format::Folded, &profile(), &fake(), &options)).unwrap();
    assert_eq!(text, "app;first 300\n");
}

#[test]
fn pprof_sums_are_the_profiles() {
    let p = profile();
    let proto = pprof_of(&p, &fake());
    let expected: Vec<i64> = totals(&p).iter().flat_map(|t| [t.0 as i64, t.1 as i64]).collect();
    let sums: Vec<i64> = (0..expected.len()).map(|i| proto.sample.iter().map(|s| s.value[i]).sum()).collect();
    assert_eq!(sums, expected);
}

#[test]
fn pprof_indices_and_ranges_hold() {
    let proto = pprof_of(&profile(), &fake());
    let text = |i: i64| proto.string_table[usize::try_from(i).unwrap()].as_str();
    assert_eq!(proto.string_table[0], "");
    let types: Vec<_> = proto.sample_type.iter().map(|t| (text(t.kind), text(t.unit))).collect();
    assert_eq!(
        types,
        [
            ("cpu-clock-samples", "count"),
            ("cpu-clock", "nanoseconds"),
            ("page-faults-samples", "count"),
            ("page-faults", "count")
        ]
    );
    for l in proto.location.iter().filter(|l| l.mapping_id > 0) {
        let m = &proto.mapping[l.mapping_id as usize - 1];
        assert!((m.memory_start..m.memory_limit).contains(&l.address), "{l:?} {m:?}");
        assert!(l.line.iter().all(|l| l.function_id as usize <= proto.function.len()));
    }
    for s in &proto.sample {
        assert!(s.location_id.iter().all(|&id| proto.location[id as usize - 1].id == id));
    }
    let app = proto.mapping.iter().find(|m| text(m.filename) == "/usr/bin/app").unwrap();
    assert_eq!(
        (text(app.build_id), app.memory_start, app.file_offset),
        ("0101010101010101010101010101010101010101", 0x40_1000, 0x1000)
    );
    assert!(proto.comment.iter().any(|&c| text(c) == "3 samples dropped by whither"));
}

#[test]
fn pprof_keeps_inlined_lines_innermost_first() {
    let proto = pprof_of(&profile(), &fake());
    let inlined = proto.location.iter().find(|l| l.line.len() == 2).unwrap();
    let name = |i: usize| &proto.string_table[proto.function[inlined.line[i].function_id as usize - 1].name as usize];
    assert_eq!(
        (name(0).as_str(), inlined.line[0].line, name(1).as_str(), inlined.line[1].line),
        ("inlined", 7, "second", 42)
    );
}

#[test]
fn go_tool_pprof_reads_the_file_and_agrees() {
    let go = ["go", "/usr/local/go/bin/go"]
        .into_iter()
        .find(|go| Command::new(go).arg("version").output().is_ok_and(|o| o.status.success()));
    let Some(go) = go else {
        eprintln!("SKIPPED 1: Go is not installed; its pprof did not read the export");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("profile.pb.gz");
    std::fs::write(&path, export(Format::Pprof, &profile(), &fake(), &with_lines())).unwrap();
    let out = Command::new(go)
        .args(["tool", "pprof", "-top", "-symbolize=none", "-unit=ns", "-nodefraction=0", "-sample_index=cpu-clock"])
        .arg(&path)
        .env("PPROF_TMPDIR", dir.path())
        .env("GOPROXY", "off")
        .output()
        .unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&out.stdout).into_owned(), String::from_utf8_lossy(&out.stderr).into_owned());
    if !out.status.success() && errors.contains("no such tool") {
        eprintln!("SKIPPED 1: this Go has no pprof tool");
        return;
    }
    assert!(out.status.success(), "{errors}");
    let total = totals(&profile())[0].1;
    assert!(text.contains(&format!("of {total}ns total")), "{text}");
    // 15 of 30 samples end in `first`, as `prof` would say.
    assert!(text.lines().any(|l| l.contains("3000000ns") && l.contains("50.00%") && l.ends_with("first")), "{text}");
    assert!(text.lines().any(|l| l.ends_with("inlined (inline)")), "{text}");
}

#[test]
fn csv_is_one_line_per_row_and_quotes() {
    let p = profile();
    let text = String::from_utf8(export(Format::Csv, &p, &fake(), &with_lines())).unwrap();
    assert_eq!(text.lines().count(), p.samples.len() + 1);
    assert!(text.contains("\"/usr/lib/lib,c.so.6\"") && text.contains("\"cc1;\"\"x\"\"\""));
    assert!(text.contains("cpu-clock,ns,/usr/bin/app,0101010101010101010101010101010101010101,second,0x401140,/src/a.c,7,app,10,0,/a,100,200000,4,800000\r\n"), "{text}");
}

fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn speedscope_profiles_sum_and_point_into_the_frames() {
    let p = profile();
    let file = json(&export(Format::Speedscope, &p, &fake(), &with_lines()));
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = file["shared"]["frames"].as_array().unwrap();
    assert!(frames.iter().all(|f| f["name"].is_string()));
    let profiles = file["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), 2);
    for (profile, total) in profiles.iter().zip(totals(&p)) {
        assert_eq!(profile["type"], "sampled");
        let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
        assert_eq!(samples.len(), weights.len());
        assert_eq!(weights.iter().map(|w| w.as_u64().unwrap()).sum::<u64>(), total.1);
        assert_eq!(profile["endValue"], total.1);
        assert!(
            samples.iter().flat_map(|s| s.as_array().unwrap()).all(|ix| ix.as_u64().unwrap() < frames.len() as u64)
        );
    }
    assert_eq!((&profiles[0]["unit"], &profiles[1]["unit"]), (&"nanoseconds".into(), &"none".into()));
}

#[test]
fn firefox_threads_sum_to_the_samples_and_name_functions() {
    let p = profile();
    let file = json(&export(Format::Firefox, &p, &fake(), &with_lines()));
    let threads = file["threads"].as_array().unwrap();
    let sum: i64 =
        threads.iter().flat_map(|t| t["samples"]["weight"].as_array().unwrap()).map(|w| w.as_i64().unwrap()).sum();
    assert_eq!(sum, totals(&p)[0].0 as i64);
    let text = file.to_string();
    for name in ["first", "inlined", "third<int, a;b>", "[jit]", "[unknown: gone]", "[no stack]"] {
        assert!(text.contains(name), "{name} is missing");
    }
    assert!(file["meta"]["symbolicated"].as_bool().unwrap());
    assert_eq!(threads.len(), 2);
}

#[test]
fn firefox_times_never_go_back_and_stay_in_their_slices() {
    let p = profile();
    let file = json(&export(Format::Firefox, &p, &fake(), &Options::default()));
    for t in file["threads"].as_array().unwrap() {
        let deltas: Vec<f64> =
            t["samples"]["timeDeltas"].as_array().unwrap().iter().map(|d| d.as_f64().unwrap()).collect();
        assert!(deltas.iter().all(|&d| d >= 0.0));
        assert!(deltas.iter().sum::<f64>() < 3000.0);
    }
}

#[test]
fn flame_graph_is_an_svg_with_the_total() {
    let text = String::from_utf8(export(Format::Flamegraph, &profile(), &fake(), &Options::default())).unwrap();
    assert!(text.contains("<svg") && text.contains("all (6,000,000 ns, 100%)"), "{}", &text[..400]);
    assert!(text.contains("third&lt;int, a:b&gt;"));
}

#[test]
fn errors_say_what_there_is() {
    let options = Options { event: Some("cycles".into()), ..Options::default() };
    let e = write(Format::Folded, &profile(), &fake(), &options, &mut Vec::new()).unwrap_err();
    assert_eq!(e.to_string(), "this profile has no event `cycles`; it has cpu-clock, page-faults");
    let empty = Profile { samples: vec![], stack_samples: vec![], ..profile() };
    for (_, format) in Format::ALL.iter().filter(|(_, f)| *f != Format::Csv) {
        assert!(
            matches!(write(*format, &empty, &fake(), &Options::default(), &mut Vec::new()), Err(Error::Empty { .. })),
            "{format:?}"
        );
    }
    for (_, format) in Format::ALL {
        assert!(
            write(format, &Profile::default(), &fake(), &Options::default(), &mut Vec::new()).is_err()
                || format == Format::Csv
        );
    }
}

#[test]
fn a_failing_writer_is_reported() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for (name, format) in Format::ALL {
        let e = write(format, &profile(), &fake(), &Options::default(), &mut Full).unwrap_err();
        assert!(e.to_string().starts_with(&format!("cannot write the {name} export")), "{e}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_names_break_no_format(names in prop::collection::vec("\\PC*|[;\"\\\\\n\r\t\u{0}<>&,]*", 4)) {
        let (p, symbols) = (profile(), Fake { names });
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&export(Format::Speedscope, &p, &symbols, &with_lines())).is_ok());
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&export(Format::Firefox, &p, &symbols, &with_lines())).is_ok());
        prop_assert_eq!(pprof_of(&p, &symbols).sample.iter().map(|s| s.value[0]).sum::<i64>(), totals(&p)[0].0 as i64);
        let folded = String::from_utf8(export(Format::Folded, &p, &symbols, &with_lines())).unwrap();
        let sum: u64 = folded.lines().map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        prop_assert_eq!(sum, totals(&p)[0].1);
    }

    #[test]
    fn totals_hold_whatever_the_stacks_weigh(weights in prop::collection::vec((0_u32..3, 0_u32..50, 1_u64..3_000_000), 0..12)) {
        let mut p = profile();
        p.stack_samples = weights.iter().map(|&(stack, count, period)| StackSample { stack: StackIx(stack), event: EventIx(0), process: ProcessIx(0), tid: 0, slice: 100, period, count }).collect();
        let (mut samples, mut weight) = (0, 0);
        for r in rows::rows(&p).iter().filter(|r| r.event == EventIx(0)) {
            samples += r.samples;
            weight += r.weight;
        }
        prop_assert_eq!((samples, weight), totals(&p)[0]);
    }
}
