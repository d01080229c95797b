//! `annotate`: one procedure, instruction by instruction and line by line, its samples moved to the
//! instruction that was waited for; and `topcounts`, the hottest instructions of everything.

use crate::error::Error;
use crate::find::{Procedure, find};
use crate::groups::ratio;
use crate::names::{address, demangled};
use crate::provenance::provenance;
use crate::results::{Annotation, Cell, EventTotals, InsnRow, LineRow, Provenance};
use crate::selection::{Filter, Selection};
use crate::skid::{Moves, leads_of_pairs};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use whither_image::{
    Blocks, Flow, FunctionTable, ImageOffset, Insn, SourceFrame, Svma, Syntax, disassemble, to_offset,
};
use whither_store::model::{Image, Precision, Profile};
use whither_store::symbols::Symbols;

/// Whose samples an instruction shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attribution {
    /// Those that waited for it, where the event's skid is known.
    #[default]
    WaitedFor,
    /// Those taken at its address.
    Raw,
}

/// How to annotate.
#[derive(Clone, Debug, Default)]
pub struct AnnotateQuery {
    /// Which samples.
    pub filter: Filter,
    /// Event columns as in [`crate::listing::Query`].
    pub events: Vec<String>,
    /// Whose samples.
    pub attribution: Attribution,
    /// Assembler syntax.
    pub syntax: Syntax,
}

/// A procedure is not decoded beyond this many bytes.
const LONGEST: u64 = 4 << 20;
/// Source lines between two mentioned ones are shown when there are at most this many.
const GAP: u32 = 12;

/// Annotates the procedure that `wanted` names (see [`crate::find`]).
///
/// # Errors
/// Those of [`find`] and [`Selection::new`].
pub fn annotate(
    profile: &Profile,
    symbols: &dyn Symbols,
    wanted: &str,
    query: &AnnotateQuery,
) -> Result<Annotation, Error> {
    let selection = Selection::new(profile, &query.filter, &query.events)?;
    let procedure = find(&selection, symbols, wanted)?;
    Ok(annotate_procedure(&selection, symbols, &procedure, query))
}

/// Annotates a procedure already found.
#[must_use]
pub fn annotate_procedure(
    selection: &Selection<'_>,
    symbols: &dyn Symbols,
    procedure: &Procedure,
    query: &AnnotateQuery,
) -> Annotation {
    annotation(selection, symbols, procedure, query, provenance(selection, &query.filter))
}

/// With a provenance that several procedures share.
pub(crate) fn annotation(
    selection: &Selection<'_>,
    symbols: &dyn Symbols,
    procedure: &Procedure,
    query: &AnnotateQuery,
    provenance: Provenance,
) -> Annotation {
    let image = selection.profile.image(procedure.image);
    let samples = Samples::of(selection, procedure);
    let body = Body::new(selection, symbols, procedure, &samples, query);
    let mut files = Files::default();
    let insns = body.rows(image, symbols, &mut files);
    let lines = lines(&insns, &files, symbols);
    Annotation {
        procedure: demangled(&procedure.name).into_owned(),
        image: image.path.clone(),
        image_id: image.id.to_hex(),
        range: (address(image, procedure.start), procedure.size),
        cells: samples.cells(&provenance.events),
        corrected: body.corrected,
        notes: body.notes(&insns, &lines, &samples, query),
        files: files.names,
        insns,
        lines,
        provenance,
    }
}

/// Raw samples and weights of a procedure, by position, per column.
pub(crate) struct Samples {
    pub(crate) by_offset: BTreeMap<ImageOffset, Vec<(u64, u64)>>,
    columns: usize,
}

