//! All unwind rules of an image, packed in the 32-bit words of the shared segment (`include/whither_agent.h`):
//! what the agent needs to get from one return slot to the next without frame pointers and without an
//! interpreter. Shapes that do not fit become a row without rule, never a guess. Constraint: a library of
//! 100 MB has to be read within a second while somebody waits, so every entry is looked at once.

use crate::bytes::Bytes;
use crate::error::{ImageError, Problem};
use crate::extents::{bases, eh_frame};
use crate::ids::Svma;
use crate::unwind::UserRegs;
use crate::view::View;
use gimli::{BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice};
use gimli::{FrameDescriptionEntry, LittleEndian, Operation, Register, RegisterRule, UnwindContext};
use gimli::{UnwindExpression, UnwindOffset, UnwindSection, X86_64};
use object::elf;
use rustc_hash::FxHashMap;
use whither_abi::agent::{RULE_BIG, RULE_END, RULE_NONE, RULE_RBP, RULE_RSP, RULE_SIGNAL, Row, Rule};

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Expression = UnwindExpression<usize>;

/// Compilers write below 30 bytes; a broken file could repeat a long one for each function.
const LONGEST_CIE: usize = 4096;
/// Bad entries told one by one.
const MOST_PROBLEMS: usize = 8;
/// Bits 3..16 of a packed rule: offset of the frame address in words.
const OFFSET_BITS: u32 = 14;
/// Bit 17: rbp is saved, at the frame address plus the words in bits 18..31.
const RBP_SAVED: u32 = 1 << 17;

/// The rules of an image, sorted and without holes from the first function to the end of the last one.
#[derive(Clone, Debug, Default)]
pub struct UnwindRows {
    /// Stated address that row offsets count from: the first loaded byte.
    pub base: Svma,
    /// Each holds up to the next one's offset. Return addresses are looked up one byte before.
    pub rows: Vec<Row>,
    /// The rare shapes; rows of kind `RULE_BIG` hold an index into it.
    pub big: Vec<Rule>,
    /// What was left out.
    pub problems: Vec<Problem>,
}

impl UnwindRows {
    /// The rules in an ELF file for x86-64; no rows without `.eh_frame`.
    ///
    /// # Errors
    /// When it is not such a file or its headers cannot be read.
    pub fn from_elf(file: &Bytes) -> Result<Self, ImageError> {
        let view = View::parse(file)?;
        if view.machine != elf::EM_X86_64 || !view.is_64 {
            let detail = format!("machine {} is not x86-64, the only one that can be unwound", view.machine.0);
            return Err(ImageError::broken("unwind information", detail));
        }
        let mut reader = Reader::new(&view, ".eh_frame");
        if let Some((address, bytes)) = eh_frame(&view) {
            let mut section = EhFrame::new(bytes, LittleEndian);
            section.set_address_size(8);
            reader.read(&section, &bases(&view).set_eh_frame(address));
        }
        Ok(reader.finish())
    }

    /// The rules in the bytes of a `.debug_frame` section, which debuggers read: code built without asynchronous
    /// unwind tables and Go programs have no others.
    pub(crate) fn of_debug_frame(view: &View<'_>, bytes: &[u8]) -> Self {
        let mut section = DebugFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let mut reader = Reader::new(view, ".debug_frame");
        reader.read(&section, &bases(view));
        reader.finish()
    }

