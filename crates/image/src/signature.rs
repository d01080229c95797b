//! What functions are declared to take and to give back, as far as that says what integer registers hold at their entry
//! and exit (System V psABI for AMD64 1.0, section 3.2.3). Lives here: classes of declared types. What is not certain
//! from the declaration alone (aggregates, which may take registers or none; languages with conventions of their own) is
//! [`Passed::Unknown`], and so is everything behind it.

use crate::dwarf::Slice;
use gimli::{AttributeValue, DebugInfoOffset, DebuggingInformationEntry, Dwarf, DwoId, Unit, UnitRef, constants as c};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// A chain of types that points to itself ends here.
const MOST_STEPS: u32 = 16;
/// Functions within functions, as a hostile tree may have them, would be read again for each: so many entries in all.
const MOST_ENTRIES: usize = 10_000_000;

/// What an integer register holds, by declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// An integer, a pointer, an enumeration or a truth value.
    Integer {
        /// Its bytes: 1, 2, 4 or 8. The rest of the register is anything.
        width: u8,
        /// Whether it may be negative.
        signed: bool,
    },
    /// Nothing that the function was given or gives back.
    Nothing,
    /// Where what it gives back is to be put: a large structure. What it was given stands behind.
    Result,
    /// The declaration does not tell.
    Unknown,
}

/// Integer arguments and the return value of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    integers: Vec<Passed>,
    behind: Passed,
    returned: Passed,
}

impl Signature {
    const UNKNOWN: Self = Self { integers: Vec::new(), behind: Passed::Unknown, returned: Passed::Unknown };

    /// Of what is given back in memory, whose address comes first.
    fn with_result() -> Self {
        Self { integers: vec![Passed::Result], behind: Passed::Nothing, returned: Passed::Nothing }
    }

    /// Integer argument `number`, from 1: what is passed in floating-point registers does not count.
    #[must_use]
    pub fn argument(&self, number: u8) -> Passed {
        let place = usize::from(number).checked_sub(1);
        place.and_then(|i| self.integers.get(i)).copied().unwrap_or(self.behind)
    }

    /// The return value.
    #[must_use]
    pub fn returned(&self) -> Passed {
        self.returned
    }

    fn add(&mut self, class: Class) {
        match class {
            _ if self.behind == Passed::Unknown => {}
            Class::Integer { width, signed } => self.integers.push(Passed::Integer { width, signed }),
            Class::Float => {}
            Class::Other => self.behind = Passed::Unknown,
        }
    }
}

/// How a type is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Integer { width: u8, signed: bool },
    Float,
    Other,
}

/// Functions by the address at which they begin, unit by unit, each read once.
#[derive(Default)]
pub(crate) struct Signatures(FxHashMap<(Option<DwoId>, usize), FxHashMap<u64, Signature>>);

impl Signatures {
    /// The function that begins at an address, which lies in `unit`.
    pub(crate) fn at(&mut self, unit: UnitRef<'_, Slice<'_>>, at: u64) -> Option<Signature> {
        // Units that lie in files of their own all begin at 0 there.
        let key = (unit.unit.dwo_id, start(unit.unit)?);
        self.0.entry(key).or_insert_with(|| Reading::of(unit.dwarf).functions(unit.unit)).get(&at).cloned()
    }
}

fn start(unit: &Unit<Slice<'_>>) -> Option<usize> {
    unit.header.debug_info_offset().map(|at| at.0)
}

/// The file itself, or the supplementary one that several share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Side {
    Own,
    Shared,
}

/// An entry and the unit it stands in.
struct Step<'a> {
    side: Side,
    unit: Rc<Unit<Slice<'a>>>,
    entry: DebuggingInformationEntry<Slice<'a>>,
}

/// What is known while one unit is read.
struct Reading<'d, 'a> {
    own: File<'d, 'a>,
    shared: Option<File<'d, 'a>>,
    classes: FxHashMap<(Side, usize), Class>,
    typed: FxHashMap<(Side, usize), bool>,
    /// Entries that may still be read.
    left: usize,
}

/// The units of a file, which are parsed when something in them is referred to.
struct File<'d, 'a> {
    dwarf: &'d Dwarf<Slice<'a>>,
    starts: Vec<usize>,
    units: FxHashMap<usize, Rc<Unit<Slice<'a>>>>,
}

impl<'d, 'a> File<'d, 'a> {
    fn of(dwarf: &'d Dwarf<Slice<'a>>) -> Self {
        let (mut starts, mut units) = (Vec::new(), dwarf.units());
        while let Ok(Some(header)) = units.next() {
            starts.extend(header.debug_info_offset().map(|at| at.0));
        }
        Self { dwarf, starts, units: FxHashMap::default() }
    }

