//! Instruction-level analysis of sampled procedures (DCPI section 6): how often each instruction ran, what an execution
//! cost, and which causes can explain the stalls. This file puts the parts together: `subject` gathers, `frequency` and
//! `flow` estimate executions, `model` tells best cases, `culprits` judges.
//!
//! Three figures must be kept apart: samples are *time*, flows are *executions*, and only their quotient is a cost. Where one
//! of them is not known the quotient is not shown.

mod exact;
mod frequency;
mod lanes;
mod laps;
mod machine;
mod paper;
mod recorded;
mod refills;
mod retired;
mod rounds;
mod scale;
mod subject;
mod summarise;
mod tables;
mod targets;
mod threads;
mod trips;
mod trust;

use crate::annotate::{AnnotateQuery, annotate_moved};
use crate::around::Around;
use crate::culprits;
use crate::error::Error;
use crate::find::{Procedure, find};
use crate::flow::Network;
use crate::model::{Core, CoreModel, InsnSchedule, Schedule, schedule};
use crate::names::demangled;
use crate::results::analysis::{
    Analysis, BlockAnalysis, Culprit, EdgeAnalysis, Evidence, InsnAnalysis, Scale, Summary,
};
use crate::selection::Selection;
use exact::Counted;
use frequency::{Frequencies, frequencies};
use lanes::in_lanes;
pub(crate) use machine::Machine;
use machine::time_ns;
use paper::{Point, Shape, paper_frequencies};
pub use refills::Refills;
use std::ops::Range;
pub(crate) use subject::{Refused, Subject};
pub use summarise::{SummaryScope, summarise};
pub(crate) use tables::Tables;
pub use threads::Threads;
use whither_image::cfg::EdgeKind;
use whither_store::model::{Event, EventUnit, ImageIx, Profile};
use whither_store::symbols::Symbols;

/// How to analyse.
#[derive(Clone, Debug, Default)]
pub struct AnalyseQuery {
    /// Which samples, and how they are listed.
    pub annotate: AnnotateQuery,
    /// Processor model to use; `None`: what the recording measured, else a usual core.
    pub core: Option<Core>,
    /// How often the procedure was called while recorded, if that is known: it gives executions their scale.
    pub calls: Option<f64>,
}

/// Analyses the procedure that `wanted` names (see [`crate::find`]). The first event asked for is the one analysed.
///
/// # Errors
/// Those of [`find`] and [`Selection::new`].
pub fn analyse(
    profile: &Profile,
    symbols: &dyn Symbols,
    wanted: &str,
    query: &AnalyseQuery,
) -> Result<Analysis, Error> {
    let selection = Selection::new(profile, &query.annotate.filter, &query.annotate.events)?;
    let procedure = find(&selection, symbols, wanted)?;
    Ok(analyse_procedure(&selection, symbols, &procedure, query))
}

/// Analyses a procedure already found. Where that is impossible the answer holds the listing, no blocks, and says why.
#[must_use]
pub fn analyse_procedure(
    selection: &Selection<'_>,
    symbols: &dyn Symbols,
    procedure: &Procedure,
    query: &AnalyseQuery,
) -> Analysis {
    analyse_procedures(selection, symbols, std::slice::from_ref(procedure), query).pop().unwrap_or_default()
}

/// The same for many procedures, in their order, on all CPUs.
#[must_use]
pub fn analyse_procedures(
    selection: &Selection<'_>,
    symbols: &dyn Symbols,
    wanted: &[Procedure],
    query: &AnalyseQuery,
) -> Vec<Analysis> {
    let tables = Tables::of(selection, &query.annotate.filter);
    let machine = Machine::of(selection.profile, symbols, query).with_images(selection.profile, symbols, wanted);
    in_lanes(selection.profile, symbols, wanted, |procedure, around| {
        let (mut analysis, moves) = match Study::of(selection, procedure, around, &tables, &machine, Errors::Drawn) {
            Ok(study) => {
                let study = study.called(query.calls);
                (study.analysis(&machine, Detail::Causes), study.subject.moves)
            }
            Err(refused) => (not_analysed(refused), None),
        };
        analysis.annotation = annotate_moved(selection, symbols, procedure, &query.annotate, moves.as_ref());
        analysis
    })
}

