//! The drill on a running session: asks for callees, has them probed, measures, follows the hottest. What
//! to do next is decided by `whither_calls::Drill`; this file carries it out.

use super::runtime;
use super::verbs::{counted, meant};
use crate::answer;
use crate::cli::{Common, DrillArgs};
use crate::failure::Ending;
use crate::tell::tell;
use anyhow::bail;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;
use whither_calls::{Callee, Drill, DrillStep, Metric, Verdict, difference};
use whither_report::text::percent;
use whither_session::calls::{Ask, Place, Reply, Verb, ask};
use whither_store::calls::CallSnapshot;

/// A session to ask: our own, or one that runs elsewhere.
#[derive(Clone)]
pub(super) enum Desk {
    /// In a thread of ours.
    Own(Sender<Ask>),
    /// Behind its socket.
    Other { runtime: PathBuf, pid: u32 },
}

/// How long our own session may take to answer: a batch of probes, with room.
const PATIENCE: Duration = Duration::from_secs(20);

impl Desk {
    /// Asks.
    ///
    /// # Errors
    /// No answer comes, or the session says no.
    pub(super) fn ask(&self, verb: &Verb) -> anyhow::Result<Reply> {
        let reply = match self {
            Self::Other { runtime, pid } => ask(runtime, *pid, verb)?,
            Self::Own(sender) => {
                let (answer, reply) = channel();
                let sent = sender.send(Ask { verb: verb.clone(), answer }).is_ok();
                match reply.recv_timeout(PATIENCE) {
                    Ok(reply) if sent => reply,
                    _ => bail!("the session has ended"),
                }
            }
        };
        match reply {
            Reply::No { why } => bail!(why),
            reply => Ok(reply),
        }
    }

    /// Asks what may take a second to answer.
    pub(super) fn begin(&self, verb: Verb) -> Pending {
        let (desk, (tell, reply)) = (self.clone(), channel());
        std::thread::spawn(move || {
            // Whoever asked may be gone.
            let _ = tell.send(desk.ask(&verb));
        });
        Pending(reply)
    }

    fn snapshot(&self) -> anyhow::Result<CallSnapshot> {
        counted(self.ask(&Verb::Show)?)
    }
}

/// An answer that is on its way.
pub(super) struct Pending(Receiver<anyhow::Result<Reply>>);

impl Pending {
    /// The answer, if it has come.
    pub(super) fn poll(&self) -> Option<anyhow::Result<Reply>> {
        match self.0.try_recv() {
            Ok(reply) => Some(reply),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(anyhow::anyhow!("the session has ended"))),
        }
    }

    /// The answer, however long it takes.
    fn wait(&self) -> anyhow::Result<Reply> {
        self.0.recv().unwrap_or_else(|_| Err(anyhow::anyhow!("the session has ended")))
    }
}

/// A drill in progress.
pub(super) struct Driller {
    drill: Drill,
    callees: Vec<Callee>,
    /// What the session said of calls through pointers in the function in focus.
    notes: Vec<String>,
    /// Callees that were asked for.
    looking: Option<Pending>,
    /// When the probes of the last step were in place.
    since: CallSnapshot,
    done: Option<Verdict>,
}

impl Driller {
    /// Asks what a probed function calls, to put probes there.
    ///
    /// # Errors
    /// The session says no.
    pub(super) fn start(desk: &Desk, point: u32, metric: Metric) -> anyhow::Result<Self> {
        let since = desk.snapshot()?;
        let drill = Drill::new(point, metric);
        let mut driller = Self { drill, callees: Vec::new(), notes: Vec::new(), looking: None, since, done: None };
        driller.look(desk);
        Ok(driller)
    }

    /// The function whose callees are measured.
    pub(super) fn focus(&self) -> u32 {
        self.drill.focus()
    }

    /// Whether it waits for callees, and measures nothing yet.
    pub(super) fn is_looking(&self) -> bool {
        self.looking.is_some()
    }

    /// Takes in what was counted up to now, or the callees if they were told meanwhile; a verdict ends the drill.
    ///
    /// # Errors
    /// The session says no.
    pub(super) fn on(&mut self, desk: &Desk, now: &CallSnapshot) -> anyhow::Result<Option<Verdict>> {
        if let Some(looking) = self.looking.take() {
            match looking.poll() {
                Some(reply) => self.found(desk, reply?)?,
                None => self.looking = Some(looking),
            }
        } else if self.done.is_none() {
            let step = self.drill.step(&difference(now, &self.since), &self.callees);
            let moved = step.moved;
            self.obey(desk, step)?;
            if moved && self.done.is_none() {
                self.look(desk);
            }
        }
        Ok(self.done.clone())
    }

    /// Waits for callees that were asked for.
    ///
    /// # Errors
    /// The session says no.
    fn settle(&mut self, desk: &Desk) -> anyhow::Result<Option<Verdict>> {
        if let Some(looking) = self.looking.take() {
            self.found(desk, looking.wait()?)?;
        }
        Ok(self.done.clone())
    }

    /// A verdict in words, with what is not known.
    pub(super) fn sentence(&self, verdict: &Verdict, snapshot: &CallSnapshot) -> String {
        let notes = self.notes.iter().map(|note| format!("{note}\n"));
        sentence(verdict, snapshot) + &notes.collect::<String>()
    }

    fn look(&mut self, desk: &Desk) {
        self.looking = Some(desk.begin(Verb::LookCallees { point: self.drill.focus() }));
    }

