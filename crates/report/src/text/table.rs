//! Plain tables: numbers right, names left, names cut in the middle when the line is too short
//! (both ends of a C++ name or a path tell more than its middle).

use super::Style;
use rustc_hash::FxHashMap;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Right-aligned, never cut.
    Number,
    /// Left-aligned, cut in the middle.
    Name,
    /// Left-aligned, never cut.
    Mark,
    /// Left-aligned call path: cut between frames, the last two are kept even if the line overflows.
    Path,
}

/// How a row is emphasised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Head,
    Plain,
    Warm,
    Hot,
    Faint,
}

/// A table being filled.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<(Tone, Vec<String>)>,
}

const GAP: usize = 2;
/// Names are not cut shorter than this, even if the line overflows.
const NARROWEST: usize = 12;
/// The last two frames of call paths are kept whole up to this length.
const MOST_KEPT: usize = 100;
const SEPARATOR: &str = " > ";

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Programs give themselves names with line breaks and escape sequences in them, which would end a row: each control
    /// character is shown as U+FFFD.
    pub(crate) fn row(&mut self, tone: Tone, mut cells: Vec<String>) {
        for cell in cells.iter_mut().filter(|c| c.contains(char::is_control)) {
            *cell = cell.replace(char::is_control, "\u{fffd}");
        }
        self.rows.push((tone, cells));
    }

    /// The lines, at most `width` characters each where names can be cut that far.
    pub(crate) fn render(&self, style: Style, width: usize) -> String {
        let widths = self.widths(width);
        let mut out = String::new();
        let mut paths = self.paths(&widths).into_iter();
        for (tone, cells) in &self.rows {
            let path = if cells.len() == self.columns.len() { paths.next() } else { None };
            let line = self.line(cells, &widths, path.as_deref());
            out.push_str(&style.paint(*tone, line.trim_end()));
            out.push('\n');
        }
        out
    }

    /// The call paths of whole rows, cut.
    fn paths(&self, widths: &[usize]) -> Vec<String> {
        let Some(column) = self.columns.iter().position(|c| *c == Column::Path) else { return Vec::new() };
        let whole = self.rows.iter().filter(|(_, cells)| cells.len() == self.columns.len());
        let paths: Vec<&str> = whole.map(|(_, cells)| cells[column].as_str()).collect();
        paths_cut(&paths, widths[column])
    }

    fn line(&self, cells: &[String], widths: &[usize], path: Option<&str>) -> String {
        let mut line = String::new();
        for ((cell, column), &width) in cells.iter().zip(&self.columns).zip(widths) {
            if !line.is_empty() {
                line.push_str(&" ".repeat(GAP));
            }
            match column {
                Column::Number => line.push_str(&format!("{cell:>width$}")),
                Column::Name | Column::Mark => line.push_str(&format!("{:<width$}", middle_cut(cell, width))),
                Column::Path => line.push_str(&format!("{:<width$}", path.unwrap_or(cell))),
            }
        }
        line
    }

    /// Natural widths; when they do not fit, the widest names give way first.
    fn widths(&self, limit: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.columns.len()).map(|c| self.natural(c)).collect();
        let least: Vec<usize> = (0..self.columns.len()).map(|c| self.least(c)).collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(limit);
        while excess > 0 {
            let cut = |c: &usize| matches!(self.columns[*c], Column::Name | Column::Path);
            let names = (0..widths.len()).filter(cut);
            match names.filter(|&c| widths[c] > least[c]).max_by_key(|&c| widths[c]) {
                Some(c) => widths[c] -= 1,
                None => break,
            }
            excess -= 1;
        }
        widths
    }

    /// How far a column may be cut.
    fn least(&self, column: usize) -> usize {
        if self.columns[column] != Column::Path {
            return NARROWEST;
        }
        let paths = self.rows.iter().filter_map(|(_, cells)| cells.get(column));
        paths.map(|p| shortest(p).chars().count()).max().unwrap_or(0).clamp(NARROWEST, MOST_KEPT)
    }

    fn natural(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|(_, cells)| cells.get(column));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    }
}

/// Cuts a name to `width` characters, `…` standing for its middle.
pub(crate) fn middle_cut(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let mut out: String = name.chars().take(head).collect();
    out.push('…');
    out.extend(name.chars().skip(length - tail));
    out
}

/// A path cut as far as it still tells who calls whom: `… > caller > function`.
fn shortest(path: &str) -> String {
    let frames: Vec<&str> = path.split(SEPARATOR).collect();
    match frames.len() {
        0..=2 => path.to_owned(),
        n => format!("…{SEPARATOR}{}", frames[n - 2..].join(SEPARATOR)),
    }
}

/// Cuts a call path to `width` characters: the innermost frames stay, as far as they fit, and the outermost one if
/// it leaves room for two of them; they tell more than those in between.
pub(crate) fn path_cut(path: &str, width: usize) -> String {
    if path.chars().count() <= width {
        return path.to_owned();
    }
    let frames: Vec<&str> = path.split(SEPARATOR).collect();
    let shortened = |kept: usize| {
        let tail = frames[frames.len() - kept..].join(SEPARATOR);
        format!("{}{SEPARATOR}…{SEPARATOR}{tail}", frames[0])
    };
    let innermost = |kept: usize| format!("…{SEPARATOR}{}", frames[frames.len() - kept..].join(SEPARATOR));
    // `[truncated]` must be seen, whatever else is.
    let fewest = if frames[0].starts_with('[') { 1 } else { 2 };
    let with_outermost = (fewest..frames.len().saturating_sub(1)).rev().map(shortened);
    let without = (1..frames.len()).rev().map(innermost);
    let fitting = with_outermost.chain(without).find(|s| s.chars().count() <= width);
    fitting.unwrap_or_else(|| middle_cut(frames[frames.len() - 1], width))
}