/// Executions of the blocks and edges of many procedures, with what a block's cost; no causes, no listing but the name. For optimisers,
/// which want thousands of procedures.
#[must_use]
pub fn executions(
    selection: &Selection<'_>,
    symbols: &dyn Symbols,
    wanted: &[Procedure],
    query: &AnalyseQuery,
    errors: Errors,
) -> Vec<Analysis> {
    let tables = Tables::of(selection, &query.annotate.filter);
    let machine = Machine::of(selection.profile, symbols, query);
    in_lanes(selection.profile, symbols, wanted, |procedure, around| {
        let mut analysis = match Study::of(selection, procedure, around, &tables, &machine, errors) {
            Ok(study) => study.analysis(&machine, Detail::Executions),
            Err(refused) => not_analysed(refused),
        };
        analysis.annotation.procedure = demangled(&procedure.name).into_owned();
        analysis
    })
}

fn not_analysed(refused: Refused) -> Analysis {
    Analysis { notes: vec![format!("not analysed: {}", refused.sentence())], ..Analysis::default() }
}

/// How much of an analysis is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// Executions and costs of blocks.
    Executions,
    /// And what each instruction may have waited for.
    Causes,
}

pub use crate::flow::Errors;

/// A procedure with its frequencies.
pub(crate) struct Study {
    image: ImageIx,
    pub(crate) subject: Subject,
    pub(crate) schedule: Schedule,
    pub(crate) frequencies: Option<Frequencies>,
    /// Cycles that one sample stands for, by the usual clock where the core's is not known: costs per execution do not
    /// depend on it, as the scale is bounded by the same clock.
    cycles_per_sample: f64,
    clock_is_known: bool,
    /// What bounds it besides blocks.
    rounds: Vec<rounds::Round>,
    /// Slots that leave the pipeline per cycle at most.
    retires: f64,
    /// What to multiply flows with to get executions; `None` where no block bounds it.
    scale: Option<f64>,
    /// Calls that were told, which give the scale.
    calls: Option<f64>,
    /// Counts give the scale.
    counted: bool,
    /// Why calls that were told do not give it.
    declined: Option<String>,
    /// Why what time bounds says nothing of executions.
    boundless: Option<String>,
    /// Branches were seen in more than what is selected.
    foreign_branches: bool,
}

/// The core's clock where it is not known.
const USUAL_CLOCK: f64 = 3e9;
/// With fewer samples in a procedure nothing is said of executions.
const FEWEST_SAMPLES: f64 = 10.0;
/// Part of the runs between branches that may contradict the code by chance: interrupts, patched instructions.
const CONTRADICTED: f64 = 0.1;
/// No execution takes longer on average.
const MOST_CYCLES: f64 = 1e7;

