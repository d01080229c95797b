//! Verbs for a running session, and what it answers, as text.

use super::measure::{patch_name, pause};
use super::names::FileNames;
use super::runtime;
use super::show::{self, Counted, Shape};
use super::told::{Teller, held_up};
use crate::answer;
use crate::cli::{CallsVerb, Common, ExpandArgs, ListArgs, ShowArgs};
use crate::failure::Ending;
use anyhow::bail;
use std::fmt::Write as _;
use std::time::Duration;
use whither_probe::Pause;
use whither_report::json;
use whither_report::text::thousands;
use whither_session::calls::{AddedPoint, PointLine, Reply, Verb, ask};
use whither_store::calls::{CallSnapshot, PointState};

/// Verbs that are told with a sentence or a list.
pub(super) fn obey(verb: CallsVerb) -> anyhow::Result<Ending> {
    let (pid, verb) = match verb {
        CallsVerb::List(args) => return list(&args),
        CallsVerb::Add(args) => (args.session.pid, Verb::Add { patterns: args.patterns, exclude: args.exclude }),
        CallsVerb::Remove(args) => (args.session.pid, Verb::Remove { patterns: args.probes }),
        CallsVerb::Enable(args) => (args.session.pid, Verb::Switch { patterns: args.probes, on: true }),
        CallsVerb::Disable(args) => (args.session.pid, Verb::Switch { patterns: args.probes, on: false }),
        CallsVerb::Expand(args) => return expand(&args),
        CallsVerb::Reset(args) => (args.session.pid, Verb::Reset { label: args.label }),
        CallsVerb::Stop(args) => (args.pid, Verb::Stop),
        CallsVerb::Top(_) | CallsVerb::Report(_) | CallsVerb::Show(_) | CallsVerb::Drill(_) => {
            bail!("this verb is no question to a session")
        }
    };
    let reply = ask(&runtime(), pid, &verb)?;
    let (text, ending) = said(&verb, &reply)?;
    answer::print(&text)?;
    Ok(ending)
}

/// Probes the callees or callers of every probe that is meant.
fn expand(args: &ExpandArgs) -> anyhow::Result<Ending> {
    let mut ending = Ending::No;
    for AddedPoint { id: point, .. } in meant(args.session.pid, &args.probe)? {
        let verb = if args.callers { Verb::Callers { point } } else { Verb::Callees { point } };
        let (text, of_one) = said(&verb, &ask(&runtime(), args.session.pid, &verb)?)?;
        answer::print(&text)?;
        if of_one == Ending::Done {
            ending = Ending::Done;
        }
    }
    Ok(ending)
}

/// The probes in place that a number (`12`, `#12`) or a pattern over names means; at least one.
///
/// # Errors
/// There is none, or the session says no.
pub(super) fn meant(pid: u32, probe: &str) -> anyhow::Result<Vec<AddedPoint>> {
    let number = probe.parse::<u32>().map(|id| format!("#{id}"));
    let patterns = vec![number.unwrap_or_else(|_| probe.to_owned())];
    match ask(&runtime(), pid, &Verb::Which { patterns })? {
        Reply::Meant { points } => Ok(points),
        Reply::Nothing { near } => bail!("no probe is `{probe}`: {}", nothing(&near)),
        Reply::No { why } => bail!(why),
        other => bail!("the session answered something else than its probes: {other:?}"),
    }
}

/// `whither calls show`.
pub(super) fn show(args: &ShowArgs, common: Common) -> anyhow::Result<Ending> {
    let pid = args.session.pid;
    let snapshot = counted(ask(&runtime(), pid, &Verb::Show)?)?;
    let files = FileNames::new(&args.names, Some(pid));
    let names = files.names();
    let (counted, shape) = (Counted::new(&snapshot, "", &names, &args.shape), Shape::new(&args.shape, &[]));
    if args.form.json {
        counted.json(&args.shape)?;
    } else if let Some(file) = &args.form.html {
        counted.page(file, &shape, None)?;
    } else if args.shape.folded {
        counted.folded(&shape)?;
    } else {
        show::print(&[counted.text(&shape, &answer::layout())?])?;
    }
    Teller::new(common, false).everything_missing(&counted.profile);
    Ok(Ending::Done)
}