    /// From the frame that runs at a stated address (one before a return address) to its caller: registers become the
    /// caller's, and its address is returned. `read` gives the word at an address of the stack.
    pub(crate) fn step(&self, at: Svma, regs: &mut UserRegs, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> RowStep {
        let rule = self.find(at);
        let caller = match rule & 7 {
            RULE_RSP | RULE_RBP => Ok(Self::small_step(rule, regs)),
            RULE_BIG => match self.big.get((rule >> 3) as usize) {
                Some(big) => Self::big_step(big, regs, read),
                None => return RowStep::NoRule,
            },
            RULE_END => return RowStep::Root,
            _ => return RowStep::NoRule,
        };
        let saved = |(frame, saved): (u64, Option<u64>), read: &mut dyn FnMut(u64) -> Result<u64, ()>| {
            let back = word(read, frame.wrapping_sub(8))?;
            let bp = saved.map_or(Ok(regs.bp), |at| word(read, at))?;
            Ok((frame, bp, back))
        };
        match caller.and_then(|found| saved(found, read)) {
            Ok((frame, bp, back)) => {
                *regs = UserRegs { ip: back, sp: frame, bp };
                RowStep::Caller(back)
            }
            Err(Unread(at)) => RowStep::Unread(at),
        }
    }

    /// Frame address, and where the caller's rbp is saved.
    fn small_step(rule: u32, regs: &UserRegs) -> (u64, Option<u64>) {
        let words = u64::from(rule >> 3 & ((1 << OFFSET_BITS) - 1));
        let frame = if rule & 7 == RULE_RSP { regs.sp } else { regs.bp }.wrapping_add(words * 8);
        let saved = frame.wrapping_add_signed(i64::from(rule.cast_signed() >> 18) * 8);
        (frame, (rule & RBP_SAVED != 0).then_some(saved))
    }

    fn big_step(
        big: &Rule,
        regs: &UserRegs,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Result<(u64, Option<u64>), Unread> {
        let base = if u32::from(big.reg) == RULE_RSP { regs.sp } else { regs.bp };
        let at = base.wrapping_add_signed(big.cfa_offset.into());
        let frame = if big.deref != 0 { word(read, at)?.wrapping_add_signed(big.more.into()) } else { at };
        let saved = match big.rbp {
            0 => None,
            1 => Some(frame.wrapping_add_signed(big.rbp_offset.into())),
            _ => Some(regs.bp.wrapping_add_signed(big.rbp_offset.into())),
        };
        Ok((frame, saved))
    }

    /// The packed rule at a stated address (not one before): `RULE_NONE` where nothing is known.
    #[must_use]
    pub fn find(&self, at: Svma) -> u32 {
        let Some(offset) = at.0.checked_sub(self.base.0).and_then(|o| u32::try_from(o).ok()) else { return RULE_NONE };
        let i = self.rows.partition_point(|r| r.offset <= offset);
        i.checked_sub(1).map_or(RULE_NONE, |i| self.rows[i].rule)
    }

    /// Whether the frame of a function is already there at a stated address, so that no function begins: the part of
    /// one that was moved elsewhere does. `None` where nothing is known.
    #[must_use]
    pub fn has_frame(&self, at: Svma) -> Option<bool> {
        let rule = self.find(at);
        let words = rule >> 3 & ((1 << OFFSET_BITS) - 1);
        match rule & 7 {
            // Where a function begins, its return address is all there is.
            RULE_RSP => Some(words != 1),
            RULE_RBP => Some(true),
            _ => None,
        }
    }

    /// The rows with indices of rare shapes counted from `first`: as they go into the shared segment, where
    /// the rules of all images stand in one table.
    pub fn rebased(&self, first: u32) -> impl Iterator<Item = Row> + '_ {
        self.rows.iter().map(move |row| match row.rule & 7 {
            RULE_BIG => Row { rule: row.rule.wrapping_add(first << 3), ..*row },
            _ => *row,
        })
    }
}

/// Where one step by a row leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowStep {
    /// The caller's address.
    Caller(u64),
    /// This is the outermost frame.
    Root,
    /// The word at this address could not be read.
    Unread(u64),
    /// Nothing is known of this address.
    NoRule,
}

/// The address of a word that could not be read.
struct Unread(u64);

fn word(read: &mut (impl FnMut(u64) -> Result<u64, ()> + ?Sized), at: u64) -> Result<u64, Unread> {
    read(at).map_err(|()| Unread(at))
}

/// Rows of one function, before all are put in order.
struct Span {
    start: u32,
    end: u32,
    rows: std::ops::Range<usize>,
}

struct Reader {
    /// What is read, for problems.
    section: &'static str,
    base: u64,
    spans: Vec<Span>,
    rows: Vec<Row>,
    big: Big,
    problems: Vec<Problem>,
}

impl Reader {
    fn new(view: &View<'_>, section: &'static str) -> Self {
        let loads = view.programs.iter().filter(|p| p.kind == elf::PT_LOAD);
        let base = loads.map(|p| p.address).min().unwrap_or(0);
        Self { section, base, spans: Vec::new(), rows: Vec::new(), big: Big::default(), problems: Vec::new() }
    }

    fn read<'a, S: UnwindSection<Slice<'a>>>(&mut self, section: &S, bases: &BaseAddresses) {
        if let Err(e) = self.functions(section, bases) {
            self.problem(format_args!("read up to a broken entry: {e}"));
        }
    }