/// Cuts call paths to `width` characters so that different ones stay different where they can: of those that would look the same,
/// the innermost frame stays that tells one from the others.
fn paths_cut(paths: &[&str], width: usize) -> Vec<String> {
    let mut cut: Vec<String> = paths.iter().map(|p| path_cut(p, width)).collect();
    let frames = |i: usize| {
        let mut frames: Vec<&str> = paths[i].split(SEPARATOR).collect();
        frames.reverse();
        frames
    };
    let mut alike: FxHashMap<&str, Vec<(usize, Vec<&str>)>> = FxHashMap::default();
    for (i, text) in cut.iter().enumerate() {
        alike.entry(text).or_default().push((i, frames(i)));
    }
    let mut work: Vec<_> = alike.into_values().filter(|same| same.len() > 1).collect();
    while let Some(same) = work.pop() {
        let Some(depth) = differing(&same) else { continue };
        let mut parts: FxHashMap<Option<&str>, Vec<(usize, Vec<&str>)>> = FxHashMap::default();
        for (i, frames) in same {
            if let Some(telling) = cut_around(&frames, depth, width) {
                cut[i] = telling;
            }
            parts.entry(frames.get(depth).copied()).or_default().push((i, frames));
        }
        work.extend(parts.into_values().filter(|part| part.len() > 1));
    }
    cut
}

/// How many frames are within the innermost one in which paths (innermost frame first) differ.
fn differing(paths: &[(usize, Vec<&str>)]) -> Option<usize> {
    let deepest = paths.iter().map(|(_, frames)| frames.len()).max()?;
    (0..deepest).find(|&depth| paths.iter().any(|(_, frames)| frames.get(depth) != paths[0].1.get(depth)))
}

/// `… > frame > … > function`: a path (innermost frame first) with the frame that has `depth` frames within it, and the innermost
/// ones as far as they fit.
fn cut_around(frames: &[&str], depth: usize, width: usize) -> Option<String> {
    let frame = frames.get(depth)?;
    let outer = if depth + 1 == frames.len() { String::new() } else { format!("…{SEPARATOR}") };
    let of = |kept: usize| {
        let tail: Vec<&str> = frames[..kept].iter().rev().copied().collect();
        format!("{outer}{frame}{SEPARATOR}…{SEPARATOR}{}", tail.join(SEPARATOR))
    };
    (1..depth).rev().map(of).find(|s| s.chars().count() <= width)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ["… > eval > … > flush > write", "… > fill > … > flush > write", "… > read > … > flush > write"]
        );
        let other = "main > write";
        assert_eq!(paths_cut(&[paths[0], other], 34), [path_cut(paths[0], 34), other.to_owned()]);
        assert_eq!(paths_cut(&[paths[0], paths[0]], 34)[1], path_cut(paths[0], 34), "the same path twice");
        assert_eq!(paths_cut(&paths, 12), [path_cut(paths[0], 12), path_cut(paths[1], 12)], "no room for it");
    }

    #[test]
    fn names_cannot_break_a_line() {
        let mut table = Table::new(vec![Column::Name]);
        table.row(Tone::Plain, vec!["new\nline\t\u{1b}[31m".into()]);
        assert_eq!(table.render(Style::Plain, 80), "new\u{fffd}line\u{fffd}\u{fffd}[31m\n");
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(middle_cut("std::vector<int>::push_back", 15), "std::ve…sh_back");
        assert_eq!(middle_cut("short", 15), "short");
        assert_eq!(middle_cut("ünïcödé", 3), "ü…é");
        assert_eq!(middle_cut("abc", 0), "…");
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

    #[test]
    fn the_last_two_frames_of_a_path_are_whole_whatever_the_width() {
        let mut t = Table::new(vec![Column::Number, Column::Path]);
        t.row(Tone::Plain, vec!["1".repeat(60), "Py_BytesMain > Py_RunMain > collect+0x21c > __memcpy_avx512".into()]);
        let text = t.render(Style::Plain, 70);
        assert_eq!(text, format!("{}  … > collect+0x21c > __memcpy_avx512\n", "1".repeat(60)));
    }

    #[test]
    fn the_widest_name_gives_way_first_and_numbers_never_do() {
        let mut t = Table::new(vec![Column::Number, Column::Name, Column::Name]);
        t.row(Tone::Plain, vec!["123,456".into(), "a".repeat(40), "b".repeat(16)]);
        let text = t.render(Style::Plain, 50);
        assert_eq!(text.trim_end().chars().count(), 50, "{text}");
        assert!(text.contains("123,456") && text.contains(&"b".repeat(16)), "{text}");
        let narrow = t.render(Style::Plain, 10);
        assert!(narrow.starts_with("123,456"), "{narrow}");
    }
}
