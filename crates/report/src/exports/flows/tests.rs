//! The copy loop in the formats of optimisers.

use super::*;
use crate::analysis_fixture;
use std::ops::Range;
use whither_cycles::results::analysis::Scale;
use whither_image::{Declared, Function, NameSource, Segment, SourceFrame};
use whither_store::model::{IdKind, ImageId, ImageKind};

/// Names and lines of the copy loop.
struct Fake;

impl Symbols for Fake {
    fn functions(&self, _: &Image) -> Arc<FunctionTable> {
        let f = |start: u64, size: u64, name: &str| Function {
            start: ImageOffset(start),
            size,
            name: name.into(),
            source: NameSource::Symbol,
        };
        Arc::new(FunctionTable::new(vec![f(0x1030, 16, "abort"), f(0x1170, 0x2b, "copy")], ImageOffset(0x2000)))
    }

    fn frames(&self, _: &Image, _: ImageOffset) -> Vec<SourceFrame> {
        Vec::new()
    }

    fn code(&self, _: &Image, range: Range<ImageOffset>) -> Option<Vec<u8>> {
        // The call of `abort` alone.
        (range.start.0 == 0x1196).then(|| vec![0xe8, 0x95, 0xfe, 0xff, 0xff])
    }

    fn source(&self, _: &str) -> Option<Arc<Vec<String>>> {
        None
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    fn declared(&self, _: &Image, _: &[Range<Svma>]) -> Declared {
        Declared::default()
    }
}

fn image() -> Image {
    Image {
        id: ImageId([7; 20]),
        id_kind: IdKind::BuildId,
        kind: ImageKind::Elf,
        path: "/usr/bin/bench".into(),
        segments: vec![Segment { offset: 0x1000, address: 0x1000, size: 0x1000 }],
        size: 0x4000,
    }
}

fn written(format: FlowFormat, analysis: Analysis) -> (String, Result<Written, Error>) {
    let image = image();
    let flows = Flows { image: &image, start: ImageOffset(0x1170), name: "copy".into(), analysis };
    let mut out = Vec::new();
    let result = write(format, &[flows], &Fake, &mut out);
    (String::from_utf8(out).unwrap(), result)
}

#[test]
fn bolt_gets_taken_branches_and_calls() {
    let mut a = analysis_fixture::analysis();
    a.blocks[2].frequency.value = 3.0;
    let (text, result) = written(FlowFormat::Bolt, a);
    assert!(result.unwrap().absolute);
    let expect = "1 copy 3 1 copy 2a 0 500\n1 copy 1f 1 copy 10 0 1520000000\n1 copy 1f 1 copy 2a 0 11500\n\
                  1 copy 26 1 abort 0 0 3\n";
    assert_eq!(text, expect);
}

#[test]
fn blocks_are_one_line_each() {
    let (text, _) = written(FlowFormat::Blocks, analysis_fixture::analysis());
    assert_eq!(text.lines().count(), 5);
    let second = text.lines().nth(2).unwrap();
    assert!(
        second.contains(",copy,2,0x1180,5,1,1530000000,") && second.contains(",high,absolute,1530000000,"),
        "{second}"
    );
}

#[test]
fn relative_executions_are_scaled_by_samples() {
    let mut a = analysis_fixture::analysis();
    a.scale = Scale::Relative;
    let samples: f64 = a.blocks.iter().map(|b| b.samples).sum();
    let lens: Vec<usize> = a.blocks.iter().map(|b| b.len).collect();
    let (text, result) = written(FlowFormat::Blocks, a);
    assert!(!result.unwrap().absolute);
    let counts = text.lines().skip(1).map(|l| l.split(',').nth(12).unwrap().parse::<f64>().unwrap());
    let executed: f64 = counts.zip(lens).map(|(c, len)| c * len as f64).sum();
    assert!((executed / (samples * PER_SAMPLE) - 1.0).abs() < 1e-3, "{executed} for {samples} samples");
}

#[test]
fn without_lines_autofdo_says_nothing_of_a_function() {
    let (text, result) = written(FlowFormat::Autofdo, analysis_fixture::analysis());
    let result = result.unwrap();
    assert_eq!((text.as_str(), result.procedures, result.without_lines), ("", 0, 1));
}

#[test]
fn nothing_analysed_is_an_error() {
    let mut a =
        Analysis { notes: vec!["not analysed: samples of this event are not time".into()], ..Analysis::default() };
    a.annotation.procedure = "copy".into();
    let (_, result) = written(FlowFormat::Bolt, a);
    let refused = result.unwrap_err();
    assert!(matches!(refused, Error::NoFlows { .. }));
    let why = "no sampled procedure could be analysed: copy: samples of this event are not time";
    assert_eq!(refused.to_string(), why, "the reason, not a guess");
}