impl Samples {
    pub(crate) fn of(selection: &Selection<'_>, p: &Procedure) -> Self {
        let columns = selection.columns.len();
        let mut by_offset: BTreeMap<ImageOffset, Vec<(u64, u64)>> = BTreeMap::new();
        for &row in &selection.rows {
            let s = selection.sample(row);
            let inside = s.image == p.image && s.offset >= p.start && s.offset.0 - p.start.0 < p.size;
            if let (true, Some(column)) = (inside, selection.column(s.event)) {
                let sums = by_offset.entry(s.offset).or_insert_with(|| vec![(0, 0); columns]);
                sums[column].0 += u64::from(s.count);
                sums[column].1 = sums[column].1.saturating_add(s.weight());
            }
        }
        Self { by_offset, columns }
    }

    fn cells(&self, totals: &[EventTotals]) -> Vec<Cell> {
        let sum = |column: usize| {
            self.by_offset
                .values()
                .fold((0u64, 0u64), |(n, w), sums| (n + sums[column].0, w.saturating_add(sums[column].1)))
        };
        let cell = |(column, total): (usize, &EventTotals)| {
            let (samples, weight) = sum(column);
            Cell { samples, weight, share: ratio(weight, total.weight) }
        };
        totals.iter().enumerate().map(cell).collect()
    }
}

/// A procedure's instructions with raw and moved figures. Without code, one pseudo-instruction per
/// sampled position.
struct Body {
    start: ImageOffset,
    base: Svma,
    insns: Vec<(Insn, String)>,
    positions: Vec<u64>,
    blocks: Option<Blocks>,
    fused: Vec<bool>,
    /// Samples per column, then per instruction.
    raw: Vec<Vec<f64>>,
    moved: Vec<Vec<f64>>,
    /// Moved weight of the first column per instruction.
    weight: Vec<f64>,
    corrected: bool,
    uncorrectable: Vec<String>,
    /// Samples inside of an instruction, not at its first byte.
    misaligned: u64,
}

impl Body {
    fn new(
        selection: &Selection<'_>,
        symbols: &dyn Symbols,
        p: &Procedure,
        samples: &Samples,
        query: &AnnotateQuery,
    ) -> Self {
        let image = selection.profile.image(p.image);
        let base = Svma(address(image, p.start));
        let insns = code(image, p, symbols)
            .map(|code| with_text(image, &code, base, symbols, query.syntax))
            .unwrap_or_default();
        let positions: Vec<u64> = if insns.is_empty() {
            samples.by_offset.keys().map(|o| o.0 - p.start.0).collect()
        } else {
            insns.iter().map(|(i, _)| i.address.0 - base.0).collect()
        };
        let mut body = Self {
            start: p.start,
            base,
            insns,
            positions,
            blocks: None,
            fused: Vec::new(),
            raw: Vec::new(),
            moved: Vec::new(),
            weight: Vec::new(),
            corrected: false,
            uncorrectable: Vec::new(),
            misaligned: 0,
        };
        body.fill(selection, samples, query.attribution);
        body
    }

    /// Spreads the samples over the instructions and moves them.
    fn fill(&mut self, selection: &Selection<'_>, samples: &Samples, attribution: Attribution) {
        let n = self.positions.len();
        let columns = samples.columns;
        self.raw = vec![vec![0.0; n]; columns];
        let mut weights = vec![vec![0.0; n]; columns];
        for (offset, sums) in &samples.by_offset {
            let at = offset.0 - self.start.0;
            // Positions begin at 0 or at the first sample, so one is always at or below `at`.
            let i = self.positions.partition_point(|&p| p <= at).saturating_sub(1);
            for (column, &(count, weight)) in sums.iter().enumerate() {
                self.raw[column][i] += count as f64;
                weights[column][i] += weight as f64;
                self.misaligned += if self.positions[i] == at { 0 } else { count };
            }
        }
        let insns: Vec<Insn> = self.insns.iter().map(|(i, _)| *i).collect();
        let blocks = Blocks::new(&insns);
        self.moved = self.raw.clone();
        self.weight = weights.first().cloned().unwrap_or_default();
        for (column, &event) in selection.columns.iter().enumerate() {
            let event = selection.profile.event(event);
            if insns.is_empty() || attribution == Attribution::Raw {
                continue;
            }
            match event.precision {
                Precision::Skid(1) => {
                    let moves = Moves::plan(&insns, &blocks, evidence(&weights, column));
                    self.moved[column] = moves.apply(&self.raw[column]);
                    self.corrected = true;
                    if column == 0 {
                        self.weight = moves.apply(&weights[0]);
                    }
                }
                Precision::Exact | Precision::Skid(0) => {}
                Precision::Skid(_) | Precision::Unknown => self.uncorrectable.push(event.name.clone()),
            }
        }
        self.fused = leads_of_pairs(&insns, &blocks);
        self.blocks = (!insns.is_empty()).then_some(blocks);
    }

