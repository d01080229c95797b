//! `whither doctor`: what this kernel and these rights allow. The probing is `whither_kernel`'s; here
//! it meets BPF, which only the collector can try, and becomes text or JSON.

use crate::answer;
use crate::cli::DoctorArgs;
use crate::failure::Ending;
use std::fmt::Write as _;
use whither_kernel::capability::{Answer, Diagnosis, Finding, Linux, diagnose};
use whither_kernel::events;
use whither_kernel::offered::{Family, Offer, offered};
use whither_sample::bpf::BpfCollector;
use whither_sample::{Chosen, Coverage, EdgeMode, StackMode};
use whither_store::model::Precision;

/// `whither doctor`. The answer is "no" when not even one's own processes can be sampled.
pub(crate) fn doctor(args: &DoctorArgs) -> anyhow::Result<Ending> {
    if args.events {
        return list_events(args.json);
    }
    let diagnosis = diagnose(&Linux::new(&try_bpf));
    if args.json {
        answer::print(&serde_json::to_string_pretty(&diagnosis)?)?;
    } else {
        answer::print(&text(&diagnosis, answer::is_colored()))?;
    }
    let samples = diagnosis.finding("own-process").is_some_and(|f| f.answer != Answer::No);
    Ok(if samples { Ending::Done } else { Ending::No })
}

/// `whither doctor --events`.
fn list_events(json: bool) -> anyhow::Result<Ending> {
    #[derive(serde::Serialize)]
    struct Events {
        schema: &'static str,
        events: Vec<Offer>,
    }
    let events = Events { schema: "whither.events/1", events: offered() };
    answer::print(&if json { serde_json::to_string_pretty(&events)? } else { events_text(&events.events) })?;
    Ok(if events.events.iter().any(|e| e.opens) { Ending::Done } else { Ending::No })
}

/// One paragraph per family, those that can be had first; tracepoints below each other, as they are grepped for.
fn events_text(offers: &[Offer]) -> String {
    let families = [
        (Family::Hardware, "hardware"),
        (Family::Cache, "caches"),
        (Family::Software, "software"),
        (Family::Pmu, "described in sysfs"),
    ];
    let mut out = String::new();
    for (opens, what) in [(true, ""), (false, ", not offered by this CPU, virtual machine or kernel")] {
        for (family, title) in families {
            let of = offers.iter().filter(|o| o.family == family && o.opens == opens);
            let names: Vec<&str> = of.map(|o| o.name.as_str()).collect();
            if !names.is_empty() {
                let _ = writeln!(out, "{title}{what}:\n  {}", names.join("\n  "));
            }
        }
    }
    out.push_str(
        "raw: rNNN (a code of the CPU's own PMU), pmu/term=value,.../ (terms: /sys/bus/event_source/devices/PMU/format)\n\
         behind a name: :u user mode only, :k kernel mode only, :p :pp :ppp more precise addresses\n",
    );
    let points: Vec<&str> = offers.iter().filter(|o| o.family == Family::Tracepoint).map(|o| o.name.as_str()).collect();
    match points.as_slice() {
        [] => out.push_str(
            "tracepoints: none to be seen; `mount -t tracefs tracefs /sys/kernel/tracing` shows them to root",
        ),
        _ => {
            let _ = write!(out, "tracepoints:\n  {}", points.join("\n  "));
        }
    }
    out
}

/// Loads the real collector with its events switched off, and drops it again.
fn try_bpf() -> Result<(), String> {
    let spec = events::parse("cpu-clock").map_err(|error| error.to_string())?;
    let timer = Chosen { spec, period: 1_000_000, precision: Precision::Skid(1), turns: 1, units_per_ns: 1.0 };
    BpfCollector::open(&[timer], &Coverage::System, StackMode::Off, EdgeMode::Off, false)
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Plain lines: the verdict, what is there, and for what is not: what it costs and the fix.
fn text(diagnosis: &Diagnosis, colored: bool) -> String {
    let machine = &diagnosis.machine;
    let user = if machine.uid == 0 { "root".to_owned() } else { format!("uid {}", machine.uid) };
    let mut out =
        format!("{}, Linux {}, {}, {user}\n{}\n\n", machine.cpu, machine.kernel, machine.kind, diagnosis.verdict);
    for finding in &diagnosis.findings {
        line(&mut out, finding, colored);
    }
    out
}

fn line(out: &mut String, finding: &Finding, colored: bool) {
    let (word, color) = match finding.answer {
        Answer::Yes => ("yes   ", "\x1b[32m"),
        Answer::Partly => ("partly", "\x1b[33m"),
        Answer::No => ("no    ", "\x1b[31m"),
    };
    let (on, off) = if colored { (color, "\x1b[0m") } else { ("", "") };
    let _ = writeln!(out, "{on}{word}{off}  {:<40}  {}", finding.what, finding.detail);
    for (what, text) in [("lost", &finding.lost), ("fix", &finding.fix)] {
        if !text.is_empty() {
            let _ = writeln!(out, "        {what:>4}: {text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_kernel::capability::Machine;

    fn finding(answer: Answer, lost: &str, fix: &str) -> Finding {
        Finding { id: "x", what: "count cycles", answer, detail: "seen".into(), lost: lost.into(), fix: fix.into() }
    }

    #[test]
    fn a_missing_thing_tells_its_price_and_remedy() {
        let diagnosis = Diagnosis {
            schema: "whither.doctor/1",
            machine: Machine { kernel: "6.1".into(), cpu: "Zen".into(), kind: "bare metal".into(), uid: 0 },
            verdict: "it works".into(),
            findings: vec![finding(Answer::Yes, "", ""), finding(Answer::No, "truth", "buy it")],
        };
        let said = text(&diagnosis, false);
        assert!(said.starts_with("Zen, Linux 6.1, bare metal, root\nit works\n\nyes     count cycles"), "{said}");
        assert!(said.contains("\n        lost: truth\n         fix: buy it\n"), "{said}");
        assert!(!said.contains('\x1b'));
        assert!(text(&diagnosis, true).contains("\x1b[31mno    \x1b[0m"));
    }
}
