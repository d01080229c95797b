//! `whither calls top` and `--live`: a screen over a session of our own or over one that runs. This file
//! owns the terminal, the thread of the session and the loop; what is shown is in `live/screen.rs`, as a
//! value that tests can draw. The terminal is put back on every way out, a panic included.

mod aside;
mod screen;
mod view;

use super::drill::{Desk, Driller, Pending};
use super::names::FileNames;
use super::show::Counted;
use super::told::Teller;
use super::verbs::{counted, said};
use super::{keep, measure, replay, runtime};
use crate::cli::{Common, MeasureArgs};
use crate::failure::{Ending, Usage};
use crate::keys::{self, Keys, Typed};
use crate::signals;
use anyhow::Context;
use aside::Aside;
use crossterm::event::{Event, KeyEventKind};
use ratatui::DefaultTerminal;
use screen::{Screen, Wish};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use view::View;
use whither_report::text::{Layout, Style, some_are};
use whither_session::calls::{self, CallsEvent, CallsOptions, CallsOutcome, CallsTarget, Reply, Verb};
use whither_session::{SessionError, StopFlag};
use whither_store::calls::CallSnapshot;

/// Twice a second: faster is not read, slower feels dead.
const PERIOD: Duration = Duration::from_millis(500);
/// How long a key may wait to be seen.
const KEY_WAIT: Duration = Duration::from_millis(50);
/// A step of the drill needs calls to weigh.
const DRILL_PERIOD: Duration = Duration::from_secs(1);

/// `whither calls top`, `whither calls --live`.
pub(super) fn top(args: MeasureArgs, common: Common) -> anyhow::Result<Ending> {
    if !io::stdout().is_terminal() {
        return Err(
            Usage("a live view draws on a terminal; for a file or a pipe, leave --live or `top` out".into()).into()
        );
    }
    match args.whom.pid {
        Some(pid) if calls::sessions(&runtime()).contains(&pid) => visit(&args, pid),
        _ => own(args, common),
    }
}

/// A screen over a session that runs elsewhere: leaving it leaves the session.
fn visit(args: &MeasureArgs, pid: u32) -> anyhow::Result<Ending> {
    if args.replay.is_some() {
        let why = format!(
            "a session measures process {pid} already, and --replay begins one: end it with `calls stop -p {pid}`"
        );
        return Err(Usage(why).into());
    }
    let desk = Desk::Other { runtime: runtime(), pid };
    if !args.what.function.is_empty() {
        desk.ask(&Verb::Add { patterns: args.what.function.clone(), exclude: args.what.exclude.clone() })?;
    }
    let stop = signals::stop_flag()?;
    let names = FileNames::new(&args.names, Some(pid));
    let (_no_events, events) = channel();
    Watch::new(desk, names, &events, args).run(&stop, &|| false)?;
    Ok(Ending::Done)
}

/// A session of our own in a thread; the engine stays on it.
fn own(mut args: MeasureArgs, common: Common) -> anyhow::Result<Ending> {
    let steps = replay::begin_like(&mut args, common)?;
    let options = CallsOptions { steps, ..measure::options(&args, None)? };
    keep::may_write(&args)?;
    let stop = signals::stop_flag()?;
    let aside = match options.target {
        CallsTarget::Command(_) => Some(Aside::begin().context("cannot put the command's output aside")?),
        CallsTarget::Process(_) => None,
    };
    let asks = calls::asks();
    let (desk, (told, events)) = (Desk::Own(asks.0.clone()), channel());
    let (over, asked) = (stop.clone(), options.clone());
    let session: JoinHandle<Result<CallsOutcome, SessionError>> = std::thread::Builder::new()
        .name("session".into())
        .spawn(move || {
            calls::run(&asked, asks, &over, &mut |event| {
                // The screen may have been left already.
                let _ = told.send(event);
            })
        })
        .context("cannot start the session's thread")?;
    let first = started(&events, &session);
    // From here on our own streams are the terminal's again; the command has the others.
    let output = aside.map(Aside::end).transpose().context("cannot get the terminal back")?;
    let drawn = if first.is_empty() {
        Ok(())
    } else {
        let names = FileNames::new(&args.names, args.whom.pid);
        let mut watch = Watch::new(desk, names, &events, &args);
        first.into_iter().for_each(|event| watch.take_in(&event));
        watch.run(&stop, &|| session.is_finished())
    };
    stop.request();
    // The command may go on for long: whoever left the screen is told so at once, until the session lets go of the other end.
    let mut teller = Teller::new(common, args.whom.pid.is_none());
    events.iter().for_each(|event| teller.on(&event));
    let outcome = session.join().map_err(|_| anyhow::anyhow!("the session's thread failed"))?;
    if let Some(output) = output {
        output.show().context("cannot show the command's output")?;
    }
    drawn?;
    measure::finish(&args, &options, common, &outcome?, &stop)
}