impl Study {
    pub(crate) fn of(
        selection: &Selection<'_>,
        procedure: &Procedure,
        around: &Around<'_>,
        tables: &Tables<'_>,
        machine: &Machine,
        errors: Errors,
    ) -> Result<Self, Refused> {
        let profile = selection.profile;
        let event = profile.event(selection.columns[0]);
        if !is_time(event) {
            return Err(Refused::NotTime);
        }
        let image = profile.image(procedure.image);
        let mut subject = Subject::new(procedure, image, around, tables, event.precision)?;
        let run_ns =
            tables.run(procedure.image).and_then(|run| time_ns(event, run, machine.clock_hz)).filter(|ns| *ns > 0.0);
        if let (Some(run_ns), Some(ns)) = (run_ns, time_ns(event, subject.per_sample, machine.clock_hz)) {
            subject.add_laps((procedure.image, image), tables, ns, run_ns);
        }
        let (cycles_per_sample, clock_is_known) = cycles_of_sample(event, subject.per_sample, machine);
        let blocks: Vec<Range<usize>> = subject.cfg.blocks.iter().map(|b| b.insns.clone()).collect();
        let even = inflows(blocks.len(), subject.cfg.edges.iter().map(|e| (e.from, e.to, 1.0)));
        let first = schedule(&machine.core, &subject.effects, &blocks, &|b| even[b].clone());
        let least: Vec<f64> = first.blocks.iter().map(|b| b.c_min).collect();
        let enough = subject.samples.iter().sum::<f64>() >= FEWEST_SAMPLES;
        let frequencies = if enough {
            frequencies(&subject, &least, cycles_per_sample, run_ns.filter(|_| clock_is_known), errors)
        } else {
            None
        };
        let schedule = match &frequencies {
            Some(f) => {
                let flows = f.network.edges.iter().zip(&f.flow.edges).map(|(e, x)| (e.0, e.1, *x));
                let inflows = inflows(blocks.len(), flows);
                schedule(&machine.core, &subject.effects, &blocks, &|b| inflows[b].clone())
            }
            None => first,
        };
        let mut study = Self {
            image: procedure.image,
            subject,
            schedule,
            frequencies,
            cycles_per_sample,
            clock_is_known,
            rounds: Vec::new(),
            retires: machine.core.most_retired(),
            scale: None,
            calls: None,
            counted: false,
            declined: None,
            boundless: None,
            foreign_branches: tables.foreign_branches(),
        };
        study.rounds = study.rounds(machine, tables.samples);
        study.scale = study.bounded_scale();
        let mut study = study.counted(run_ns);
        study.boundless = study.boundless(tables.samples);
        Ok(study)
    }

    /// Flow through each instruction, relative to an unknown scale; padding never runs.
    pub(crate) fn flows(&self) -> Vec<f64> {
        let Some(f) = &self.frequencies else { return vec![0.0; self.subject.cfg.insns.len()] };
        let of = |i: usize| self.subject.block_of(i).map_or(0.0, |b| f.flow.blocks[b]);
        (0..self.subject.cfg.insns.len()).map(of).collect()
    }

    /// The same by the paper's estimator.
    pub(crate) fn paper_flows(&self) -> Vec<f64> {
        let cfg = &self.subject.cfg;
        let network = Network { blocks: cfg.blocks.len(), edges: cfg.edges.iter().map(|e| (e.from, e.to)).collect() };
        let blocks: Vec<Range<usize>> = cfg.blocks.iter().map(|b| b.insns.clone()).collect();
        let classes = (&self.subject.classes.0[..], &self.subject.classes.1[..]);
        let point = |(samples, insn): (&f64, &InsnSchedule)| Point {
            samples: *samples,
            best: insn.best_cycles,
            waits_for: insn.static_stall.and_then(|s| s.at),
        };
        let points: Vec<Point> = self.subject.samples.iter().zip(&self.schedule.insns).map(point).collect();
        let found = paper_frequencies(&Shape { network: &network, blocks: &blocks, classes }, &points);
        let of = |i: usize| self.subject.block_of(i).and_then(|b| found[b]).unwrap_or(0.0);
        (0..cfg.insns.len()).map(of).collect()
    }

