//! Call paths cut to the width of a column. The innermost frames stay, and the outermost one, for they tell more than those in
//! between; but rows of a table must not look alike that are different: of those the frames stay in which they differ.

use super::table::middle_cut;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;

/// Stands between the frames of a path.
pub(super) const SEPARATOR: &str = " > ";

/// Cuts a call path to `width` characters: the innermost frames stay, as far as they fit, and the outermost one if
/// it leaves room for two of them; they tell more than those in between.
pub(super) fn path_cut(path: &str, width: usize) -> String {
    if path.chars().count() <= width {
        return path.to_owned();
    }
    let row = Row::new(path);
    let (frames, all) = (&row.frames, row.frames.len());
    // `[truncated]` must be seen, whatever else is.
    let fewest = if frames[all - 1].starts_with('[') { 1 } else { 2 };
    let outermost = BTreeSet::from([all - 1]);
    let with_outermost = row.most(fewest..all - 1, width, |kept| row.with(kept, &outermost));
    let fitting = with_outermost.or_else(|| row.most(1..all, width, |kept| row.with(kept, &BTreeSet::new())));
    fitting.unwrap_or_else(|| middle_cut(frames[0], width))
}

/// Cuts call paths to `width` characters so that no two different ones look the same. Where there is no room for the frames that
/// tell them apart a line is longer.
pub(super) fn paths_cut(paths: &[&str], width: usize) -> Vec<String> {
    let mut cut: Vec<String> = paths.iter().map(|path| path_cut(path, width)).collect();
    let mut rows: FxHashMap<usize, Row<'_>> = FxHashMap::default();
    loop {
        let mut changed = false;
        for same in alike(&cut, paths) {
            for &i in &same {
                rows.entry(i).or_insert_with(|| Row::new(paths[i]));
            }
            count_levels(&mut rows, &same);
            mark_telling(&mut rows, same.clone());
            for i in same {
                let next = rows.get_mut(&i).map(|row| row.next(width));
                if let Some(text) = next.filter(|text| *text != cut[i]) {
                    cut[i] = text;
                    changed = true;
                }
            }
        }
        // Forms are few, and frames are only added to those that tell.
        if !changed {
            return cut;
        }
    }
}

/// Rows that look the same and are not.
fn alike(cut: &[String], paths: &[&str]) -> Vec<Vec<usize>> {
    let mut by_text: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
    for (i, text) in cut.iter().enumerate() {
        by_text.entry(text).or_default().push(i);
    }
    let differ = |same: &[usize]| same.iter().any(|&i| paths[i] != paths[same[0]]);
    by_text.into_values().filter(|same| same.len() > 1 && differ(same)).collect()
}

/// How a path is cut, each where the one before it does not tell it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Its innermost frames and the outermost one.
    Plain,
    /// With all frames that tell it from others.
    Telling,
    /// With the outermost of these alone.
    Outermost,
    /// With the number of frames that are left out: recursion.
    Counted,
    /// With all frames that tell it from others, whatever their length.
    Long,
}

struct Row<'a> {
    /// Innermost first.
    frames: Vec<&'a str>,
    form: Form,
    /// Positions in `frames` of those that tell it from others.
    telling: BTreeSet<usize>,
}

impl<'a> Row<'a> {
    fn new(path: &'a str) -> Self {
        let mut frames: Vec<&str> = path.split(SEPARATOR).collect();
        frames.reverse();
        Self { frames, form: Form::Plain, telling: BTreeSet::new() }
    }

    /// Its text in the next form for which there is room.
    fn next(&mut self, width: usize) -> String {
        loop {
            self.form = match self.form {
                Form::Plain => Form::Telling,
                Form::Telling => Form::Outermost,
                Form::Outermost => Form::Counted,
                Form::Counted | Form::Long => Form::Long,
            };
            if let Some(text) = self.text(width) {
                return text;
            }
        }
    }

