//! From a hand-made profile through the lens to the page: the body of the page, without style and
//! script, is compared with the recorded one (`cargo insta review` after a wanted change).

#![allow(clippy::unwrap_used)] // helpers of tests, outside #[test] functions

use std::ops::Range;
use std::sync::Arc;
use whither_cycles::results::Annotation;
use whither_cycles::selection::Selection;
use whither_cycles::{
    AnnotateQuery, By, Filter, FlameQuery, Query, annotate::annotate_procedure, find::procedures, flame, heat_map,
    listing,
};
use whither_image::{Function, FunctionTable, NameSource, SourceFrame};
use whither_report::html::{ReportData, page};
use whither_store::model::*;
use whither_store::symbols::Symbols;

/// `for (i = 0; i < n; i++) s += p[i];`
const CODE: &[u8] = &[
    0x31, 0xc0, // 1000 xor %eax,%eax
    0x31, 0xc9, // 1002 xor %ecx,%ecx
    0x48, 0x03, 0x04, 0xcf, // 1004 add (%rdi,%rcx,8),%rax
    0x48, 0xff, 0xc1, // 1008 inc %rcx
    0x48, 0x39, 0xf1, // 100b cmp %rsi,%rcx
    0x72, 0xf4, // 100e jb 1004
    0xc3, // 1010 ret
];

struct Fake;

impl Symbols for Fake {
    fn functions(&self, image: &Image) -> Arc<FunctionTable> {
        let function = |start, size, name: &str| Function {
            start: ImageOffset(start),
            size,
            name: name.into(),
            source: NameSource::Symbol,
        };
        let functions = match image.kind {
            ImageKind::Elf => vec![function(0x1000, 0x11, "_Z3sumPlm"), function(0x1020, 0x20, "main</script>")],
            _ => vec![function(0x40, 0x40, "clear_page_erms")],
        };
        Arc::new(FunctionTable::new(functions, ImageOffset(0x2000)))
    }

    fn frames(&self, image: &Image, at: ImageOffset) -> Vec<SourceFrame> {
        if image.kind != ImageKind::Elf || !(0x1000..0x1011).contains(&at.0) {
            return vec![];
        }
        let line = if (0x1004..0x1008).contains(&at.0) { 3 } else { 2 };
        vec![SourceFrame { function: Some("_Z3sumPlm".into()), file: Some("/src/sum.cc".into()), line, column: 0 }]
    }

    fn code(&self, image: &Image, range: Range<ImageOffset>) -> Option<Vec<u8>> {
        let at = |o: ImageOffset| usize::try_from(o.0.checked_sub(0x1000)?).ok();
        let bytes = CODE.get(at(range.start)?..at(range.end)?.min(CODE.len()))?;
        (image.kind == ImageKind::Elf).then(|| bytes.to_vec())
    }

    fn source(&self, file: &str) -> Option<Arc<Vec<String>>> {
        let text = ["long sum(long *p, size_t n) {", "  for (size_t i = 0; i < n; i++)", "    s += p[i]; // <&>", "}"];
        (file == "/src/sum.cc").then(|| Arc::new(text.map(String::from).to_vec()))
    }

    fn problems(&self) -> Vec<String> {
        vec![]
    }
}

fn image(n: u8, kind: ImageKind, path: &str) -> Image {
    Image { id: ImageId([n; 20]), id_kind: IdKind::BuildId, kind, path: path.into(), segments: vec![], size: 0x2000 }
}

