//! Where the cycles went, over one procedure, an image or everything (paper figure 4).

use super::lanes::in_lanes;
use super::{AnalyseQuery, Errors, FEWEST_SAMPLES, FOREIGN_BRANCHES, Machine, Study, Tables};
use crate::culprits;
use crate::error::Error;
use crate::find::{Procedure, find, procedures};
use crate::listing::nothing_matched;
use crate::names::{address, demangled};
use crate::pattern::Pattern;
use crate::provenance::provenance;
use crate::results::analysis::{Evidence, InsnAnalysis, Summary};
use crate::selection::{Filter, Selection};
use rustc_hash::FxHashMap;
use std::ops::Range;
use whither_store::model::{ImageIx, Profile};
use whither_store::symbols::Symbols;

/// What to summarise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SummaryScope {
    /// Everything sampled.
    #[default]
    All,
    /// Images whose path matches.
    Image(String),
    /// One procedure, named as for [`crate::analyse`].
    Procedure(String),
}

/// Procedures are analysed, most samples first, until they hold this share of the samples.
const ENOUGH: f64 = 0.99;
/// A procedure with fewer samples says nothing of its instructions.
const FEWEST: u64 = 20;
/// Left-out procedures that are named.
const NAMED: usize = 10;

/// Summarises.
///
/// # Errors
/// Those of [`find`] and [`Selection::new`]; [`Error::NothingMatched`] when no image matches.
pub fn summarise(
    profile: &Profile,
    symbols: &dyn Symbols,
    scope: &SummaryScope,
    query: &AnalyseQuery,
) -> Result<Summary, Error> {
    let mut filter = query.annotate.filter.clone();
    if let SummaryScope::Image(image) = scope {
        filter.images.push(Pattern::parse(image)?);
    }
    let selection = Selection::new(profile, &filter, &query.annotate.events)?;
    if selection.rows.is_empty() {
        return Err(nothing_matched(profile, &filter));
    }
    let (about, wanted) = match scope {
        SummaryScope::All => ("everything sampled".to_owned(), procedures(&selection, symbols)),
        SummaryScope::Image(image) => (image.clone(), procedures(&selection, symbols)),
        SummaryScope::Procedure(name) => {
            let p = find(&selection, symbols, name)?;
            (demangled(&p.name).into_owned(), vec![p])
        }
    };
    let mut sum = Sum::new(&selection, symbols, query, &wanted);
    sum.add_all(&wanted);
    if sum.analysed.0 == 0 {
        return Err(Error::NothingAnalysed { about, reasons: sum.reasons() });
    }
    Ok(sum.finish(about, &filter))
}

struct Sum<'s, 'a> {
    selection: &'s Selection<'a>,
    symbols: &'s dyn Symbols,
    machine: Machine,
    tables: Tables<'a>,
    insns: Vec<(InsnAnalysis, f64)>,
    analysed: (usize, f64),
    left_out: Vec<(Procedure, String)>,
    by_time: usize,
    /// Procedures whose executions were counted.
    counted: usize,
    /// Stated addresses of analysed procedures and their cold parts: each counts once.
    covered: FxHashMap<ImageIx, Vec<Range<u64>>>,
}

impl<'s, 'a> Sum<'s, 'a> {
    fn new(selection: &'s Selection<'a>, symbols: &'s dyn Symbols, query: &AnalyseQuery, wanted: &[Procedure]) -> Self {
        let profile = selection.profile;
        Self {
            selection,
            symbols,
            machine: Machine::of(profile, symbols, query).with_images(profile, symbols, wanted),
            tables: Tables::of(selection, &query.annotate.filter),
            insns: Vec::new(),
            analysed: (0, 0.0),
            left_out: Vec::new(),
            by_time: 0,
            counted: 0,
            covered: FxHashMap::default(),
        }
    }

