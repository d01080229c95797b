//! Estimates against exact counts where the answer is known: what cannot be compared is refused with the reason, what
//! callgrind counts otherwise is left out.

use crate::world::{FakeSymbols, World};
use std::ops::Range;
use std::sync::Arc;
use whither_cycles::accuracy::accuracy;
use whither_cycles::accuracy::callgrind::{Exact, ExactObject};
use whither_cycles::results::accuracy::Accuracy;
use whither_cycles::{AnalyseQuery, Error};
use whither_image::{FunctionTable, ImageOffset, SourceFrame, StatedBytes, Svma};
use whither_store::model::{EventUnit, Image, ImageKind, Precision};
use whither_store::symbols::Symbols;

/// A loop of a thousand rounds around `rep movsb` and twenty increments.
const COPY: u64 = 0x02;
const REPEATED: u64 = 0x07;
const JUMP: u64 = 0x38;
const END: u64 = 0x3a;

fn code() -> Vec<u8> {
    let mut code = vec![0x31, 0xc0, 0xb9, 0x10, 0, 0, 0, 0xf3, 0xa4];
    code.extend([0xff, 0xc3].repeat(20));
    code.extend([0xff, 0xc0, 0x3d, 0xe8, 0x03, 0, 0, 0x75, 0xc8, 0xc3]);
    code
}

/// The world's names, and the code of its only image.
struct WithCode(FakeSymbols);

impl Symbols for WithCode {
    fn functions(&self, image: &Image) -> Arc<FunctionTable> {
        self.0.functions(image)
    }
    fn frames(&self, image: &Image, at: ImageOffset) -> Vec<SourceFrame> {
        self.0.frames(image, at)
    }
    fn code(&self, image: &Image, range: Range<ImageOffset>) -> Option<Vec<u8>> {
        self.0.code(image, range)
    }
    fn stated(&self, _: &Image) -> Option<Arc<StatedBytes>> {
        Some(Arc::new(StatedBytes::from_pieces([(Svma(0), &code()[..])])))
    }
    fn source(&self, _: &str) -> Option<Arc<Vec<String>>> {
        None
    }
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

fn world(event: &str, unit: EventUnit) -> World {
    let mut w = World::new(event);
    w.profile.events[0].unit = unit;
    w.profile.events[0].precision = Precision::Exact;
    let app = w.image(ImageKind::Elf, "/usr/bin/app");
    let process = w.process(5, "app", "/");
    w.function(app, 0, code().len() as u64, "copy");
    w.code(app, 0, &code());
    for at in [REPEATED, 0x09, 0x21, 0x33] {
        w.sample(app, process, at, 500);
    }
    w
}

fn counted(shift: u64) -> Exact {
    let mut o = ExactObject { path: "/usr/bin/app".into(), ..ExactObject::default() };
    let once = [0, END];
    let loops = [COPY, 0x31, 0x33, JUMP].into_iter().chain((0x09..0x31).step_by(2));
    o.counts = once.into_iter().map(|at| (at + shift, 1)).chain(loops.map(|at| (at + shift, 1000))).collect();
    o.counts.insert(REPEATED + shift, 16_000);
    o.jumps.insert((JUMP + shift, COPY + shift), 999);
    Exact { objects: vec![o], command: Some("./app --small".into()) }
}

fn compare(w: World, exact: &Exact) -> Result<Accuracy, Error> {
    accuracy(&w.profile, &WithCode(w.symbols), exact, &AnalyseQuery::default())
}

#[test]
fn rounds_of_a_repeated_string_operation_are_no_executions() {
    let a = compare(world("cpu-clock", EventUnit::Nanoseconds), &counted(0)).unwrap();
    assert_eq!((a.procedures.len(), a.samples), (1, (2000.0, 2000.0)));
    assert!(a.instructions.within[1] > 0.99, "one block, one count: {:?}", a.instructions);
    assert!(a.notes.iter().any(|n| n.contains("repeated string operations (1 with samples)")), "{:?}", a.notes);
    assert_eq!(a.warnings, Vec::<String>::new());
}

#[test]
fn what_is_no_time_is_refused_with_the_reason() {
    let refused = compare(world("page-faults", EventUnit::Count), &counted(0)).unwrap_err();
    assert!(matches!(refused, Error::NothingCompared { .. }), "{refused}");
    assert!(refused.to_string().contains("samples of this event are not time"), "{refused}");
}

#[test]
fn counts_of_another_build_are_refused() {
    let refused = compare(world("cpu-clock", EventUnit::Nanoseconds), &counted(1)).unwrap_err();
    assert!(matches!(&refused, Error::AnotherBuild { fit, .. } if *fit < 10), "{refused}");
    assert!(refused.to_string().contains("run callgrind on this file"), "{refused}");
}

#[test]
fn code_that_did_not_run_under_the_counter_is_told_before_the_figures() {
    let mut exact = counted(0);
    exact.objects[0].counts.retain(|at, _| *at < 0x20 || *at > 0x40);
    let mut w = world("cpu-clock", EventUnit::Nanoseconds);
    let (image, process) = (w.profile.samples[0].image, w.profile.samples[0].process);
    w.sample(image, process, 0x23, 5000);
    let a = compare(w, &exact).unwrap();
    assert!(a.warnings[0].contains("only 14.3 % of the samples") && a.warnings[0].contains("`./app --small`"), "{a:?}");
    let mut nothing = counted(0);
    nothing.objects[0].counts.values_mut().for_each(|c| *c = 0);
    let refused = compare(world("cpu-clock", EventUnit::Nanoseconds), &nothing).unwrap_err();
    assert!(matches!(refused, Error::NothingCompared { .. }), "{refused}");
}
