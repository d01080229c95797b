//! Plain tables: numbers right, names left, names cut in the middle when the line is too short
//! (both ends of a C++ name or a path tell more than its middle).

use super::Style;
use super::paths::{SEPARATOR, paths_cut};

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

#[cfg(test)]
mod tests {
    use super::*;

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
