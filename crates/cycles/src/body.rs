//! The instructions of one procedure with their samples, raw and moved: what `annotate` shows.

use crate::annotate::{AnnotateQuery, Attribution, Extent, Files, Samples};
use crate::around::Around;
use crate::find::Procedure;
use crate::names::{address, demangled, positions};
use crate::results::InsnRow;
use crate::selection::Selection;
use crate::skid::{Moves, leads_of_pairs};
use std::ops::Range;
use whither_image::{
    Blocks, Cfg, Flow, FunctionTable, ImageOffset, Insn, SourceFrame, Svma, Syntax, disassemble, to_offset,
};
use whither_store::model::{Image, ImageKind, Precision};
use whither_store::symbols::Symbols;

/// A procedure is not decoded beyond this many bytes.
const LONGEST: u64 = 4 << 20;

/// A procedure's instructions with raw and moved figures. Without code, one pseudo-instruction per
/// sampled position.
pub(crate) struct Body {
    insns: Vec<(Insn, String)>,
    /// Of the instructions, ascending.
    positions: Vec<ImageOffset>,
    blocks: Option<Blocks>,
    fused: Vec<bool>,
    /// Samples per column, then per instruction.
    raw: Vec<Vec<f64>>,
    moved: Vec<Vec<f64>>,
    /// Moved weight of the first column per instruction.
    weight: Vec<f64>,
    pub(crate) corrected: bool,
    uncorrectable: Vec<String>,
    /// Samples inside of an instruction, not at its first byte.
    misaligned: u64,
}

