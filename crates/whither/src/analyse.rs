//! The verbs of instruction-level analysis: `annotate`, `summary`, `cfg`, `stats`, `accuracy`. As in `ask`, each reads, asks the
//! lens, and hands the result to `whither_report`.

use crate::answer;
use crate::ask::{attribution, events, give, syntax, to_file, write_page};
use crate::cli::{AccuracyArgs, AnnotateArgs, CfgArgs, Common, CoreArgs, SourceArgs, StatsArgs, SummaryArgs, View};
use crate::failure::{Ending, Usage};
use crate::left_out::left_out;
use crate::mca;
use crate::source::{Reading, Runs, here};
use anyhow::Context;
use std::io::Write;
use std::path::{Path, PathBuf};
use whither_cycles::accuracy::accuracy as compare;
use whither_cycles::accuracy::callgrind::Exact;
use whither_cycles::annotate::annotate_procedure;
use whither_cycles::find::{Procedure, find, procedures};
use whither_cycles::model::Core;
use whither_cycles::results::Annotation;
use whither_cycles::results::accuracy::Accuracy;
use whither_cycles::results::analysis::{Analysis, Summary};
use whither_cycles::results::runs::{Explanation, RunRow, RunStatistics};
use whither_cycles::runs::{explained, extremes};
use whither_cycles::selection::Selection;
use whither_cycles::{
    AnalyseQuery, AnnotateQuery, RunsPer, RunsQuery, SummaryScope, analyse_procedure, executions, near_images,
    run_statistics, summarise,
};
use whither_report::exports::flows::{self, FlowFormat, Flows};
use whither_report::html::{Annotated, Focus, ReportData};
use whither_report::text::{self, AnnotationView, Blocks};
use whither_store::model::{Image, ImageKind};

/// `whither annotate`: with frequencies and causes unless only counts are wanted, or nothing more can be told.
pub(crate) fn annotate(args: &AnnotateArgs, common: Common) -> anyhow::Result<Ending> {
    let (target, source) = target_and_source(args.target.as_deref(), &args.source)?;
    let reading = Reading::open(&source, &args.names, common)?;
    let query = AnnotateQuery {
        filter: reading.filter(&args.filter)?,
        events: events(&args.event),
        attribution: attribution(args.raw),
        syntax: syntax(args.intel),
    };
    let selection = selected(&reading, &query)?;
    let procedure = procedure(&reading, &selection, target.as_deref())?;
    let view = view(args.view());
    if args.is_plain() {
        let counts = annotate_procedure(&selection, &reading.symbols, &procedure, &query);
        reading.tell_problems();
        return Ok(reading.end(give(
            &args.form,
            &counts,
            |a, layout| text::annotation(a, view, layout),
            annotation_page,
        )?));
    }
    let mut analysis = analyse_procedure(
        &selection,
        &reading.symbols,
        &procedure,
        &AnalyseQuery { annotate: query, core: core(&args.core)?, calls: args.scale.calls },
    );
    reading.tell_problems();
    if args.mca && !analysis.blocks.is_empty() {
        mca::ask(&mut analysis, args.intel)?;
    }
    let blocks = blocks(args, &analysis)?;
    let print = |a: &Analysis, layout: &text::Layout| match a.blocks.is_empty() {
        true => text::annotation(&counts_of(a), view, layout),
        false => text::analysis(a, view, blocks, layout),
    };
    Ok(reading.end(give(&args.form, &analysis, print, analysis_page)?))
}

/// A recording may stand first, as for the other verbs: a procedure's name is no directory. Without a
/// procedure the hottest is meant.
fn target_and_source(target: Option<&str>, source: &SourceArgs) -> anyhow::Result<(Option<String>, SourceArgs)> {
    let mut source = source.clone();
    let Some(first) = target else { return Ok((None, source)) };
    if !Path::new(first).is_dir() {
        // Recordings are called that by default, procedures never.
        return match first.ends_with(".wh") {
            true => Err(Usage(format!("there is no recording {first}")).into()),
            false => Ok((Some(with_whole_path(first)), source)),
        };
    }
    let name = source.recordings.iter().position(|r| !r.is_dir()).map(|i| source.recordings.remove(i));
    source.recordings.insert(0, PathBuf::from(first));
    Ok((name.map(|n| with_whole_path(&n.to_string_lossy())), source))
}

