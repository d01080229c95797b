//! The answering verbs: `prof`, `topcounts`, `diff`, `report`, `export`. Each reads, asks
//! the lens, and hands the result to `whither_report`; nothing is computed here.

use crate::analyse;
use crate::answer;
use crate::cli::{Common, DiffArgs, ExportArgs, ExportFormat, FormArgs, ProfArgs, ReportArgs, TopcountsArgs};
use crate::failure::{Ending, Usage};
use crate::source::{Reading, Sides};
use anyhow::Context;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use whither_cycles::find::procedures;
use whither_cycles::results::{CallTree, Difference, FlameNode, Listing};
use whither_cycles::selection::Selection;
use whither_cycles::{
    AnalyseQuery, AnnotateQuery, Attribution, By, DiffQuery, Filter, FlameQuery, Inlines, Query, Show,
    analyse_procedures, flame, heat_map, listing, narrow, significant_regressions,
};
use whither_image::Syntax;
use whither_report::exports::{self, Format};
use whither_report::html::ReportData;
use whither_report::json::{Kind, json};
use whither_report::text::{self, Layout};
use whither_store::model::Profile;
use whither_store::symbols::Symbols;

/// Rows of a listing when nothing is said.
const ROWS: usize = 30;

/// `whither prof`.
pub(crate) fn prof(args: &ProfArgs, common: Common) -> anyhow::Result<Ending> {
    let reading = Reading::open(&args.source, &args.names, common)?;
    if args.tree {
        return Ok(reading.end(call_tree(args, &reading)?));
    }
    let query = Query {
        by: args.by.clone(),
        filter: reading.filter(&args.filter)?,
        events: events(&args.event),
        limit: (!args.all).then_some(args.limit.unwrap_or(ROWS)),
        inlines: inlines(args.inlined),
    };
    let answer = listing(&reading.profile, &reading.symbols, &query)?;
    reading.tell_problems();
    Ok(reading.end(give(&args.form, &answer, text::listing, listing_page)?))
}

/// `whither prof --tree`, for the first of the events asked for.
fn call_tree(args: &ProfArgs, reading: &Reading) -> anyhow::Result<Ending> {
    let query = FlameQuery {
        filter: reading.filter(&args.filter)?,
        event: events(&args.event).into_iter().next(),
        inlines: inlines(args.inlined),
        ..FlameQuery::default()
    };
    let answer = whither_cycles::call_tree(&reading.profile, &reading.symbols, &query)?;
    reading.tell_problems();
    let page = |t: CallTree| ReportData {
        title: title(&reading.profile),
        provenance: t.provenance,
        flame: Some(t.tree),
        ..ReportData::default()
    };
    let least = if args.all { 0.0 } else { args.least };
    give(&args.form, &answer, |t, layout| text::tree(t, least, args.limit, layout), page)
}

fn inlines(expand: bool) -> Inlines {
    if expand { Inlines::Expand } else { Inlines::default() }
}

pub(crate) fn attribution(raw: bool) -> Attribution {
    if raw { Attribution::Raw } else { Attribution::WaitedFor }
}

/// `whither topcounts`.
pub(crate) fn topcounts(args: &TopcountsArgs, common: Common) -> anyhow::Result<Ending> {
    let reading = Reading::open(&args.source, &args.names, common)?;
    let query = AnnotateQuery {
        filter: reading.filter(&args.filter)?,
        events: events(&args.event),
        attribution: attribution(args.raw),
        syntax: syntax(args.intel),
    };
    let answer = whither_cycles::topcounts(&reading.profile, &reading.symbols, &query, args.limit)?;
    reading.tell_problems();
    Ok(reading.end(give(&args.form, &answer, text::listing, listing_page)?))
}

pub(crate) fn syntax(intel: bool) -> Syntax {
    if intel { Syntax::Intel } else { Syntax::Att }
}