    fn analysis(&self, machine: &Machine, detail: Detail) -> Analysis {
        let subject = &self.subject;
        let mut out = Analysis {
            missing: subject.missing(),
            decided: subject.decided,
            recorded: subject.recorded.runs,
            counted: subject.counted.as_ref().map_or(0, Counted::blocks),
            lapped: subject.lapped.len(),
            retired: subject.retired.as_ref().map_or(0, |r| r.samples as u64),
            clock_hz: machine.clock_hz,
            model: machine.core.name.clone(),
            ..Analysis::default()
        };
        let Some(f) = &self.frequencies else {
            let samples: f64 = subject.samples.iter().sum();
            out.notes.push(match samples < FEWEST_SAMPLES {
                true => format!(
                    "{samples:.0} samples are too few to tell how often anything ran, or why it waited: record for longer, or at a \
                     higher rate"
                ),
                false => "frequencies are not known: its control flow is too entangled".to_owned(),
            });
            return out;
        };
        out.evidence = f.evidence;
        out.remaining = f.told_branches;
        out.scale = match (self.calls, self.scale) {
            (Some(calls), _) => Scale::Absolute(format!("{calls} calls")),
            _ if self.counted && f.retired_scale.is_some() => Scale::Sampled,
            _ if self.counted => Scale::Counted,
            _ if self.is_bounded() => Scale::Bounded,
            _ => Scale::Relative,
        };
        out.at_best = self.at_best(f);
        let loops = self.loop_headers();
        let total = subject.samples.iter().sum();
        out.blocks = (0..subject.cfg.blocks.len()).map(|b| self.block(f, b, loops[b], total)).collect();
        out.edges = (0..f.network.edges.len()).filter_map(|e| self.edge(f, e)).collect();
        out.insns = match detail {
            Detail::Executions => (0..subject.cfg.insns.len()).map(|i| self.insn(f, i)).collect(),
            Detail::Causes => self.insns(f, machine),
        };
        if detail == Detail::Causes {
            out.summary = self.summary(&out.insns, machine);
        }
        (out.best_cpi, out.cpi) = self.cpi(f);
        out.notes.extend(self.declined.iter().chain(self.boundless.iter().filter(|_| !self.is_told())).cloned());
        match (f.evidence, subject.decided.0) {
            (Evidence::Samples, 0) => out.notes.push(
                "no branch was seen to go either way: executions are guessed from time alone; record with --edges mem"
                    .to_owned(),
            ),
            (Evidence::Samples, n) => out.notes.push(format!(
                "only {n} samples decided a branch: executions are guessed from little more than time; record for longer"
            )),
            (_, _) if self.foreign_branches => out.notes.push(FOREIGN_BRANCHES.to_owned()),
            (_, _) => {}
        }
        out.notes.extend(self.misfits());
        out
    }

    /// Whether the code, as it was stored, does not allow a good part of what branches were seen to do: then its graph is not the
    /// program's.
    fn is_contradicted(&self) -> bool {
        let (runs, misfits) = (self.subject.recorded.runs as f64, self.subject.recorded.misfits as f64);
        misfits > CONTRADICTED * (runs + misfits)
    }

    /// Branch records that the code contradicts.
    fn misfits(&self) -> Option<String> {
        let (runs, misfits) = (self.subject.recorded.runs, self.subject.recorded.misfits);
        (misfits > 0).then(|| {
            format!(
                "{misfits} of {} runs between taken branches are left out: the code, as it was stored, does not allow them",
                runs + misfits
            )
        })
    }

    /// Whether the scale is known, not only bounded.
    pub(crate) fn is_told(&self) -> bool {
        self.calls.is_some() || self.counted
    }

    /// Flows to executions: while recorded, or per entry where they cannot be told.
    fn unit(&self, f: &Frequencies) -> f64 {
        self.scale.filter(|_| self.is_bounded() || self.is_told()).unwrap_or_else(|| 1.0 / entries(f))
    }

    /// Best-case and actual cycles per instruction.
    fn cpi(&self, f: &Frequencies) -> (Option<f64>, Option<f64>) {
        let blocks = || self.subject.cfg.blocks.iter().enumerate();
        let executed: f64 = blocks().map(|(b, block)| f.flow.blocks[b] * block.insns.len() as f64).sum();
        let best: f64 = blocks().map(|(b, _)| f.flow.blocks[b] * self.schedule.blocks[b].best_cycles).sum();
        let samples: f64 = blocks().map(|(b, _)| self.subject.block_samples(b)).sum();
        if executed <= 0.0 {
            return (None, None);
        }
        let cycles = samples * self.cycles_per_sample;
        let actual = self.told_scale().and_then(|s| quotient(cycles, executed * s)).map(|c| match self.is_told() {
            true => c,
            // The least there can be, and by the model it cannot be less than its best.
            false => c.max(best / executed),
        });
        (Some(best / executed), actual)
    }