fn profile() -> Profile {
    let sample = |image, process, offset, slice: u32, count| Sample {
        image: ImageIx(image),
        event: EventIx(0),
        process: ProcessIx(process),
        tid: 0,
        slice: 1_700_000_000 + slice,
        offset: ImageOffset(offset),
        period: 1_000_000,
        count,
    };
    let process = |pid, comm: &str| Process {
        key: u64::from(pid),
        pid,
        start_ns: 0,
        comm: comm.into(),
        exe: format!("/usr/bin/{comm}"),
        cgroup: String::new(),
    };
    let frame = |image, offset| Frame { image: ImageIx(image), offset: ImageOffset(offset) };
    let stack = |frames: &[Frame]| Stack { frames: frames.to_vec(), end: StackEnd::Complete };
    let with_stack = |stack, slice: u32, count| StackSample {
        stack: StackIx(stack),
        event: EventIx(0),
        process: ProcessIx(0),
        tid: 0,
        slice: 1_700_000_000 + slice,
        period: 1_000_000,
        count,
    };
    Profile {
        edges: Vec::new(),
        exact: Vec::new(),
        laps: Vec::new(),
        threads: Vec::new(),
        epochs: vec![EpochMeta {
            host: "box".into(),
            kernel: "6.18".into(),
            cpu: "a CPU".into(),
            cpus: 2,
            start_ns: 1_700_000_000_000_000_000,
            end_ns: 1_700_000_003_000_000_000,
            scope: "whole system".into(),
            slice_s: 1,
            notes: vec!["cpu-clock: this machine has no hardware events".into()],
            cost: OwnCost { share: 0.004, ..OwnCost::default() },
            losses: Losses { dropped: 2, ..Losses::default() },
            ..EpochMeta::default()
        }],
        events: vec![Event { name: "cpu-clock".into(), unit: EventUnit::Nanoseconds, precision: Precision::Skid(1) }],
        images: vec![image(1, ImageKind::Elf, "/usr/bin/app"), image(2, ImageKind::Kernel, "[kernel]")],
        processes: vec![process(7, "app"), process(8, "<b>&co")],
        samples: vec![
            sample(0, 0, 0x1008, 0, 70),
            sample(0, 0, 0x100b, 1, 10),
            sample(0, 0, 0x1024, 2, 15),
            sample(1, 1, 0x48, 2, 5),
        ],
        stacks: vec![stack(&[frame(0, 0x1008), frame(0, 0x1030)]), stack(&[frame(0, 0x1024)])],
        stack_samples: vec![with_stack(0, 0, 70), with_stack(1, 2, 15)],
        rates: vec![],
    }
}

fn data(profile: &Profile) -> ReportData {
    let filter = Filter::default();
    let query = |by| Query { by: vec![by], limit: Some(20), ..Query::default() };
    let listings: Vec<_> =
        [By::Image, By::Proc, By::Process].map(|by| listing(profile, &Fake, &query(by)).unwrap()).into();
    let selection = Selection::new(profile, &filter, &[]).unwrap();
    let top = procedures(&selection, &Fake);
    let annotate = |p| {
        let annotation = annotate_procedure(&selection, &Fake, p, &AnnotateQuery::default());
        // The lens's own tests hold its remarks; here they would tie the page to their wording.
        Annotation { notes: vec!["a remark".into()], ..annotation }
    };
    ReportData {
        title: "golden <page>".into(),
        provenance: listings[0].provenance.clone(),
        annotations: top.iter().take(2).map(|p| annotate(p).into()).collect(),
        listings,
        flame: Some(flame(profile, &Fake, &FlameQuery::default()).unwrap()),
        heat: Some(heat_map(profile, &Fake, &query(By::Proc), 10, 100).unwrap()),
        ..ReportData::default()
    }
}

/// The body with one element per line.
fn body(page: &str) -> String {
    let start = page.find("<body>").unwrap();
    let end = page.rfind("<footer>").unwrap();
    page[start..end].replace("><", ">\n<")
}

#[test]
fn page_from_a_profile_is_the_recorded_one() {
    insta::assert_snapshot!(body(&page(&data(&profile()))));
}

#[test]
fn page_shows_what_the_profile_holds() {
    let page = page(&data(&profile()));
    // 70 samples at the instruction after the load were waiting for the load.
    assert!(
        page.contains("<td class=\"n h\" style=\"--h:100%;--w:87.5%\">87.50</td><td class=\"n\">70</td>"),
        "load is not hottest"
    );
    for shown in [
        "sum(long*, unsigned long)",
        "main&lt;/script&gt;",
        "&lt;b&gt;&amp;co (8)",
        "s += p[i]; // &lt;&amp;&gt;",
        "2 samples dropped",
    ] {
        assert!(page.contains(shown), "{shown} is missing");
    }
    assert!(!page.contains("main</script>"));
}