    fn functions<'a, S: UnwindSection<Slice<'a>>>(&mut self, section: &S, bases: &BaseAddresses) -> gimli::Result<()> {
        let mut cies: FxHashMap<usize, CommonInformationEntry<Slice<'a>>> = FxHashMap::default();
        let mut context = UnwindContext::new();
        let mut entries = section.entries(bases);
        while let Some(entry) = entries.next()? {
            let CieOrFde::Fde(partial) = entry else { continue };
            let fde = partial.parse(|section, bases, offset| {
                let key = UnwindOffset::into(offset);
                match cies.get(&key) {
                    Some(cie) => Ok(cie.clone()),
                    None => section.cie_from_offset(bases, offset).inspect(|cie| {
                        cies.insert(key, cie.clone());
                    }),
                }
            })?;
            let Some((start, end)) = self.range(&fde) else { continue };
            let first = self.rows.len();
            if let Err(e) = self.function(section, bases, &mut context, &fde, start, end) {
                self.problem(format_args!("rules of the function at {:#x}: {e}", fde.initial_address()));
                self.rows.push(Row { offset: self.rows[first..].last().map_or(start, |r| r.offset), rule: RULE_NONE });
            }
            self.spans.push(Span { start, end, rows: first..self.rows.len() });
        }
        Ok(())
    }

    /// Offsets of a function's code, when it has any.
    fn range(&self, fde: &FrameDescriptionEntry<Slice<'_>>) -> Option<(u32, u32)> {
        // The linker leaves address 0 behind for functions it dropped.
        let start = Some(fde.initial_address()).filter(|&at| at != 0)?;
        let from = u32::try_from(start.checked_sub(self.base)?).ok()?;
        let to = u32::try_from(start.checked_add(fde.len())?.checked_sub(self.base)?).ok()?;
        (from < to).then_some((from, to))
    }

    fn function<'a, S: UnwindSection<Slice<'a>>>(
        &mut self,
        section: &S,
        bases: &BaseAddresses,
        context: &mut UnwindContext<usize>,
        fde: &FrameDescriptionEntry<Slice<'a>>,
        start: u32,
        end: u32,
    ) -> gimli::Result<()> {
        let cie = fde.cie();
        if fde.is_signal_trampoline() {
            self.rows.push(Row { offset: start, rule: RULE_SIGNAL });
            return Ok(());
        }
        if cie.return_address_register() != X86_64::RA || cie.entry_len() > LONGEST_CIE {
            self.rows.push(Row { offset: start, rule: RULE_NONE });
            return Ok(());
        }
        let mut table = fde.rows(section, bases, context)?;
        while let Some(row) = table.next_row()? {
            let Some(offset) = row.start_address().checked_sub(self.base).and_then(|o| u32::try_from(o).ok()) else {
                break;
            };
            let offset = offset.max(start);
            if offset >= end {
                break;
            }
            let shape = Shape {
                section,
                cie,
                cfa: row.cfa(),
                rbp: row.register(X86_64::RBP),
                ra: row.register(X86_64::RA),
                rsp: row.register(X86_64::RSP),
            };
            self.rows.push(Row { offset, rule: shape.packed(&mut self.big) });
        }
        Ok(())
    }

    fn problem(&mut self, sentence: std::fmt::Arguments<'_>) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(Problem::new(self.section, sentence));
        }
    }

    /// Functions in order; what none covers has no rule, and where two overlap the one that starts first
    /// is taken.
    fn finish(mut self) -> UnwindRows {
        if !self.spans.is_sorted_by_key(|s| s.start) {
            self.spans.sort_by_key(|s| s.start);
        }
        let mut out: Vec<Row> = Vec::with_capacity(self.rows.len() + 1);
        let mut push = |offset: u32, rule: u32| {
            // A row of no length gives way to the next one.
            if out.last().is_some_and(|last| last.offset == offset) {
                out.pop();
            }
            if out.last().is_none_or(|last| last.rule != rule) {
                out.push(Row { offset, rule });
            }
        };
        let mut covered = 0;
        for span in &self.spans {
            if span.end <= covered {
                continue;
            }
            if span.start > covered {
                push(covered, RULE_NONE);
            }
            let mut before = covered.max(span.start);
            for row in &self.rows[span.rows.clone()] {
                // Rows of a sane function rise.
                before = before.max(row.offset);
                push(before, row.rule);
            }
            covered = span.end;
        }
        push(covered, RULE_NONE);
        UnwindRows { base: Svma(self.base), rows: out, big: self.big.rules, problems: self.problems }
    }
}

/// The rare rules, each once.
#[derive(Default)]
struct Big {
    rules: Vec<Rule>,
    known: FxHashMap<(u8, u8, u8, i32, i32, i32), u32>,
}

impl Big {
    fn packed(&mut self, rule: Rule) -> u32 {
        let key = (rule.reg, rule.deref, rule.rbp, rule.cfa_offset, rule.rbp_offset, rule.more);
        let index = *self.known.entry(key).or_insert_with(|| {
            self.rules.push(rule);
            (self.rules.len() - 1) as u32
        });
        // 29 bits hold more rules than a file of 4 GB can state.
        RULE_BIG | index << 3
    }
}

