//! Choosing the symbols to keep in a recording: the name of every function that has samples, code and
//! source positions of those that hold nearly all of them.

use crate::around::Around;
use crate::model::{Image, Profile, Way};
use crate::service::SymbolService;
use crate::stored::{StoredCode, StoredFunction, StoredSymbols};
use crate::symbols::Symbols;
use std::collections::BTreeMap;
use whither_image::jump_tables::{Data, JumpTable};
use whither_image::{Cfg, Function, ImageOffset, Svma, to_offset, to_svma};

/// How much to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatherLimits {
    /// Share of all samples whose functions keep code and lines, 0 to 1.
    pub share: f64,
    /// Bytes of code and (roughly) of source positions; the hottest functions come first.
    pub bytes: usize,
}

impl Default for GatherLimits {
    fn default() -> Self {
        Self { share: 0.999, bytes: 16 << 20 }
    }
}

impl SymbolService {
    /// Symbols of the functions that samples and stacks of a profile fell into.
    #[must_use]
    pub fn gather(&self, profile: &Profile, limits: GatherLimits) -> StoredSymbols {
        let mut hot = self.touched(profile);
        hot.sort_by(|a, b| (b.samples, a.image, a.function.start).cmp(&(a.samples, b.image, b.function.start)));
        let mut stored = StoredSymbols::default();
        let image = |h: &Touched| &profile.images[h.image];
        stored.funcs.extend(hot.iter().map(|h| StoredFunction { image: image(h).id, function: h.function.clone() }));
        let total: u64 = hot.iter().map(|h| h.samples).sum();
        let (mut seen, mut room) = (0, limits.bytes);
        for h in hot.iter().filter(|h| h.samples > 0) {
            if share(seen, total) >= limits.share || room == 0 {
                break;
            }
            seen += h.samples;
            room = room.saturating_sub(self.keep(image(h), &h.function, room, &mut stored));
        }
        stored
    }

    /// Functions with samples (counted), frames of stacks or branch evidence (not counted), per image.
    fn touched(&self, profile: &Profile) -> Vec<Touched> {
        let mut places: BTreeMap<(usize, ImageOffset), u64> = BTreeMap::new();
        for s in &profile.samples {
            *places.entry((s.image.0 as usize, s.offset)).or_insert(0) += u64::from(s.count);
        }
        for frame in profile.stacks.iter().flat_map(|s| &s.frames) {
            places.entry((frame.image.0 as usize, frame.offset)).or_insert(0);
        }
        for e in &profile.edges {
            let target = if let Way::To(target) = e.way { target } else { e.branch };
            for offset in [e.pc, e.branch, target] {
                places.entry((e.image.0 as usize, offset)).or_insert(0);
            }
        }
        let mut touched: Vec<Touched> = Vec::new();
        for ((image, offset), samples) in places {
            match touched.last_mut() {
                Some(last) if last.image == image && last.holds(offset) => last.samples += samples,
                _ => {
                    let table = self.functions(&profile.images[image]);
                    let found = table.find(offset).cloned();
                    touched.extend(found.map(|function| Touched { image, function, samples }));
                }
            }
        }
        touched
    }

    /// Keeps code and lines of one function; returns the bytes they take.
    fn keep(&self, image: &Image, function: &Function, room: usize, stored: &mut StoredSymbols) -> usize {
        let end = ImageOffset(function.start.0.saturating_add(function.size));
        if function.size > room as u64 {
            return 0;
        }
        let mut used = 0;
        if let Some(bytes) = self.code(image, function.start..end) {
            used += bytes.len();
            stored.code.push(StoredCode { image: image.id, start: function.start, bytes });
        }
        used += self.keep_around(image, function, room.saturating_sub(used), stored);
        let lines = self.lines_in(image, function.start..end);
        used += lines.len() * 16;
        stored.lines.extend(lines);
        used
    }

    /// Keeps what else the control flow of a function needs: cold parts, which may lie anywhere, and jump tables, which are data.
    fn keep_around(&self, image: &Image, function: &Function, room: usize, stored: &mut StoredSymbols) -> usize {
        let around = Around::new(image, self);
        let start = to_svma(&image.segments, function.start).map_or(function.start.0, |at| at.0);
        let cfg = Cfg::new(start..start.saturating_add(function.size), &around);
        let parts =
            cfg.parts.iter().skip(1).filter_map(|p| Some((to_offset(&image.segments, Svma(p.start))?, p.clone())));
        // Data lies in no segment of code: it is kept by the address that the file states, which is how what lies in none is read again.
        let data = |t: &JumpTable| {
            let by_address = ImageOffset(t.table.0);
            to_svma(&image.segments, by_address).is_none().then(|| (by_address, t.extent()))
        };
        let mut used = 0;
        for (start, extent) in parts.chain(cfg.tables.iter().filter_map(data)) {
            let len = usize::try_from(extent.end - extent.start).unwrap_or(usize::MAX);
            // The entry behind a table may not be there.
            let bytes = around
                .bytes(Svma(extent.start), len)
                .or_else(|| around.bytes(Svma(extent.start), len.saturating_sub(8)));
            if let Some(bytes) = bytes.filter(|_| len <= room.saturating_sub(used)) {
                used += bytes.len();
                stored.code.push(StoredCode { image: image.id, start, bytes: bytes.to_vec() });
            }
        }
        used
    }
}

/// A function that samples fell into.
struct Touched {
    image: usize,
    function: Function,
    samples: u64,
}

impl Touched {
    fn holds(&self, at: ImageOffset) -> bool {
        at >= self.function.start && at.0 - self.function.start.0 < self.function.size
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share of samples does not need the 54th bit")]
fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 1.0 } else { part as f64 / total as f64 }
}
