//! Where names come from: a trait for whoever has the symbols, the names kept in a recording, and the
//! symbols of images; and the text of a path.

use crate::results::FrameRow;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use whither_image::demangle::{Form, demangle};
use whither_image::{FunctionTable, ImageOffset, Svma, to_offset};
use whither_store::calls::{
    CallModule, CallName, CallPlace, CallPosition, CallRecording, CallSite, CallSnapshot, FrameKind,
};
use whither_store::model::Image;
use whither_store::symbols::Symbols;

/// Says what an address of a module is called.
pub trait Names {
    /// The place of a stated address. Callers pass the address they want looked up: a return address minus
    /// one, or the first byte of a function.
    fn place(&self, module: &CallModule, address: u64) -> CallPlace;
}

/// Knows nothing: everything shows as `module+0xoffset`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn place(&self, _: &CallModule, _: u64) -> CallPlace {
        CallPlace::default()
    }
}

/// Names kept in a recording.
#[derive(Clone, Debug, Default)]
pub struct StoredNames {
    places: FxHashMap<String, FxHashMap<u64, CallPlace>>,
}

impl StoredNames {
    /// From [`CallRecording::names`].
    #[must_use]
    pub fn new(names: &[CallName]) -> Self {
        let mut places: FxHashMap<String, FxHashMap<u64, CallPlace>> = FxHashMap::default();
        for name in names {
            places.entry(name.module.clone()).or_default().insert(name.address, name.place.clone());
        }
        Self { places }
    }

    /// Of a recording.
    #[must_use]
    pub fn of(recording: &CallRecording) -> Self {
        Self::new(&recording.names)
    }
}

impl Names for StoredNames {
    fn place(&self, module: &CallModule, address: u64) -> CallPlace {
        self.places.get(&module.path).and_then(|m| m.get(&address)).cloned().unwrap_or_default()
    }
}

/// The places of every address in some snapshots, to be kept with them. Nameless ones are left out.
#[must_use]
pub fn names_of<'a>(snapshots: impl IntoIterator<Item = &'a CallSnapshot>, names: &dyn Names) -> Vec<CallName> {
    let mut known: std::collections::BTreeMap<(String, u64), CallPlace> = std::collections::BTreeMap::new();
    for snapshot in snapshots {
        let callers = snapshot.frames.iter().filter(|f| f.kind == FrameKind::Caller);
        let callers = callers.map(|f| (f.module, f.offset.saturating_sub(1)));
        for (module, address) in callers.chain(snapshot.points.iter().map(|p| (p.module, p.offset))) {
            let Some(module) = snapshot.modules.get(module as usize) else { continue };
            known.entry((module.path.clone(), address)).or_insert_with(|| names.place(module, address));
        }
    }
    let named = known.into_iter().filter(|(_, place)| *place != CallPlace::default());
    named.map(|((module, address), place)| CallName { module, address, place }).collect()
}

/// Gives the image of a module.
type ImageOf<'a> = Box<dyn Fn(&CallModule) -> Option<Image> + 'a>;

/// Names by the symbol service: `image` gives the image of a module (path), if its file is known.
pub struct SymbolNames<'a> {
    symbols: &'a dyn Symbols,
    image: ImageOf<'a>,
    images: RefCell<FxHashMap<String, Option<Known>>>,
}

#[derive(Clone)]
struct Known {
    image: std::rc::Rc<Image>,
    table: std::sync::Arc<FunctionTable>,
}

impl<'a> SymbolNames<'a> {
    /// `image` is asked once per module path.
    pub fn new(symbols: &'a dyn Symbols, image: impl Fn(&CallModule) -> Option<Image> + 'a) -> Self {
        Self { symbols, image: Box::new(image), images: RefCell::default() }
    }

    fn known(&self, module: &CallModule) -> Option<Known> {
        let mut images = self.images.borrow_mut();
        let make = || {
            let image = (self.image)(module)?;
            let table = self.symbols.functions(&image);
            Some(Known { image: image.into(), table })
        };
        images.entry(module.path.clone()).or_insert_with(make).clone()
    }
}

