//! Names, files and lines of frames, each looked up once. Names are as in every other answer
//! (demangled); positions without a symbol are called after their image, in brackets.

use rustc_hash::FxHashMap;
use std::rc::Rc;
use std::sync::Arc;
use whither_cycles::names::demangled;
use whither_image::{FunctionTable, ImageKind, ImageOffset};
use whither_store::model::{Frame, Image, ImageIx, Profile};
use whither_store::symbols::Symbols;

/// One function at a frame; a frame has several when functions were inlined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Named {
    pub(super) name: Rc<str>,
    /// Mangled name, equal to `name` where there is none.
    pub(super) system: Rc<str>,
    pub(super) file: Rc<str>,
    /// 0 when not known.
    pub(super) line: u32,
    pub(super) inlined: bool,
}

/// Looks frames up and remembers the answers.
pub(super) struct Namer<'a> {
    profile: &'a Profile,
    symbols: &'a dyn Symbols,
    lines: bool,
    tables: FxHashMap<ImageIx, Arc<FunctionTable>>,
    known: FxHashMap<Frame, Rc<[Named]>>,
}

impl<'a> Namer<'a> {
    pub(super) fn new(profile: &'a Profile, symbols: &'a dyn Symbols, lines: bool) -> Self {
        Self { profile, symbols, lines, tables: FxHashMap::default(), known: FxHashMap::default() }
    }

    /// Functions at a frame, innermost first; never empty.
    pub(super) fn frame(&mut self, frame: Frame) -> Rc<[Named]> {
        if let Some(known) = self.known.get(&frame) {
            return Rc::clone(known);
        }
        let named: Rc<[Named]> = self.look_up(frame).into();
        self.known.insert(frame, Rc::clone(&named));
        named
    }

    fn look_up(&mut self, frame: Frame) -> Vec<Named> {
        let image = self.profile.image(frame.image);
        let outer = self.function(image, frame);
        let chain = if self.lines && image.kind != ImageKind::Unknown {
            self.symbols.frames(image, frame.offset)
        } else {
            Vec::new()
        };
        let last = chain.len().saturating_sub(1);
        let mut named: Vec<Named> = chain
            .into_iter()
            .enumerate()
            .map(|(i, f)| {
                // The outermost function is named as in listings: by the symbol table first.
                let system = if i == last { outer.clone() } else { f.function.as_deref().map(Rc::from) };
                named(
                    system.or_else(|| f.function.as_deref().map(Rc::from)),
                    image,
                    f.file.as_deref(),
                    f.line,
                    i < last,
                )
            })
            .collect();
        if named.is_empty() {
            named.push(self::named(outer, image, None, 0, false));
        }
        named
    }

    fn function(&mut self, image: &Image, frame: Frame) -> Option<Rc<str>> {
        self.table(frame.image, image)?.find(frame.offset).map(|f| Rc::from(&*f.name))
    }

    /// First byte and size of the function around a frame.
    pub(super) fn extent(&mut self, frame: Frame) -> Option<(ImageOffset, u64)> {
        let image = self.profile.image(frame.image);
        self.table(frame.image, image)?.find(frame.offset).map(|f| (f.start, f.size))
    }

    /// Unknown samples have no functions, whatever the symbol service might say of their label.
    fn table(&mut self, ix: ImageIx, image: &Image) -> Option<&FunctionTable> {
        if image.kind == ImageKind::Unknown {
            return None;
        }
        let symbols = self.symbols;
        Some(self.tables.entry(ix).or_insert_with(|| symbols.functions(image)))
    }

    /// Address of a position as tools print it for the image.
    pub(super) fn address(&self, image: ImageIx, at: ImageOffset) -> u64 {
        whither_cycles::names::address(self.profile.image(image), at)
    }
}

fn named(system: Option<Rc<str>>, image: &Image, file: Option<&str>, line: u32, inlined: bool) -> Named {
    let name: Rc<str> = match &system {
        // Line breaks and escapes have no place in a name, whatever a symbol table says.
        Some(s) => Rc::from(demangled(s).replace(char::is_control, " ")),
        None => Rc::from(nameless(image)),
    };
    Named {
        system: system.unwrap_or_else(|| Rc::clone(&name)),
        name,
        file: Rc::from(file.unwrap_or("")),
        line,
        inlined,
    }
}

fn nameless(image: &Image) -> String {
    let short = image.short_name();
    if short.starts_with('[') { short.to_owned() } else { format!("[{short}]") }
}

/// Whether frames of an image run in the kernel.
pub(super) fn in_kernel(image: &Image) -> bool {
    matches!(image.kind, ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf)
}