    fn unit_around(&mut self, at: usize) -> Option<Rc<Unit<Slice<'a>>>> {
        let start = *self.starts.get(self.starts.partition_point(|s| *s <= at).checked_sub(1)?)?;
        if let Some(known) = self.units.get(&start) {
            return Some(Rc::clone(known));
        }
        let header = self.dwarf.debug_info.header_from_offset(DebugInfoOffset(start)).ok()?;
        let unit = Rc::new(self.dwarf.unit(header).ok()?);
        self.units.insert(start, Rc::clone(&unit));
        Some(unit)
    }
}

impl<'d, 'a> Reading<'d, 'a> {
    fn of(dwarf: &'d Dwarf<Slice<'a>>) -> Self {
        let shared = dwarf.sup().map(File::of);
        let (classes, typed) = (FxHashMap::default(), FxHashMap::default());
        Self { own: File::of(dwarf), shared, classes, typed, left: MOST_ENTRIES }
    }

    fn functions(&mut self, unit: &Unit<Slice<'a>>) -> FxHashMap<u64, Signature> {
        let mut found = FxHashMap::default();
        let Some(here) = start(unit).and_then(|at| self.own.unit_around(at)) else { return found };
        let speaks_c = speaks_c(unit);
        let mut entries = here.entries();
        while self.may_read() {
            let Ok(Some(entry)) = entries.next_dfs() else { break };
            if entry.tag() != c::DW_TAG_subprogram {
                continue;
            }
            if let Some(at) = entry_of(self.own.dwarf, unit, entry) {
                let step = Step { side: Side::Own, unit: Rc::clone(&here), entry: entry.clone() };
                let told = if speaks_c { self.signature(step) } else { None };
                found.insert(at, told.unwrap_or(Signature::UNKNOWN));
            }
        }
        found
    }

