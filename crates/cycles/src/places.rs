//! From sample rows to procedures: one walk per image over its offsets in order, beside the sorted
//! function table, instead of a search per row (a week has hundreds of thousands of rows).

use crate::axis::first_made;
use crate::names::place_label;
use crate::pattern::Pattern;
use crate::selection::{Selection, any};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use whither_image::{FunctionTable, ImageOffset};
use whither_store::model::{Image, ImageIx, ImageKind};
use whither_store::symbols::Symbols;

/// What becomes of code inlined into another function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inlines {
    /// It counts for the procedure it was inlined into.
    #[default]
    Outermost,
    /// It counts for the inlined function, wherever in the image that was inlined.
    Expand,
}

/// A procedure, or what stands in for one.
#[derive(Clone, Debug)]
pub struct Place {
    /// Image it is in.
    pub image: ImageIx,
    /// What it is.
    pub kind: PlaceKind,
}

/// What a [`Place`] is.
#[derive(Clone, Debug)]
pub enum PlaceKind {
    /// A function of the image's table.
    Function {
        /// Mangled name.
        name: Arc<str>,
        /// First byte.
        start: ImageOffset,
        /// Bytes.
        size: u64,
    },
    /// All inlined copies of a function in the image.
    Inlined {
        /// Mangled name, else as the debug information tells it.
        name: Arc<str>,
    },
    /// Positions of the image that no function holds.
    Nameless,
}

/// Index of a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlaceIx(pub u32);

/// The procedures of a selection.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// All of them.
    pub places: Vec<Place>,
    /// One per row of the selection, in its order.
    pub of_row: Vec<PlaceIx>,
}

impl Places {
    /// Finds the procedure of every row.
    #[must_use]
    pub fn resolve(selection: &Selection<'_>, symbols: &dyn Symbols, inlines: Inlines) -> Self {
        let mut out = Self { places: Vec::new(), of_row: vec![PlaceIx(0); selection.rows.len()] };
        let by_image = rows_by_image(selection);
        let images: Vec<&Image> = by_image.iter().map(|(ix, _)| selection.profile.image(*ix)).collect();
        symbols.prepare(&images);
        let first = first_made(selection.profile);
        // Code without any name is one place, of however many processes.
        let mut nameless: FxHashMap<ImageIx, PlaceIx> = FxHashMap::default();
        for (image, mut rows) in by_image {
            rows.sort_unstable_by_key(|&(offset, _)| offset);
            let stands_for = first.get(&image).copied();
            let known = stands_for.and_then(|all| nameless.get(&all).copied());
            let found = out.resolve_image(selection.profile.image(image), image, &rows, symbols, inlines, known);
            if let (Some(all), Some(place)) = (stands_for, found) {
                nameless.insert(all, place);
            }
        }
        out
    }

    /// The place of an index.
    #[must_use]
    pub fn get(&self, ix: PlaceIx) -> &Place {
        &self.places[ix.0 as usize]
    }

    /// Finds the procedures of one image's rows. `nameless`, and what is returned: the place of code without a name.
    fn resolve_image(
        &mut self,
        image: &Image,
        ix: ImageIx,
        rows: &[(ImageOffset, u32)],
        symbols: &dyn Symbols,
        inlines: Inlines,
        nameless: Option<PlaceIx>,
    ) -> Option<PlaceIx> {
        let table = functions_of(image, symbols);
        let mut walk = Walk { nameless, ..Walk::new(ix, &table) };
        let mut last: Option<(ImageOffset, PlaceIx)> = None;
        for &(offset, row) in rows {
            let place = match last {
                Some((at, place)) if at == offset => place,
                _ => {
                    let inlined = match inlines {
                        Inlines::Outermost => None,
                        Inlines::Expand => inlined_name(image, offset, symbols),
                    };
                    walk.place(offset, inlined, &mut self.places)
                }
            };
            last = Some((offset, place));
            self.of_row[row as usize] = place;
        }
        walk.nameless
    }

    /// Drops rows whose procedure matches none of the patterns; none given: keeps all.
    pub fn retain(&mut self, selection: &mut Selection<'_>, procs: &[Pattern]) {
        if procs.is_empty() {
            return;
        }
        let keep: Vec<bool> =
            self.places.iter().map(|p| any(procs, &place_label(p, selection.profile.image(p.image)))).collect();
        let kept = |p: &PlaceIx| keep[p.0 as usize];
        let mut flags = self.of_row.iter().map(kept);
        selection.rows.retain(|_| flags.next().expect("one place per row"));
        self.of_row.retain(kept);
    }
}

