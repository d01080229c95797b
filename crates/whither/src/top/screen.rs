//! What `whither top` shows, as a value: keys change it, answers fill it, and it draws itself on any
//! ratatui frame. It knows neither the terminal nor the sampler.

use crate::units::show_count;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState, Wrap};
use whither_cycles::By;
use whither_cycles::results::{Listing, ListingRow, Provenance};

/// Groupings by their keys.
const VIEWS: [(char, By); 7] = [
    ('p', By::Proc),
    ('i', By::Image),
    ('c', By::Command),
    ('o', By::Process),
    ('g', By::Cgroup),
    ('l', By::Line),
    ('n', By::Insn),
];

/// What to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing changed that needs a new answer.
    Stay,
    /// Ask again: another grouping or another event first.
    Ask,
    /// Leave.
    Quit,
}

/// The screen.
pub(super) struct Screen {
    by: By,
    /// Event column that sorts.
    column: usize,
    paused: bool,
    listing: Listing,
    /// Why there is no listing, when there is none.
    message: String,
    table: TableState,
}

impl Screen {
    /// Procedures, the first event first, nothing seen yet.
    pub(super) fn new() -> Self {
        Self {
            by: By::Proc,
            column: 0,
            paused: false,
            listing: Listing::default(),
            message: "waiting for the first samples".into(),
            table: TableState::default(),
        }
    }

    /// Grouping in force.
    pub(super) fn by(&self) -> By {
        self.by
    }

    /// Column that sorts.
    pub(super) fn column(&self) -> usize {
        self.column
    }

    /// Whether new samples are held back.
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Shows an answer.
    pub(super) fn show(&mut self, listing: Listing) {
        self.listing = listing;
        self.message.clear();
    }

    /// Shows why there is no answer; the last one stays on the screen.
    pub(super) fn explain(&mut self, message: String) {
        self.message = message;
    }

    /// Obeys a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Step {
        // A terminal sends control characters for more than keys (a NUL reads as Ctrl-Space).
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Step::Quit } else { Step::Stay };
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => Step::Quit,
            KeyCode::Char(' ') => {
                self.paused = !self.paused;
                Step::Stay
            }
            KeyCode::Char('s') | KeyCode::Right => self.sort_by_next(),
            KeyCode::Tab => self.turn_to(VIEWS[(self.view() + 1) % VIEWS.len()].1),
            KeyCode::Char(c) => VIEWS.iter().find(|v| v.0 == c).map_or(Step::Stay, |v| self.turn_to(v.1)),
            KeyCode::Down => self.scroll(1),
            KeyCode::Up => self.scroll(-1),
            KeyCode::PageDown => self.scroll(20),
            KeyCode::PageUp => self.scroll(-20),
            _ => Step::Stay,
        }
    }

    fn view(&self) -> usize {
        VIEWS.iter().position(|v| v.1 == self.by).unwrap_or(0)
    }

    fn turn_to(&mut self, by: By) -> Step {
        self.by = by;
        self.table = TableState::default();
        Step::Ask
    }

    fn sort_by_next(&mut self) -> Step {
        let events = self.listing.provenance.events.len().max(1);
        self.column = (self.column + 1) % events;
        Step::Ask
    }

    fn scroll(&mut self, by: i32) -> Step {
        let last = self.listing.rows.len().saturating_sub(1);
        let now = self.table.selected().unwrap_or(0);
        let to = now.saturating_add_signed(isize::try_from(by).unwrap_or(0)).min(last);
        self.table.select(Some(to));
        Step::Stay
    }

    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let keys = self.foot();
        let lines = if keys.len() > usize::from(frame.area().width) { 2 } else { 1 };
        let areas = Layout::vertical([Constraint::Length(4), Constraint::Min(3), Constraint::Length(lines)]);
        let [head, body, foot] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        self.draw_table(frame, body);
        let keys = Paragraph::new(keys).wrap(Wrap { trim: true }).style(Style::new().add_modifier(Modifier::DIM));
        frame.render_widget(keys, foot);
    }

    fn head(&self) -> Vec<Line<'static>> {
        let p = &self.listing.provenance;
        let state = if self.paused { "PAUSED  " } else { "" };
        let notes = p.notes.first().cloned().unwrap_or_default();
        let word = if self.message.is_empty() { notes } else { self.message.clone() };
        vec![
            Line::from(vec![Span::styled(state, Style::new().fg(Color::Yellow)), Span::raw(totals(p))]),
            Line::raw(losses(p)),
            Line::styled(word, Style::new().add_modifier(Modifier::DIM)),
            Line::default(),
        ]
    }

    fn foot(&self) -> String {
        let views: Vec<String> = VIEWS.iter().map(|(key, by)| format!("{key} {}", by.name())).collect();
        format!("q quit  space pause  s next event  arrows scroll   {}", views.join("  "))
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let events = &self.listing.provenance.events;
        let mut titles: Vec<String> = events.iter().flat_map(|e| [e.name.clone(), "%".into()]).collect();
        titles.push("+-".into());
        titles.extend(self.listing.by.iter().cloned());
        let mut widths: Vec<Constraint> =
            events.iter().flat_map(|_| [Constraint::Length(11), Constraint::Length(6)]).collect();
        widths.push(Constraint::Length(5));
        widths.extend(self.listing.by.iter().map(|_| Constraint::Fill(1)));
        let rows = self.listing.rows.iter().map(row);
        let table = Table::new(rows, widths)
            .header(Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, area, &mut self.table);
    }
}