impl Names for SymbolNames<'_> {
    fn place(&self, module: &CallModule, address: u64) -> CallPlace {
        let Some(known) = self.known(module) else { return CallPlace::default() };
        let Some(at) = to_offset(&known.image.segments, Svma(address)) else { return CallPlace::default() };
        let site = self.site(&known, at, address.wrapping_add(1));
        let Some(function) = known.table.find(at) else { return CallPlace { site, ..CallPlace::default() } };
        let positions = self.symbols.frames(&known.image, at).into_iter().map(|f| CallPosition {
            function: f.function.as_deref().map(short).unwrap_or_default(),
            file: f.file.as_deref().map(Into::into).unwrap_or_default(),
            line: f.line,
        });
        CallPlace {
            function: short(&function.name),
            start: Some(address.saturating_sub(at.0.saturating_sub(function.start.0))),
            positions: positions.collect(),
            site,
        }
    }
}

/// `mov $15,%rax; syscall`: where the C library has handlers of signals return to. Unwinders know it by the same bytes.
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// `call rel32`.
const CALL: u8 = 0xe8;
const CALL_LENGTH: u64 = 5;

impl SymbolNames<'_> {
    /// What ends at `last`, the byte before the return address `ra`. Whether its code is shown as a call of the function that runs is for
    /// `frames`: bytes that only look like a call lead to no function's beginning.
    fn site(&self, known: &Known, last: ImageOffset, ra: u64) -> CallSite {
        let code = |from: u64, length: u64| {
            self.symbols.code(&known.image, ImageOffset(from)..ImageOffset(from.checked_add(length)?))
        };
        let behind = last.0.saturating_add(1);
        if code(behind, SIGRETURN.len() as u64).is_some_and(|c| c == SIGRETURN) {
            return CallSite::Signal;
        }
        let call = behind.checked_sub(CALL_LENGTH).and_then(|from| code(from, CALL_LENGTH));
        let Some(&[CALL, a, b, c, d]) = call.as_deref() else { return CallSite::Unknown };
        let target = ra.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
        let begins = |at: ImageOffset| known.table.find(at).filter(|f| f.start == at);
        match to_offset(&known.image.segments, Svma(target)) {
            Some(at) if code(at.0, STUB).is_some_and(|c| !is_stub(&c)) => {
                begins(at).map_or(CallSite::Unknown, |f| CallSite::Direct { target, function: short(&f.name) })
            }
            _ => CallSite::Unknown,
        }
    }
}

/// Bytes that tell a linkage stub: `endbr64`, `bnd`, and what its jump begins with.
const STUB: u64 = 7;

/// Whether code begins with a jump through a slot, behind `endbr64` or `bnd` perhaps: who calls a stub calls what the slot holds.
fn is_stub(code: &[u8]) -> bool {
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    code.strip_prefix(&[0xf2]).unwrap_or(code).starts_with(&[0xff, 0x25])
}

/// Demangled, without parameters: what patterns match and paths show.
fn short(name: &str) -> String {
    demangle(name, Form::Short).into_owned()
}

/// The text of one frame in a path; the call site is shown when asked for.
pub(crate) fn frame_text(row: &FrameRow, with_site: bool, inlines: bool) -> String {
    let mut text = row.name.clone();
    if with_site {
        if let Some(within) = row.within {
            text.push_str(&format!("+{within:#x}"));
        }
        push_line(&mut text, &row.file, row.line);
    }
    for inlined in row.inlined.iter().filter(|_| inlines) {
        text.push_str(&format!(" > {} [inlined]", inlined.name));
        if with_site {
            push_line(&mut text, &inlined.file, inlined.line);
        }
    }
    text
}

fn push_line(text: &mut String, file: &str, line: u32) {
    if !file.is_empty() {
        text.push_str(&format!(" ({}:{line})", crate::frames::base(file)));
    }
}

/// Frames of a program's start, which say nothing in a table.
pub(crate) fn is_startup(name: &str) -> bool {
    matches!(
        name,
        "_start"
            | "__libc_start_main"
            | "__libc_start_main_impl"
            | "__libc_start_call_main"
            | "start_thread"
            | "clone3"
            | "__clone3"
            | "clone"
            | "__clone"
            | "__clone_internal"
    )
}