/// What a row states of the registers that matter.
struct Shape<'r, 'a, S> {
    section: &'r S,
    cie: &'r CommonInformationEntry<Slice<'a>>,
    cfa: &'r CfaRule<usize>,
    rbp: Option<RegisterRule<usize>>,
    ra: Option<RegisterRule<usize>>,
    rsp: Option<RegisterRule<usize>>,
}

/// Where the caller's rbp is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rbp {
    Unchanged,
    FromCfa(i32),
    FromRegister(i32),
    FromStack(i32),
}

/// Where the frame address is: a register plus offset, or what memory there holds plus `more`.
struct Cfa {
    register: Register,
    offset: i32,
    deref: bool,
    more: i32,
}

impl<'a, S: UnwindSection<Slice<'a>>> Shape<'_, 'a, S> {
    fn packed(&self, big: &mut Big) -> u32 {
        match self.ra {
            Some(RegisterRule::Undefined) => return RULE_END,
            Some(RegisterRule::Offset(-8)) => {}
            _ => return RULE_NONE,
        }
        if !matches!(self.rsp, None | Some(RegisterRule::Undefined | RegisterRule::ValOffset(0))) {
            return RULE_NONE;
        }
        let parts = self.frame_address().zip(self.frame_pointer());
        parts.and_then(|(cfa, rbp)| pack(&cfa, rbp, big)).unwrap_or(RULE_NONE)
    }

    fn frame_address(&self) -> Option<Cfa> {
        match self.cfa {
            CfaRule::RegisterAndOffset { register, offset } => {
                Some(Cfa { register: *register, offset: i32::try_from(*offset).ok()?, deref: false, more: 0 })
            }
            CfaRule::Expression(expression) => {
                let (register, offset, rest) = self.based(expression)?;
                match rest.as_slice() {
                    [] => Some(Cfa { register, offset, deref: false, more: 0 }),
                    [Operation::Deref { size: 8, space: false, .. }] => {
                        Some(Cfa { register, offset, deref: true, more: 0 })
                    }
                    [Operation::Deref { size: 8, space: false, .. }, Operation::PlusConstant { value }] => {
                        Some(Cfa { register, offset, deref: true, more: i32::try_from(*value).ok()? })
                    }
                    _ => None,
                }
            }
        }
    }

    fn frame_pointer(&self) -> Option<Rbp> {
        match self.rbp.as_ref() {
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(Rbp::Unchanged),
            Some(RegisterRule::Offset(offset)) => Some(Rbp::FromCfa(i32::try_from(*offset).ok()?)),
            Some(RegisterRule::Expression(expression)) => match self.based(expression)? {
                (X86_64::RBP, offset, rest) if rest.is_empty() => Some(Rbp::FromRegister(offset)),
                (X86_64::RSP, offset, rest) if rest.is_empty() => Some(Rbp::FromStack(offset)),
                _ => None,
            },
            Some(_) => None,
        }
    }

    /// An expression that begins with a register plus offset: that, and at most two further operations.
    fn based(&self, expression: &Expression) -> Option<(Register, i32, Vec<Operation<Slice<'a>>>)> {
        let mut operations = expression.get(self.section).ok()?.operations(self.cie.encoding());
        let Operation::RegisterOffset { register, offset, .. } = operations.next().ok()?? else { return None };
        let mut rest = Vec::new();
        while let Some(operation) = operations.next().ok()? {
            rest.push(operation);
            if rest.len() > 2 {
                return None;
            }
        }
        Some((register, i32::try_from(offset).ok()?, rest))
    }
}

/// The packed form; `None` for what has no form at all.
fn pack(cfa: &Cfa, rbp: Rbp, big: &mut Big) -> Option<u32> {
    let kind = match cfa.register {
        X86_64::RSP => RULE_RSP,
        X86_64::RBP => RULE_RBP,
        _ => return None,
    };
    // With the frame address counted from rsp, so is everything else.
    let rbp = match rbp {
        Rbp::FromStack(offset) if kind == RULE_RSP && !cfa.deref => Rbp::FromCfa(offset.checked_sub(cfa.offset)?),
        Rbp::FromStack(_) => return None,
        other => other,
    };
    if let Some(small) = pack_small(kind, cfa, rbp) {
        return Some(small);
    }
    let (how, rbp_offset) = match rbp {
        Rbp::Unchanged => (0, 0),
        Rbp::FromCfa(offset) => (1, offset),
        Rbp::FromRegister(offset) | Rbp::FromStack(offset) => (2, offset),
    };
    let (deref, reg) = (u8::from(cfa.deref), kind as u8);
    Some(big.packed(Rule { reg, deref, rbp: how, spare: 0, cfa_offset: cfa.offset, rbp_offset, more: cfa.more }))
}