/// What was sampled, how fast.
fn totals(p: &Provenance) -> String {
    let events: Vec<String> = p.events.iter().map(|e| format!("{} {}", e.name, show_count(e.samples))).collect();
    format!("{}   {:.0} Hz per CPU   {:.0} s", events.join(", "), p.rate_hz, p.seconds)
}

/// Losses and cost: what makes the figures believable.
fn losses(p: &Provenance) -> String {
    let cost = p.own_cost.map_or("not measured yet".into(), |share| format!("{:.2} %", 100.0 * share));
    let unknown = 100.0 * p.unknown_share;
    let (lost, skipped) = (show_count(p.dropped), show_count(p.skipped));
    format!("lost {lost}   skipped {skipped}   unknown {unknown:.2} %   own cost {cost}")
}

fn row(row: &ListingRow) -> Row<'static> {
    let share = row.cells.first().map_or(0.0, |c| c.share);
    let mut cells: Vec<Cell<'static>> = Vec::new();
    for cell in &row.cells {
        cells.push(Cell::from(Line::from(show_count(cell.samples)).right_aligned()));
        cells.push(Cell::from(Line::from(format!("{:.2}", 100.0 * cell.share)).right_aligned()));
    }
    cells.push(Cell::from(Line::from(format!("{:.2}", 100.0 * row.error)).right_aligned()));
    cells.extend(row.labels.iter().map(|label| Cell::from(label.clone())));
    Row::new(cells).style(heat(share))
}

fn heat(share: f64) -> Style {
    match share {
        s if s >= 0.1 => Style::new().fg(Color::Red),
        s if s >= 0.02 => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use whither_cycles::results::{Cell as Figure, EventTotals};

    fn listing(names: &[(&str, f64)]) -> Listing {
        let event =
            |name: &str| EventTotals { name: name.into(), unit: "ns".into(), samples: 1000, weight: 1000, idle: 0 };
        let rows = names.iter().map(|(name, share)| ListingRow {
            labels: vec![(*name).to_owned()],
            cells: vec![Figure { samples: (share * 1000.0) as u64, weight: 0, share: *share }; 2],
            error: 0.011,
            ..ListingRow::default()
        });
        Listing {
            provenance: Provenance {
                events: vec![event("cycles"), event("instructions")],
                rate_hz: 745.0,
                own_cost: Some(0.0123),
                dropped: 7,
                ..Provenance::default()
            },
            by: vec!["proc".into()],
            rows: rows.collect(),
            ..Listing::default()
        }
    }

    fn drawn(screen: &mut Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(110, 12)).expect("a test backend always opens");
        terminal.draw(|frame| screen.draw(frame)).expect("it draws");
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    fn press(screen: &mut Screen, code: KeyCode) -> Step {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn the_head_tells_rate_loss_and_cost() {
        let mut screen = Screen::new();
        assert!(drawn(&mut screen).contains("waiting for the first samples"));
        screen.show(listing(&[("work", 0.75), ("idle_poll", 0.25)]));
        let shown = drawn(&mut screen);
        for text in ["745 Hz per CPU", "lost 7", "own cost 1.23 %", "work", "75.00", "q quit"] {
            assert!(shown.contains(text), "{text} in\n{shown}");
        }
    }

    #[test]
    fn keys_turn_sort_pause_and_quit() {
        let mut screen = Screen::new();
        screen.show(listing(&[("work", 1.0)]));
        assert_eq!((press(&mut screen, KeyCode::Char('i')), screen.by()), (Step::Ask, By::Image));
        assert_eq!((press(&mut screen, KeyCode::Tab), screen.by()), (Step::Ask, By::Command));
        assert_eq!((press(&mut screen, KeyCode::Char('s')), screen.column()), (Step::Ask, 1));
        assert_eq!((press(&mut screen, KeyCode::Char('s')), screen.column()), (Step::Ask, 0));
        assert_eq!((press(&mut screen, KeyCode::Char(' ')), screen.is_paused()), (Step::Stay, true));
        assert!(drawn(&mut screen).contains("PAUSED"));
        assert_eq!(screen.key(KeyEvent::new(KeyCode::Char(' '), KeyModifiers::CONTROL)), Step::Stay);
        assert!(screen.is_paused());
        assert_eq!(press(&mut screen, KeyCode::Char('q')), Step::Quit);
        assert_eq!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Step::Quit);
    }

    #[test]
    fn scrolling_stays_within_the_rows() {
        let mut screen = Screen::new();
        screen.show(listing(&[("a", 0.5), ("b", 0.3), ("c", 0.2)]));
        press(&mut screen, KeyCode::PageDown);
        assert_eq!(screen.table.selected(), Some(2));
        press(&mut screen, KeyCode::PageUp);
        assert_eq!(screen.table.selected(), Some(0));
    }

    #[test]
    fn a_narrow_terminal_does_not_panic() {
        let mut screen = Screen::new();
        screen.show(listing(&[("work", 1.0)]));
        for (width, height) in [(1, 1), (10, 3), (300, 2)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test backend always opens");
            terminal.draw(|frame| screen.draw(frame)).expect("it draws");
        }
    }
}
