//! `whither top`: where the time goes, live. This file owns the terminal and the loop; what is shown
//! is in `top/screen.rs`, as a value that tests can draw. The terminal is put back on every way out,
//! a panic included.

mod screen;

use crate::cli::TopArgs;
use crate::failure::{Ending, Usage};
use crate::keys::{self, Keys, Typed};
use crate::{collect, signals};
use anyhow::Context;
use crossterm::event::{Event, KeyEventKind};
use ratatui::DefaultTerminal;
use screen::{Screen, Step};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use whither_cycles::results::Listing;
use whither_cycles::{Query, listing};
use whither_kernel::proc;
use whither_session::{Live, StopFlag};
use whither_store::SymbolService;
use whither_store::model::Profile;

/// How often to ask, and for how long.
#[derive(Clone, Copy)]
struct Lasting {
    interval: Duration,
    duration: Option<Duration>,
}

/// How long a key may wait to be seen.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// `whither top`.
pub(crate) fn top(args: TopArgs) -> anyhow::Result<Ending> {
    if !io::stdout().is_terminal() {
        return Err(Usage(
            "top draws on a terminal; for a file or a pipe, use `whither record -d 5s` and `whither prof`".into(),
        )
        .into());
    }
    let lasting = Lasting { interval: args.interval, duration: args.duration };
    let pids = args.pid.clone();
    let options = collect::live_options(args.pid, args.sampling, args.budget)?;
    let stop = signals::stop_flag()?;
    let live = Live::start(&options)?;
    // `init` also installs a panic hook that restores the terminal first.
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let done = watch(&mut terminal, &live, &pids, lasting, &stop);
    keys::put_back(terminal);
    live.stop();
    done?;
    Ok(Ending::Done)
}

/// One round: new samples when it is time, keys as they come, a picture when anything changed. When all of `pids` have ended
/// their last figures stay.
fn watch(
    terminal: &mut DefaultTerminal,
    live: &Live,
    pids: &[u32],
    lasting: Lasting,
    stop: &StopFlag,
) -> anyhow::Result<()> {
    let keys = Keys::new();
    let mut screen = Screen::new();
    let mut view = None::<View>;
    let (start, mut asked) = (Instant::now(), None::<Instant>);
    // A picture that shows nothing new costs as much as one that does.
    let (mut changed, mut over) = (false, false);
    terminal.draw(|frame| screen.draw(frame))?;
    while !stop.is_set() && lasting.duration.is_none_or(|d| start.elapsed() < d) {
        if !over && !screen.is_paused() && asked.is_none_or(|at| at.elapsed() >= lasting.interval) {
            over = have_ended(pids);
            view = Some(View::ask(live, view.take())?);
            asked = Some(Instant::now());
            fill(&mut screen, view.as_ref());
            if over {
                screen.explain(last_words(pids));
            }
            changed = true;
        }
        if std::mem::take(&mut changed) {
            terminal.draw(|frame| screen.draw(frame))?;
        }
        match keys.typed(KEY_WAIT)? {
            Typed::Nothing => {}
            Typed::Gone => return Ok(()),
            Typed::Event(event) => {
                match react(&mut screen, event) {
                    Step::Quit => return Ok(()),
                    Step::Ask => fill(&mut screen, view.as_ref()),
                    Step::Stay => {}
                }
                changed = true;
            }
        }
    }
    Ok(())
}

fn have_ended(pids: &[u32]) -> bool {
    !pids.is_empty() && !pids.iter().any(|&pid| proc::runs(pid))
}

fn last_words(pids: &[u32]) -> String {
    let all: Vec<String> = pids.iter().map(u32::to_string).collect();
    let who = if let [one] = all.as_slice() {
        format!("process {one} has")
    } else {
        format!("processes {} have", all.join(", "))
    };
    format!("{who} ended: these are the last figures (q quits)")
}

fn react(screen: &mut Screen, event: Event) -> Step {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => screen.key(key),
        _ => Step::Stay,
    }
}

/// What was sampled in the last interval.
struct View {
    profile: Profile,
    symbols: SymbolService,
}

impl View {
    /// `before`: the last view, whose names stay known.
    fn ask(live: &Live, before: Option<Self>) -> anyhow::Result<Self> {
        let profile = live.poll()?;
        let symbols = live.symbols(&profile, before.map(|v| v.symbols))?;
        Ok(Self { profile, symbols })
    }

    /// More rows than any terminal shows, fewer than would cost time to name.
    const ROWS: usize = 500;

    fn listing(&self, screen: &Screen) -> Result<Listing, whither_cycles::Error> {
        let names = self.profile.events.iter().map(|e| e.name.clone());
        let mut events: Vec<String> = names.collect();
        let turn = screen.column() % events.len().max(1);
        events.rotate_left(turn);
        let query = Query { by: vec![screen.by()], events, limit: Some(Self::ROWS), ..Query::default() };
        listing(&self.profile, &self.symbols, &query)
    }
}

/// An interval without samples is not an error: the last picture stays, with a word about it.
fn fill(screen: &mut Screen, view: Option<&View>) {
    let Some(view) = view else { return };
    match view.listing(screen) {
        Ok(listing) => screen.show(listing),
        Err(whither_cycles::Error::Empty) => {
            screen.explain("no samples in the last interval: the rows are those of the one before".into());
        }
        Err(error) => screen.explain(error.to_string()),
    }
}