fn pack_small(kind: u32, cfa: &Cfa, rbp: Rbp) -> Option<u32> {
    if cfa.deref || cfa.offset % 8 != 0 {
        return None;
    }
    let words = u32::try_from(cfa.offset / 8).ok().filter(|w| *w < 1 << OFFSET_BITS)?;
    let saved = match rbp {
        Rbp::Unchanged => 0,
        Rbp::FromCfa(offset) if offset % 8 == 0 => {
            let words = offset / 8;
            let fits = (-(1 << (OFFSET_BITS - 1))..1 << (OFFSET_BITS - 1)).contains(&words);
            fits.then_some(RBP_SAVED | words.cast_unsigned() << 18)?
        }
        _ => return None,
    };
    Some(kind | words << 3 | saved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(cfa: (Register, i32), rbp: Rbp, big: &mut Big) -> Option<u32> {
        pack(&Cfa { register: cfa.0, offset: cfa.1, deref: false, more: 0 }, rbp, big)
    }

    #[test]
    fn packing() {
        let mut big = Big::default();
        assert_eq!(rule((X86_64::RSP, 16), Rbp::Unchanged, &mut big), Some(RULE_RSP | 2 << 3));
        let frame = rule((X86_64::RBP, 16), Rbp::FromCfa(-16), &mut big).unwrap();
        assert_eq!((frame & 7, (frame >> 3) & 0x3fff, frame >> 17 & 1), (RULE_RBP, 2, 1));
        assert_eq!(frame.cast_signed() >> 18, -2);
        assert!(big.rules.is_empty());
        // rbp at rsp + 8 with the frame address at rsp + 32
        let saved = rule((X86_64::RSP, 32), Rbp::FromStack(8), &mut big).unwrap();
        assert_eq!(saved.cast_signed() >> 18, -3);
        let odd = rule((X86_64::RSP, 12), Rbp::Unchanged, &mut big).unwrap();
        let large = rule((X86_64::RSP, 1 << 17), Rbp::FromCfa(-16), &mut big).unwrap();
        assert_eq!(
            [odd, large, odd],
            [RULE_BIG, RULE_BIG | 1 << 3, rule((X86_64::RSP, 12), Rbp::Unchanged, &mut big).unwrap()]
        );
        assert_eq!((big.rules[1].cfa_offset, big.rules[1].rbp, big.rules[1].rbp_offset), (1 << 17, 1, -16));
        assert_eq!(rule((X86_64::R10, 0), Rbp::Unchanged, &mut big), None);
        let most = (1 << 14) - 1;
        assert_eq!(rule((X86_64::RSP, most * 8), Rbp::FromCfa(-65536), &mut big).unwrap() & 7, RULE_RSP);
        assert_eq!(rule((X86_64::RSP, most * 8), Rbp::FromCfa(-65544), &mut big).unwrap() & 7, RULE_BIG);
    }

    #[test]
    fn functions_are_put_in_order_with_gaps_between() {
        let spans = vec![
            Span { start: 40, end: 50, rows: 2..3 },
            Span { start: 10, end: 20, rows: 0..2 },
            Span { start: 15, end: 30, rows: 3..4 },
        ];
        let row = |offset, rule| Row { offset, rule };
        let rows = vec![row(10, 9), row(12, 17), row(40, 9), row(15, 25)];
        let reader = Reader { section: "", base: 0, spans, rows, big: Big::default(), problems: Vec::new() };
        let rows = reader.finish();
        let expected = [row(0, 0), row(10, 9), row(12, 17), row(20, 25), row(30, 0), row(40, 9), row(50, 0)];
        assert_eq!(rows.rows, expected);
        assert_eq!([rows.find(Svma(9)), rows.find(Svma(19)), rows.find(Svma(u64::MAX))], [0, 17, 0]);
    }

    #[test]
    fn indices_of_rare_shapes_are_moved() {
        let rows = vec![Row { offset: 0, rule: RULE_BIG | 2 << 3 }, Row { offset: 4, rule: RULE_RSP | 1 << 3 }];
        let rows = UnwindRows { rows, ..UnwindRows::default() };
        let moved: Vec<u32> = rows.rebased(100).map(|r| r.rule).collect();
        assert_eq!(moved, [RULE_BIG | 102 << 3, RULE_RSP | 1 << 3]);
    }
}
