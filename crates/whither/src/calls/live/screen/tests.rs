//! The screen with known pictures: what is drawn, and what each key asks for.

use super::super::view::ProgressLine;
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn row(key: &[&str], point: Option<u32>, now: f64, total_ms: u64, children: bool) -> ViewRow {
    ViewRow {
        key: key.iter().map(|k| (*k).to_owned()).collect(),
        point,
        off: false,
        rate: 1234.5,
        now,
        of_parent: (key.len() > 1).then_some(0.5),
        epoch: now / 2.0,
        total: total_ms * 1_000_000,
        known: Known::Well,
        calls: 4321,
        children,
        after_ns: None,
    }
}

fn picture() -> View {
    View {
        head: "app; 2 functions (jmp5 2), 8,642 calls, lost 0, own cost 0.01 % of CPU".into(),
        warning: String::new(),
        rows: vec![
            row(&["main"], None, 0.9, 1800, true),
            row(&["main", "solve"], Some(1), 0.9, 1800, true),
            row(&["main", "solve", "exchange"], Some(2), 0.6, 1200, false),
            row(&["main", "init"], Some(3), 0.0, 20, false),
        ],
        metrics: vec![Metric::Wall, Metric::Cpu, Metric::Count],
        progress: vec![ProgressLine { tid: 77, elapsed_ns: 2_500_000, path: "main > solve > exchange".into() }],
        histograms: vec![Histogram { point: 1, name: "solve".into(), bins: vec![0, 0, 4, 2] }],
    }
}

fn screen() -> Screen {
    let mut screen = Screen::new(true);
    screen.show(picture());
    screen
}