    fn text(&self, width: usize) -> Option<String> {
        let all = self.frames.len();
        match self.form {
            Form::Plain => None,
            Form::Telling => self.most(1..all, width, |kept| self.with(kept, &self.telling)),
            Form::Outermost => {
                let last = self.telling.last().copied().into_iter().collect();
                self.most(1..all, width, |kept| self.with(kept, &last))
            }
            Form::Counted => self.most(1..all.saturating_sub(1), width, |kept| self.counted(kept)),
            Form::Long => Some(self.with(1, &self.telling)),
        }
    }

    /// The text with most innermost frames that fits; texts become longer with them.
    fn most(&self, kept: Range<usize>, width: usize, text: impl Fn(usize) -> String) -> Option<String> {
        kept.map(text).take_while(|text| text.chars().count() <= width).last()
    }

    /// The innermost frames and some others; `…` stands for any number of frames.
    fn with(&self, innermost: usize, others: &BTreeSet<usize>) -> String {
        let mut parts: Vec<&str> = Vec::new();
        let mut next = 0;
        for at in (0..innermost).chain(others.range(innermost..).copied()) {
            if at > next {
                parts.push("…");
            }
            parts.push(self.frames[at]);
            next = at + 1;
        }
        if next < self.frames.len() {
            parts.push("…");
        }
        parts.reverse();
        parts.join(SEPARATOR)
    }

    /// The outermost frame and the innermost ones, with the number of those between.
    fn counted(&self, innermost: usize) -> String {
        let between = format!("…{}…", self.frames.len().saturating_sub(innermost + 1));
        let mut parts: Vec<&str> = self.frames[..innermost].to_vec();
        parts.push(&between);
        parts.extend(self.frames.last());
        parts.reverse();
        parts.join(SEPARATOR)
    }
}

/// Notes which frames of some paths tell any of them from others: those where they part, from the innermost on. Where a path ends
/// there its last frame tells that it does.
fn mark_telling(rows: &mut FxHashMap<usize, Row<'_>>, same: Vec<usize>) {
    let mut work = vec![(same, 0)];
    while let Some((same, from)) = work.pop() {
        let Some(depth) = parting(rows, &same, from) else { continue };
        let mut parts: FxHashMap<Option<&str>, Vec<usize>> = FxHashMap::default();
        for i in same {
            let Some(row) = rows.get_mut(&i) else { continue };
            row.telling.insert(depth.min(row.frames.len() - 1));
            parts.entry(row.frames.get(depth).copied()).or_default().push(i);
        }
        work.extend(parts.into_values().filter(|part| part.len() > 1).map(|part| (part, depth + 1)));
    }
}

/// Of paths that differ in levels of recursion alone the number of frames tells more than any of them.
fn count_levels(rows: &mut FxHashMap<usize, Row<'_>>, same: &[usize]) {
    let once = |row: &Row<'_>| {
        let mut frames: Vec<String> = row.frames.iter().map(|f| (*f).to_owned()).collect();
        frames.dedup();
        frames
    };
    let mut levels: FxHashMap<Vec<String>, BTreeSet<usize>> = FxHashMap::default();
    for row in same.iter().filter_map(|i| rows.get(i)) {
        levels.entry(once(row)).or_default().insert(row.frames.len());
    }
    for i in same {
        if let Some(row) = rows.get_mut(i).filter(|row| row.form == Form::Plain) {
            let several = levels.get(&once(row)).is_some_and(|levels| levels.len() > 1);
            row.form = if several { Form::Outermost } else { Form::Plain };
        }
    }
}

/// The innermost frame, from some on, that is not the same in all paths.
fn parting(rows: &FxHashMap<usize, Row<'_>>, same: &[usize], from: usize) -> Option<usize> {
    let rows: Vec<&[&str]> = same.iter().filter_map(|i| Some(rows.get(i)?.frames.as_slice())).collect();
    let longest = rows.iter().map(|frames| frames.len()).max()?;
    (from..longest).find(|&depth| rows.iter().any(|frames| frames.get(depth) != rows[0].get(depth)))
}