    fn block(&self, f: &Frequencies, b: usize, loop_header: Option<usize>, total: f64) -> BlockAnalysis {
        let subject = &self.subject;
        let range = subject.cfg.blocks[b].insns.clone();
        let samples = subject.block_samples(b);
        BlockAnalysis {
            address: subject.cfg.insns[range.start].address.0,
            first: range.start,
            len: range.len(),
            class: subject.classes.0[b],
            loop_header,
            frequency: self.block_estimate(f, b),
            samples,
            share: if total > 0.0 { samples / total } else { 0.0 },
            best_cycles: self.schedule.blocks[b].best_cycles,
            cycles: self.cost(f, b, samples),
            mca_cycles: None,
        }
    }

    /// The scale where time over executions makes sense as cycles: one that is bounded by the clock cancels it, one that was
    /// told does not.
    fn told_scale(&self) -> Option<f64> {
        self.scale.filter(|_| self.clock_is_known || !self.is_told())
    }

    /// Cycles per execution of a block for these samples.
    fn cost(&self, f: &Frequencies, b: usize, samples: f64) -> Option<f64> {
        quotient(samples * self.cycles_per_sample, f.flow.blocks[b] * self.told_scale()?)
    }

    /// `None` for the edges that stand for jumps to unknown places.
    fn edge(&self, f: &Frequencies, e: usize) -> Option<EdgeAnalysis> {
        let (from, to) = f.network.edges[e];
        let through = f.flow.blocks.get(from).copied().unwrap_or_else(|| entries(f));
        Some(EdgeAnalysis {
            from: self.number(f, from)?,
            to: self.number(f, to)?,
            kind: self.subject.cfg.edges.get(e).filter(|_| e < f.known_edges).map_or("unknown", |e| kind(e.kind)),
            frequency: self.edge_estimate(f, e),
            probability: if through > 0.0 { f.flow.edges[e] / through } else { 0.0 },
            evidence: f.seen[e] as u64,
        })
    }

    /// Number of a node in answers, where callers and the outside follow the blocks directly.
    fn number(&self, f: &Frequencies, node: usize) -> Option<usize> {
        let blocks = self.subject.cfg.blocks.len();
        match node {
            b if b < blocks => Some(b),
            b if b >= f.network.blocks => Some(b - f.network.blocks + blocks),
            _ => None,
        }
    }

    /// Whether executions are told while recorded, but as the most there can have been.
    fn is_bounded(&self) -> bool {
        !self.is_told() && self.scale.is_some() && self.clock_is_known && self.boundless.is_none()
    }

    fn certainty(&self) -> culprits::Certainty {
        if self.is_told() { culprits::Certainty::Known } else { culprits::Certainty::AtLeast }
    }

    fn insn(&self, f: &Frequencies, i: usize) -> InsnAnalysis {
        let at_best = &self.schedule.insns[i];
        let block = self.subject.block_of(i);
        let cycles = block.and_then(|b| self.cost(f, b, self.subject.samples[i]));
        InsnAnalysis {
            address: self.subject.cfg.insns[i].address.0,
            block,
            samples: self.subject.samples[i],
            best_cycles: at_best.best_cycles,
            cycles,
            stall_cycles: cycles.map(|c| c - at_best.best_cycles),
            static_stall: at_best.static_stall.map(|s| Culprit {
                cause: s.cause,
                // What takes longer than at best need not have waited for this as well.
                min_cycles: if self.is_told() { s.cycles } else { 0.0 },
                max_cycles: s.cycles,
                at: s.at,
            }),
            ..InsnAnalysis::default()
        }
    }