    fn add_all(&mut self, wanted: &[Procedure]) {
        let all: u64 = wanted.iter().map(|p| p.samples).sum();
        let mut looked_at = 0;
        let enough = |p: &Procedure| {
            let before = looked_at;
            looked_at += p.samples;
            before as f64 >= ENOUGH * all as f64 || p.samples < FEWEST
        };
        let (most, rest) = wanted.split_at(wanted.iter().position(enough).unwrap_or(wanted.len()));
        self.add(most);
        for p in rest {
            if self.analysed.0 > 0 {
                break;
            }
            self.add(std::slice::from_ref(p));
        }
    }

    fn add(&mut self, wanted: &[Procedure]) {
        let (selection, tables, machine) = (self.selection, &self.tables, &self.machine);
        let found = in_lanes(selection.profile, self.symbols, wanted, |p, around| {
            // What stalls for certain depends on errors, and which suspects are named on that: as `annotate` has it.
            let study = Study::of(selection, p, around, tables, machine, Errors::Drawn);
            study.map_err(|refused| refused.sentence().to_owned()).and_then(|study| Part::of(&study, machine))
        });
        for (p, part) in wanted.iter().zip(found) {
            let start = address(selection.profile.image(p.image), p.start);
            let covered = self.covered.entry(p.image).or_default();
            if covered.iter().any(|c| c.contains(&start)) {
                continue;
            }
            match part {
                Ok(part) => {
                    covered.extend(part.parts.iter().cloned());
                    self.take(part);
                }
                Err(why) => self.left_out.push((p.clone(), why)),
            }
        }
    }

    fn take(&mut self, part: Part) {
        self.by_time += usize::from(part.by_time);
        self.counted += usize::from(part.counted);
        self.analysed.0 += 1;
        self.analysed.1 += part.insns.iter().map(|(i, _)| i.samples).sum::<f64>();
        self.insns.extend(part.insns);
    }

    /// Why procedures were left out, the commonest reasons with how many they hold for and the one with most samples.
    fn reasons(&self) -> Vec<(String, usize, String)> {
        let mut by_reason: Vec<(String, usize, String)> = Vec::new();
        for (p, why) in &self.left_out {
            match by_reason.iter_mut().find(|r| r.0 == *why) {
                Some(reason) => reason.1 += 1,
                None => by_reason.push((why.clone(), 1, demangled(&p.name).into_owned())),
            }
        }
        // Stable: among equals the one with most samples comes first.
        by_reason.sort_by_key(|r| std::cmp::Reverse(r.1));
        by_reason
    }

    fn finish(self, about: String, filter: &Filter) -> Summary {
        let insns = self.insns.iter().map(|(i, f)| (i, *f));
        let all_counted = self.counted == self.analysed.0;
        let certainty = if all_counted { culprits::Certainty::Known } else { culprits::Certainty::AtLeast };
        let mut out = culprits::summary(insns, certainty, self.machine.steal);
        culprits::cap_page_faults(&mut out, self.machine.faults, self.machine.samples);
        out.provenance = provenance(self.selection, filter);
        out.about = about;
        out.analysed = (self.analysed.0, self.analysed.1 / self.tables.samples.max(f64::MIN_POSITIVE));
        out.left_out =
            self.left_out.iter().take(NAMED).map(|(p, why)| (demangled(&p.name).into_owned(), why.clone())).collect();
        if self.by_time > 0 {
            out.notes.push(format!(
                "{} of {} procedures have hardly any branch evidence: their executions are guessed from time",
                self.by_time, self.analysed.0
            ));
        }
        if self.tables.foreign_branches() && self.by_time < self.analysed.0 {
            out.notes.push(FOREIGN_BRANCHES.to_owned());
        }
        if all_counted {
            return out;
        }
        let counted = match self.counted {
            0 => "no exact count is known".to_owned(),
            n => format!("exact counts are known of {n} of {} procedures only", self.analysed.0),
        };
        out.notes.push(format!(
            "{counted}: executions are at most, CPI is at least what is shown; execution and static stalls \
             take at most, dynamic stalls at least the low end of their range, as far as frequencies inside procedures are right"
        ));
        out
    }
}