/// Whether a number of frames stands in a text for these.
pub(super) fn has_counted(text: &str) -> bool {
    text.split('…').skip(1).any(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_that_would_look_the_same_show_where_they_part() {
        let paths = ["main > eval > read > buffered > flush > write", "main > eval > print > buffered > flush > write"];
        assert_eq!(path_cut(paths[0], 34), path_cut(paths[1], 34));
        let cut = paths_cut(&paths, 34);
        assert_eq!(cut, ["… > read > … > flush > write", "… > print > … > flush > write"]);
        let third = "main > eval > scan > fill > print > buffered > flush > write";
        let cut = paths_cut(&[paths[1], third, paths[0]], 34);
        assert_eq!(
            cut,
            ["… > eval > print > … > write", "… > fill > print > … > write", "… > read > … > flush > write"],
            "every frame in which any two differ"
        );
        let cut = paths_cut(&[paths[1], third, paths[0]], 24);
        assert_eq!(
            cut,
            ["… > eval > … > write", "… > fill > … > write", "… > read > … > write"],
            "the outermost of them"
        );
        let other = "main > write";
        assert_eq!(paths_cut(&[paths[0], other], 34), [path_cut(paths[0], 34), other.to_owned()]);
        assert_eq!(paths_cut(&[paths[0], paths[0]], 34)[1], path_cut(paths[0], 34), "the same path twice");
        assert_eq!(
            paths_cut(&paths, 12),
            ["… > read > … > write", "… > print > … > write"],
            "rather too long than alike"
        );
    }

    #[test]
    fn paths_lose_the_frames_between_the_first_and_the_last() {
        let path = "main > update > ks_congrad+0x4c1 > wait_gather+0x33 > MPI_Wait";
        assert_eq!(path_cut(path, 62), path);
        assert_eq!(path_cut(path, 61), "main > … > ks_congrad+0x4c1 > wait_gather+0x33 > MPI_Wait");
        assert_eq!(path_cut(path, 40), "main > … > wait_gather+0x33 > MPI_Wait");
        assert_eq!(path_cut(path, 36), "… > wait_gather+0x33 > MPI_Wait");
        assert_eq!(path_cut(path, 20), "… > MPI_Wait");
        assert_eq!(path_cut(path, 7), "MPI…ait");
        assert_eq!(path_cut("abcdef > ghijkl", 12), "… > ghijkl");
        assert_eq!(path_cut("abcdef > ghijkl", 5), "gh…kl");
    }

    /// Rows that part at two frames each, of a set that has all four.
    #[test]
    fn one_frame_of_several_does_not_tell_paths_apart() {
        let path = |outer: &str, inner: &str| format!("main > {outer} > step > {inner} > queue > put > copy");
        let all = [("load", "left"), ("load", "right"), ("save", "left"), ("save", "right")].map(|(o, i)| path(o, i));
        let cut = paths_cut(&all.each_ref().map(String::as_str), 34);
        assert_eq!(
            cut,
            [
                "… > load > … > left > … > copy",
                "… > load > … > right > … > copy",
                "… > save > … > left > … > copy",
                "… > save > … > right > … > copy",
            ]
        );
    }

    /// Levels of recursion differ in nothing but their number.
    #[test]
    fn recursion_is_told_by_its_depth() {
        let path = |levels: usize| format!("main > {}leaf", "walk > ".repeat(levels));
        let all = [20, 21, 30].map(path);
        let cut = paths_cut(&all.each_ref().map(String::as_str), 30);
        assert_eq!(cut, ["main > …19… > walk > leaf", "main > …20… > walk > leaf", "main > …29… > walk > leaf"]);
        assert!(has_counted(&cut[0]) && !has_counted("main > … > 12 > leaf …"), "{cut:?}");
    }

    proptest! {
        /// Whatever the paths and the width: what differs looks different.
        #[test]
        fn no_two_paths_look_alike(
            paths in prop::collection::vec(prop::collection::vec("[abc]{1,9}", 1..12), 1..20),
            width in 1..60_usize,
        ) {
            let paths: Vec<String> = paths.into_iter().map(|frames| frames.join(SEPARATOR)).collect();
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let cut = paths_cut(&paths, width);
            for (i, path) in paths.iter().enumerate() {
                prop_assert!(paths.iter().zip(&cut).all(|(other, text)| other == path || *text != cut[i]), "{path}: {}", cut[i]);
            }
        }
    }
}
