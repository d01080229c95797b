//! How far frequencies are from exact counts, procedure by procedure (paper section 6.2, figures 8 and 9): the user's own
//! program tells whether its listing can be believed. Counts come from [`callgrind`].

pub mod callgrind;

use crate::analysis::{AnalyseQuery, Errors as FlowErrors, Machine, Study, Tables};
use crate::around::Around;
use crate::error::Error;
use crate::find::{Procedure, procedures};
use crate::listing::nothing_matched;
use crate::names::{address, demangled};
use crate::provenance::provenance;
use crate::results::accuracy::{Accuracy, AccuracyRow, BranchErrors, ERROR_BINS, ErrorShares};
use crate::results::analysis::Confidence;
use crate::selection::Selection;
use callgrind::{Exact, ExactObject};
use rustc_hash::FxHashMap;
use whither_image::Flow;
use whither_image::cfg::{Cfg, EdgeKind};
use whither_image::effects::OpClass;
use whither_store::model::{Image, ImageIx, ImageKind, Profile};
use whither_store::symbols::Symbols;

/// A branch seen as often as this has a probability worth comparing by itself.
const WELL_SEEN: f64 = 100.0;
/// Counts of the same build lie on beginnings of instructions but for jumps over a prefix.
const SAME_BUILD: f64 = 0.95;
/// Fewer counted addresses cannot tell another build.
const FEWEST_ADDRESSES: usize = 20;
/// Less of the samples compared than this, and the runs are probably different ones.
const ENOUGH: f64 = 0.5;

/// Compares every sampled procedure that the exact counts know.
///
/// # Errors
/// Those of [`Selection::new`]; [`Error::NothingExact`] when no image is in both, [`Error::AnotherBuild`],
/// [`Error::NothingCompared`].
pub fn accuracy(
    profile: &Profile,
    symbols: &dyn Symbols,
    exact: &Exact,
    query: &AnalyseQuery,
) -> Result<Accuracy, Error> {
    let selection = Selection::new(profile, &query.annotate.filter, &query.annotate.events)?;
    if selection.rows.is_empty() {
        return Err(nothing_matched(profile, &query.annotate.filter));
    }
    let tables = Tables::of(&selection, &query.annotate.filter);
    let machine = Machine::of(profile, symbols, query);
    let objects = matched(&selection, symbols, &exact.objects);
    if objects.is_empty() {
        let have = exact.objects.iter().map(|o| o.path.clone()).collect::<Vec<_>>().join(", ");
        return Err(Error::NothingExact { have });
    }
    let mut tally = Tally::default();
    let mut around: FxHashMap<ImageIx, Around<'_>> = FxHashMap::default();
    for p in procedures(&selection, symbols) {
        let Some(object) = objects.get(&p.image) else { continue };
        let image = profile.image(p.image);
        let around = around.entry(p.image).or_insert_with(|| Around::new(image, symbols));
        match Study::of(&selection, &p, around, &tables, &machine, FlowErrors::Drawn) {
            Ok(study) => tally.add(&study, &p, image, object),
            Err(refused) => {
                let why = || format!("{}: {}", demangled(&p.name), refused.sentence());
                tally.refused.get_or_insert_with(why);
            }
        }
    }
    tally.checked(profile)?;
    Ok(tally
        .finish(Accuracy {
            provenance: provenance(&selection, &query.annotate.filter),
            exact: "callgrind".to_owned(),
            samples: (tables.samples, 0.0),
            warnings: Vec::new(),
            ..Accuracy::default()
        })
        .warned(exact.command.as_deref(), objects.values().all(|o| o.object.jumps.is_empty())))
}

impl Accuracy {
    fn warned(mut self, command: Option<&str>, no_jumps: bool) -> Self {
        if no_jumps {
            self.warnings.push(
                "the exact run was counted without jumps, so edges and probabilities of branches are not compared: run valgrind with \
                 --collect-jumps=yes"
                    .to_owned(),
            );
        }
        let (selected, compared) = self.samples;
        let share = compared / selected.max(f64::MIN_POSITIVE);
        if share < ENOUGH {
            let counted = command.map_or("what was counted".to_owned(), |c| format!("what was counted (`{c}`)"));
            self.warnings.push(format!(
                "only {:.1} % of the samples lie in code that the exact run executed too: {counted} did other work than what \
                 was recorded, or most of the time went into code that callgrind does not see, like the kernel",
                share * 100.0
            ));
        }
        self
    }
}