    fn found(&mut self, desk: &Desk, reply: Reply) -> anyhow::Result<()> {
        let Reply::Found { callees, notes } = reply else { bail!("the session answered another question") };
        self.notes = notes;
        let probeable = callees.into_iter().filter(|c| c.refused.is_none());
        self.callees =
            probeable.map(|c| Callee { module: c.place.module, offset: c.place.offset, name: c.name }).collect();
        let now = desk.snapshot()?;
        let step = self.drill.step(&now, &self.callees);
        self.obey(desk, step)?;
        self.since = desk.snapshot()?;
        Ok(())
    }

    fn obey(&mut self, desk: &Desk, step: DrillStep) -> anyhow::Result<()> {
        let chosen: Vec<Place> = step.add.iter().filter_map(|&i| self.callees.get(i)).map(place).collect();
        if !chosen.is_empty() {
            desk.ask(&Verb::AddCallees { point: self.drill.focus(), chosen })?;
        }
        if !step.remove.is_empty() {
            let patterns = step.remove.iter().map(|id| format!("#{id}")).collect();
            desk.ask(&Verb::Remove { patterns })?;
        }
        self.done = step.done.or(self.done.take());
        Ok(())
    }
}

fn place(callee: &Callee) -> Place {
    Place { module: callee.module.clone(), offset: callee.offset }
}

/// `whither calls drill`.
pub(super) fn drill(args: &DrillArgs, common: Common) -> anyhow::Result<Ending> {
    let desk = Desk::Other { runtime: runtime(), pid: args.session.pid };
    let probe = match meant(args.session.pid, &args.probe)?.as_slice() {
        [only] => only.id,
        several => {
            let several: Vec<String> = several.iter().map(|p| format!("#{} {}", p.id, p.name)).collect();
            bail!("a drill begins at one probe, and `{}` means {}", args.probe, several.join(", "));
        }
    };
    let mut driller = Driller::start(&desk, probe, Metric::Wall)?;
    loop {
        let focus = driller.focus();
        let mut verdict = driller.settle(&desk)?;
        let mut now = desk.snapshot()?;
        if verdict.is_none() {
            std::thread::sleep(args.interval);
            now = desk.snapshot()?;
            verdict = driller.on(&desk, &now)?;
        }
        if let Some(verdict) = verdict {
            answer::print(&driller.sentence(&verdict, &desk.snapshot()?))?;
            return Ok(Ending::Done);
        }
        if driller.focus() != focus && !common.quiet {
            tell!("whither: {} holds most of it", name(&now, driller.focus()));
        }
    }
}

/// A verdict in words: the chain, then the parts of the last one.
fn sentence(verdict: &Verdict, snapshot: &CallSnapshot) -> String {
    let chain: Vec<String> = verdict.chain.iter().map(|&id| format!("{} (#{id})", name(snapshot, id))).collect();
    let mut text = format!(
        "{}: {} % of the first one's time, {} {}; stopped because {}\n",
        chain.join(" > "),
        percent(verdict.share),
        verdict.steps,
        if verdict.steps == 1 { "step" } else { "steps" },
        verdict.reason
    );
    let _ = writeln!(text, "{:>6} %  own code and callees without a probe", percent(verdict.own));
    for (id, part) in &verdict.callees {
        let _ = writeln!(text, "{:>6} %  {} (#{id})", percent(*part), name(snapshot, *id));
    }
    text
}

fn name(snapshot: &CallSnapshot, id: u32) -> String {
    let point = snapshot.points.iter().find(|p| p.id == id);
    point.and_then(|p| p.names.first()).cloned().unwrap_or_else(|| format!("#{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_told_with_its_chain_and_its_parts() {
        let verdict = Verdict {
            chain: vec![1, 2],
            share: 0.85,
            own: 0.25,
            callees: vec![(3, 0.40)],
            steps: 2,
            reason: "no callee stands out",
        };
        let text = sentence(&verdict, &CallSnapshot::default());
        assert!(text.starts_with("#1 (#1) > #2 (#2): 85"), "{text}");
        assert!(text.contains("own code") && text.lines().count() == 3, "{text}");
    }

    /// The screen goes on while callees are looked for, and what is not known of them is told with the verdict.
    #[test]
    fn a_drill_waits_for_callees_without_holding_anybody_up() {
        let (sender, asks) = channel::<Ask>();
        let (look, looked) = channel();
        let session = std::thread::spawn(move || {
            let mut late = None;
            for Ask { verb, answer } in asks {
                match verb {
                    Verb::Show => drop(answer.send(Reply::Counted { snapshot: Box::default() })),
                    Verb::LookCallees { point: 1 } => {
                        look.send(()).unwrap();
                        late = Some(answer);
                    }
                    Verb::List => {
                        let notes = vec!["2 indirect calls in f: nobody was seen".into()];
                        drop(late.take().unwrap().send(Reply::Found { callees: Vec::new(), notes }));
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        let desk = Desk::Own(sender);
        let mut driller = Driller::start(&desk, 1, Metric::Wall).unwrap();
        looked.recv().unwrap();
        let nothing = CallSnapshot::default();
        assert!(driller.on(&desk, &nothing).unwrap().is_none() && driller.is_looking());
        // Now it is answered, and there is nothing to follow.
        let _ = desk.begin(Verb::List);
        let verdict = driller.settle(&desk).unwrap().unwrap();
        let text = driller.sentence(&verdict, &nothing);
        assert!(text.contains("calls nothing that can be probed"), "{text}");
        assert!(text.ends_with("2 indirect calls in f: nobody was seen\n"), "{text}");
        drop((desk, driller));
        session.join().unwrap();
    }

    #[test]
    fn a_session_that_ended_says_so() {
        let (sender, asks) = channel();
        drop(asks);
        let error = Desk::Own(sender).ask(&Verb::Show).unwrap_err();
        assert_eq!(error.to_string(), "the session has ended");
    }
}
