//! What makes a row of one recording the same as a row of another: paths, pids, addresses and the
//! compiler's numbers differ from run to run and build to build, names stay.
//!
//! An image is its file's name without the library's version (or the name it had before: `renamed`), a function its name without the
//! compiler's clone number, an instruction a distance from its function's start, a process its pid
//! where the very same process is on both sides and else its command name, a moment the seconds since
//! its recording's first slice. Lines, files, commands and cgroups are what they are called.

use crate::axis::{Axis, Interner, axis, interned};
use crate::groups::combine;
use crate::listing::By;
use crate::names::{demangled, place_label};
use crate::places::{Place, PlaceKind, Places};
use crate::selection::Selection;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use whither_store::model::{Image, Process, ProcessIx, Profile};
use whither_store::symbols::Symbols;

/// Rows of all recordings, numbered.
#[derive(Default)]
pub(crate) struct Keys {
    ids: FxHashMap<Vec<String>, usize>,
    labels: Vec<Vec<String>>,
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// What a row is called, and its image if rows have one beside their name.
    pub(crate) fn label_and_image(&self, key: usize, by: &[By]) -> (String, String) {
        let labels = &self.labels[key];
        let image = by.iter().position(|b| *b == By::Image).filter(|_| by.len() > 1);
        let others = labels.iter().enumerate().filter(|(i, _)| Some(*i) != image).map(|(_, l)| l.as_str());
        (others.collect::<Vec<_>>().join("  "), image.map_or_else(String::new, |i| labels[i].clone()))
    }

    fn id(&mut self, labels: Vec<String>) -> usize {
        let next = self.labels.len();
        let all = &mut self.labels;
        *self.ids.entry(labels.clone()).or_insert_with(|| {
            all.push(labels);
            next
        })
    }
}

/// What is on both sides of a comparison under different names, or is told apart by more than its name.
pub(crate) struct Lasting {
    /// Processes of both sides: parts of one boot, as two epochs of a daemon.
    processes: FxHashSet<u64>,
    /// Programs of the later side, and what they were called before.
    pub(crate) renamed: BTreeMap<String, String>,
}

impl Lasting {
    pub(crate) fn of(a: &[&Profile], b: &[&Profile]) -> Self {
        let lives = |side: &[&Profile]| -> FxHashSet<u64> {
            let processes = side.iter().flat_map(|p| &p.processes);
            processes.filter(|p| p.pid != 0 && p.start_ns != 0).map(|p| p.key).collect()
        };
        let (a, b) = (lives(a), lives(b));
        Self { processes: a.intersection(&b).copied().collect(), renamed: BTreeMap::new() }
    }

    /// Renamed programs are only on one side, so that each side's labels can be asked for here.
    fn image_label(&self, image: &Image) -> String {
        let label = image_label(image);
        self.renamed.get(&label).cloned().unwrap_or(label)
    }

    fn label(&self, process: &Process) -> String {
        let comm = if process.comm.is_empty() { "[unknown]" } else { &process.comm };
        if self.processes.contains(&process.key) { format!("{comm} ({})", process.pid) } else { comm.to_owned() }
    }

    /// Names of threads last from run to run, their numbers do not.
    fn thread_label(&self, profile: &Profile, process: ProcessIx, tid: u32) -> String {
        let of = profile.process(process);
        let label = self.label(of);
        match (profile.thread_name(process, tid), tid != 0 && self.processes.contains(&of.key)) {
            (Some(name), true) => format!("{label} thread {name} ({tid})"),
            (Some(name), false) => format!("{label} thread {name}"),
            (None, true) => format!("{label} thread {tid}"),
            (None, false) => label,
        }
    }
}

/// The key of every row of a selection.
pub(crate) fn matched(
    by: &[By],
    selection: &Selection<'_>,
    places: &Places,
    symbols: &dyn Symbols,
    lasting: &Lasting,
    keys: &mut Keys,
) -> Vec<usize> {
    let axes: Vec<Axis<'_>> = by.iter().map(|b| lasting_axis(*b, selection, places, symbols, lasting)).collect();
    let (of_row, groups) = combine(selection.rows.len(), &axes);
    let labels = |values: &Vec<u32>| values.iter().zip(&axes).map(|(&v, axis)| (axis.label)(v)).collect();
    let key_of: Vec<usize> = groups.iter().map(|values| keys.id(labels(values))).collect();
    of_row.into_iter().map(|group| key_of[group as usize]).collect()
}

/// As [`axis`], with labels that last from recording to recording.
fn lasting_axis<'a>(
    by: By,
    selection: &Selection<'a>,
    places: &'a Places,
    symbols: &dyn Symbols,
    lasting: &'a Lasting,
) -> Axis<'a> {
    let profile = selection.profile;
    match by {
        By::Image => interned(selection, |s| s.image, |i| lasting.image_label(profile.image(*i))),
        By::Proc => {
            let label = move |v: u32| procedure(&places.places[v as usize], profile);
            Axis { of_row: places.of_row.iter().map(|p| p.0).collect(), label: Box::new(label) }
        }
        By::Insn => instructions(selection, places),
        By::Process => interned(selection, |s| s.process, |p| lasting.label(profile.process(*p))),
        By::Thread => interned(selection, |s| (s.process, s.tid), |(p, tid)| lasting.thread_label(profile, *p, *tid)),
        By::Slice => {
            let first = profile.samples.iter().map(|s| s.slice).min().unwrap_or(0);
            interned(selection, |s| s.slice, move |slice| format!("+{} s", slice.saturating_sub(first)))
        }
        By::Line | By::File | By::Command | By::Cgroup => axis(by, selection, places, symbols),
    }
}

pub(crate) fn image_label(image: &Image) -> String {
    without_so_version(image.short_name()).to_owned()
}

fn procedure(place: &Place, profile: &Profile) -> String {
    match &place.kind {
        PlaceKind::Function { name, .. } => demangled(without_clone_suffix(name)).into_owned(),
        _ => place_label(place, profile.image(place.image)),
    }
}

/// `name+0x1f`; without a name the offset in the file, which holds for one build.
fn instructions<'a>(selection: &Selection<'a>, places: &'a Places) -> Axis<'a> {
    let profile = selection.profile;
    let mut seen = Interner::default();
    let rows = selection.rows.iter().zip(&places.of_row);
    let of_row = rows.map(|(&row, &place)| seen.id((place, selection.sample(row).offset))).collect();
    let items = seen.items;
    let label = move |v: u32| {
        let (place, offset) = items[v as usize];
        let place = places.get(place);
        let from = match &place.kind {
            PlaceKind::Function { start, .. } => start.0,
            _ => 0,
        };
        format!("{}+{:#x}", procedure(place, profile), offset.0.saturating_sub(from))
    };
    Axis { of_row, label: Box::new(label) }
}

/// `libx.so.1.2` and `libx.so.1.3` are the same library.
fn without_so_version(name: &str) -> &str {
    name.find(".so.").map_or(name, |i| &name[..i + 3])
}

/// The compiler numbers its clones anew in every build.
pub(crate) fn without_clone_suffix(name: &str) -> &str {
    let clone = [".isra.", ".constprop.", ".llvm.", ".lto_priv."];
    clone.iter().filter_map(|c| name.find(c)).min().map_or(name, |i| &name[..i])
}
