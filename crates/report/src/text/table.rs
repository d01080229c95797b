//! Plain tables: numbers right, names left, names cut in the middle when the line is too short
//! (both ends of a C++ name or a path tell more than its middle).

use super::Style;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Right-aligned, never cut.
    Number,
    /// Left-aligned, cut in the middle.
    Name,
    /// Left-aligned, never cut.
    Mark,
    /// Left-aligned call path: cut between its first frame and the innermost ones that fit.
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

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, tone: Tone, cells: Vec<String>) {
        self.rows.push((tone, cells));
    }

    /// The lines, at most `width` characters each where names can be cut that far.
    pub(crate) fn render(&self, style: Style, width: usize) -> String {
        let widths = self.widths(width);
        let mut out = String::new();
        for (tone, cells) in &self.rows {
            let line = self.line(cells, &widths);
            out.push_str(&style.paint(*tone, line.trim_end()));
            out.push('\n');
        }
        out
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, column), &width) in cells.iter().zip(&self.columns).zip(widths) {
            if !line.is_empty() {
                line.push_str(&" ".repeat(GAP));
            }
            match column {
                Column::Number => line.push_str(&format!("{cell:>width$}")),
                Column::Name | Column::Mark => line.push_str(&format!("{:<width$}", middle_cut(cell, width))),
                Column::Path => line.push_str(&format!("{:<width$}", path_cut(cell, width))),
            }
        }
        line
    }

    /// Natural widths; when they do not fit, the widest names give way first.
    fn widths(&self, limit: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.columns.len()).map(|c| self.natural(c)).collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(limit);
        while excess > 0 {
            let cut = |c: &usize| matches!(self.columns[*c], Column::Name | Column::Path);
            let names = (0..widths.len()).filter(cut);
            match names.max_by_key(|&c| widths[c]) {
                Some(c) if widths[c] > NARROWEST => widths[c] -= 1,
                _ => break,
            }
            excess -= 1;
        }
        widths
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

/// Cuts a call path to `width` characters: the outermost frame stays, and the innermost ones as far as they
/// fit; they tell more than those in between.
pub(crate) fn path_cut(path: &str, width: usize) -> String {
    const SEPARATOR: &str = " > ";
    if path.chars().count() <= width {
        return path.to_owned();
    }
    let frames: Vec<&str> = path.split(SEPARATOR).collect();
    let shortened = |kept: usize| {
        let tail = frames[frames.len() - kept..].join(SEPARATOR);
        format!("{}{SEPARATOR}…{SEPARATOR}{tail}", frames[0])
    };
    let fitting = (1..frames.len().saturating_sub(1)).rev().map(shortened).find(|s| s.chars().count() <= width);
    fitting.unwrap_or_else(|| middle_cut(path, width))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(path_cut(path, 20), "main > … > MPI_Wait");
        assert_eq!(path_cut(path, 9), "main…Wait");
        assert_eq!(path_cut("abcdef > ghijkl", 7), "abc…jkl");
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