/// A file of this directory, alone or before a procedure's name, by the path that recordings have: `/home/a/server!main` for
/// `./server!main`. Without a slash it is no path but a name.
fn with_whole_path(wanted: &str) -> String {
    let (file, rest) = wanted.split_at(wanted.find('!').unwrap_or(wanted.len()));
    let whole = Some(file).filter(|f| f.contains('/')).and_then(here);
    whole.map_or_else(|| wanted.to_owned(), |file| file + rest)
}

fn procedure(reading: &Reading, selection: &Selection<'_>, wanted: Option<&str>) -> anyhow::Result<Procedure> {
    match wanted {
        Some(wanted) => Ok(find(selection, &reading.symbols, wanted)?),
        None => {
            let all = procedures(selection, &reading.symbols);
            reading.tell(&nameless(selection, &all));
            let hottest = all.into_iter().next();
            let filters = "a known procedure (`whither prof --by image` shows where they lie)".to_owned();
            let samples = selection.rows.iter().map(|&r| u64::from(selection.sample(r).count)).sum();
            Ok(hottest.ok_or(whither_cycles::Error::NothingMatched { filters, near: Vec::new(), samples })?)
        }
    }
}

/// That much of the time lies in no procedure: then the hottest one is not where the time goes.
fn nameless(selection: &Selection<'_>, procedures: &[Procedure]) -> Vec<String> {
    const MUCH: f64 = 0.25;
    let of_main =
        selection.rows.iter().map(|&row| selection.sample(row)).filter(|s| selection.column(s.event) == Some(0));
    let all = of_main.map(|s| u64::from(s.count)).sum::<u64>();
    let known = procedures.iter().map(|p| p.samples).sum::<u64>();
    let part = all.saturating_sub(known) as f64 / all.max(1) as f64;
    let much = (part >= MUCH).then(|| {
        format!(
            "{:.0} % of the samples lie in no known procedure (code that a program made while it ran, or files without symbols): nothing is \
             said of these here; `whither prof --by image` shows where they lie",
            100.0 * part
        )
    });
    much.into_iter().collect()
}

/// The samples asked for, which must be some.
fn selected<'a>(reading: &'a Reading, query: &AnnotateQuery) -> anyhow::Result<Selection<'a>> {
    let selection = Selection::new(&reading.profile, &query.filter, &query.events)?;
    if selection.rows.is_empty() {
        let events = selection.columns.iter().map(|e| reading.profile.event(*e).name.clone()).collect::<Vec<_>>();
        let mut filters = query.filter.describe();
        filters.push(format!("event {}", events.join(" or ")));
        let samples = reading.profile.samples.iter().map(|s| u64::from(s.count)).sum();
        let near = near_images(&reading.profile, &query.filter);
        return Err(whither_cycles::Error::NothingMatched { filters: filters.join(", "), near, samples }.into());
    }
    Ok(selection)
}

fn view(view: View) -> AnnotationView {
    match view {
        View::Source => AnnotationView::Source,
        View::Asm => AnnotationView::Asm,
        View::Both => AnnotationView::Both,
    }
}

fn blocks(args: &AnnotateArgs, a: &Analysis) -> anyhow::Result<Blocks> {
    match args.block.map(|n| n as usize) {
        None if args.all => Ok(Blocks::All),
        None => Ok(Blocks::Warm),
        Some(n) if n <= a.blocks.len() => Ok(Blocks::Only(n)),
        Some(_) if a.blocks.is_empty() => {
            let why = a.notes.first().map_or("its blocks are not known", String::as_str);
            Err(Usage(format!("{} has no blocks to choose from: {why}", a.annotation.procedure)).into())
        }
        Some(n) => {
            let (name, have) = (&a.annotation.procedure, a.blocks.len());
            Err(Usage(format!("{name} has no block {n}; its blocks are 1 to {have}")).into())
        }
    }
}