/// Exact counts of an image, and what to add to its stated addresses to find them.
struct Placed<'e> {
    object: &'e ExactObject,
    bias: u64,
    /// Stated addresses that were counted, ascending.
    counted: Vec<u64>,
}

impl<'e> Placed<'e> {
    fn new(object: &'e ExactObject, bias: u64) -> Self {
        let mut counted: Vec<u64> = object.counts.keys().map(|at| at.wrapping_sub(bias)).collect();
        counted.sort_unstable();
        Self { object, bias, counted }
    }

    /// Counted addresses inside of a graph, and those that begin an instruction of it.
    fn fit(&self, cfg: &Cfg) -> (usize, usize) {
        let within = |at: u64| self.counted.partition_point(|&c| c < at);
        let inside = cfg.parts.iter().map(|part| &self.counted[within(part.start)..within(part.end.max(part.start))]);
        let begins = |at: &u64| cfg.insns.binary_search_by_key(at, |i| i.address.0).is_ok();
        inside.fold((0, 0), |(all, fit), part| (all + part.len(), fit + part.iter().filter(|at| begins(at)).count()))
    }

    /// Executions of each instruction. Callgrind counts the rounds of a repeated string operation; it runs as often as the
    /// others of its block, and without others nothing is known of it.
    fn truth(&self, study: &Study) -> Vec<Option<f64>> {
        let subject = &study.subject;
        let repeats = |i: usize| subject.effects.get(i).is_some_and(|e| e.class == OpClass::Rep);
        let count = |i: usize| self.count(subject.cfg.insns[i].address.0);
        let of = |i: usize| match (repeats(i), subject.block_of(i)) {
            (false, _) => Some(count(i)),
            (true, None) => None,
            (true, Some(b)) => {
                let others = subject.cfg.blocks[b].insns.clone().filter(|&o| !repeats(o));
                others.min_by_key(|o| o.abs_diff(i)).map(count)
            }
        };
        (0..subject.cfg.insns.len()).map(of).collect()
    }

    fn count(&self, at: u64) -> f64 {
        self.object.counts.get(&at.wrapping_add(self.bias)).map_or(0.0, |c| *c as f64)
    }

    fn jumps(&self, from: u64, to: u64) -> f64 {
        let key = (from.wrapping_add(self.bias), to.wrapping_add(self.bias));
        self.object.jumps.get(&key).map_or(0.0, |c| *c as f64)
    }
}

fn matched<'e>(
    selection: &Selection<'_>,
    symbols: &dyn Symbols,
    exact: &'e [ExactObject],
) -> FxHashMap<ImageIx, Placed<'e>> {
    let mut out = FxHashMap::default();
    for (i, image) in (0..).zip(&selection.profile.images).filter(|(_, i)| i.kind == ImageKind::Elf) {
        let named = |o: &&ExactObject| o.path == image.path || o.path.rsplit('/').next() == Some(image.short_name());
        let same = exact.iter().find(|o| o.path == image.path).or_else(|| exact.iter().find(named));
        if let Some(object) = same.filter(|o| !o.counts.is_empty()) {
            let bias = bias(image, symbols, object);
            out.insert(ImageIx(i), Placed::new(object, bias));
        }
    }
    out
}

/// Where valgrind loaded an image: what most function names agree on; nowhere else without names.
fn bias(image: &Image, symbols: &dyn Symbols, object: &ExactObject) -> u64 {
    let functions = symbols.functions(image);
    let mut votes: FxHashMap<u64, usize> = FxHashMap::default();
    for f in functions.functions() {
        if let Some(&at) = object.functions.get(&*f.name) {
            *votes.entry(at.wrapping_sub(address(image, f.start))).or_default() += 1;
        }
    }
    votes.into_iter().filter(|v| v.0 % 4096 == 0).max_by_key(|v| (v.1, std::cmp::Reverse(v.0))).map_or(0, |v| v.0)
}

/// Sums over procedures.
#[derive(Default)]
struct Tally {
    instructions: Errors,
    edges: Errors,
    branches: Vec<Branch>,
    confidence: [Errors; 3],
    baseline: Errors,
    overlap: (f64, f64),
    rows: Vec<AccuracyRow>,
    never: f64,
    /// Counted addresses per image, and those that fit.
    fit: FxHashMap<ImageIx, (usize, usize)>,
    /// Repeated string operations with samples.
    repeated: usize,
    /// Why the procedure with most samples of those left out was.
    refused: Option<String>,
}

