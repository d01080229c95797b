//! Which events to sample: what the user named, or the best time source this machine has, found by
//! trying. Nothing falls back silently: every choice that is not the user's leaves a note.

use crate::SessionError;
use crate::options::{Pace, RecordOptions};
use whither_kernel::KernelError;
use whither_kernel::calibrate::{self, Skid};
use whither_kernel::events::{self, EventSpec, Unit};
use whither_kernel::perf::{Attr, PerfEvent, Watch};
use whither_sample::Chosen;
use whither_store::model::Precision;

/// Rate to begin with when a budget decides: dense enough to measure what a sample costs in 50 ms.
pub(crate) const FIRST_HERTZ: u32 = 4999;
/// Highest rate a budget may buy, as in DCPI.
pub(crate) const FULL_HERTZ: u32 = 5200;
/// Highest rate at all where a timer interrupt costs several exits to the hypervisor.
const CAP_HERTZ: u32 = 20_000;

/// Events and what to say about them.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) events: Vec<Chosen>,
    pub(crate) notes: Vec<String>,
}

/// Chooses events.
pub(crate) fn choose(options: &RecordOptions) -> Result<Choice, SessionError> {
    let mut notes = Vec::new();
    let mut specs = Vec::new();
    for name in options.events.iter().chain(&options.multiplexed) {
        let spec = checked(name, options)?;
        // Named twice it is one column, and would count twice there.
        if specs.iter().all(|s: &EventSpec| s.name != spec.name) {
            specs.push(spec);
        }
    }
    // Muxed events share counters by turns; time keeps one of its own (paper section 4.1).
    if options.events.is_empty() {
        specs.insert(0, time_source(&mut notes)?);
    }
    let hertz = hertz(options.pace, &mut notes);
    let mut events: Vec<Chosen> = specs
        .into_iter()
        .map(|mut spec| {
            spec.exclude_kernel |= options.user_only;
            chosen(spec, options.pace, hertz)
        })
        .collect();
    notes.extend(events.iter_mut().filter_map(|c| corrected(c, skid_of)));
    if !matches!(options.pace, Pace::Period(_)) {
        let own = |c: &&Chosen| !c.is_rated() && c.period > 1;
        notes.extend(events.iter().filter(own).map(|c| {
            format!(
                "{} is sampled once every {} occurrences, whatever the rate; --period changes it",
                c.spec.name, c.period
            )
        }));
    }
    notes.extend(left_out(&events, options.user_only));
    Ok(Choice { events, notes })
}

/// Time in the kernel that nobody asked to leave out is missed in every share: said aloud.
fn left_out(events: &[Chosen], user_only: bool) -> Option<String> {
    let named_so = |c: &Chosen| c.spec.name.contains(':');
    let refused = |c: &&Chosen| c.spec.exclude_kernel && !user_only && !named_so(c);
    let names: Vec<&str> = events.iter().filter(refused).map(|c| c.spec.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the kernel's part is missing: without rights, {} is sampled in user code only, and time in system calls, page \
             faults and interrupts is in no figure; 'whither doctor' tells what would allow it",
            names.join(", ")
        )
    })
}

fn hertz(pace: Pace, notes: &mut Vec<String>) -> u32 {
    match pace {
        Pace::Hertz(h) if h > CAP_HERTZ && !has_cycles() => {
            notes.push(format!("{h} Hz would take most of the CPU with timer interrupts; sampling at {CAP_HERTZ} Hz"));
            CAP_HERTZ
        }
        Pace::Hertz(h) => h.max(1),
        Pace::Budget(_) | Pace::Period(_) => FIRST_HERTZ,
    }
}