/// The listing of what could not be analysed, with the reason.
fn counts_of(a: &Analysis) -> Annotation {
    let mut counts = a.annotation.clone();
    counts.notes.extend(a.notes.iter().cloned());
    counts
}

/// For the page, an analysis that has anything to show, else its counts.
pub(crate) fn annotated(a: Analysis) -> Annotated {
    if a.blocks.is_empty() { counts_of(&a).into() } else { a.into() }
}

fn annotation_page(a: Annotation) -> ReportData {
    ReportData {
        title: a.procedure.clone(),
        provenance: a.provenance.clone(),
        annotations: vec![a.into()],
        ..ReportData::default()
    }
}

fn analysis_page(a: Analysis) -> ReportData {
    ReportData {
        title: a.annotation.procedure.clone(),
        provenance: a.annotation.provenance.clone(),
        annotations: vec![annotated(a)],
        ..ReportData::default()
    }
}

/// The forms of a control-flow graph.
enum Drawing {
    Svg,
    Html,
    Dot,
}

/// `whither cfg`.
pub(crate) fn cfg(args: &CfgArgs, common: Common) -> anyhow::Result<Ending> {
    let drawing = match args.output.extension().and_then(|e| e.to_str()) {
        Some("svg") => Drawing::Svg,
        Some("html" | "htm") => Drawing::Html,
        Some("dot" | "gv") => Drawing::Dot,
        _ => {
            let path = args.output.display();
            return Err(Usage(format!("cannot tell the form of {path}; end its name in .svg, .html or .dot")).into());
        }
    };
    let (target, source) = target_and_source(args.target.as_deref(), &args.source)?;
    let reading = Reading::open(&source, &args.names, common)?;
    let annotate = AnnotateQuery {
        filter: reading.filter(&args.filter)?,
        events: args.event.iter().cloned().collect(),
        syntax: syntax(args.intel),
        ..AnnotateQuery::default()
    };
    let selection = selected(&reading, &annotate)?;
    let procedure = procedure(&reading, &selection, target.as_deref())?;
    let analysis = analyse_procedure(
        &selection,
        &reading.symbols,
        &procedure,
        &AnalyseQuery { annotate, core: core(&args.core)?, calls: args.scale.calls },
    );
    reading.tell_problems();
    if analysis.blocks.is_empty() {
        let why = analysis.notes.first().map_or("its code is not known", String::as_str);
        anyhow::bail!("there is no control-flow graph of {}: {why}", analysis.annotation.procedure);
    }
    let text = match drawing {
        Drawing::Svg => whither_report::cfg::svg(&analysis),
        Drawing::Dot => whither_report::cfg::dot(&analysis),
        Drawing::Html => {
            write_page(&args.output, &ReportData { focus: Focus::Graph, ..analysis_page(analysis) })?;
            return Ok(reading.end(Ending::Done));
        }
    };
    to_file(&args.output, |out| Ok(out.write_all(text.as_bytes())?))?;
    answer::print(&args.output.display().to_string())?;
    Ok(reading.end(Ending::Done))
}

/// Procedures of an export with fewer samples tell optimisers nothing.
const LEAST_SAMPLES: u64 = 20;
/// Most procedures of an export.
const MOST_PROCEDURES: usize = 2000;

