//! Split DWARF: the part of a unit's debug information that the compiler left in a file of its own (`.dwo`),
//! or that was packed into one for the whole program (`.dwp`). Who has the files gives their bytes when a unit
//! is first asked for; what does not bear the unit's identity is never used.

use crate::bytes::Bytes;
use crate::dwarf::{Sections, Slice};
use crate::error::Problem;
use gimli::{Dwarf, DwoId, EndianSlice, Reader, SectionId, Unit, UnitType};
use std::sync::{Arc, OnceLock};

/// Finds the files that hold split debug information of an image.
pub trait SplitFiles: Send + Sync {
    /// The package (`.dwp`) of the image.
    fn package(&self) -> Option<Bytes>;
    /// The file `name` of a unit that was compiled in `directory`; one that does not belong to it does no harm.
    fn unit(&self, directory: &str, name: &str) -> Option<Bytes>;
}

/// What is read of such files. A package's index names parts of sections that nobody here asks for; they must be there.
const SECTIONS: [SectionId; 13] = [
    SectionId::DebugAbbrev,
    SectionId::DebugCuIndex,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTuIndex,
    SectionId::DebugTypes,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
];

/// More files than this are not opened: a browser has twice as many, all of which nobody asks for.
const MOST_FILES: usize = 20_000;

/// Units of old versions that are read to find a split one.
const MOST_OLD_UNITS: usize = 64;

/// The split part of an image's debug information, opened as units are asked for.
pub(crate) struct Split {
    files: Option<Box<dyn SplitFiles>>,
    package: OnceLock<Option<Sections>>,
    opened: Shelf,
}

impl Split {
    pub(crate) fn new(files: Option<Box<dyn SplitFiles>>) -> Self {
        Self { files, package: OnceLock::new(), opened: Shelf::default() }
    }

    /// The debug information of a unit, joined with that of the file which names it.
    pub(crate) fn open<'a>(
        &'a self,
        id: DwoId,
        directory: &str,
        name: &str,
        parent: &Dwarf<Slice<'a>>,
    ) -> Option<Arc<Dwarf<Slice<'a>>>> {
        self.packed(id, parent).or_else(|| self.single(id, directory, name, parent)).map(Arc::new)
    }

    fn packed<'a>(&'a self, id: DwoId, parent: &Dwarf<Slice<'a>>) -> Option<Dwarf<Slice<'a>>> {
        let open = || load(&self.files.as_ref()?.package()?);
        let sections = self.package.get_or_init(open).as_ref()?;
        let package = gimli::DwarfPackage::load(|id| sections.reader(id), EndianSlice::new(&[], sections.endian()));
        package.ok()?.find_cu(id, parent).ok()?
    }

    fn single<'a>(
        &'a self,
        id: DwoId,
        directory: &str,
        name: &str,
        parent: &Dwarf<Slice<'a>>,
    ) -> Option<Dwarf<Slice<'a>>> {
        let sections = self.opened.put(load(&self.files.as_ref()?.unit(directory, name)?)?)?;
        let mut dwarf = Dwarf::load(|id| sections.reader(id)).ok()?;
        dwarf.make_dwo(parent);
        let header = dwarf.units().next().ok()??;
        let found = dwarf.unit(header).ok()?.dwo_id;
        (found == Some(id)).then_some(dwarf)
    }
}

fn load(file: &Bytes) -> Option<Sections> {
    // A section that cannot be read is missing; which units need it shows when they are parsed.
    Sections::load_named(file, &SECTIONS, SectionId::dwo_name, &mut Vec::new()).ok()
}

/// Identity, directory and file name of what a unit left elsewhere; `None` for a whole unit.
pub(crate) fn left_out<R: Reader>(dwarf: &Dwarf<R>, unit: &Unit<R>) -> Option<(DwoId, String, String)> {
    let id = unit.dwo_id?;
    let name = dwarf.attr_string(unit, unit.dwo_name().ok()??).ok()?;
    let directory = unit.comp_dir.as_ref().and_then(|d| Some(d.to_string_lossy().ok()?.into_owned()));
    Some((id, directory.unwrap_or_default(), name.to_string_lossy().ok()?.into_owned()))
}

/// Whether the first unit that is split has its other part: if not, hardly any has.
pub(crate) fn missing<'a>(dwarf: &Dwarf<Slice<'a>>, split: &'a Split) -> Option<Problem> {
    let mut units = dwarf.units();
    let mut left = MOST_OLD_UNITS;
    while let Ok(Some(header)) = units.next() {
        // Before DWARF 5 only the attributes of the unit tell, which takes reading it.
        let old = header.version() < 5;
        left -= usize::from(old);
        if left == 0 {
            return None;
        }
        if !old && !matches!(header.type_(), UnitType::Skeleton(_)) {
            continue;
        }
        let Some((id, directory, name)) = dwarf.unit(header).ok().and_then(|unit| left_out(dwarf, &unit)) else {
            continue;
        };
        let found = split.open(id, &directory, &name, dwarf).is_some();
        return (!found).then(|| {
            let what =
                format!("{name} (in {directory}) was not found: functions inlined in its code are not told apart");
            Problem::new("split debug information", what)
        });
    }
    None
}

/// Sections that are added and never taken away while borrowed: a list whose links are set once.
#[derive(Default)]
struct Shelf {
    next: OnceLock<Box<Place>>,
}

struct Place {
    sections: Sections,
    next: Shelf,
}

impl Shelf {
    fn put(&self, sections: Sections) -> Option<&Sections> {
        let (mut at, mut left) = (self, Some(Box::new(Place { sections, next: Self::default() })));
        for _ in 0..MOST_FILES {
            let place = at.next.get_or_init(|| left.take().expect("it is taken once, where the answer is ours"));
            if left.is_none() {
                return Some(&place.sections);
            }
            at = &place.next;
        }
        None
    }
}

impl Drop for Shelf {
    /// One by one: a list of thousands would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut place) = next {
            next = place.next.next.take();
        }
    }
}