struct Branch {
    off: f64,
    samples: f64,
    executions: f64,
    seen: f64,
}

impl Tally {
    fn add(&mut self, study: &Study, p: &Procedure, image: &Image, exact: &Placed<'_>) {
        let cfg = &study.subject.cfg;
        // What lies behind an unknown jump may be no part of the graph.
        if cfg.missing.is_empty() {
            let (all, fit) = exact.fit(cfg);
            let sum = self.fit.entry(p.image).or_default();
            *sum = (sum.0 + all, sum.1 + fit);
        }
        let estimated = study.flows();
        let truth = exact.truth(study);
        let known = estimated.iter().zip(&truth).filter_map(|(e, t)| Some((*e, (*t)?)));
        let (sum, true_sum) = known.fold((0.0, 0.0), |(e, t), (one, exact)| (e + one, t + exact));
        if true_sum <= 0.0 || sum <= 0.0 {
            return;
        }
        let scale = true_sum / sum;
        let mut own = Errors::default();
        for (i, (e, t)) in estimated.iter().zip(&truth).enumerate() {
            let samples = study.subject.samples[i];
            if samples > 0.0 && study.subject.effects.get(i).is_some_and(|e| e.class == OpClass::Rep) {
                self.repeated += 1;
            }
            let Some(t) = *t else { continue };
            self.overlap.0 += e.min(t / scale) * scale;
            if t == 0.0 {
                self.never += samples;
                continue;
            }
            own.add(e * scale / t, samples);
            let confidence = study.confidence_of(i);
            self.confidence[confidence as usize].add(e * scale / t, samples);
        }
        self.overlap.1 += true_sum;
        self.baseline(study, &truth, true_sum);
        self.instructions.absorb(&own);
        self.edges(study, scale, &truth, exact);
        let (decided, all) = study.subject.decided;
        self.rows.push(AccuracyRow {
            procedure: demangled(&p.name).into_owned(),
            image: image.path.clone(),
            errors: own.shares(),
            missing: study.subject.cfg.missing.len(),
            decided: if all > 0 { decided as f64 / all as f64 } else { 0.0 },
        });
    }

    /// The paper's estimator on the same samples.
    fn baseline(&mut self, study: &Study, truth: &[Option<f64>], true_sum: f64) {
        let estimated = study.paper_flows();
        let sum: f64 = estimated.iter().zip(truth).filter(|(_, t)| t.is_some()).map(|(e, _)| e).sum();
        for ((e, t), samples) in estimated.iter().zip(truth).zip(&study.subject.samples) {
            if let Some(t) = t.filter(|t| *t > 0.0) {
                self.baseline.add(if sum > 0.0 { e * true_sum / sum / t } else { 0.0 }, *samples);
            }
        }
    }

    fn edges(&mut self, study: &Study, scale: f64, truth: &[Option<f64>], exact: &Placed<'_>) {
        let Some(f) = study.frequencies.as_ref().filter(|_| !exact.object.jumps.is_empty()) else { return };
        let cfg = &study.subject.cfg;
        for (e, edge) in cfg.edges.iter().enumerate().filter(|(_, e)| e.from < cfg.blocks.len()) {
            let last = cfg.blocks[edge.from].insns.end - 1;
            let (insn, Some(executed)) = (&cfg.insns[last], truth[last].filter(|t| *t > 0.0)) else { continue };
            let taken = |to: u64| exact.jumps(insn.address.0, to);
            let target = cfg.blocks.get(edge.to).map(|b| cfg.insns[b.insns.start].address.0);
            let count = match (insn.flow, edge.kind, target) {
                (Flow::Branch(to), EdgeKind::Fall, _) => executed - taken(to.0).min(executed),
                (Flow::Branch(to), ..) => taken(to.0).min(executed),
                (_, EdgeKind::Table, Some(to)) => taken(to),
                (_, EdgeKind::Leave, _) => continue,
                _ => executed,
            };
            if count > 0.0 {
                self.edges.add(f.flow.edges[e] * scale / count, count);
            }
            if matches!(insn.flow, Flow::Branch(_)) && edge.kind == EdgeKind::Fall {
                let through = f.flow.blocks[edge.from].max(f64::MIN_POSITIVE);
                let other = cfg.edges.iter().position(|o| o.from == edge.from && o.kind != EdgeKind::Fall);
                self.branches.push(Branch {
                    off: (f.flow.edges[e] / through - count / executed).abs(),
                    samples: study.subject.block_samples(edge.from),
                    executions: executed,
                    seen: f.seen[e] + other.map_or(0.0, |o| f.seen[o]),
                });
            }
        }
    }