    fn may_read(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    /// `None` where what it is made of cannot be read, or is passed in a way of the compiler's own.
    fn signature(&mut self, function: Step<'a>) -> Option<Signature> {
        let chain = self.origins(function)?;
        if chain.iter().any(|s| is_unlike_c(&s.entry)) || !chain.last().is_some_and(|s| self.has_types(s)) {
            return None;
        }
        let returned = match chain.iter().find(|s| s.entry.has_attr(c::DW_AT_type)) {
            None => Passed::Nothing,
            Some(step) => match self.class_of_type(step, MOST_STEPS) {
                Class::Integer { width, signed } => Passed::Integer { width, signed },
                Class::Float => Passed::Nothing,
                Class::Other if self.is_in_memory(step) => Passed::Result,
                // It may be memory whose address is the first argument.
                Class::Other => return None,
            },
        };
        let mut made = match returned {
            Passed::Result => Signature::with_result(),
            returned => Signature { integers: Vec::new(), behind: Passed::Nothing, returned },
        };
        // Origins name all parameters; a copy of them may have lost some.
        let named = chain.iter().rev().map(|step| self.parameters(step)).find(|p| !p.is_empty()).unwrap_or_default();
        named.into_iter().for_each(|class| made.add(class));
        Some(made)
    }

    /// Whether anything in a unit has a type: with line tables alone (`-g1`) functions stand there without what they take.
    fn has_types(&mut self, step: &Step<'a>) -> bool {
        let look = || {
            let mut entries = step.unit.entries();
            let mut read = std::iter::from_fn(|| entries.next_dfs().ok()?.map(|e| e.has_attr(c::DW_AT_type)));
            read.any(|typed| typed)
        };
        start(&step.unit).is_some_and(|at| *self.typed.entry((step.side, at)).or_insert_with(look))
    }

    /// An entry, what it is a copy of, and what that specifies.
    fn origins(&mut self, function: Step<'a>) -> Option<Vec<Step<'a>>> {
        let mut chain = vec![function];
        for _ in 0..MOST_STEPS {
            let last = chain.last()?;
            let further = [c::DW_AT_abstract_origin, c::DW_AT_specification];
            let Some(next) = further.iter().find_map(|a| last.entry.attr_value(*a)) else { return Some(chain) };
            let next = self.follow(last, next)?;
            chain.push(next);
        }
        None
    }

    fn parameters(&mut self, function: &Step<'a>) -> Vec<Class> {
        let mut classes = Vec::new();
        let Ok(mut tree) = function.unit.entries_tree(Some(function.entry.offset())) else { return vec![Class::Other] };
        let Ok(root) = tree.root() else { return vec![Class::Other] };
        let mut children = root.children();
        while self.may_read() {
            let child = match children.next() {
                Ok(Some(child)) => child.entry().clone(),
                Ok(None) => return classes,
                Err(_) => break,
            };
            match child.tag() {
                c::DW_TAG_formal_parameter => classes.push(self.class_of_parameter(function, child)),
                c::DW_TAG_unspecified_parameters => break,
                _ => {}
            }
        }
        classes.push(Class::Other);
        classes
    }

    fn class_of_parameter(&mut self, function: &Step<'a>, entry: DebuggingInformationEntry<Slice<'a>>) -> Class {
        let step = Step { side: function.side, unit: Rc::clone(&function.unit), entry };
        let typed = self.origins(step).and_then(|chain| chain.into_iter().find(|s| s.entry.has_attr(c::DW_AT_type)));
        typed.map_or(Class::Other, |step| self.class_of_type(&step, MOST_STEPS))
    }

    /// Whether the type that an entry has is given back in memory: a structure of more than two words. Of what holds
    /// vectors a register may hold more.
    fn is_in_memory(&mut self, of: &Step<'a>) -> bool {
        const TWO_WORDS: u64 = 16;
        let Some(step) = self.type_of(of).filter(|step| is_structure(&step.entry)) else { return false };
        let bytes = step.entry.attr_value(c::DW_AT_byte_size).and_then(|v| v.udata_value());
        bytes.is_some_and(|bytes| bytes > TWO_WORDS) && !self.may_hold_vectors(&step, MOST_STEPS)
    }

    /// What is behind the names and qualifiers of the type that an entry has.
    fn type_of(&mut self, of: &Step<'a>) -> Option<Step<'a>> {
        let mut step = of.entry.attr_value(c::DW_AT_type).and_then(|v| self.follow(of, v))?;
        for _ in 0..MOST_STEPS {
            match step.entry.tag() {
                c::DW_TAG_typedef | c::DW_TAG_const_type | c::DW_TAG_volatile_type => {
                    step = step.entry.attr_value(c::DW_AT_type).and_then(|v| self.follow(&step, v))?;
                }
                _ => return Some(step),
            }
        }
        None
    }

    /// Whether a structure may hold vectors, at any depth.
    fn may_hold_vectors(&mut self, structure: &Step<'a>, steps: u32) -> bool {
        let Some(steps) = steps.checked_sub(1) else { return true };
        let Ok(mut tree) = structure.unit.entries_tree(Some(structure.entry.offset())) else { return true };
        let Ok(root) = tree.root() else { return true };
        let mut children = root.children();
        while self.may_read() {
            let entry = match children.next() {
                Ok(Some(child)) => child.entry().clone(),
                Ok(None) => return false,
                Err(_) => return true,
            };
            if !matches!(entry.tag(), c::DW_TAG_member | c::DW_TAG_inheritance) {
                continue;
            }
            let member = Step { side: structure.side, unit: Rc::clone(&structure.unit), entry };
            let held = self.type_of(&member);
            if held.is_none_or(|held| {
                held.entry.has_attr(c::DW_AT_GNU_vector)
                    || (is_structure(&held.entry) && self.may_hold_vectors(&held, steps))
            }) {
                return true;
            }
        }
        true
    }

    /// The class of the type that an entry has.
    fn class_of_type(&mut self, of: &Step<'a>, steps: u32) -> Class {
        let Some(steps) = steps.checked_sub(1) else { return Class::Other };
        let step = of.entry.attr_value(c::DW_AT_type).and_then(|v| self.follow(of, v));
        let Some(step) = step else { return Class::Other };
        let key = start(&step.unit).map(|s| (step.side, s + step.entry.offset().0));
        if let Some(known) = key.and_then(|k| self.classes.get(&k)) {
            return *known;
        }
        let class = match step.entry.tag() {
            c::DW_TAG_pointer_type | c::DW_TAG_reference_type | c::DW_TAG_rvalue_reference_type => POINTER,
            c::DW_TAG_base_type => of_base(&step.entry, None),
            // Older producers do not say how an enumeration is encoded; those of C hold no negative number then.
            c::DW_TAG_enumeration_type if step.entry.has_attr(c::DW_AT_encoding) => of_base(&step.entry, None),
            c::DW_TAG_enumeration_type => match self.class_of_type(&step, steps) {
                Class::Other => of_base(&step.entry, Some(c::DW_ATE_unsigned)),
                known => known,
            },
            c::DW_TAG_typedef
            | c::DW_TAG_const_type
            | c::DW_TAG_volatile_type
            | c::DW_TAG_restrict_type
            | c::DW_TAG_atomic_type => self.class_of_type(&step, steps),
            _ => Class::Other,
        };
        key.map(|k| self.classes.insert(k, class));
        class
    }

    fn follow(&mut self, from: &Step<'a>, reference: AttributeValue<Slice<'a>>) -> Option<Step<'a>> {
        let (side, at) = match reference {
            AttributeValue::UnitRef(at) => {
                let entry = from.unit.entry(at).ok()?;
                return Some(Step { side: from.side, unit: Rc::clone(&from.unit), entry });
            }
            AttributeValue::DebugInfoRef(at) => (from.side, at),
            AttributeValue::DebugInfoRefSup(at) => (Side::Shared, at),
            _ => return None,
        };
        let file = match side {
            Side::Own => &mut self.own,
            Side::Shared => self.shared.as_mut()?,
        };
        let unit = file.unit_around(at.0)?;
        let entry = unit.entry(at.to_unit_offset(&unit.header)?).ok()?;
        Some(Step { side, unit, entry })
    }
}

/// Where a function begins: what it says of its entry, or where its code or the first part of it does (that of one in several
/// parts is named first: its entry lies in it, and cold code that was moved away in those behind).
/// Addresses and lists by index are resolved by the unit as it was found: their tables may stand in another file.
fn entry_of<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    function: &DebuggingInformationEntry<Slice<'a>>,
) -> Option<u64> {
    let address = |attribute| dwarf.attr_address(unit, function.attr_value(attribute)?).ok().flatten();
    let first_part = || {
        let mut parts = dwarf.attr_ranges(unit, function.attr_value(c::DW_AT_ranges)?).ok().flatten()?;
        Some(parts.next().ok().flatten()?.begin)
    };
    let begins = || address(c::DW_AT_low_pc).or_else(first_part);
    let entry = function.attr_value(c::DW_AT_entry_pc);
    match entry.as_ref().and_then(AttributeValue::udata_value) {
        Some(offset) => begins()?.checked_add(offset),
        None => address(c::DW_AT_entry_pc).or_else(begins),
    }
}

fn is_structure(entry: &DebuggingInformationEntry<Slice<'_>>) -> bool {
    matches!(entry.tag(), c::DW_TAG_structure_type | c::DW_TAG_class_type | c::DW_TAG_union_type)
}

const POINTER: Class = Class::Integer { width: 8, signed: false };

fn of_base(entry: &DebuggingInformationEntry<Slice<'_>>, encoding: Option<gimli::DwAte>) -> Class {
    let width = entry.attr_value(c::DW_AT_byte_size).and_then(|v| v.udata_value());
    let stated = match entry.attr_value(c::DW_AT_encoding) {
        Some(AttributeValue::Encoding(e)) => Some(e),
        _ => encoding,
    };
    match (stated, width) {
        (Some(c::DW_ATE_float), Some(4 | 8)) => Class::Float,
        (Some(c::DW_ATE_signed | c::DW_ATE_signed_char), Some(n @ (1 | 2 | 4 | 8))) => {
            Class::Integer { width: n as u8, signed: true }
        }
        (
            Some(c::DW_ATE_boolean | c::DW_ATE_unsigned | c::DW_ATE_unsigned_char | c::DW_ATE_UTF | c::DW_ATE_address),
            Some(n @ (1 | 2 | 4 | 8)),
        ) => Class::Integer { width: n as u8, signed: false },
        _ => Class::Other,
    }
}

/// Compilers say so of functions whose arguments they have put elsewhere.
fn is_unlike_c(entry: &DebuggingInformationEntry<Slice<'_>>) -> bool {
    let convention = entry.attr_value(c::DW_AT_calling_convention);
    matches!(convention, Some(AttributeValue::CallingConvention(c::DW_CC_nocall)))
}

/// Languages whose functions take integers, pointers and floating-point numbers where C's do.
fn speaks_c(unit: &Unit<Slice<'_>>) -> bool {
    let Ok(root) = unit.entry(unit.header.root_offset()) else { return false };
    let Some(AttributeValue::Language(language)) = root.attr_value(c::DW_AT_language) else { return false };
    matches!(
        language,
        c::DW_LANG_C
            | c::DW_LANG_C89
            | c::DW_LANG_C99
            | c::DW_LANG_C11
            | c::DW_LANG_C17
            | c::DW_LANG_C_plus_plus
            | c::DW_LANG_C_plus_plus_03
            | c::DW_LANG_C_plus_plus_11
            | c::DW_LANG_C_plus_plus_14
            | c::DW_LANG_C_plus_plus_17
            | c::DW_LANG_C_plus_plus_20
            | c::DW_LANG_Rust
    )
}

#[cfg(test)]
mod tests;
