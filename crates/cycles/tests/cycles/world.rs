//! A small machine to ask questions about: images, processes and events by name, samples one by
//! one, and a fake symbol service.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use whither_image::{Function, FunctionTable, NameSource, SourceFrame, StatedBytes, Svma};
use whither_store::model::*;
use whither_store::symbols::Symbols;

#[derive(Default)]
pub(crate) struct World {
    pub(crate) profile: Profile,
    pub(crate) symbols: FakeSymbols,
}

#[derive(Default)]
pub(crate) struct FakeSymbols {
    functions: HashMap<String, Vec<Function>>,
    frames: HashMap<(String, u64), Vec<SourceFrame>>,
    code: HashMap<String, (u64, Vec<u8>)>,
    /// Whole images, so that graphs can be made.
    stated: HashMap<String, Arc<StatedBytes>>,
    pub(crate) source: HashMap<String, Arc<Vec<String>>>,
    /// Paths of images that were announced together.
    pub(crate) prepared: Mutex<Vec<Vec<String>>>,
}

impl World {
    pub(crate) fn new(event: &str) -> Self {
        let mut w = Self::default();
        w.event(event, EventUnit::Nanoseconds, Precision::Skid(1));
        w.profile.epochs.push(EpochMeta {
            host: "box".into(),
            cpus: 2,
            start_ns: 1_000_000_000_000,
            end_ns: 1_010_000_000_000,
            slice_s: 1,
            ..EpochMeta::default()
        });
        w
    }

    pub(crate) fn event(&mut self, name: &str, unit: EventUnit, precision: Precision) -> EventIx {
        self.profile.events.push(Event { name: name.into(), unit, precision });
        EventIx(u16::try_from(self.profile.events.len() - 1).unwrap())
    }

    pub(crate) fn image(&mut self, kind: ImageKind, path: &str) -> ImageIx {
        let n = u32::try_from(self.profile.images.len()).unwrap();
        self.profile.images.push(Image {
            id: ImageId::from_build_id(&(n + 1).to_be_bytes()),
            id_kind: IdKind::BuildId,
            kind,
            path: path.into(),
            segments: vec![],
            size: 0,
        });
        ImageIx(n)
    }

    pub(crate) fn process(&mut self, pid: u32, comm: &str, cgroup: &str) -> ProcessIx {
        self.profile.processes.push(Process {
            key: u64::from(pid),
            pid,
            start_ns: 0,
            comm: comm.into(),
            exe: format!("/usr/bin/{comm}"),
            cgroup: cgroup.into(),
        });
        ProcessIx(u32::try_from(self.profile.processes.len() - 1).unwrap())
    }

    pub(crate) fn function(&mut self, image: ImageIx, start: u64, size: u64, name: &str) {
        let path = self.profile.image(image).path.clone();
        self.symbols.functions.entry(path).or_default().push(Function {
            start: ImageOffset(start),
            size,
            name: name.into(),
            source: NameSource::Symbol,
        });
    }

    /// Inline chain at a position: (function, file, line), innermost first.
    pub(crate) fn frames(&mut self, image: ImageIx, at: u64, chain: &[(&str, &str, u32)]) {
        let path = self.profile.image(image).path.clone();
        let frame = |&(function, file, line): &(&str, &str, u32)| SourceFrame {
            function: Some(function.into()),
            file: Some(file.into()),
            line,
            column: 0,
        };
        self.symbols.frames.insert((path, at), chain.iter().map(frame).collect());
    }

    pub(crate) fn code(&mut self, image: ImageIx, start: u64, bytes: &[u8]) {
        let path = self.profile.image(image).path.clone();
        self.symbols.code.insert(path, (start, bytes.to_vec()));
    }

    /// The same as [`Self::code`], of an image that can be read around its functions, too.
    pub(crate) fn readable_code(&mut self, image: ImageIx, start: u64, bytes: &[u8]) {
        self.code(image, start, bytes);
        let path = self.profile.image(image).path.clone();
        self.symbols.stated.insert(path, Arc::new(StatedBytes::from_pieces([(Svma(start), bytes)])));
    }

    pub(crate) fn sample(&mut self, image: ImageIx, process: ProcessIx, offset: u64, count: u32) -> &mut Sample {
        self.profile.samples.push(Sample {
            image,
            event: EventIx(0),
            process,
            tid: 0,
            slice: 1000,
            offset: ImageOffset(offset),
            period: 1_000_000,
            count,
        });
        self.profile.samples.last_mut().unwrap()
    }
}

impl FakeSymbols {
    /// The same functions under another path.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if let Some(functions) = self.functions.remove(from) {
            self.functions.insert(to.into(), functions);
        }
    }

    /// Takes what another one knows of images that this one does not know.
    pub(crate) fn absorb(&mut self, other: Self) {
        for (path, functions) in other.functions {
            self.functions.entry(path).or_insert(functions);
        }
        for (place, frames) in other.frames {
            self.frames.entry(place).or_insert(frames);
        }
    }
}

impl Symbols for FakeSymbols {
    fn functions(&self, image: &Image) -> Arc<FunctionTable> {
        let functions = self.functions.get(&image.path).cloned().unwrap_or_default();
        Arc::new(FunctionTable::new(functions, ImageOffset(u64::MAX)))
    }

    fn prepare(&self, images: &[&Image]) {
        self.prepared.lock().unwrap().push(images.iter().map(|i| i.path.clone()).collect());
    }

    fn frames(&self, image: &Image, at: ImageOffset) -> Vec<SourceFrame> {
        self.frames.get(&(image.path.clone(), at.0)).cloned().unwrap_or_default()
    }

    fn code(&self, image: &Image, range: Range<ImageOffset>) -> Option<Vec<u8>> {
        let (start, bytes) = self.code.get(&image.path)?;
        let from = usize::try_from(range.start.0.checked_sub(*start)?).ok()?;
        let to = usize::try_from(range.end.0.checked_sub(*start)?).ok()?;
        bytes.get(from..to.min(bytes.len())).map(<[u8]>::to_vec)
    }

    fn stated(&self, image: &Image) -> Option<Arc<StatedBytes>> {
        self.stated.get(&image.path).cloned()
    }

    fn source(&self, file: &str) -> Option<Arc<Vec<String>>> {
        self.source.get(file).cloned()
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}