/// What was told up to the start of measuring; nothing when it failed.
fn started(events: &Receiver<CallsEvent>, session: &JoinHandle<Result<CallsOutcome, SessionError>>) -> Vec<CallsEvent> {
    let mut told = Vec::new();
    loop {
        match events.recv_timeout(KEY_WAIT) {
            Ok(event) => {
                let begun = matches!(event, CallsEvent::Started { .. });
                told.push(event);
                if begun {
                    return told;
                }
            }
            Err(_) if session.is_finished() => return Vec::new(),
            Err(_) => {}
        }
    }
}

/// The loop around a screen.
struct Watch<'a> {
    desk: Desk,
    names: FileNames,
    events: &'a Receiver<CallsEvent>,
    args: &'a MeasureArgs,
    screen: Screen,
    before: Option<CallSnapshot>,
    driller: Option<(Driller, Instant)>,
    /// What was asked and takes a while to answer.
    pending: Vec<(Verb, Pending)>,
}

impl<'a> Watch<'a> {
    fn new(desk: Desk, names: FileNames, events: &'a Receiver<CallsEvent>, args: &'a MeasureArgs) -> Self {
        let leaves = matches!(desk, Desk::Own(_));
        Self {
            desk,
            names,
            events,
            args,
            screen: Screen::new(leaves),
            before: None,
            driller: None,
            pending: Vec::new(),
        }
    }

    fn run(mut self, stop: &StopFlag, over: &dyn Fn() -> bool) -> anyhow::Result<()> {
        // `init` also installs a panic hook that restores the terminal first.
        let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
        let done = self.rounds(&mut terminal, stop, over);
        keys::put_back(terminal);
        done
    }

    fn rounds(
        &mut self,
        terminal: &mut DefaultTerminal,
        stop: &StopFlag,
        over: &dyn Fn() -> bool,
    ) -> anyhow::Result<()> {
        let keys = Keys::new();
        let (mut due, mut changed) = (Instant::now(), true);
        while !stop.is_set() && !over() {
            while let Ok(event) = self.events.try_recv() {
                self.take_in(&event);
            }
            changed |= self.take_answers();
            let began = Instant::now();
            if began >= due {
                changed = true;
                if let Err(e) = self.refresh() {
                    // Our own session may just have ended; another one has gone for good.
                    if matches!(self.desk, Desk::Other { .. }) {
                        return Err(e);
                    }
                    self.screen.say(e.to_string());
                }
                // Pictures of very many paths take long to make: keys have half of the time.
                due = began + PERIOD.max(began.elapsed() * 2);
            }
            if changed {
                terminal.draw(|frame| self.screen.draw(frame))?;
                changed = false;
            }
            match keys.typed(KEY_WAIT)? {
                Typed::Nothing => {}
                Typed::Gone => return Ok(()),
                Typed::Event(event) => {
                    changed = true;
                    let wish = react(&mut self.screen, event);
                    if matches!(wish, Wish::Quit) {
                        return Ok(());
                    }
                    self.grant(wish);
                }
            }
        }
        Ok(())
    }

    fn take_in(&mut self, event: &CallsEvent) {
        match event {
            CallsEvent::Note(text) => self.screen.say(text.clone()),
            CallsEvent::Refused { names, reason } => {
                self.screen.say(format!("{} not measured: {reason}", some_are(names, 3)));
            }
            CallsEvent::Replayed { step, verb, reply } => self.screen.say(replay::taken(step, verb, reply)),
            CallsEvent::Started { .. } | CallsEvent::Interval(_) | CallsEvent::Waiting { .. } => {}
        }
    }