/// `whither diff`. With `--gate` the answer is "no" when something got slower beyond chance.
pub(crate) fn diff(args: &DiffArgs, common: Common) -> anyhow::Result<Ending> {
    let sides = Sides::open(&args.before.0, &args.after.0, &args.names, common)?;
    let query = DiffQuery {
        by: args.by.clone(),
        inlines: inlines(args.inlined),
        filter: sides.filter(&args.filter)?,
        event: args.event.clone(),
        normalise: args.per.0,
        show: if args.all { Show::All } else { Show::Significant },
    };
    let (before, after) = (sides.before(), sides.after());
    let mut answer = whither_cycles::diff(&before, &after, sides.symbols(), &query)?;
    let regressed = args.gate && significant_regressions(&answer) > 0;
    answer.keep(args.limit.unwrap_or(usize::MAX));
    sides.tell_problems();
    let page = |d: Difference| ReportData {
        title: format!("{} against {}", args.after, args.before),
        provenance: d.b.clone(),
        diff: Some(d),
        ..ReportData::default()
    };
    give(&args.form, &answer, text::difference, page)?;
    Ok(sides.end(if regressed { Ending::No } else { Ending::Done }, args.strict))
}

/// Listings on the page, and their rows.
const PAGE_LISTINGS: [By; 3] = [By::Image, By::Proc, By::Command];
const PAGE_ROWS: usize = 200;
/// Rows and columns of the page's heat map.
const HEAT: (usize, usize) = (30, 240);

/// `whither report`.
pub(crate) fn report(args: &ReportArgs, common: Common) -> anyhow::Result<Ending> {
    let before = args.against.as_ref().map_or(&[][..], |runs| &runs.0);
    let (reading, before) = Reading::open_with(&args.source, before, &args.names, common)?;
    let filter = reading.filter(&args.filter)?;
    let mut data = page_data(&reading, &filter, args.limit)?;
    if !before.is_empty() {
        let query = DiffQuery { filter, ..DiffQuery::default() };
        let before: Vec<&Profile> = before.iter().collect();
        data.diff = Some(whither_cycles::diff(&before, &[&reading.profile], &reading.symbols, &query)?);
    }
    write_page(&args.output, &data)?;
    reading.tell_problems();
    Ok(reading.end(Ending::Done))
}

fn page_data(reading: &Reading, filter: &Filter, annotated: usize) -> anyhow::Result<ReportData> {
    let (profile, symbols) = (&reading.profile, &reading.symbols);
    let query = |by| Query { by: vec![by], filter: filter.clone(), limit: Some(PAGE_ROWS), ..Query::default() };
    let listings =
        PAGE_LISTINGS.iter().map(|by| listing(profile, symbols, &query(*by))).collect::<Result<Vec<_>, _>>()?;
    let query_of = AnalyseQuery {
        annotate: AnnotateQuery { filter: filter.clone(), ..AnnotateQuery::default() },
        ..AnalyseQuery::default()
    };
    let selection = Selection::new(profile, filter, &[])?;
    let top = procedures(&selection, symbols);
    Ok(ReportData {
        title: title(profile),
        provenance: listings[0].provenance.clone(),
        annotations: analyse_procedures(&selection, symbols, &top[..annotated.min(top.len())], &query_of)
            .into_iter()
            .map(analyse::annotated)
            .collect(),
        listings,
        flame: flame_graph(profile, symbols, filter)?,
        heat: Some(heat_map(profile, symbols, &query(By::Proc), HEAT.0, HEAT.1)?),
        ..ReportData::default()
    })
}

