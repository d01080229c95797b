//! One self-contained HTML page from the results of this lens: no external resource, no network,
//! opened from a file. The page is complete without JavaScript, except for the flame graph; the
//! script only sorts, filters, links and zooms. Style and script live beside this file as
//! `page.css` and `page.js`; each section of the page has its own module.
//!
//! Names come from foreign programs, so every string passes `escape::Text` (or `escape::json`
//! inside the data block); a property test holds that no name can leave its place.

mod accuracy;
mod analysis;
mod annotation;
mod arrows;
mod calls;
mod calls_tree;
mod causal;
mod causal_plot;
mod diff;
pub(crate) mod escape;
mod flame;
mod heat;
mod listing;
mod number;
mod runs;
mod summary;

pub use calls::{CallsPage, calls_page};
pub use causal::{CausalPage, causal_page};

use escape::{Text, put};
use whither_cycles::results::accuracy::Accuracy;
use whither_cycles::results::analysis::{Analysis, Summary};
use whither_cycles::results::runs::RunStatistics;
use whither_cycles::results::{Annotation, Difference, FlameNode, HeatMap, Listing, Provenance};

/// What of an analysed procedure is open at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    /// The listing; the graph opens on demand.
    #[default]
    Listing,
    /// The control-flow graph above it, with more blocks.
    Graph,
}

/// Everything one page shows. Parts that are absent leave no empty section behind, except the
/// flame graph, whose absence is explained.
#[derive(Clone, Debug, Default)]
pub struct ReportData {
    /// Heading of the page.
    pub title: String,
    /// Where the figures come from; printed first, with losses and unknown samples.
    pub provenance: Provenance,
    /// Listings in the order shown (by image, by procedure, by process, ...).
    pub listings: Vec<Listing>,
    /// Where the cycles of a selection went, cause by cause.
    pub causes: Option<Summary>,
    /// Many runs side by side.
    pub runs: Option<RunStatistics>,
    /// Estimates against exact counts.
    pub accuracy: Option<Accuracy>,
    /// Annotated procedures, hottest first.
    pub annotations: Vec<Annotated>,
    /// What of them is open at first.
    pub focus: Focus,
    /// Call tree of the recorded stacks.
    pub flame: Option<FlameNode>,
    /// Procedures over time.
    pub heat: Option<HeatMap>,
    /// Comparison of two sets of recordings.
    pub diff: Option<Difference>,
}

/// A procedure on the page: with samples alone, or with what an analysis found.
#[derive(Clone, Debug)]
pub enum Annotated {
    /// Samples per instruction.
    Counts(Box<Annotation>),
    /// And frequencies, cycles, causes, control flow.
    Analysed(Box<Analysis>),
}

impl Annotated {
    fn listing(&self) -> &Annotation {
        match self {
            Self::Counts(a) => a,
            Self::Analysed(a) => &a.annotation,
        }
    }
}

impl From<Annotation> for Annotated {
    fn from(a: Annotation) -> Self {
        Self::Counts(Box::new(a))
    }
}

impl From<Analysis> for Annotated {
    fn from(a: Analysis) -> Self {
        Self::Analysed(Box::new(a))
    }
}

/// The page as one string of UTF-8 HTML.
#[must_use]
pub fn page(data: &ReportData) -> String {
    let mut out = String::with_capacity(256 * 1024);
    head(&mut out, &data.title);
    banner(&mut out, &data.title, &contents(data));
    out.push_str("<main>");
    summary::section(&mut out, &data.provenance);
    if let Some(d) = &data.diff {
        diff::section(&mut out, d);
    }
    for (i, l) in data.listings.iter().enumerate() {
        listing::section(&mut out, i, l, &data.annotations);
    }
    if let Some(r) = &data.runs {
        runs::section(&mut out, r);
    }
    if let Some(a) = &data.accuracy {
        accuracy::section(&mut out, a);
    }
    if let Some(s) = &data.causes {
        analysis::causes_section(&mut out, s);
    }
    annotation::sections(&mut out, &data.annotations, data.focus);
    flame::section(&mut out, data.flame.as_ref(), &data.provenance);
    if let Some(h) = &data.heat {
        heat::section(&mut out, h, &data.provenance);
    }
    out.push_str("</main>");
    foot(
        &mut out,
        "Shares are of the event's total in the selection; \u{b1} is half the 95\u{2009}% interval of sampling error.",
    );
    out
}

/// The policy forbids every load, so that a report can be passed on without fear of call-backs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";

fn head(out: &mut String, title: &str) {
    put!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"generator\" content=\"whither {}\">\
         <title>{} - whither</title>\n<style>\n{}</style></head>\n<body>",
        env!("CARGO_PKG_VERSION"),
        Text(title),
        include_str!("page.css"),
    );
}

/// Title, and a link to every section.
fn banner(out: &mut String, title: &str, contents: &[(String, String)]) {
    put!(
        out,
        "<a class=\"skip\" href=\"#summary\">Skip to the report</a>\
         <header class=\"top\"><h1>{}</h1><nav aria-label=\"Sections\">",
        Text(title)
    );
    for (id, label) in contents {
        put!(out, "<a href=\"#{id}\">{}</a>", Text(label));
    }
    out.push_str(
        "</nav><button type=\"button\" id=\"theme\" hidden aria-label=\"Switch between light and dark\" \
         title=\"Light or dark\"><span aria-hidden=\"true\">\u{25d0}</span></button></header>",
    );
}

/// Anchor and label of every section that will be printed, in order.
fn contents(data: &ReportData) -> Vec<(String, String)> {
    let mut list = vec![("summary".to_owned(), "Summary".to_owned())];
    if data.diff.is_some() {
        list.push(("diff".into(), "Difference".into()));
    }
    for (i, l) in data.listings.iter().enumerate() {
        list.push((listing::anchor(i), listing::heading(l)));
    }
    if data.runs.is_some() {
        list.push(("runs".into(), "Runs".into()));
    }
    if data.accuracy.is_some() {
        list.push(("accuracy".into(), "Accuracy".into()));
    }
    if data.causes.is_some() {
        list.push(("causes".into(), "Where the cycles go".into()));
    }
    if !data.annotations.is_empty() {
        list.push(("annotations".into(), "Annotated".into()));
    }
    list.push(("flame".into(), "Flame graph".into()));
    if data.heat.is_some() {
        list.push(("heat".into(), "Over time".into()));
    }
    list
}

fn foot(out: &mut String, sentence: &str) {
    put!(
        out,
        "<footer>Made by whither {}. {sentence}</footer>\n<script>\n{}</script>\n</body></html>\n",
        env!("CARGO_PKG_VERSION"),
        include_str!("page.js"),
    );
}

#[cfg(test)]
mod tests;