    /// A new snapshot, a new picture, a step of the drill.
    fn refresh(&mut self) -> anyhow::Result<()> {
        let now = counted(self.desk.ask(&Verb::Show)?)?;
        let names = self.names.names();
        let (metric, group) = (self.screen.metric().clone(), self.screen.group());
        self.screen.show(View::new(&now, self.before.as_ref(), &names, &metric, group));
        drop(names);
        if let Some((mut driller, at)) = self.driller.take() {
            if at.elapsed() < DRILL_PERIOD && !driller.is_looking() {
                self.driller = Some((driller, at));
            } else {
                match driller.on(&self.desk, &now) {
                    Ok(Some(verdict)) => {
                        self.screen.say("the drill has ended".into());
                        self.screen.explain(driller.sentence(&verdict, &now));
                    }
                    Ok(None) => self.driller = Some((driller, Instant::now())),
                    Err(e) => self.screen.say(e.to_string()),
                }
            }
        }
        self.before = Some(now);
        Ok(())
    }

    fn grant(&mut self, wish: Wish) {
        match wish {
            Wish::Nothing | Wish::Quit => {}
            Wish::Refresh => {
                if let Err(e) = self.redraw() {
                    self.screen.say(e.to_string());
                }
            }
            Wish::Ask(verb) => self.ask(&verb),
            Wish::Drill(point) => match Driller::start(&self.desk, point, self.screen.metric().clone()) {
                Ok(driller) => {
                    self.driller = Some((driller, Instant::now()));
                    self.screen.say("drilling: probes on callees, the hottest is followed".into());
                }
                Err(e) => self.screen.say(e.to_string()),
            },
            Wish::Source(key) => {
                let text = self.before.as_ref().map(|now| view::source(now, &self.names.names(), &key));
                self.screen.explain(text.unwrap_or_default());
            }
            Wish::Write => {
                let said = self.write().unwrap_or_else(|e| format!("{e:#}"));
                self.screen.say(said);
            }
            Wish::Record => {
                let said = self.record().unwrap_or_else(|e| format!("{e:#}"));
                self.screen.say(said);
            }
        }
    }

    fn redraw(&mut self) -> anyhow::Result<()> {
        self.before = None;
        self.refresh()
    }

    fn ask(&mut self, verb: &Verb) {
        if let Verb::Callees { .. } = verb {
            self.screen.say("looking for what it calls".into());
            self.pending.push((verb.clone(), self.desk.begin(verb.clone())));
        } else {
            self.tell(verb, self.desk.ask(verb));
        }
    }

    /// Tells what was answered meanwhile; whether there was anything.
    fn take_answers(&mut self) -> bool {
        let mut answers = Vec::new();
        self.pending.retain(|(verb, pending)| match pending.poll() {
            Some(reply) => {
                answers.push((verb.clone(), reply));
                false
            }
            None => true,
        });
        let any = !answers.is_empty();
        answers.into_iter().for_each(|(verb, reply)| self.tell(&verb, reply));
        any
    }

    fn tell(&mut self, verb: &Verb, reply: anyhow::Result<Reply>) {
        let said = reply.and_then(|reply| match reply {
            Reply::Counted { .. } => Ok(String::new()),
            reply => said(verb, &reply).map(|(text, _)| text),
        });
        self.screen.say(said.unwrap_or_else(|e| e.to_string()).replace('\n', "; "));
    }

    /// The table as it would be printed, into a file of its own.
    fn write(&mut self) -> anyhow::Result<String> {
        let now = counted(self.desk.ask(&Verb::Show)?)?;
        let path = named(&now, "txt");
        let layout = Layout { style: Style::Plain, width: 240 };
        let counted = Counted::new(&now, "", &self.names.names(), &self.args.shape);
        let text = counted.text(&measure::shape(self.args), &layout)?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {path}"))?;
        Ok(format!("{path} written"))
    }

    /// What was counted since the last reset, as a recording.
    fn record(&mut self) -> anyhow::Result<String> {
        let now = counted(self.desk.ask(&Verb::Show)?)?;
        let path = named(&now, "wh");
        keep::write_now(Path::new(&path), self.args, now, &self.names.names())?;
        Ok(format!("{path} written; whither calls report {path} shows it"))
    }
}

/// A new file in the current directory.
fn named(now: &CallSnapshot, ending: &str) -> String {
    let pid = now.processes.first().map_or(0, |p| p.pid);
    format!("calls-{pid}-{}.{ending}", now.at_ns / 1_000_000)
}

fn react(screen: &mut Screen, event: Event) -> Wish {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => screen.key(key),
        _ => Wish::Nothing,
    }
}