/// Executions for an optimiser, and what the user must know of them.
pub(crate) fn export_flows(
    format: FlowFormat,
    reading: &Reading,
    annotate: AnnotateQuery,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<String>> {
    let selection = selected(reading, &annotate)?;
    let query = AnalyseQuery { annotate, ..AnalyseQuery::default() };
    let wanted = |p: &Procedure| {
        let image = reading.profile.image(p.image);
        image.kind == ImageKind::Elf && p.samples >= LEAST_SAMPLES
    };
    let mut chosen = procedures(&selection, &reading.symbols);
    let left_out = left_out(&chosen, |p| reading.profile.image(p.image), LEAST_SAMPLES);
    chosen.retain(wanted);
    if let Some(why) = left_out.first().filter(|_| chosen.is_empty()) {
        anyhow::bail!("no sampled procedure could be analysed: {why}");
    }
    let enough = chosen.len();
    chosen.truncate(MOST_PROCEDURES);
    let analyses = executions(&selection, &reading.symbols, &chosen, &query, format.errors());
    let flows = |(p, analysis): (&Procedure, _)| Flows {
        image: reading.profile.image(p.image),
        start: p.start,
        name: p.name.clone(),
        analysis,
    };
    let all: Vec<Flows<'_>> = chosen.iter().zip(analyses).map(flows).collect();
    let written = flows::write(format, &all, &reading.symbols, out)?;
    let mut notes = vec![format!("{} procedures with {LEAST_SAMPLES} samples or more", written.procedures)];
    if enough > MOST_PROCEDURES {
        notes.push(format!("these are the hottest {MOST_PROCEDURES} of {enough}"));
    }
    notes.extend(left_out);
    if written.without_lines > 0 {
        notes.push(format!("{} more left out: no line information, or an ambiguous name", written.without_lines));
    }
    if !written.absolute {
        notes.push(
            "executions are known relatively: counts of different procedures compare only as their samples do".into(),
        );
    }
    Ok(notes)
}

/// `whither summary`.
pub(crate) fn summary(args: &SummaryArgs, common: Common) -> anyhow::Result<Ending> {
    let (target, source) = target_and_source(args.target.as_deref(), &args.source)?;
    let reading = Reading::open(&source, &args.names, common)?;
    let annotate = AnnotateQuery {
        filter: reading.filter(&args.filter)?,
        events: args.event.iter().cloned().collect(),
        ..AnnotateQuery::default()
    };
    let scope = scope(&reading, target.as_deref());
    let query = AnalyseQuery { annotate, core: core(&args.core)?, ..AnalyseQuery::default() };
    let answer = summarise(&reading.profile, &reading.symbols, &scope, &query)?;
    if target.is_none() {
        let selection = selected(&reading, &query.annotate)?;
        reading.tell(&nameless(&selection, &procedures(&selection, &reading.symbols)));
    }
    reading.tell_problems();
    let page = |s: Summary| ReportData {
        title: s.about.clone(),
        provenance: s.provenance.clone(),
        causes: Some(s),
        ..ReportData::default()
    };
    Ok(reading.end(give(&args.form, &answer, text::summary, page)?))
}

/// The user's own processor model.
fn core(args: &CoreArgs) -> anyhow::Result<Option<Core>> {
    let Some(path) = &args.file else { return Ok(None) };
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the processor model {shown}"))?;
    Core::from_toml(&text).map(Some).map_err(|e| Usage(format!("{shown}: {e}")).into())
}

/// `all`, an image by its path or file name (`libbz2` for `libbz2.so.1.0.4`), else a procedure.
fn scope(reading: &Reading, target: Option<&str>) -> SummaryScope {
    let Some(wanted) = target.filter(|t| *t != "all") else { return SummaryScope::All };
    let versioned = |name: &str| name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with(".so"));
    let named = |i: &&Image| i.path == wanted || i.short_name() == wanted || versioned(i.short_name());
    let image = reading.profile.images.iter().find(named);
    match image {
        Some(image) => SummaryScope::Image(image.path.clone()),
        None => SummaryScope::Procedure(wanted.to_owned()),
    }
}