    /// Every instruction with its costs and what may be guilty of them.
    fn insns(&self, f: &Frequencies, machine: &Machine) -> Vec<InsnAnalysis> {
        let cfg = &self.subject.cfg;
        let mut insns: Vec<InsnAnalysis> = (0..cfg.insns.len()).map(|i| self.insn(f, i)).collect();
        let blocks: Vec<Range<usize>> = cfg.blocks.iter().map(|b| b.insns.clone()).collect();
        blocks.iter().for_each(|b| insns[b.clone()].chunks_mut(NEAR).for_each(cancel));
        let way = |(e, x): (&(usize, usize), &f64)| culprits::Flow { from: e.0, to: e.1, executions: *x };
        let flows: Vec<culprits::Flow> = f.network.edges.iter().zip(&f.flow.edges).map(way).collect();
        let cycles: Vec<f64> = insns.iter().map(|i| i.cycles.unwrap_or(0.0)).collect();
        let ways = f.ways();
        let stalls: Vec<f64> = insns.iter().map(|i| self.least_stall(f, i)).collect();
        let told: Vec<f64> = insns.iter().map(|i| i.stall_cycles.unwrap_or(0.0)).collect();
        let scene = culprits::Scene {
            core: &machine.core,
            insns: &self.subject.effects,
            samples: &self.subject.samples,
            blocks: &blocks,
            flows: &flows,
            executions: &f.flow.blocks[..blocks.len()],
            cycles: &cycles,
            stalls: &stalls,
            told: &told,
            branch: &|i| self.branch_seen(f, &ways, i),
            kernel_share: machine.steal,
            fault_share: machine.faults,
            all_samples: machine.samples,
            refills: machine.refills(self.image),
            threads: machine.threads(self.image),
            certainty: self.certainty(),
        };
        for (i, (insn, judged)) in insns.iter_mut().zip(culprits::judge(&scene)).enumerate() {
            insn.unjudged = judged.unjudged && insn.samples > 0.0;
            (insn.unlikely, insn.unexplained) = (judged.unlikely, judged.unexplained);
            insn.origin =
                culprits::origin(&machine.core, &self.subject.effects, &judged.culprits, self.surest_stall(f, insn));
            (insn.culprits, insn.in_sums) = (judged.culprits, judged.in_sums);
            culprits::charge_own_work(
                insn,
                i,
                culprits::own_work(&machine.core, &self.subject.effects[i]),
                scene.certainty,
            );
        }
        insns
    }

    /// What an instruction stalls at least. Where executions are bounded, they may still be more by their error, and the time of
    /// each less.
    fn least_stall(&self, f: &Frequencies, insn: &InsnAnalysis) -> f64 {
        let stall = insn.stall_cycles.unwrap_or(0.0);
        let error = insn.block.map_or(0.0, |b| f.flow.block_error[b]);
        if self.is_told() || !error.is_finite() {
            return stall;
        }
        (stall - insn.cycles.unwrap_or(0.0) * (1.0 - (-1.96 * error).exp())).max(0.0)
    }

    /// Causes over the whole procedure.
    pub(crate) fn summary(&self, insns: &[InsnAnalysis], machine: &Machine) -> Summary {
        let scale = self.scale.unwrap_or(1.0);
        let executed = insns.iter().zip(self.flows()).map(|(i, f)| (i, f * scale));
        let mut out = culprits::summary(executed, self.certainty(), machine.steal);
        culprits::cap_page_faults(&mut out, machine.faults, machine.samples);
        out
    }

    /// Header of the innermost loop around each block.
    fn loop_headers(&self) -> Vec<Option<usize>> {
        let cfg = &self.subject.cfg;
        let mut headers = vec![None; cfg.blocks.len()];
        // Outer loops come first, so inner ones overwrite them.
        for l in &self.subject.loops {
            for &node in &l.nodes {
                if let Some(header) = headers.get_mut(node) {
                    *header = Some(l.header).filter(|h| *h < cfg.blocks.len());
                }
            }
        }
        headers
    }
}

/// What is said of branches that were seen at other times or in other processes too.
const FOREIGN_BRANCHES: &str = "branch directions are those of the whole recording, not of what is filtered";