impl Body {
    pub(crate) fn new(
        selection: &Selection<'_>,
        symbols: &dyn Symbols,
        shape: Shape,
        p: &Procedure,
        samples: &Samples,
        (query, moves): (&AnnotateQuery, Option<&Moves>),
    ) -> Self {
        let image = selection.profile.image(p.image);
        let insns = with_text(image, &shape, p.start, symbols, query.syntax);
        let offset = |i: &Insn| to_offset(&image.segments, i.address).unwrap_or(ImageOffset(i.address.0));
        let positions: Vec<ImageOffset> = if insns.is_empty() {
            samples.by_offset.keys().copied().collect()
        } else {
            insns.iter().map(|(i, _)| offset(i)).collect()
        };
        let mut body = Self {
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
        let blocks = shape.cfg.filter(|cfg| cfg.insns.len() == body.insns.len()).map(|cfg| Blocks::from_cfg(&cfg));
        body.fill(selection, samples, blocks, query.attribution, moves);
        body
    }

    /// Spreads the samples over the instructions and moves them.
    fn fill(
        &mut self,
        selection: &Selection<'_>,
        samples: &Samples,
        blocks: Option<Blocks>,
        attribution: Attribution,
        moves: Option<&Moves>,
    ) {
        let n = self.positions.len();
        let columns = samples.columns;
        self.raw = vec![vec![0.0; n]; columns];
        let mut weights = vec![vec![0.0; n]; columns];
        for (offset, sums) in &samples.by_offset {
            // Positions begin where a part does, or at a sample, so one is always at or below it.
            let i = self.positions.partition_point(|p| p <= offset).saturating_sub(1);
            for (column, &(count, weight)) in sums.iter().enumerate() {
                self.raw[column][i] += count as f64;
                weights[column][i] += weight as f64;
                self.misaligned += if self.positions[i] == *offset { 0 } else { count };
            }
        }
        self.move_samples(selection, &weights, blocks, attribution, moves);
    }

    fn move_samples(
        &mut self,
        selection: &Selection<'_>,
        weights: &[Vec<f64>],
        blocks: Option<Blocks>,
        attribution: Attribution,
        moves: Option<&Moves>,
    ) {
        let insns: Vec<Insn> = self.insns.iter().map(|(i, _)| *i).collect();
        let blocks = blocks.unwrap_or_else(|| Blocks::new(&insns));
        self.moved = self.raw.clone();
        self.weight = weights.first().cloned().unwrap_or_default();
        for (column, &event) in selection.columns.iter().enumerate() {
            let event = selection.profile.event(event);
            if insns.is_empty() || attribution == Attribution::Raw {
                continue;
            }
            match event.precision {
                Precision::Skid(1) => {
                    let own = || Moves::plan(&insns, &blocks, evidence(weights, column));
                    let moves = moves.filter(|m| m.insns() == insns.len()).cloned().unwrap_or_else(own);
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

    pub(crate) fn rows(&self, image: &Image, symbols: &dyn Symbols, files: &mut Files) -> Vec<InsnRow> {
        let total: f64 = self.weight.iter().sum();
        (0..self.positions.len())
            .map(|i| {
                let frames = symbols.frames(image, self.positions[i]);
                let insn = self.insns.get(i);
                InsnRow {
                    address: insn.map_or_else(|| address(image, self.positions[i]), |(i, _)| i.address.0),
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
        self.insns.binary_search_by_key(&to, |(i, _)| i.address).is_ok().then_some(to.0)
    }

    /// What the reader must know of these figures.
    pub(crate) fn notes(&self, image: &Image, query: &AnnotateQuery) -> Vec<String> {
        let displaced = self.uncorrectable.iter().map(|event| displaced_note(event));
        let rest = [self.code_note(image, query), self.jumps_note(), self.misaligned_note()];
        displaced.chain(rest.into_iter().flatten()).collect()
    }

    fn code_note(&self, image: &Image, query: &AnnotateQuery) -> Option<String> {
        let why = match image.kind {
            _ if !self.insns.is_empty() => return None,
            ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf => {
                "the kernel's code was not recorded: it is read from /proc/kcore, which only root may read and some kernels lack"
            }
            ImageKind::Jit | ImageKind::Anon => "code made at run time is gone with its process",
            _ => "the file is gone, has changed since, or was never readable",
        };
        let unmoved = match query.attribution {
            Attribution::WaitedFor => ", not moved to the instruction waited for",
            Attribution::Raw => "",
        };
        Some(format!("no machine code ({why}): samples stand where they were taken{unmoved}"))
    }

    fn jumps_note(&self) -> Option<String> {
        let missing = self.corrected && self.blocks.as_ref().is_some_and(|b| b.incomplete);
        missing.then(|| {
            "there are indirect jumps whose targets are not known: samples on such targets stay where they were taken"
                .to_owned()
        })
    }

    fn misaligned_note(&self) -> Option<String> {
        (self.misaligned > 0 && !self.insns.is_empty()).then(|| {
            let n = self.misaligned;
            format!("{n} samples lie inside of an instruction: data between code, or the code changed")
        })
    }
}

fn displaced_note(event: &str) -> String {
    format!(
        "{event} samples lie off the instruction by an unknown distance: read them per procedure, not per instruction"
    )
}

/// A column without any weight borrows the first one's.
fn evidence(weights: &[Vec<f64>], column: usize) -> &[f64] {
    let own = &weights[column];
    if own.iter().any(|w| *w > 0.0) { own } else { &weights[0] }
}

/// Where a procedure's code lies, and how it hangs together.
pub(crate) struct Shape {
    /// Ascending; one of them is the procedure's own, the others are its cold parts.
    pub(crate) parts: Vec<Range<ImageOffset>>,
    /// Machine code of each part, as far as it is there.
    code: Vec<Vec<u8>>,
    cfg: Option<Cfg>,
}

impl Shape {
    pub(crate) fn new(image: &Image, symbols: &dyn Symbols, p: &Procedure, extent: Extent) -> Self {
        let own = p.start..ImageOffset(p.start.0.saturating_add(p.size));
        let around = Around::new(image, symbols);
        let start = address(image, p.start);
        let cfg = (p.size <= LONGEST && around.has_code())
            .then(|| Cfg::new(start..start.saturating_add(p.size), &around))
            .filter(|cfg| extent == Extent::WithParts || cfg.parts.len() == 1);
        let mut parts = match &cfg {
            Some(cfg) if cfg.parts.len() > 1 => positions(image, &cfg.parts).collect(),
            _ => vec![own],
        };
        parts.sort_by_key(|part| part.start);
        let code = parts.iter().map(|part| code(image, part, symbols).unwrap_or_default()).collect();
        Self { parts, code, cfg }
    }
}

fn code(image: &Image, part: &Range<ImageOffset>, symbols: &dyn Symbols) -> Option<Vec<u8>> {
    let end = part.end.min(ImageOffset(part.start.0.saturating_add(LONGEST)));
    symbols.code(image, part.start..end).filter(|code| !code.is_empty())
}

fn with_text(
    image: &Image,
    shape: &Shape,
    start: ImageOffset,
    symbols: &dyn Symbols,
    syntax: Syntax,
) -> Vec<(Insn, String)> {
    let functions = symbols.functions(image);
    let name = |at: Svma| name_at(image, &functions, start, at);
    let text = |(part, code): (&Range<ImageOffset>, &Vec<u8>)| {
        disassemble(code, Svma(address(image, part.start)), syntax, &name)
    };
    shape.parts.iter().zip(&shape.code).flat_map(text).collect()
}

/// `name` or `name+0x1f`; only `+0x1f` inside of the procedure shown.
fn name_at(image: &Image, functions: &FunctionTable, shown: ImageOffset, at: Svma) -> Option<String> {
    let offset = to_offset(&image.segments, at)?;
    let f = functions.find(offset)?;
    let name = if f.start == shown { "".into() } else { demangled(&f.name) };
    Some(match offset.0 - f.start.0 {
        0 if name.is_empty() => "+0".to_owned(),
        0 => name.into_owned(),
        within => format!("{name}+{within:#x}"),
    })
}

/// Name of the innermost function, when it was inlined here.
fn inlined(frames: &[SourceFrame]) -> Option<String> {
    let innermost = frames.first().filter(|_| frames.len() > 1)?;
    innermost.function.as_deref().map(|f| demangled(f).into_owned())
}
