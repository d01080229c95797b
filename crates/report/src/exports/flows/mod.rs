//! Estimated executions in the formats of optimisers: what a compiler or a post-link optimiser would learn from branch
//! records, without branch records. Each format takes analysed procedures.
//!
//! Scale: where the executions of every procedure are known absolutely they are written as they are. Else each procedure
//! is scaled so that its executed instructions are in the proportion of its samples, as profiles made from plain samples
//! are; then counts compare inside a procedure, and between procedures as far as their instructions cost alike.

mod autofdo;
mod bolt;
mod csv;

use super::failed;
use crate::error::Error;
use std::io::Write;
use std::sync::Arc;
use whither_cycles::Errors;
use whither_cycles::results::analysis::{Analysis, BlockAnalysis};
use whither_image::{FunctionTable, ImageOffset, Svma, to_offset};
use whither_store::model::Image;
use whither_store::symbols::Symbols;

/// The formats, by the name the user gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowFormat {
    /// Text sample profile, for `clang -fprofile-sample-use` and, through `create_gcov`, gcc.
    Autofdo,
    /// Edge profile for `llvm-bolt`.
    Bolt,
    /// One line per basic block.
    Blocks,
}

impl FlowFormat {
    /// All formats with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("autofdo", Self::Autofdo), ("bolt", Self::Bolt), ("blocks", Self::Blocks)];

    /// What of the errors of executions it has room for: optimisers ask for counts alone.
    #[must_use]
    pub fn errors(self) -> Errors {
        if self == Self::Blocks { Errors::Drawn } else { Errors::Skipped }
    }

    /// The format of a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, f)| *f)
    }
}

/// An analysed procedure.
#[derive(Clone, Debug)]
pub struct Flows<'a> {
    /// Image it is in.
    pub image: &'a Image,
    /// First byte.
    pub start: ImageOffset,
    /// Linkage name.
    pub name: Arc<str>,
    /// What was found.
    pub analysis: Analysis,
}

/// What an export held, for the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Procedures written.
    pub procedures: usize,
    /// Procedures without debug information, or whose name several functions share: AutoFDO cannot say their lines.
    pub without_lines: usize,
    /// Whether counts are absolute.
    pub absolute: bool,
}

/// Counts per instruction of relative profiles are this many times the samples, lest rare blocks round to nothing.
const PER_SAMPLE: f64 = 1000.0;

/// Writes one format.
///
/// # Errors
/// [`Error::Write`] when the writer fails, [`Error::NoFlows`] without any analysed procedure.
pub fn write(
    format: FlowFormat,
    all: &[Flows<'_>],
    symbols: &dyn Symbols,
    out: &mut dyn Write,
) -> Result<Written, Error> {
    let known: Vec<&Flows<'_>> = all.iter().filter(|f| !f.analysis.blocks.is_empty()).collect();
    if known.is_empty() {
        return Err(Error::NoFlows { why: why(all) });
    }
    let absolute = known.iter().all(|f| crate::text::is_absolute(&f.analysis));
    let counted: Vec<Counted<'_>> = known.iter().map(|f| Counted::new(f, absolute)).collect();
    let mut written = Written { procedures: counted.len(), absolute, ..Written::default() };
    match format {
        FlowFormat::Autofdo => {
            written.without_lines = autofdo::write(&counted, symbols, out).map_err(failed("autofdo"))?;
            written.procedures -= written.without_lines;
        }
        FlowFormat::Bolt => bolt::write(&counted, symbols, out).map_err(failed("bolt"))?,
        FlowFormat::Blocks => csv::write(&counted, out).map_err(failed("blocks"))?,
    }
    Ok(written)
}

/// Why nothing could be analysed: what is said of the procedure with most samples.
fn why(all: &[Flows<'_>]) -> String {
    match all.first() {
        None => "none has samples enough, or none lies in a program's file; record for longer".to_owned(),
        Some(f) => {
            let told = f.analysis.notes.first().map_or("its machine code is not known", String::as_str);
            format!("{}: {}", f.analysis.annotation.procedure, told.trim_start_matches("not analysed: "))
        }
    }
}

/// A procedure with the factor that makes counts of its executions.
struct Counted<'a> {
    flows: &'a Flows<'a>,
    scale: f64,
}

impl<'a> Counted<'a> {
    fn new(flows: &'a Flows<'a>, absolute: bool) -> Self {
        let a = &flows.analysis;
        let executed: f64 = a.blocks.iter().map(|b| b.frequency.value * b.len as f64).sum();
        let samples: f64 = a.blocks.iter().map(|b| b.samples).sum();
        let scale = if absolute {
            1.0
        } else if executed > 0.0 && executed.is_finite() {
            samples * PER_SAMPLE / executed
        } else {
            0.0
        };
        Self { flows, scale }
    }

    fn count(&self, executions: f64) -> u64 {
        // Saturates, and is 0 for what is no number.
        (executions * self.scale).round() as u64
    }

    fn analysis(&self) -> &'a Analysis {
        &self.flows.analysis
    }

    /// Address of the last instruction of a block.
    fn last(&self, b: &BlockAnalysis) -> Option<u64> {
        let i = (b.first + b.len).checked_sub(1)?;
        self.analysis().insns.get(i).map(|insn| insn.address)
    }

    /// Executions that calls bring in.
    fn entries(&self) -> u64 {
        let a = self.analysis();
        let into = a.edges.iter().filter(|e| e.from == a.blocks.len()).map(|e| e.frequency.value);
        self.count(into.sum())
    }

    fn offset(&self, address: u64) -> Option<ImageOffset> {
        to_offset(&self.flows.image.segments, Svma(address))
    }
}

/// Symbol and distance from it: cold parts have symbols of their own.
fn symbol_at(functions: &FunctionTable, flows: &Counted<'_>, address: u64) -> Option<(Arc<str>, u64)> {
    let offset = flows.offset(address)?;
    let start = flows.flows.start;
    if let Some(f) = functions.find(offset).filter(|f| f.start != start) {
        return Some((Arc::from(&*f.name), offset.0 - f.start.0));
    }
    Some((Arc::clone(&flows.flows.name), offset.0.checked_sub(start.0)?))
}

#[cfg(test)]
mod tests;