fn chosen(spec: EventSpec, pace: Pace, hertz: u32) -> Chosen {
    let nanoseconds = 1_000_000_000 / u64::from(hertz);
    let units_per_ns = match spec.unit {
        Unit::Nanoseconds => 1.0,
        _ if spec.name.starts_with("cycles") => cycles_in(1_000_000).map_or(0.0, |c| c as f64 / 1e6),
        Unit::Count => 0.0,
    };
    let period = match (pace, spec.unit) {
        // A timer faster than this would take the whole machine.
        (Pace::Period(p), Unit::Nanoseconds) => p.max(1_000_000_000 / u64::from(CAP_HERTZ)),
        (Pace::Period(p), Unit::Count) => p.max(1),
        _ if units_per_ns > 0.0 => (nanoseconds as f64 * units_per_ns) as u64,
        _ => spec.default_period,
    };
    let period = events::possible_period(&spec.name, period);
    let precision = match spec.unit {
        // A timer interrupt is taken when the oldest instruction has completed (design note 3.4).
        Unit::Nanoseconds => Precision::Skid(1),
        // IBS tells the address of the operation it tagged (AMD64 manual volume 2, section 13.3).
        Unit::Count if spec.precise > 0 || events::is_ibs(&spec.name) => Precision::Exact,
        Unit::Count if spec.name.starts_with("cycles") => Precision::Skid(1),
        Unit::Count => Precision::Unknown,
    };
    Chosen { spec, period, precision, turns: 1, units_per_ns }
}

/// Where this machine takes an event's samples; `None`: it cannot be told.
fn skid_of(chosen: &Chosen) -> Option<Skid> {
    // A tenth of a millisecond.
    let period = (chosen.units_per_ns * 1e5) as u64;
    let attr = Attr { period, exclude_user: false, ..chosen.attr() };
    calibrate::skid(&attr).ok().filter(Skid::is_known)
}

/// Takes the distance that was measured for the usual one; tells where there is none that is right for all samples.
fn corrected(chosen: &mut Chosen, measure: impl Fn(&Chosen) -> Option<Skid>) -> Option<String> {
    if chosen.precision != Precision::Skid(1) {
        return None;
    }
    let skid = measure(chosen)?;
    chosen.precision = match skid.usual() {
        Some(n) => Precision::Skid(n),
        // A timer's interrupt waits for one instruction on every core: what scatters is the measurement.
        None if chosen.is_time() => return None,
        None => Precision::Unknown,
    };
    let name = &chosen.spec.name;
    (!matches!(chosen.precision, Precision::Skid(0 | 1))).then(|| {
        let behind = 100 * skid.behind[1] / skid.samples().max(1);
        format!(
            "samples of {name} are not taken right behind the instruction that waits here ({behind} % of a measured \
             loop's were): instructions are listed as sampled"
        )
    })
}

/// Reads a name and makes sure that the machine has the event.
fn checked(name: &str, options: &RecordOptions) -> Result<EventSpec, SessionError> {
    let spec = events::parse(name)?;
    match open_here(&spec, options.user_only) {
        Ok(_) => Ok(spec),
        Err(e) if matches!(e.errno(), Some(1 | 13)) && !spec.exclude_kernel => {
            // Without rights one's own processes can still be sampled in user mode.
            let user = EventSpec { exclude_kernel: true, ..spec };
            open_here(&user, true).map(|_| user).map_err(|e| refusal(name, &e))
        }
        Err(e) => Err(refusal(name, &e)),
    }
}

fn refusal(name: &str, e: &KernelError) -> SessionError {
    let (what, why) = (format!("the event '{name}'"), e.to_string());
    if matches!(e.errno(), Some(2 | 19 | 22 | 95)) {
        let remedy = "This CPU or virtual machine does not offer it; 'whither doctor --events' lists what there is, and \
                      'cpu-clock' works everywhere.";
        return SessionError::Missing { what, why, remedy: remedy.into() };
    }
    let remedy = "'whither doctor' tells the narrowest right that is missing.";
    SessionError::Rights { what, why, remedy: remedy.into() }
}

fn open_here(spec: &EventSpec, user_only: bool) -> Result<PerfEvent, KernelError> {
    let attr = Attr {
        kind: spec.kind,
        config: spec.config,
        config1: spec.config1,
        period: spec.default_period.max(1_000_000),
        exclude_kernel: spec.exclude_kernel || user_only,
        exclude_user: spec.exclude_user,
        precise: spec.precise,
        ..Attr::default()
    };
    PerfEvent::open(&attr, Watch::Thread(0))
}