/// The snapshot of a reply.
///
/// # Errors
/// It is another reply.
pub(super) fn counted(reply: Reply) -> anyhow::Result<CallSnapshot> {
    match reply {
        Reply::Counted { snapshot } => Ok(*snapshot),
        Reply::No { why } => bail!(why),
        other => bail!("the session answered something else than a snapshot: {other:?}"),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<Ending> {
    let reply = ask(&runtime(), args.session.pid, &Verb::List)?;
    let points = match reply {
        Reply::Points { points } => points,
        Reply::No { why } => bail!(why),
        other => bail!("the session answered something else than its probes: {other:?}"),
    };
    if args.json {
        answer::write(json::calls(&points).as_bytes())?;
    } else {
        answer::print(&listed(&points))?;
    }
    Ok(Ending::Done)
}

/// Probes as a table, refused functions below.
fn listed(points: &[PointLine]) -> String {
    let (refused, here): (Vec<_>, Vec<_>) = points.iter().partition(|p| p.state == PointState::Refused);
    let mut text = String::from("    id  state    how                 calls        cost  function\n");
    for p in here {
        let how = p.patch.map_or("-", patch_name);
        let (calls, cost) = (thousands(p.hits), pause(p.cost_ns));
        let id = format!("#{}", p.id);
        let _ = write!(text, "{id:>6}  {:<7}  {how:<10}  {calls:>13}  {cost:>10}  {}", state(p.state), names(p));
        let _ = p.remark.iter().try_for_each(|why| write!(text, "  (only entries: {why})"));
        text.push('\n');
    }
    for p in refused {
        let why = p.remark.as_deref().unwrap_or("no reason given");
        let _ = writeln!(text, "not measured: {}: {why}", names(p));
    }
    text
}

fn names(p: &PointLine) -> String {
    let file = p.module.rsplit('/').next().unwrap_or(&p.module);
    let place = format!("{file}+{:#x}", p.offset);
    match p.names.as_slice() {
        [] => place,
        [only] if *only == place || file.is_empty() => only.clone(),
        names => format!("{} ({place})", names.join(" = ")),
    }
}

fn state(state: PointState) -> &'static str {
    match state {
        PointState::On => "on",
        PointState::Off => "off",
        PointState::Removed => "removed",
        PointState::Refused => "refused",
    }
}

/// A reply as text, and how the verb ends.
pub(super) fn said(verb: &Verb, reply: &Reply) -> anyhow::Result<(String, Ending)> {
    let text = match reply {
        Reply::Added { added, already, refused, pause_ns, held_ns, notes } => {
            let nothing = added.is_empty() && already.is_empty() && refused.is_empty();
            let mut text = match nothing {
                true => NONE.to_owned(),
                false => format!("{} added{}", counted_points(added), paused((*pause_ns, *held_ns), added)),
            };
            if !already.is_empty() {
                let _ = write!(text, "\n{} measured already: {}", already.len(), numbers(already));
            }
            refused.iter().for_each(|(name, why)| {
                let _ = write!(text, "\n{name} is not measured: {why}");
            });
            notes.iter().for_each(|note| text.extend(["\n", note]));
            let ending = if added.is_empty() && already.is_empty() { Ending::No } else { Ending::Done };
            return Ok((text, ending));
        }
        Reply::Removed { removed, pause_ns, held_ns } => {
            format!("{} removed{}", counted_points(removed), paused((*pause_ns, *held_ns), removed))
        }
        Reply::Switched { points } => {
            let word = if matches!(verb, Verb::Switch { on: true, .. }) { "on" } else { "off" };
            format!("{} switched {word}", counted_points(points))
        }
        Reply::Nothing { near } => return Ok((nothing(near), Ending::No)),
        Reply::Done { text } => text.clone(),
        Reply::No { why } => bail!(why.clone()),
        Reply::Points { points } => listed(points),
        Reply::Counted { .. } | Reply::Found { .. } | Reply::Meant { .. } => {
            bail!("the session answered another question")
        }
    };
    Ok((text, Ending::Done))
}

/// A function without callees or callers.
const NONE: &str = "nothing to probe there: no direct call, or no caller seen yet";

fn nothing(near: &[String]) -> String {
    if near.is_empty() {
        return "nothing matches".into();
    }
    format!("nothing matches (a pattern means the whole name); there are {}", near.join(", "))
}

/// `2 probes (#3 f, #4 g)`.
fn counted_points(points: &[AddedPoint]) -> String {
    let noun = if points.len() == 1 { "probe" } else { "probes" };
    if points.is_empty() {
        return format!("no {noun}");
    }
    let mut shown: Vec<String> = points.iter().take(SHOWN).map(|p| format!("#{} {}", p.id, p.name)).collect();
    if points.len() > SHOWN {
        shown.push(format!("{} more", points.len() - SHOWN));
    }
    format!("{} {noun} ({})", points.len(), shown.join(", "))
}

/// Probes named in a sentence.
const SHOWN: usize = 8;

fn numbers(ids: &[u32]) -> String {
    ids.iter().map(|id| format!("#{id}")).collect::<Vec<_>>().join(", ")
}

fn paused((still, held): (u64, u64), points: &[AddedPoint]) -> String {
    let pause = Pause { still: Duration::from_nanos(still), held: Duration::from_nanos(held) };
    if points.is_empty() { String::new() } else { format!("; {}", held_up(pause)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::calls::PatchKind;

    fn point(id: u32, name: &str) -> AddedPoint {
        AddedPoint { id, name: name.into() }
    }

    #[test]
    fn replies_become_sentences() {
        let add = Verb::Add { patterns: vec![], exclude: vec![] };
        let added = Reply::Added {
            added: vec![point(3, "f"), point(4, "g")],
            already: vec![1],
            refused: vec![("h".into(), "too short".into())],
            pause_ns: 420_000,
            held_ns: 700_000,
            notes: Vec::new(),
        };
        let (text, ending) = said(&add, &added).unwrap();
        assert_eq!(
            text,
            "2 probes (#3 f, #4 g) added; none of its threads ran for 420 us, none was held for more than 700 us\n1 \
             measured already: #1\nh is not measured: too short"
        );
        assert_eq!(ending, Ending::Done);
        let (text, ending) = said(&add, &Reply::Nothing { near: vec!["fa".into()] }).unwrap();
        assert_eq!(
            (text.as_str(), ending),
            ("nothing matches (a pattern means the whole name); there are fa", Ending::No)
        );
        assert!(said(&add, &Reply::No { why: "gone".into() }).unwrap_err().to_string().contains("gone"));
    }

    #[test]
    fn what_is_not_known_of_callees_is_told_with_them() {
        let none = "1 indirect call in f: nobody was seen called through it in 1 s";
        let of = |added| Reply::Added {
            added,
            already: vec![],
            refused: vec![],
            pause_ns: 1000,
            held_ns: 1000,
            notes: vec![none.into()],
        };
        let (text, ending) = said(&Verb::Callees { point: 1 }, &of(vec![point(3, "g")])).unwrap();
        assert!(text.starts_with("1 probe (#3 g) added; ") && text.ends_with(none) && ending == Ending::Done, "{text}");
        let (text, ending) = said(&Verb::Callees { point: 1 }, &of(vec![])).unwrap();
        assert_eq!((text, ending), (format!("{NONE}\n{none}"), Ending::No));
    }

    #[test]
    fn a_list_names_what_is_refused_and_why() {
        let line = |id, state, remark: Option<&str>| PointLine {
            id,
            names: vec!["f".into(), "alias".into()],
            module: "/lib/libx.so".into(),
            offset: 0x40,
            patch: (id > 0).then_some(PatchKind::Jump),
            state,
            hits: 1_234_567,
            cost_ns: 25_000_000,
            remark: remark.map(Into::into),
        };
        let text = listed(&[line(0, PointState::Refused, Some("too short")), line(2, PointState::On, None)]);
        assert!(text.contains("f = alias (libx.so+0x40)"), "{text}");
        assert!(text.lines().last().unwrap().starts_with("not measured: f = alias"), "{text}");
    }
}
