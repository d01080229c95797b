//! The live screen as a value: keys change it or become wishes, pictures fill it, and it draws itself on
//! any ratatui frame. It knows neither the terminal nor the session.

use super::view::{Histogram, Key, View, ViewRow};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};
use std::collections::HashSet;
use whither_calls::{Group, Known, Metric, Unit};
use whither_report::text::{percent, since, thousands};
use whither_session::calls::Verb;

/// What a key asks for beyond the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    /// Another picture of the same numbers.
    Refresh,
    /// Something of the session.
    Ask(Verb),
    /// Follow the hottest callees of a probe.
    Drill(u32),
    /// Source and call sites of a row.
    Source(Key),
    /// The table into a file.
    Write,
    /// A recording of what was counted.
    Record,
    Quit,
}

/// What lies over the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Over {
    Nothing,
    Help,
    Histogram,
    Progress,
    Text(String),
    /// A pattern being written.
    Input(String),
}

/// The screen.
pub(super) struct Screen {
    /// Quitting leaves the target too.
    leaves: bool,
    metric: Metric,
    group: Group,
    view: View,
    folded: HashSet<Key>,
    /// Row under the cursor, by name: rows move.
    at: Option<Key>,
    over: Over,
    said: String,
    table: TableState,
}

const HELP: &str = "\
c  probe the functions that the selected one calls     C  drill: follow the hottest callee
u  probe the functions that call it                    a  add functions by pattern
d  remove the probe      D  remove all below           Space  switch the probe off and on
Enter  source and call sites                           Left, Right  fold and unfold
m  metric: times, counts, values, as measured            g  group: path, callsite, caller, function
h  histogram of the selected function                  i  calls in progress
z  new epoch: numbers count from here                  w  write the table into a file
r  write a recording (whither calls report)            q  leave
Esc  close what lies over the tree
~ known roughly   < at most   > at least, calls are missing   - not known: the table at the end says why";

impl Screen {
    /// Paths by wall time, nothing seen yet. `leaves`: quitting ends the session.
    pub(super) fn new(leaves: bool) -> Self {
        Self {
            leaves,
            metric: Metric::Wall,
            group: Group::Path,
            view: View::default(),
            folded: HashSet::new(),
            at: None,
            over: Over::Nothing,
            said: String::new(),
            table: TableState::default(),
        }
    }

    pub(super) fn metric(&self) -> &Metric {
        &self.metric
    }

    pub(super) fn group(&self) -> Group {
        self.group
    }

    /// Shows a picture.
    pub(super) fn show(&mut self, view: View) {
        self.view = view;
    }

    /// A sentence in the second line.
    pub(super) fn say(&mut self, text: String) {
        self.said = text;
    }

    /// A text over the tree.
    pub(super) fn explain(&mut self, text: String) {
        self.over = Over::Text(text);
    }