    fn rows(&self, image: &Image, symbols: &dyn Symbols, files: &mut Files) -> Vec<InsnRow> {
        let total: f64 = self.weight.iter().sum();
        (0..self.positions.len())
            .map(|i| {
                let frames = symbols.frames(image, ImageOffset(self.start.0 + self.positions[i]));
                let insn = self.insns.get(i);
                InsnRow {
                    address: self.base.0.wrapping_add(self.positions[i]),
                    length: insn.map_or(0, |(i, _)| i.len),
                    text: insn.map(|(_, text)| text.clone()).unwrap_or_default(),
                    samples: self.moved.iter().map(|column| column[i]).collect(),
                    raw: self.raw.iter().map(|column| column[i] as u64).collect(),
                    share: if total > 0.0 { self.weight[i] / total } else { 0.0 },
                    line: frames.first().and_then(|f| files.line(f)),
                    inlined: inlined(&frames),
                    block: self.block(i),
                    target: insn.and_then(|(i, _)| self.target(i)),
                    fused: i > 0 && self.fused.get(i - 1) == Some(&true),
                }
            })
            .collect()
    }

    fn block(&self, insn: usize) -> u32 {
        let block = self.blocks.as_ref().and_then(|b| b.block_of(insn)).unwrap_or(0);
        u32::try_from(block).unwrap_or(u32::MAX)
    }

    /// Only jumps that stay inside are drawn.
    fn target(&self, insn: &Insn) -> Option<u64> {
        let (Flow::Jump(to) | Flow::Branch(to)) = insn.flow else { return None };
        let at = to.0.checked_sub(self.base.0)?;
        self.positions.binary_search(&at).is_ok().then_some(to.0)
    }

    fn notes(&self, insns: &[InsnRow], lines: &[LineRow], samples: &Samples, query: &AnnotateQuery) -> Vec<String> {
        let mut notes = Vec::new();
        if self.insns.is_empty() {
            notes.push(
                "the machine code could not be had (file gone, changed, or never readable): \
                 samples stand where they were taken, without text"
                    .to_owned(),
            );
        }
        if self.insns.is_empty() && query.attribution == Attribution::WaitedFor {
            notes.push("without code, samples cannot be moved to the instruction waited for".into());
        }
        for event in &self.uncorrectable {
            notes.push(format!(
                "{event} samples lie off the instruction by an unknown distance: \
                 read them per procedure, not per instruction"
            ));
        }
        if self.corrected && self.blocks.as_ref().is_some_and(|b| b.incomplete) {
            notes.push(
                "there are indirect jumps whose targets are not known: samples on such targets stay \
                 where they were taken"
                    .into(),
            );
        }
        if self.misaligned > 0 && !self.insns.is_empty() {
            notes.push(format!(
                "{} samples lie inside of an instruction: data between code, or the code changed",
                self.misaligned
            ));
        }
        if insns.iter().all(|i| i.line.is_none()) {
            notes.push("no line information: install or point to the debug file for source lines".into());
        } else if lines.iter().all(|l| l.text.is_none()) {
            notes.push("the source files were not found on this machine: lines without text".into());
        }
        let few: u64 = samples.by_offset.values().filter_map(|s| s.first()).map(|s| s.0).sum();
        if few < 50 {
            notes.push(format!("only {few} samples in this procedure: single instructions mean little"));
        }
        notes
    }
}