    /// Whether the counts are of these images, and anything was compared.
    fn checked(&self, profile: &Profile) -> Result<(), Error> {
        let another = |f: &(&ImageIx, &(usize, usize))| {
            let (counted, fit) = *f.1;
            counted >= FEWEST_ADDRESSES && (fit as f64) < counted as f64 * SAME_BUILD
        };
        if let Some((image, &(counted, fit))) = self.fit.iter().filter(another).min_by_key(|f| f.0.0) {
            return Err(Error::AnotherBuild { image: profile.image(*image).path.clone(), counted, fit });
        }
        if self.instructions.weight > 0.0 {
            return Ok(());
        }
        let why = match &self.refused {
            _ if self.never > 0.0 => "the exact run executed none of the code with samples".to_owned(),
            Some(refused) => refused.clone(),
            None => "no sampled procedure that was counted ran; count the same work that was recorded".to_owned(),
        };
        Err(Error::NothingCompared { why })
    }

    fn finish(self, mut out: Accuracy) -> Accuracy {
        if self.repeated > 0 {
            out.notes.push(format!(
                "repeated string operations ({} with samples) are compared by the other instructions of their blocks, as callgrind counts each \
                 of their rounds",
                self.repeated
            ));
        }
        let mean = |weight: fn(&Branch) -> f64| {
            let sum: f64 = self.branches.iter().map(weight).sum();
            let off: f64 = self.branches.iter().map(|b| b.off * weight(b)).sum();
            if sum > 0.0 { off / sum } else { 0.0 }
        };
        out.branches = BranchErrors {
            branches: self.branches.len(),
            mean_by_samples: mean(|b| b.samples),
            mean_by_executions: mean(|b| b.executions),
            mean_seen: mean(|b| if b.seen >= WELL_SEEN { b.executions } else { 0.0 }),
        };
        out.samples.1 = self.instructions.weight;
        let all = self.instructions.weight.max(f64::MIN_POSITIVE);
        out.confidence = [Confidence::High, Confidence::Medium, Confidence::Low]
            .into_iter()
            .map(|c| (c, self.confidence[c as usize].weight / all, self.confidence[c as usize].shares()))
            .collect();
        out.instructions = self.instructions.shares();
        out.edges = self.edges.shares();
        out.baseline = self.baseline.shares();
        out.overlap = if self.overlap.1 > 0.0 { self.overlap.0 / self.overlap.1 } else { 0.0 };
        out.never_executed = self.never;
        out.procedures = self.rows;
        out.procedures.sort_by(|a, b| b.errors.weight.total_cmp(&a.errors.weight));
        out
    }
}

/// Weights by error.
#[derive(Clone, Debug, Default)]
struct Errors {
    weight: f64,
    within: [f64; 3],
    within_double: f64,
    bins: [f64; ERROR_BINS.len() + 1],
}

impl Errors {
    /// `ratio`: estimated over exact.
    fn add(&mut self, ratio: f64, weight: f64) {
        let percent = (ratio - 1.0) * 100.0;
        self.weight += weight;
        for (sum, limit) in self.within.iter_mut().zip([5.0, 10.0, 15.0]) {
            *sum += if percent.abs() <= limit { weight } else { 0.0 };
        }
        self.within_double += if (0.5..=2.0).contains(&ratio) { weight } else { 0.0 };
        self.bins[ERROR_BINS.partition_point(|b| *b < percent)] += weight;
    }

    fn absorb(&mut self, other: &Self) {
        self.weight += other.weight;
        self.within_double += other.within_double;
        self.within.iter_mut().zip(other.within).for_each(|(a, b)| *a += b);
        self.bins.iter_mut().zip(other.bins).for_each(|(a, b)| *a += b);
    }

    fn shares(&self) -> ErrorShares {
        let all = self.weight.max(f64::MIN_POSITIVE);
        ErrorShares {
            weight: self.weight,
            within: self.within.map(|w| w / all),
            within_double: self.within_double / all,
            bins: self.bins.iter().map(|b| b / all).collect(),
        }
    }
}