/// Unknown samples have no functions, whatever the symbol service might say of their label.
fn functions_of(image: &Image, symbols: &dyn Symbols) -> Arc<FunctionTable> {
    match image.kind {
        ImageKind::Unknown => Arc::default(),
        _ => symbols.functions(image),
    }
}

/// Name of the innermost function when it was inlined at this position.
fn inlined_name(image: &Image, at: ImageOffset, symbols: &dyn Symbols) -> Option<Arc<str>> {
    let frames = symbols.frames(image, at);
    if frames.len() < 2 { None } else { frames.into_iter().next()?.function }
}

/// Positions and row numbers (in the selection) of each image, images in ascending order.
fn rows_by_image(selection: &Selection<'_>) -> Vec<(ImageIx, Vec<(ImageOffset, u32)>)> {
    let mut by_image: Vec<Vec<(ImageOffset, u32)>> = Vec::new();
    by_image.resize_with(selection.profile.images.len(), Vec::new);
    for (i, &row) in (0u32..).zip(&selection.rows) {
        let s = selection.sample(row);
        by_image[s.image.0 as usize].push((s.offset, i));
    }
    let all = (0u32..).map(ImageIx).zip(by_image);
    all.filter(|(_, rows)| !rows.is_empty()).collect()
}

/// Position in one image's function table; offsets must come in ascending order.
struct Walk<'t> {
    image: ImageIx,
    table: &'t FunctionTable,
    /// Functions before this one end before the current offset.
    next: usize,
    /// The place made for function `next`, once it was needed.
    made: Option<(usize, PlaceIx)>,
    nameless: Option<PlaceIx>,
    inlined: FxHashMap<Arc<str>, PlaceIx>,
}

impl<'t> Walk<'t> {
    fn new(image: ImageIx, table: &'t FunctionTable) -> Self {
        Self { image, table, next: 0, made: None, nameless: None, inlined: FxHashMap::default() }
    }

    fn place(&mut self, at: ImageOffset, inlined: Option<Arc<str>>, places: &mut Vec<Place>) -> PlaceIx {
        match inlined {
            Some(name) => self.inlined_place(name, places),
            None => self.function_place(at, places),
        }
    }

    fn inlined_place(&mut self, name: Arc<str>, places: &mut Vec<Place>) -> PlaceIx {
        let image = self.image;
        *self
            .inlined
            .entry(Arc::clone(&name))
            .or_insert_with(|| push(places, Place { image, kind: PlaceKind::Inlined { name } }))
    }

    fn function_place(&mut self, at: ImageOffset, places: &mut Vec<Place>) -> PlaceIx {
        let functions = self.table.functions();
        while functions.get(self.next).is_some_and(|f| at.0 >= f.start.0.saturating_add(f.size)) {
            self.next += 1;
        }
        let Some(f) = functions.get(self.next).filter(|f| f.start <= at) else {
            let image = self.image;
            let make = || push(places, Place { image, kind: PlaceKind::Nameless });
            return *self.nameless.get_or_insert_with(make);
        };
        match self.made {
            Some((index, place)) if index == self.next => place,
            _ => {
                let kind = PlaceKind::Function { name: f.name[..].into(), start: f.start, size: f.size };
                let place = push(places, Place { image: self.image, kind });
                self.made = Some((self.next, place));
                place
            }
        }
    }
}

fn push(places: &mut Vec<Place>, place: Place) -> PlaceIx {
    let ix = u32::try_from(places.len()).expect("fewer procedures than sample rows");
    places.push(place);
    PlaceIx(ix)
}

/// Which places share name and image with another one of the list.
#[must_use]
pub fn ambiguous(places: &[Place]) -> Vec<bool> {
    let mut count: FxHashMap<(ImageIx, &str), u32> = FxHashMap::default();
    let name = |p: &'_ Place| match &p.kind {
        PlaceKind::Function { name, .. } => Some((p.image, Arc::clone(name))),
        _ => None,
    };
    let names: Vec<_> = places.iter().map(name).collect();
    for (image, name) in names.iter().flatten() {
        *count.entry((*image, name)).or_default() += 1;
    }
    names.iter().map(|n| n.as_ref().is_some_and(|(i, n)| count[&(*i, &**n)] > 1)).collect()
}