/// A column without any weight borrows the first one's.
fn evidence(weights: &[Vec<f64>], column: usize) -> &[f64] {
    let own = &weights[column];
    if own.iter().any(|w| *w > 0.0) { own } else { &weights[0] }
}

fn code(image: &Image, p: &Procedure, symbols: &dyn Symbols) -> Option<Vec<u8>> {
    let end = p.start.0.saturating_add(p.size.min(LONGEST));
    symbols.code(image, p.start..ImageOffset(end)).filter(|code| !code.is_empty())
}

fn with_text(image: &Image, code: &[u8], base: Svma, symbols: &dyn Symbols, syntax: Syntax) -> Vec<(Insn, String)> {
    let functions = symbols.functions(image);
    disassemble(code, base, syntax, &|at| name_at(image, &functions, at))
}

/// `name` or `name+0x1f`.
fn name_at(image: &Image, functions: &Arc<FunctionTable>, at: Svma) -> Option<String> {
    let offset = to_offset(&image.segments, at)?;
    let f = functions.find(offset)?;
    let name = demangled(&f.name);
    Some(match offset.0 - f.start.0 {
        0 => name.into_owned(),
        within => format!("{name}+{within:#x}"),
    })
}

/// Name of the innermost function, when it was inlined here.
fn inlined(frames: &[SourceFrame]) -> Option<String> {
    let innermost = frames.first().filter(|_| frames.len() > 1)?;
    innermost.function.as_deref().map(|f| demangled(f).into_owned())
}

/// Source files in order of first mention.
#[derive(Default)]
struct Files {
    names: Vec<String>,
    index: FxHashMap<Arc<str>, u32>,
}

impl Files {
    fn line(&mut self, frame: &SourceFrame) -> Option<(u32, u32)> {
        let file = frame.file.as_ref().filter(|_| frame.line != 0)?;
        if let Some(&i) = self.index.get(file) {
            return Some((i, frame.line));
        }
        let i = u32::try_from(self.names.len()).ok()?;
        self.names.push(file.to_string());
        self.index.insert(Arc::clone(file), i);
        Some((i, frame.line))
    }
}

/// Sums instructions by line, and adds the lines between where the source can be read.
fn lines(insns: &[InsnRow], files: &Files, symbols: &dyn Symbols) -> Vec<LineRow> {
    let columns = insns.first().map_or(0, |i| i.samples.len());
    let mut by_line: BTreeMap<(u32, u32), (Vec<f64>, f64)> = BTreeMap::new();
    for insn in insns {
        let Some(at) = insn.line else { continue };
        let (samples, share) = by_line.entry(at).or_insert_with(|| (vec![0.0; columns], 0.0));
        samples.iter_mut().zip(&insn.samples).for_each(|(sum, s)| *sum += s);
        *share += insn.share;
    }
    let texts: Vec<Option<Arc<Vec<String>>>> = files.names.iter().map(|f| symbols.source(f)).collect();
    fill_gaps(&mut by_line, &texts, columns);
    let text = |file: u32, line: u32| texts[file as usize].as_ref()?.get(line as usize - 1).cloned();
    by_line
        .into_iter()
        .map(|((file, line), (samples, share))| LineRow { file, line, text: text(file, line), samples, share })
        .collect()
}

fn fill_gaps(by_line: &mut BTreeMap<(u32, u32), (Vec<f64>, f64)>, texts: &[Option<Arc<Vec<String>>>], columns: usize) {
    let known: Vec<(u32, u32)> = by_line.keys().copied().collect();
    for pair in known.windows(2) {
        let ((file, from), (next_file, to)) = (pair[0], pair[1]);
        if file == next_file && to - from <= GAP + 1 && texts[file as usize].is_some() {
            for line in from + 1..to {
                by_line.insert((file, line), (vec![0.0; columns], 0.0));
            }
        }
    }
}