/// Cycles per execution. Hardly ever executed, a stray sample would look like a stall of millions of cycles.
fn quotient(cycles: f64, executions: f64) -> Option<f64> {
    (executions > 0.5 && cycles < executions * MOST_CYCLES).then(|| cycles / executions)
}

/// So many instructions of a block apart, time passes for different reasons.
const NEAR: usize = 32;

/// Where in a block the model lets time pass, and where samples fall on this processor, differ by some instructions:
/// what one is above its best and a near one below it cancels, so that together they stall for what they take beyond
/// their best together.
fn cancel(near: &mut [InsnAnalysis]) {
    let sum = |sign: f64| near.iter().filter_map(|i| i.stall_cycles).map(|s| (s * sign).max(0.0)).sum::<f64>();
    let (above, below) = (sum(1.0), sum(-1.0));
    let kept = |own: f64, other: f64| if own > other { (own - other) / own } else { 0.0 };
    let (stalls, gains) = (kept(above, below), kept(below, above));
    for stall in near.iter_mut().filter_map(|i| i.stall_cycles.as_mut()) {
        *stall *= if *stall > 0.0 { stalls } else { gains };
    }
}

/// Whether samples of an event are time spent, so that their number over executions is a cost.
fn is_time(event: &Event) -> bool {
    let name = event.name.split([':', '/']).next().unwrap_or_default();
    event.unit == EventUnit::Nanoseconds || matches!(name, "cycles" | "cpu-cycles")
}

/// Cycles of one sample of time, and whether they are known. A timer runs on while the sample is taken, which is nobody's cost.
fn cycles_of_sample(event: &Event, per_sample: f64, machine: &Machine) -> (f64, bool) {
    match event.unit {
        EventUnit::Nanoseconds => {
            let own_ns = per_sample * (1.0 - machine.stolen);
            ((own_ns * machine.clock_hz.unwrap_or(USUAL_CLOCK) / 1e9).max(1.0), machine.clock_hz.is_some())
        }
        EventUnit::Count => (per_sample.max(1.0), true),
    }
}

/// Flow of the ways in that are known.
fn entries(f: &Frequencies) -> f64 {
    let start = f.network.blocks;
    let known = f.network.edges.iter().zip(&f.flow.edges).take(f.known_edges);
    known.filter(|(e, _)| e.0 == start).map(|(_, x)| x).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// For each block, those that control comes from, with how often. `ways`: from, to, how often.
fn inflows(blocks: usize, ways: impl Iterator<Item = (usize, usize, f64)>) -> Vec<Vec<(usize, f64)>> {
    let mut out = vec![Vec::new(); blocks];
    for (from, to, flow) in ways.filter(|w| w.1 < blocks) {
        out[to].push((from, flow));
    }
    out
}

fn kind(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Fall => "fall",
        EdgeKind::Taken => "taken",
        EdgeKind::Table => "table",
        EdgeKind::Leave => "leave",
        EdgeKind::Enter => "enter",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalls(of: &[f64]) -> Vec<f64> {
        let mut near: Vec<InsnAnalysis> =
            of.iter().map(|s| InsnAnalysis { stall_cycles: Some(*s), ..InsnAnalysis::default() }).collect();
        cancel(&mut near);
        near.iter().filter_map(|i| i.stall_cycles).collect()
    }

    #[test]
    fn what_is_above_and_below_the_best_cancels() {
        assert_eq!(stalls(&[2.0, -1.0, 2.0, -1.0]), [1.0, 0.0, 1.0, 0.0]);
        assert_eq!(stalls(&[0.5, -1.0, 0.5]), [0.0, 0.0, 0.0], "as quick as it can be");
        assert_eq!(stalls(&[1.0, -3.0, -1.0]), [0.0, -2.25, -0.75], "a gain stays one");
        assert_eq!(stalls(&[30.0]), [30.0]);
        assert_eq!(stalls(&[0.0, 0.0]), [0.0, 0.0]);
    }
}
