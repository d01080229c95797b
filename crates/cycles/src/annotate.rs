//! `annotate`: one procedure, instruction by instruction and line by line, its samples moved to the
//! instruction that was waited for; and `topcounts`, the hottest instructions of everything.

use crate::body::{Body, Shape};
use crate::error::Error;
use crate::find::{Procedure, find};
use crate::groups::ratio;
use crate::names::{address, demangled};
use crate::provenance::provenance;
use crate::results::{Annotation, Cell, EventTotals, InsnRow, LineRow, Provenance};
use crate::selection::{Filter, Selection};
use crate::skid::Moves;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use whither_image::{ImageOffset, SourceFrame, Syntax};
use whither_store::model::Profile;
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

/// How much of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What its symbol covers.
    Own,
    /// And its cold parts, as the analysis takes it.
    WithParts,
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
    annotation(selection, symbols, procedure, Extent::WithParts, query, provenance(selection, &query.filter))
}

/// The same with samples moved as its analysis found.
pub(crate) fn annotate_moved(
    selection: &Selection<'_>,
    symbols: &dyn Symbols,
    procedure: &Procedure,
    query: &AnnotateQuery,
    moves: Option<&Moves>,
) -> Annotation {
    let provenance = provenance(selection, &query.filter);
    moved_annotation(selection, symbols, procedure, Extent::WithParts, query, (provenance, moves))
}

/// With a provenance that several procedures share.
pub(crate) fn annotation(
    selection: &Selection<'_>,
    symbols: &dyn Symbols,
    procedure: &Procedure,
    extent: Extent,
    query: &AnnotateQuery,
    provenance: Provenance,
) -> Annotation {
    moved_annotation(selection, symbols, procedure, extent, query, (provenance, None))
}

fn moved_annotation(
    selection: &Selection<'_>,
    symbols: &dyn Symbols,
    procedure: &Procedure,
    extent: Extent,
    query: &AnnotateQuery,
    (provenance, moves): (Provenance, Option<&Moves>),
) -> Annotation {
    let image = selection.profile.image(procedure.image);
    let shape = Shape::new(image, symbols, procedure, extent);
    let samples = Samples::of(selection, procedure, &shape.parts);
    let elsewhere = shape.parts.iter().filter(|part| part.start != procedure.start);
    let parts = elsewhere.map(|part| (address(image, part.start), part.end.0 - part.start.0)).collect();
    let body = Body::new(selection, symbols, shape, procedure, &samples, (query, moves));
    let mut files = Files::default();
    let insns = body.rows(image, symbols, &mut files);
    let lines = lines(&insns, &files, symbols);
    let mut notes = body.notes(image, query);
    notes.extend(source_note(&insns, &lines));
    notes.extend(changed_note(selection, symbols, &lines, &files));
    notes.extend(few_note(&samples));
    Annotation {
        procedure: demangled(&procedure.name).into_owned(),
        image: image.path.clone(),
        image_id: image.id.to_hex(),
        range: (address(image, procedure.start), procedure.size),
        parts,
        cells: samples.cells(&provenance.events),
        corrected: body.corrected,
        notes,
        files: files.names,
        insns,
        lines,
        provenance,
    }
}

/// Fewer samples than this say little of single instructions.
const FEW_SAMPLES: u64 = 50;

fn few_note(samples: &Samples) -> Option<String> {
    let n: u64 = samples.by_offset.values().filter_map(|s| s.first()).map(|s| s.0).sum();
    (n < FEW_SAMPLES).then(|| format!("only {n} samples in this procedure: single instructions mean little"))
}

fn source_note(insns: &[InsnRow], lines: &[LineRow]) -> Option<String> {
    let note = if insns.iter().all(|i| i.line.is_none()) {
        "no line information: install or point to the debug file for source lines"
    } else if lines.iter().all(|l| l.text.is_none()) {
        "the source files were not found on this machine: lines without text"
    } else {
        return None;
    };
    Some(note.to_owned())
}

/// Names of source files told in a note.
const NAMED: usize = 3;

/// A file written since may have other lines than those that ran.
fn changed_note(selection: &Selection<'_>, symbols: &dyn Symbols, lines: &[LineRow], files: &Files) -> Option<String> {
    let end = selection.profile.epochs.iter().map(|e| e.end_ns).max()?;
    let shown: BTreeSet<u32> = lines.iter().filter(|l| l.text.is_some()).map(|l| l.file).collect();
    let changed: Vec<&str> = shown
        .into_iter()
        .map(|file| &*files.names[file as usize])
        .filter(|name| symbols.source_written(name).is_some_and(|written| written > end))
        .collect();
    let more = if changed.len() > NAMED { format!(" and {} more", changed.len() - NAMED) } else { String::new() };
    (!changed.is_empty()).then(|| {
        let named = changed[..changed.len().min(NAMED)].join(", ");
        format!("written since the recording: {named}{more}; the text beside the samples may not be what ran")
    })
}

/// Raw samples and weights of a procedure, by position, per column.
pub(crate) struct Samples {
    pub(crate) by_offset: BTreeMap<ImageOffset, Vec<(u64, u64)>>,
    pub(crate) columns: usize,
}

impl Samples {
    pub(crate) fn of(selection: &Selection<'_>, p: &Procedure, parts: &[Range<ImageOffset>]) -> Self {
        let columns = selection.columns.len();
        let mut by_offset: BTreeMap<ImageOffset, Vec<(u64, u64)>> = BTreeMap::new();
        for &row in &selection.rows {
            let s = selection.sample(row);
            let inside = s.image == p.image && parts.iter().any(|part| part.contains(&s.offset));
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

/// Source files in order of first mention.
#[derive(Default)]
pub(crate) struct Files {
    names: Vec<String>,
    index: FxHashMap<Arc<str>, u32>,
}

impl Files {
    pub(crate) fn line(&mut self, frame: &SourceFrame) -> Option<(u32, u32)> {
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