fn drawn(screen: &mut Screen) -> String {
    let mut terminal = Terminal::new(TestBackend::new(110, 14)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[test]
fn times_have_the_signs_of_the_tables() {
    let mut screen = screen();
    let mut view = picture();
    let known = [Known::Roughly, Known::AtMost(2_500_000), Known::AtLeast, Known::Not];
    view.rows.iter_mut().zip(known).for_each(|(row, known)| row.known = known);
    screen.show(view);
    let text = drawn(&mut screen);
    assert!(text.contains("~1800.000") && text.contains("<2.500") && text.contains(">1200.000"), "{text}");
    assert!(text.contains("~45.00") && text.contains(">30.00"), "{text}");
    assert!(!text.contains("20.000"), "a time that is not known is not shown: {text}");
}

fn press(screen: &mut Screen, code: KeyCode) -> Wish {
    screen.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn letter(screen: &mut Screen, c: char) -> Wish {
    press(screen, KeyCode::Char(c))
}

fn remove(ids: &[&str]) -> Wish {
    Wish::Ask(Verb::Remove { patterns: ids.iter().map(|i| (*i).to_owned()).collect() })
}

#[test]
fn the_tree_as_a_golden_picture() {
    let wanted = "\
app; 2 functions (jmp5 2), 8,642 calls, lost 0, own cost 0.01 % of CPU


  now %    calls/s % parent epoch %     total ms         calls
  90.00      1,235            45.00     1800.000         4,321 - main
  90.00      1,235    50.00   45.00     1800.000         4,321   - solve #1
  60.00      1,235    50.00   30.00     1200.000         4,321       exchange #2
   0.00      1,235    50.00    0.00       20.000         4,321     init #3





q detach and quit   ? help   c callees  C drill  u callers  a add  d remove   m wall   g path";
    assert_eq!(drawn(&mut screen()), wanted);
}

#[test]
fn keys_on_a_probe_become_verbs_of_the_session() {
    let mut s = screen();
    assert_eq!(letter(&mut s, 'c'), Wish::Ask(Verb::Callees { point: 1 }), "a probe is chosen from the start");
    press(&mut s, KeyCode::Up);
    assert_eq!(letter(&mut s, 'c'), Wish::Nothing, "main is no probe, and several are below it");
    assert!(drawn(&mut s).contains("this row is no probed function"));
    press(&mut s, KeyCode::Down);
    assert_eq!(letter(&mut s, 'c'), Wish::Ask(Verb::Callees { point: 1 }));
    assert_eq!(letter(&mut s, 'C'), Wish::Drill(1));
    assert_eq!(letter(&mut s, 'u'), Wish::Ask(Verb::Callers { point: 1 }));
    assert_eq!(letter(&mut s, 'd'), remove(&["#1"]));
    assert_eq!(letter(&mut s, 'D'), remove(&["#1", "#2"]));
    assert_eq!(letter(&mut s, ' '), Wish::Ask(Verb::Switch { patterns: vec!["#1".into()], on: false }));
    s.view.rows[1].off = true;
    assert_eq!(letter(&mut s, ' '), Wish::Ask(Verb::Switch { patterns: vec!["#1".into()], on: true }));
    assert!(drawn(&mut s).contains("solve #1 (off)"));
    s.view.rows[1].after_ns = Some(3_230_000_000);
    assert!(drawn(&mut s).contains("solve #1 (off) since +3.2 s"));
    let key = vec!["main".to_owned(), "solve".to_owned()];
    assert_eq!(press(&mut s, KeyCode::Enter), Wish::Source(key));
    assert_eq!(letter(&mut s, 'z'), Wish::Ask(Verb::Reset { label: String::new() }));
    assert_eq!(letter(&mut s, 'w'), Wish::Write);
    assert_eq!(letter(&mut s, 'r'), Wish::Record);
    assert_eq!(letter(&mut s, 'q'), Wish::Quit);
}

#[test]
fn a_caller_of_one_probe_means_that_probe_and_is_not_counted_itself() {
    let mut s = screen();
    s.view.rows.truncate(2);
    (s.view.rows[0].calls, s.view.rows[0].rate) = (0, 0.0);
    press(&mut s, KeyCode::Up);
    assert_eq!(letter(&mut s, 'c'), Wish::Ask(Verb::Callees { point: 1 }));
    let shown = drawn(&mut s);
    let main = shown.lines().find(|l| l.ends_with("- main")).unwrap();
    assert!(!main.contains(" 0 ") && !main.contains("0.0 "), "{shown}");
}

#[test]
fn a_pattern_is_written_in_place_and_letters_are_letters_there() {
    let mut s = screen();
    letter(&mut s, 'a');
    for c in "qz.*x".chars() {
        assert_eq!(letter(&mut s, c), Wish::Nothing);
    }
    press(&mut s, KeyCode::Backspace);
    assert!(drawn(&mut s).contains("qz.*_"), "{}", drawn(&mut s));
    let verb = Verb::Add { patterns: vec!["qz.*".into()], exclude: vec![] };
    assert_eq!(press(&mut s, KeyCode::Enter), Wish::Ask(verb));
    letter(&mut s, 'a');
    letter(&mut s, 'q');
    assert_eq!(press(&mut s, KeyCode::Esc), Wish::Nothing);
    assert!(!drawn(&mut s).contains("add functions"));
}

#[test]
fn folding_hides_what_is_below_and_the_cursor_stays_on_its_row() {
    let mut s = screen();
    press(&mut s, KeyCode::Left);
    assert!(!drawn(&mut s).contains("exchange"));
    assert!(drawn(&mut s).contains("+ solve"));
    press(&mut s, KeyCode::Right);
    press(&mut s, KeyCode::Down);
    assert_eq!(s.selected().unwrap().point, Some(2));
    // Rows change their places, the selection does not.
    s.view.rows.swap(0, 3);
    assert_eq!(s.selected().unwrap().point, Some(2));
    s.view.rows.retain(|r| r.point != Some(2));
    assert_eq!(s.selected().unwrap().point, Some(1), "the nearest above");
    press(&mut s, KeyCode::PageDown);
    press(&mut s, KeyCode::PageUp);
    assert_eq!(s.position(&s.rows()), 0);
}

#[test]
fn panes_show_histogram_progress_and_help() {
    let mut s = screen();
    letter(&mut s, 'i');
    assert!(drawn(&mut s).contains("2.500 ms  thread 77       main > solve > exchange"));
    letter(&mut s, 'h');
    press(&mut s, KeyCode::Up);
    assert!(drawn(&mut s).contains("no probed function"));
    press(&mut s, KeyCode::Down);
    let shown = drawn(&mut s);
    assert!(shown.contains("4 ns") && shown.contains("8 ns") && shown.contains('#'), "{shown}");
    letter(&mut s, '?');
    assert!(drawn(&mut s).contains("follow the hottest callee"));
    press(&mut s, KeyCode::Esc);
    assert!(drawn(&mut s).contains("exchange"));
}

#[test]
fn metric_and_group_turn() {
    let mut s = screen();
    assert_eq!((letter(&mut s, 'm'), s.metric()), (Wish::Refresh, &Metric::Cpu));
    assert_eq!((letter(&mut s, 'g'), s.group()), (Wish::Refresh, Group::Callsite));
    assert!(drawn(&mut s).contains("m cpu   g callsite"));
    (0..2).for_each(|_| drop(letter(&mut s, 'm')));
    assert_eq!(s.metric(), &Metric::Wall, "off needs both times");
    (0..3).for_each(|_| drop(letter(&mut s, 'g')));
    assert_eq!(s.group(), Group::Path);
}

#[test]
fn nothing_to_show_and_no_room_are_no_reason_to_fail() {
    let mut empty = Screen::new(false);
    for c in "cCudD hiz?".chars() {
        letter(&mut empty, c);
    }
    press(&mut empty, KeyCode::Down);
    press(&mut empty, KeyCode::Enter);
    assert!(drawn(&mut empty).contains("the session goes on"));
    let mut full = screen();
    letter(&mut full, '?');
    for (width, height) in [(1, 1), (10, 3), (300, 2), (20, 5)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| full.draw(frame)).unwrap();
    }
}