/// `whither stats`.
pub(crate) fn stats(args: &StatsArgs, common: Common) -> anyhow::Result<Ending> {
    let runs = Runs::open(&args.source, &args.names, common)?;
    let query = RunsQuery {
        filter: runs.filter(&args.filter)?,
        event: args.event.clone(),
        per: of_kept(&args.per.0, &runs),
        least: args.least,
    };
    let mut answer = run_statistics(&runs.all(), runs.names(), runs.symbols(), &query)?;
    answer.notes.extend(runs.left_out());
    if let Some(wanted) = &args.explain {
        answer.explained = Some(explain(&runs, &answer, wanted, &query)?);
    }
    runs.tell_problems();
    let page = |s: RunStatistics| ReportData {
        title: format!("{} runs", s.sets.len()),
        provenance: s.provenance.clone(),
        runs: Some(s),
        ..ReportData::default()
    };
    let limit = (!args.all).then_some(args.limit);
    Ok(runs.end(give(&args.form, &answer, |s, layout| text::run_statistics(s, limit, layout), page)?))
}

/// Work of the runs that are compared, where it was given for those without samples too.
fn of_kept(per: &RunsPer, runs: &Runs) -> RunsPer {
    match per {
        RunsPer::Units(units) if units.len() == runs.all().len() + runs.empty().len() => {
            let kept = units.iter().enumerate().filter(|(i, _)| !runs.empty().iter().any(|(at, _)| at == i));
            RunsPer::Units(kept.map(|(_, u)| *u).collect())
        }
        other => other.clone(),
    }
}

/// The causes of a procedure in its slowest and in its fastest run.
fn explain(runs: &Runs, answer: &RunStatistics, wanted: &str, query: &RunsQuery) -> anyhow::Result<Explanation> {
    let row = row_of(answer, wanted)?;
    let (slow, fast) = extremes(row).ok_or(whither_cycles::Error::Empty)?;
    let annotate =
        AnnotateQuery { filter: query.filter.clone(), events: vec![answer.event.clone()], ..AnnotateQuery::default() };
    let analyse = AnalyseQuery { annotate, ..AnalyseQuery::default() };
    let scope = SummaryScope::Procedure(row.procedure.clone());
    let profiles = runs.all();
    let of = |run: usize| {
        let name = runs.names().get(run).map_or("", String::as_str);
        summarise(profiles[run], runs.symbols(), &scope, &analyse)
            .with_context(|| format!("cannot explain {} in {name}", row.procedure))
    };
    Ok(explained(answer, row, of(slow)?, of(fast)?))
}

/// By the whole name, else by the only name that contains what was typed.
fn row_of<'a>(answer: &'a RunStatistics, wanted: &str) -> anyhow::Result<&'a RunRow> {
    if let Some(row) = answer.rows.iter().find(|r| r.procedure == wanted) {
        return Ok(row);
    }
    let similar: Vec<&RunRow> = answer.rows.iter().filter(|r| r.procedure.contains(wanted)).collect();
    match similar.as_slice() {
        [row] => Ok(row),
        _ => {
            let near = similar.iter().take(5).map(|r| r.procedure.clone()).collect();
            Err(whither_cycles::Error::NoProcedure { name: wanted.to_owned(), near }.into())
        }
    }
}

/// `whither accuracy`.
pub(crate) fn accuracy(args: &AccuracyArgs, common: Common) -> anyhow::Result<Ending> {
    let path = args.exact.display();
    let counts = std::fs::read(&args.exact).with_context(|| format!("cannot read the exact counts {path}"))?;
    let exact = Exact::parse(&String::from_utf8_lossy(&counts)).map_err(|e| Usage(format!("{path}: {e}")))?;
    let reading = Reading::open(&args.source, &args.names, common)?;
    let annotate = AnnotateQuery {
        filter: reading.filter(&args.filter)?,
        events: args.event.iter().cloned().collect(),
        ..AnnotateQuery::default()
    };
    let answer =
        compare(&reading.profile, &reading.symbols, &exact, &AnalyseQuery { annotate, ..AnalyseQuery::default() })?;
    reading.tell_problems();
    let page = |a: Accuracy| ReportData {
        title: "Accuracy against exact counts".into(),
        provenance: a.provenance.clone(),
        accuracy: Some(a),
        ..ReportData::default()
    };
    Ok(reading.end(give(&args.form, &answer, |a, layout| text::accuracy(a, args.limit, layout), page)?))
}