/// Without stacks the page says so itself.
fn flame_graph(profile: &Profile, symbols: &dyn Symbols, filter: &Filter) -> anyhow::Result<Option<FlameNode>> {
    match flame(profile, symbols, &FlameQuery { filter: filter.clone(), ..FlameQuery::default() }) {
        Ok(tree) => Ok(Some(tree)),
        Err(whither_cycles::Error::NoStacks { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn title(profile: &Profile) -> String {
    match profile.epochs.as_slice() {
        [epoch] if !epoch.target.is_empty() => epoch.target.join(" "),
        [epoch] if !epoch.label.is_empty() => epoch.label.clone(),
        [epoch] => format!("{} on {}", epoch.scope, epoch.host),
        epochs => format!("{} epochs", epochs.len()),
    }
}

/// `all` is every event, which the lens writes as none in particular.
pub(crate) fn events(names: &[String]) -> Vec<String> {
    if names.iter().any(|n| n == "all") { Vec::new() } else { names.to_vec() }
}

/// Prints an answer in the form asked for. Pages are made of the same parts as the big report.
pub(crate) fn give<T: Kind + Clone>(
    form: &FormArgs,
    answer: &T,
    text: impl FnOnce(&T, &Layout) -> String,
    page: impl FnOnce(T) -> ReportData,
) -> anyhow::Result<Ending> {
    match &form.html {
        Some(path) => write_page(path, &page(answer.clone()))?,
        None if form.json => answer::print(&json(answer))?,
        None => answer::print(&text(answer, &answer::layout()))?,
    }
    Ok(Ending::Done)
}

fn listing_page(answer: Listing) -> ReportData {
    ReportData {
        title: answer.provenance.scope.clone(),
        provenance: answer.provenance.clone(),
        listings: vec![answer],
        ..ReportData::default()
    }
}

/// Writes a page and prints its path, which is the answer then.
pub(crate) fn write_page(path: &Path, data: &ReportData) -> anyhow::Result<()> {
    let page = whither_report::html::page(data);
    to_file(path, |out| Ok(out.write_all(page.as_bytes())?))?;
    Ok(answer::print(&path.display().to_string())?)
}

/// `whither export`.
pub(crate) fn export(args: &ExportArgs, common: Common) -> anyhow::Result<Ending> {
    let mut reading = Reading::open(&args.source, &args.names, common)?;
    let filter = reading.filter(&args.filter)?;
    let mut notes = Vec::new();
    match args.format {
        ExportFormat::Flows(format) => {
            let query =
                AnnotateQuery { filter, events: args.event.iter().cloned().collect(), ..AnnotateQuery::default() };
            give_export(args, |out| {
                notes = analyse::export_flows(format, &reading, query, out)?;
                Ok(())
            })?;
        }
        ExportFormat::Samples(format) => {
            reading.profile = narrow(std::mem::take(&mut reading.profile), &reading.symbols, &filter)?;
            let options = exports::Options {
                event: args.event.clone(),
                lines: args.lines,
                figure: if args.samples { exports::Figure::Samples } else { exports::Figure::Weight },
                ..exports::Options::default()
            };
            if format == Format::Pprof && args.output.is_none() && io::stdout().is_terminal() {
                return Err(Usage("pprof is binary: write it to a file with -o, or pipe it".into()).into());
            }
            give_export(args, |out| Ok(exports::write(format, &reading.profile, &reading.symbols, &options, out)?))?;
        }
    }
    reading.tell(&notes);
    reading.tell_problems();
    Ok(reading.end(Ending::Done))
}

/// To the file asked for, else to stdout.
fn give_export(args: &ExportArgs, write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    if let Some(path) = &args.output {
        return to_file(path, write);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out)?;
    Ok(out.flush()?)
}

pub(crate) fn to_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut out = BufWriter::new(file);
    let done = write(&mut out).and_then(|()| Ok(out.flush()?));
    done.inspect_err(|_| {
        // Half an answer looks like one. What is no plain file (a pipe, /dev/null) stays.
        if path.is_file() {
            let _ = std::fs::remove_file(path);
        }
    })
    .map_err(|e| {
        // Anything else is no fault of the file's.
        let of_file = e.chain().any(|cause| cause.is::<io::Error>());
        if of_file { e.context(format!("cannot write {}", path.display())) } else { e }
    })
}