/// Cycles where a counter really counts, else the timer.
fn time_source(notes: &mut Vec<String>) -> Result<EventSpec, SessionError> {
    if has_cycles() {
        let precise = events::parse("cycles:pp")?;
        let spec = if open_here(&precise, false).is_ok() { precise } else { events::parse("cycles")? };
        return Ok(EventSpec { name: "cycles".into(), ..spec });
    }
    notes.push(
        "hardware cycles are not offered by this CPU or virtual machine: sampled by timer (cpu-clock), which cannot \
         interrupt code that runs with interrupts off; such time shows where they come back on"
            .into(),
    );
    checked_clock()
}

fn checked_clock() -> Result<EventSpec, SessionError> {
    let spec = events::parse("cpu-clock")?;
    match open_here(&spec, false) {
        Ok(_) => Ok(spec),
        Err(_) => {
            let user = EventSpec { exclude_kernel: true, ..spec };
            open_here(&user, true).map(|_| user).map_err(|e| refusal("cpu-clock", &e))
        }
    }
}

/// Whether the cycle counter opens *and counts*: virtual ones may read 0.
fn has_cycles() -> bool {
    cycles_in(1_000_000).is_some()
}

/// Cycles that pass in so many nanoseconds on this CPU now.
fn cycles_in(nanoseconds: u64) -> Option<u64> {
    let spec = events::parse("cycles").ok()?;
    let attr = Attr { kind: spec.kind, config: spec.config, exclude_kernel: true, ..Attr::default() };
    let event = PerfEvent::open(&attr, Watch::Thread(0)).ok()?;
    let (t0, c0) = (std::time::Instant::now(), event.count().ok()?);
    while t0.elapsed().as_millis() < 5 {
        std::hint::spin_loop();
    }
    let (elapsed, cycles) = (t0.elapsed().as_nanos() as f64, event.count().ok()? - c0);
    (cycles > 1000).then(|| (cycles as f64 / elapsed * nanoseconds as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_kernel_is_said_aloud() {
        let event = |name: &str, exclude_kernel| {
            let spec = EventSpec { name: name.into(), exclude_kernel, ..events::parse("cpu-clock").unwrap() };
            Chosen { spec, period: 1, precision: Precision::Skid(1), turns: 1, units_per_ns: 1.0 }
        };
        assert_eq!(left_out(&[event("cpu-clock", false)], false), None);
        assert_eq!(left_out(&[event("cpu-clock", true)], true), None, "asked for by --user");
        assert_eq!(left_out(&[event("cycles:u", true)], false), None, "asked for by name");
        let note = left_out(&[event("cpu-clock", true)], false).unwrap();
        assert!(note.contains("cpu-clock is sampled in user code only"), "{note}");
    }

    #[test]
    fn what_was_measured_decides_how_samples_are_corrected() {
        let timer = events::parse("cpu-clock").unwrap();
        let spec = EventSpec { name: "cycles".into(), unit: Unit::Count, ..timer.clone() };
        let event = Chosen { spec, period: 1, precision: Precision::Skid(1), turns: 1, units_per_ns: 3.0 };
        let of = |mut event: Chosen, behind| {
            let note = corrected(&mut event, |_| behind);
            (event.precision, note.is_some())
        };
        let told = |behind| of(event.clone(), behind);
        let seen = |behind| Some(Skid { behind, elsewhere: 0 });
        assert_eq!(told(None), (Precision::Skid(1), false), "not measured: as usual");
        assert_eq!(told(seen([0, 95, 5, 0, 0, 0, 0, 0])), (Precision::Skid(1), false));
        assert_eq!(told(seen([95, 5, 0, 0, 0, 0, 0, 0])), (Precision::Skid(0), false));
        assert_eq!(told(seen([0, 10, 80, 10, 0, 0, 0, 0])), (Precision::Skid(2), true));
        let scattered = seen([0, 40, 30, 30, 0, 0, 0, 0]);
        assert_eq!(told(scattered), (Precision::Unknown, true));
        assert_eq!(of(Chosen { spec: timer, ..event.clone() }, scattered), (Precision::Skid(1), false));
    }
}
