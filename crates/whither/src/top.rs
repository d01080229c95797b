//! `whither top`: where the time goes, live. This file owns the terminal and the loop; what is shown
//! is in `top/screen.rs`, as a value that tests can draw. The terminal is put back on every way out,
//! a panic included.

mod screen;

use crate::cli::{Common, TopArgs};
use crate::failure::{Ending, Usage};
use crate::{collect, signals};
use anyhow::Context;
use crossterm::event::{self, Event, KeyEventKind};
use ratatui::DefaultTerminal;
use screen::{Screen, Step};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use whither_cycles::{Query, listing};
use whither_session::{Live, RecordOptions, StopFlag};

/// How long a key may wait to be seen.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// `whither top`.
pub(crate) fn top(args: TopArgs, common: Common) -> anyhow::Result<Ending> {
    if !io::stdout().is_terminal() {
        return Err(Usage("top draws on a terminal; for a file or a pipe, use `whither record -d 5s` and `whither prof`".into()).into());
    }
    let (interval, duration) = (args.interval, args.duration);
    let options = collect::live_options(args.pid, args.sampling, args.budget)?;
    let stop = signals::stop_flag()?;
    let live = Live::start(&options)?;
    // `init` also installs a panic hook that restores the terminal first.
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let done = watch(&mut terminal, &live, &options, interval, duration, &stop);
    ratatui::restore();
    live.stop();
    done?;
    Ok(Ending::Done)
}

/// One round: new samples when it is time, keys as they come, a picture when anything changed.
fn watch(
    terminal: &mut DefaultTerminal,
    live: &mut Live,
    lasting: Lasting,
    stop: &StopFlag,
) -> anyhow::Result<()> {
    let mut screen = Screen::new();
    let mut view = View::default();
    let (start, mut asked) = (Instant::now(), None::<Instant>);
    terminal.draw(|frame| screen.draw(frame))?;
    while !stop.is_set() && lasting.duration.is_none_or(|d| start.elapsed() < d) {
        if !screen.is_paused() && asked.is_none_or(|at| at.elapsed() >= lasting.interval) {
            view = View::of(live.poll()?);
            asked = Some(Instant::now());
            view.fill(&mut screen);
        }
        if event::poll(KEY_WAIT).context("cannot read the keyboard")? {
            match react(&mut screen, event::read().context("cannot read the keyboard")?) {
                Step::Quit => return Ok(()),
                Step::Ask => view.fill(&mut screen),
                Step::Stay => {}
            }
        }
        terminal.draw(|frame| screen.draw(frame))?;
    }
    Ok(())
}

fn react(screen: &mut Screen, event: Event) -> Step {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => screen.key(key),
        _ => Step::Stay,
    }
}