    /// Obeys a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Wish::Quit } else { Wish::Nothing };
        }
        match (&mut self.over, key.code) {
            (Over::Input(text), code) => {
                let mut text = std::mem::take(text);
                match code {
                    KeyCode::Enter => return self.add(text),
                    KeyCode::Esc => {
                        self.over = Over::Nothing;
                        return Wish::Nothing;
                    }
                    KeyCode::Backspace => drop(text.pop()),
                    KeyCode::Char(c) => text.push(c),
                    _ => {}
                }
                self.over = Over::Input(text);
                Wish::Nothing
            }
            (_, KeyCode::Esc) => {
                self.over = Over::Nothing;
                Wish::Nothing
            }
            (_, KeyCode::Char(c)) => self.letter(c),
            (_, code) => self.movement(code),
        }
    }

    fn letter(&mut self, c: char) -> Wish {
        match c {
            'q' => Wish::Quit,
            '?' => self.toggle(Over::Help),
            'h' => self.toggle(Over::Histogram),
            'i' => self.toggle(Over::Progress),
            'a' => self.toggle(Over::Input(String::new())),
            'c' => self.on_point(|point| Wish::Ask(Verb::Callees { point })),
            'C' => self.on_point(Wish::Drill),
            'u' => self.on_point(|point| Wish::Ask(Verb::Callers { point })),
            'd' => self.on_point(|point| Wish::Ask(Verb::Remove { patterns: vec![format!("#{point}")] })),
            'D' => self.remove_below(),
            ' ' => self.switch(),
            'm' => {
                self.metric = after(&self.view.metrics, &self.metric);
                Wish::Refresh
            }
            'g' => {
                // Rows by thread and process are for the final table.
                let groups = [Group::Path, Group::Callsite, Group::Caller, Group::Function];
                self.group = after(&groups, &self.group);
                Wish::Refresh
            }
            'z' => Wish::Ask(Verb::Reset { label: String::new() }),
            'w' => Wish::Write,
            'r' => Wish::Record,
            _ => Wish::Nothing,
        }
    }

    fn movement(&mut self, code: KeyCode) -> Wish {
        match code {
            KeyCode::Down => self.step(1),
            KeyCode::Up => self.step(-1),
            KeyCode::PageDown => self.step(20),
            KeyCode::PageUp => self.step(-20),
            KeyCode::Left => self.fold(true),
            KeyCode::Right => self.fold(false),
            KeyCode::Enter => match self.selected() {
                Some(row) => return Wish::Source(row.key.clone()),
                None => self.said = NO_ROW.into(),
            },
            _ => {}
        }
        Wish::Nothing
    }

    fn add(&mut self, text: String) -> Wish {
        self.over = Over::Nothing;
        match text.trim() {
            "" => Wish::Nothing,
            pattern => Wish::Ask(Verb::Add { patterns: vec![pattern.into()], exclude: Vec::new() }),
        }
    }

    fn toggle(&mut self, over: Over) -> Wish {
        self.over = if self.over == over { Over::Nothing } else { over };
        Wish::Nothing
    }

    fn on_point(&mut self, wish: impl Fn(u32) -> Wish) -> Wish {
        match self.point() {
            Some(point) => wish(point),
            None => {
                self.said = NO_PROBE.into();
                Wish::Nothing
            }
        }
    }

    /// The probe that the selected row means: its own, or the only one below it.
    fn point(&self) -> Option<u32> {
        let row = self.selected()?;
        let below = || {
            let mut all: Vec<u32> =
                self.view.rows.iter().filter(|r| r.key.starts_with(&row.key)).filter_map(|r| r.point).collect();
            all.sort_unstable();
            all.dedup();
            if let [only] = all[..] { Some(only) } else { None }
        };
        row.point.or_else(below)
    }

    fn switch(&mut self) -> Wish {
        let off = self.selected().is_some_and(|row| row.off);
        self.on_point(|point| Wish::Ask(Verb::Switch { patterns: vec![format!("#{point}")], on: off }))
    }

    fn remove_below(&mut self) -> Wish {
        let Some(top) = self.selected().map(|row| row.key.clone()) else {
            self.said = NO_ROW.into();
            return Wish::Nothing;
        };
        let below = self.view.rows.iter().filter(|row| row.key.starts_with(&top));
        let mut patterns: Vec<String> = below.filter_map(|row| row.point).map(|id| format!("#{id}")).collect();
        patterns.sort();
        patterns.dedup();
        if patterns.is_empty() {
            self.said = NO_PROBE.into();
            return Wish::Nothing;
        }
        Wish::Ask(Verb::Remove { patterns })
    }

    fn fold(&mut self, fold: bool) {
        if let Some(key) = self.selected().map(|row| row.key.clone()) {
            if fold {
                self.folded.insert(key);
            } else {
                self.folded.remove(&key);
            }
        }
    }

    /// Rows below no folded one.
    fn rows(&self) -> Vec<&ViewRow> {
        let hidden = |row: &ViewRow| (1..row.key.len()).any(|n| self.folded.contains(&row.key[..n]));
        self.view.rows.iter().filter(|row| !hidden(row)).collect()
    }

    fn position(&self, rows: &[&ViewRow]) -> usize {
        // Callers stand above: nearly all keys mean what is probed.
        let first = || rows.iter().position(|row| row.point.is_some()).unwrap_or(0);
        let Some(at) = &self.at else { return first() };
        let exact = rows.iter().position(|row| row.key == *at);
        // A row that went away leaves the cursor on what is nearest above it.
        let above = || (0..rows.len()).filter(|&i| at.starts_with(&rows[i].key)).max_by_key(|&i| rows[i].key.len());
        exact.or_else(above).unwrap_or(0)
    }

    fn selected(&self) -> Option<&ViewRow> {
        let rows = self.rows();
        let at = self.position(&rows);
        rows.get(at).copied()
    }

    fn step(&mut self, by: isize) {
        let rows = self.rows();
        let to = self.position(&rows).saturating_add_signed(by).min(rows.len().saturating_sub(1));
        self.at = rows.get(to).map(|row| row.key.clone());
    }

    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let areas = Layout::vertical([Constraint::Length(3), Constraint::Min(3), Constraint::Length(1)]);
        let [head, body, foot] = areas.areas(frame.area());
        let dim = Style::new().add_modifier(Modifier::DIM);
        let word = if self.said.is_empty() { &self.view.warning } else { &self.said };
        let lines = vec![Line::raw(self.view.head.clone()), Line::styled(word.clone(), dim), Line::default()];
        frame.render_widget(Paragraph::new(lines), head);
        self.draw_rows(frame, body);
        self.draw_over(frame, body);
        frame.render_widget(Paragraph::new(self.foot()).style(dim), foot);
    }

    fn foot(&self) -> String {
        let leave = if self.leaves { "q detach and quit" } else { "q quit (the session goes on)" };
        format!(
            "{leave}   ? help   c callees  C drill  u callers  a add  d remove   m {}   g {}",
            self.metric.sort(),
            word(&Group::ALL, self.group)
        )
    }

    fn draw_rows(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.rows();
        let total = match self.metric.unit() {
            Unit::Time => "total ms",
            Unit::Calls | Unit::Number => self.metric.head(),
        };
        let titles = ["now %", "calls/s", "% parent", "epoch %", total, "calls", ""];
        let widths = [7, 10, 8, 7, 12, 13].map(Constraint::Length).into_iter().chain([Constraint::Fill(1)]);
        let lines: Vec<Row<'static>> = rows.iter().map(|row| self.line(row)).collect();
        let at = (!rows.is_empty()).then(|| self.position(&rows));
        let header = titles.iter().enumerate().map(|(i, t)| if i < 6 { right(t) } else { Cell::from(*t) });
        let table = Table::new(lines, widths)
            .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        self.table.select(at);
        frame.render_stateful_widget(table, area, &mut self.table);
        if at.is_none() {
            let text = Paragraph::new("\nno call seen yet; a adds functions, ? helps");
            frame.render_widget(text, area);
        }
    }

    fn line(&self, row: &ViewRow) -> Row<'static> {
        let total = match self.metric.unit() {
            Unit::Calls | Unit::Number => thousands(row.total),
            Unit::Time => milliseconds(row),
        };
        let fold = match (row.children, self.folded.contains(&row.key)) {
            (true, true) => "+ ",
            (true, false) => "- ",
            (false, _) => "  ",
        };
        let mark = match (row.point, row.off) {
            (Some(id), true) => format!(" #{id} (off)"),
            (Some(id), false) => format!(" #{id}"),
            _ => String::new(),
        };
        // Its part of the epoch is small for that reason.
        let late = row.after_ns.map_or_else(String::new, |ns| format!(" since {}", since(ns)));
        let name = row.key.last().map_or("", String::as_str);
        let indent = " ".repeat(2 * row.key.len().saturating_sub(1));
        let parent = row.of_parent.map_or_else(String::new, percent);
        // Callers that are not probed are not counted: a 0 would say that they are.
        let counted = |text: String| if row.point.is_none() && row.calls == 0 { String::new() } else { text };
        let (rate, calls) = (counted(rate(row.rate)), counted(thousands(row.calls)));
        // A part of the whole has no bound: what the time is at most is a time.
        let cells = [percent(row.now), rate, parent, row.known.beside(percent(row.epoch)), total, calls];
        let cells =
            cells.iter().map(|text| right(text)).chain([Cell::from(format!("{indent}{fold}{name}{mark}{late}"))]);
        Row::new(cells).style(heat(row.now, row.point.is_some()))
    }

    fn draw_over(&self, frame: &mut Frame<'_>, area: Rect) {
        let (title, text) = match &self.over {
            Over::Nothing => return,
            Over::Help => ("keys", HELP.to_owned()),
            Over::Histogram => ("calls by duration", self.histogram(usize::from(area.width))),
            Over::Progress => ("calls in progress", self.progress()),
            Over::Text(text) => ("", text.clone()),
            Over::Input(text) => ("add functions: a regular expression over the whole name", format!("{text}_")),
        };
        let lines = u16::try_from(text.lines().count()).unwrap_or(u16::MAX).saturating_add(2);
        let height = lines.clamp(3, area.height.max(3)).min(area.height);
        let place = Rect { y: area.y + area.height - height, height, ..area };
        frame.render_widget(Clear, place);
        frame.render_widget(Paragraph::new(text).block(Block::bordered().title(title)), place);
    }

    fn histogram(&self, width: usize) -> String {
        let Some(point) = self.point() else { return NO_PROBE.into() };
        match self.view.histograms.iter().find(|h| h.point == point) {
            Some(h) => bars(h, width),
            None => "no histogram was asked for: start the session with -m hist".into(),
        }
    }

    fn progress(&self) -> String {
        if self.view.progress.is_empty() {
            return "no probed function is active".into();
        }
        let line = |p: &super::view::ProgressLine| {
            format!("{:>12.3} ms  thread {:<8} {}", p.elapsed_ns as f64 / 1e6, p.tid, p.path)
        };
        self.view.progress.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

const NO_ROW: &str = "no row is selected";
const NO_PROBE: &str = "this row is no probed function (those have a # number)";

/// The value behind one, the first behind the last.
fn after<T: Clone + PartialEq>(all: &[T], one: &T) -> T {
    let at = all.iter().position(|x| x == one).map_or(0, |i| (i + 1) % all.len());
    all.get(at).unwrap_or(one).clone()
}

fn word<T: Copy + PartialEq>(all: &[(&'static str, T)], value: T) -> &'static str {
    all.iter().find(|(_, v)| *v == value).map_or("", |(word, _)| word)
}

fn right(text: &str) -> Cell<'static> {
    Cell::from(Line::from(text.to_owned()).right_aligned())
}

fn rate(per_second: f64) -> String {
    if per_second < 100.0 { format!("{per_second:.1}") } else { thousands(per_second.round() as u64) }
}

/// The total of a row in milliseconds, with the sign that tables have beside it.
fn milliseconds(row: &ViewRow) -> String {
    let ns = if let Known::AtMost(most) = row.known { most } else { row.total };
    let text = format!("{:.3}", ns as f64 / 1e6);
    if let Known::AtMost(_) = row.known { format!("<{text}") } else { row.known.beside(text) }
}

fn heat(share: f64, probed: bool) -> Style {
    match share {
        s if s >= 0.25 => Style::new().fg(Color::Red),
        s if s >= 0.05 => Style::new().fg(Color::Yellow),
        _ if probed => Style::new(),
        _ => Style::new().add_modifier(Modifier::DIM),
    }
}

/// Bars of the bins that hold calls.
fn bars(h: &Histogram, width: usize) -> String {
    let first = h.bins.iter().position(|n| *n > 0).unwrap_or(0);
    let last = h.bins.iter().rposition(|n| *n > 0).unwrap_or(0);
    let most = h.bins.iter().max().copied().unwrap_or(0).max(1);
    let room = width.saturating_sub(36).max(1) as f64;
    let bar = |n: u64| "#".repeat((n as f64 / most as f64 * room).ceil() as usize);
    let line = |(i, n): (usize, &u64)| format!("{:>10}  {:>14}  {}", at_least(i), thousands(*n), bar(*n));
    let bins = h.bins.iter().enumerate().take(last + 1).skip(first).map(line);
    std::iter::once(h.name.clone()).chain(bins).collect::<Vec<_>>().join("\n")
}

/// Lower end of a bin.
fn at_least(bin: usize) -> String {
    let ns = 1_u64.checked_shl(u32::try_from(bin).unwrap_or(64)).unwrap_or(u64::MAX) as f64;
    match ns {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.1} s", n / 1e9),
    }
}

#[cfg(test)]
mod tests;
