//! Where processes have the code that walks go through, as the kernel side was told. Lives here: what is told and when it has changed,
//! and the addresses that instructions of images have in a process. Constraint: a process that is not told of is not walked in
//! (`devices`), and what was told may be out of date when a walk uses it, so that each walk is held against the book.

use crate::book::{Book, Who};
use crate::lives::{ImageNo, LifeNo, Mapped};
use rustc_hash::FxHashMap;
use std::ops::Range;
use whither_abi::path::{Life, PARTS, Part};
use whither_image::load_bias;
use whither_store::model::ImageKind;

/// More processes than this have no room; those that ended are forgotten before.
pub(crate) const SPACE_ROOM: u32 = 2048;

/// What the kernel side knows of processes.
#[derive(Default)]
pub(super) struct Spaces {
    told: FxHashMap<Life, (LifeNo, Vec<Part>)>,
    orders: Vec<(Life, Vec<Part>)>,
}

impl Spaces {
    /// Tells what a process has mapped now, if that is news.
    pub(super) fn tell(&mut self, book: &Book, who: Who, key: Life) {
        let Some((life, parts)) = parts_of(book, who) else { return };
        let known = self.told.get(&key).is_some_and(|(of, told)| *of == life && *told == parts);
        if !known {
            self.orders.push((key, parts.clone()));
            self.told.insert(key, (life, parts));
        }
    }

    /// For the addresses of instructions in a process as it was then.
    pub(super) fn of<'s>(&'s self, book: &'s Book, who: Who, key: Life) -> Space<'s> {
        let parts = self.told.get(&key).map_or(&[][..], |(_, parts)| parts);
        Space { book, who, parts, last: None }
    }

    /// Forgets processes that the book has forgotten.
    pub(super) fn forget(&mut self, book: &Book) {
        let gone = self.told.extract_if(|_, (life, _)| !book.knows(*life));
        self.orders.extend(gone.map(|(key, _)| (key, Vec::new())));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// What is to change in the kernel; a process without parts is none any more.
    pub(super) fn orders(&mut self) -> Vec<(Life, Vec<Part>)> {
        std::mem::take(&mut self.orders)
    }
}

/// One process.
pub(super) struct Space<'s> {
    book: &'s Book,
    who: Who,
    parts: &'s [Part],
    /// The part of the last answer, and how far it was there.
    last: Option<(&'s Part, Range<u64>)>,
}

impl Space<'_> {
    /// Where an instruction was; `None` if something else was there than the kernel side thought.
    pub(super) fn address(&mut self, image: ImageNo, stated: u64) -> Option<u64> {
        let of = number_of(image);
        let address = |p: &Part| Some(stated.wrapping_add(p.bias)).filter(|at| p.image == of && holds(p, *at));
        if let Some((part, there)) = &self.last
            && let Some(found) = address(part).filter(|found| there.contains(found))
        {
            return Some(found);
        }
        let (part, found) = self.parts.iter().find_map(|part| Some((part, address(part)?)))?;
        self.last = Some((part, self.stands(part, found)?));
        Some(found)
    }

    /// Whether what the kernel side thought to be at an address was there.
    pub(super) fn holds(&self, address: u64) -> bool {
        self.parts.iter().find(|p| holds(p, address)).is_some_and(|part| self.stands(part, address).is_some())
    }

    /// Around an address, how far there was what the kernel side was told.
    fn stands(&self, part: &Part, address: u64) -> Option<Range<u64>> {
        let found = self.book.code_at(self.who, address)?.mapped;
        let same = number_of(found.image) == part.image && bias_of(self.book, &found) == Some(part.bias);
        same.then_some(found.start..found.end)
    }
}

fn holds(part: &Part, address: u64) -> bool {
    (part.start..part.end).contains(&address)
}

/// An image's number for the kernel side, where 0 is none.
pub(crate) fn number_of(image: ImageNo) -> u32 {
    image.0.wrapping_add(1)
}

/// What is added to the addresses that the image of a mapping states.
pub(super) fn bias_of(book: &Book, mapped: &Mapped) -> Option<u64> {
    load_bias(&book.image(mapped.image).segments, mapped.start, mapped.offset)
}

/// The code of files that a process has mapped, by address.
fn parts_of(book: &Book, who: Who) -> Option<(LifeNo, Vec<Part>)> {
    let (life, found) = book.life_of(who)?;
    let of_file = |m: &&Mapped| matches!(book.image(m.image).kind, ImageKind::Elf | ImageKind::Vdso);
    let part = |m: &Mapped| {
        let bias = bias_of(book, m)?;
        Some(Part { start: m.start, end: m.end, bias, image: number_of(m.image), spare: 0 })
    };
    let all = found.maps.mappings().iter().filter(of_file).filter_map(part);
    Some((life, all.take(PARTS).collect()))
}