/// What the summary needs of one procedure.
struct Part {
    /// Stated addresses, cold parts included.
    parts: Vec<Range<u64>>,
    /// Instructions with their executions.
    insns: Vec<(InsnAnalysis, f64)>,
    by_time: bool,
    counted: bool,
}

impl Part {
    fn of(study: &Study, machine: &Machine) -> Result<Self, String> {
        let few = || study.subject.samples.iter().sum::<f64>() < FEWEST_SAMPLES;
        let Some(f) = &study.frequencies else {
            let why = if few() {
                "too few samples to tell how often anything ran"
            } else {
                "its control flow is too entangled"
            };
            return Err(why.to_owned());
        };
        let Some(scale) = study.scale else { return Err("too few samples to bound its executions".to_owned()) };
        let flows = study.flows().into_iter().map(|flow| flow * scale);
        Ok(Self {
            parts: study.subject.cfg.parts.clone(),
            insns: study.insns(f, machine).into_iter().zip(flows).collect(),
            by_time: f.evidence == Evidence::Samples,
            counted: study.is_told(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use whither_image::{Function, FunctionTable, ImageOffset, NameSource, SourceFrame};
    use whither_store::model::{
        Event, EventIx, EventUnit, IdKind, Image, ImageKind, Precision, Process, ProcessIx, Sample,
    };

    /// Two functions per image, and no code.
    struct Names;

    impl Symbols for Names {
        fn functions(&self, _: &Image) -> Arc<FunctionTable> {
            let function = |(name, start): (&str, u64)| Function {
                start: ImageOffset(start),
                size: 0x100,
                name: name.into(),
                source: NameSource::Symbol,
            };
            let functions = [("spin_lock", 0x100), ("clear_page", 0x200)].map(function);
            Arc::new(FunctionTable::new(functions.to_vec(), ImageOffset(u64::MAX)))
        }
        fn frames(&self, _: &Image, _: ImageOffset) -> Vec<SourceFrame> {
            Vec::new()
        }
        fn code(&self, _: &Image, _: Range<ImageOffset>) -> Option<Vec<u8>> {
            None
        }
        fn source(&self, _: &str) -> Option<Arc<Vec<String>>> {
            None
        }
        fn problems(&self) -> Vec<String> {
            Vec::new()
        }
    }

    fn sampled(kind: ImageKind) -> Profile {
        let sample = |offset: u64, count: u32| Sample {
            image: ImageIx(0),
            event: EventIx(0),
            process: ProcessIx(0),
            tid: 0,
            slice: 0,
            offset: ImageOffset(offset),
            period: 1_000_000,
            count,
        };
        Profile {
            images: vec![Image {
                id: Default::default(),
                id_kind: IdKind::Synthetic,
                kind,
                path: "[kernel]".into(),
                segments: vec![],
                size: 0,
            }],
            events: vec![Event {
                name: "cpu-clock".into(),
                unit: EventUnit::Nanoseconds,
                precision: Precision::Skid(1),
            }],
            processes: vec![Process {
                key: 1,
                pid: 1,
                start_ns: 0,
                comm: "a".into(),
                exe: "/a".into(),
                cgroup: String::new(),
            }],
            samples: vec![sample(0x110, 30), sample(0x210, 90)],
            ..Profile::default()
        }
    }

    #[test]
    fn nothing_analysed_is_an_error_with_its_reasons() {
        let told = |kind| {
            let query = AnalyseQuery::default();
            summarise(&sampled(kind), &Names, &SummaryScope::All, &query).unwrap_err().to_string()
        };
        let kernel = told(ImageKind::Kernel);
        assert!(kernel.contains("clear_page and 1 more") && kernel.contains("/proc/kcore"), "{kernel}");
        let file = told(ImageKind::Elf);
        assert!(file.contains("the file is gone") && !file.contains("kcore"), "{file}");
        assert!(told(ImageKind::Jit).contains("run time"));
    }
}
