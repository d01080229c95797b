//! Event names as users write them (perf's names) and what the kernel wants for them. Software and
//! generic hardware events are a table; cache events and raw codes follow perf's grammar; anything of
//! the form `pmu/term,term/` is looked up in sysfs, `group:name` in tracefs. Whether the machine *has*
//! an event is found out by opening it.

use crate::KernelError;
use perf_event_open_sys::bindings as b;
use std::path::Path;

/// What a period of an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Occurrences.
    Count,
}

/// An event the kernel may offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// Name, as it heads a column.
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `perf_event_attr.config1`.
    pub config1: u64,
    /// Unit of the period.
    pub unit: Unit,
    /// Period when the user names no rate for it; time events derive theirs from the rate.
    pub default_period: u64,
    /// `precise_ip` the user asked for (`:p`, `:pp`, `:ppp`).
    pub precise: u8,
    /// User mode only (`:u`).
    pub exclude_kernel: bool,
    /// Kernel mode only (`:k`).
    pub exclude_user: bool,
}

impl EventSpec {
    /// Whether the kernel's own code counts it, clocks included, and not the processor.
    #[must_use]
    pub fn is_software(&self) -> bool {
        matches!(self.kind, b::PERF_TYPE_SOFTWARE | b::PERF_TYPE_TRACEPOINT)
    }
}

const TIME: u64 = 0;
const MANY: u64 = 1_000_003;
const SOME: u64 = 100_003;
const FEW: u64 = 1;

/// name, type, config, unit is time, default period. Periods are primes so that they share no factor
/// with loops of the program; they are re-drawn around this value anyway.
const TABLE: &[(&str, u32, u32, u64)] = &[
    ("cycles", b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_CPU_CYCLES, MANY),
    ("instructions", b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_INSTRUCTIONS, MANY),
    ("cache-references", b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_CACHE_REFERENCES, SOME),
    ("cache-misses", b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_CACHE_MISSES, 10_007),
    ("branches", b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_BRANCH_INSTRUCTIONS, MANY),
    ("branch-misses", b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_BRANCH_MISSES, 10_007),
    ("bus-cycles", b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_BUS_CYCLES, SOME),
    ("stalled-cycles-frontend", b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND, MANY),
    ("stalled-cycles-backend", b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_STALLED_CYCLES_BACKEND, MANY),
    ("ref-cycles", b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_REF_CPU_CYCLES, MANY),
    ("cpu-clock", b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_CPU_CLOCK, TIME),
    ("task-clock", b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_TASK_CLOCK, TIME),
    ("page-faults", b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_PAGE_FAULTS, FEW),
    ("minor-faults", b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_PAGE_FAULTS_MIN, FEW),
    ("major-faults", b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_PAGE_FAULTS_MAJ, FEW),
    ("context-switches", b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_CONTEXT_SWITCHES, FEW),
    ("cpu-migrations", b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_CPU_MIGRATIONS, FEW),
    ("alignment-faults", b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_ALIGNMENT_FAULTS, FEW),
    ("emulation-faults", b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_EMULATION_FAULTS, FEW),
];

const ALIASES: &[(&str, &str)] = &[
    ("cpu-cycles", "cycles"),
    ("branch-instructions", "branches"),
    ("idle-cycles-frontend", "stalled-cycles-frontend"),
    ("idle-cycles-backend", "stalled-cycles-backend"),
    ("faults", "page-faults"),
    ("cs", "context-switches"),
    ("migrations", "cpu-migrations"),
    ("imiss", "L1-icache-load-misses"),
    ("dmiss", "L1-dcache-load-misses"),
    ("branchmp", "branch-misses"),
];

const CACHES: &[&str] = &["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
const OPS: &[(&str, u64)] = &[("load", 0), ("store", 1), ("prefetch", 2)];

/// Reads an event as the user wrote it: a name, optionally with `:u`, `:k`, `:p`.
///
/// # Errors
/// [`KernelError::UnknownEvent`] with near names.
pub fn parse(text: &str) -> Result<EventSpec, KernelError> {
    let (name, modifiers) = split_modifiers(text);
    let mut spec = lookup(name)
        .ok_or_else(|| KernelError::UnknownEvent { name: text.to_string(), suggestions: suggestions(name) })?;
    for m in modifiers.chars() {
        match m {
            'u' => spec.exclude_kernel = true,
            'k' => spec.exclude_user = true,
            _ => spec.precise = (spec.precise + 1).min(3),
        }
    }
    spec.name = text.to_string();
    Ok(spec)
}

/// Splits `name:ukp`; the tail is only taken for modifiers when it consists of nothing else.
fn split_modifiers(text: &str) -> (&str, &str) {
    match text.rsplit_once(':') {
        Some((name, tail)) if !tail.is_empty() && tail.chars().all(|c| "ukp".contains(c)) => (name, tail),
        _ => (text, ""),
    }
}

fn lookup(name: &str) -> Option<EventSpec> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, real)| real);
    if let Some(&(_, kind, config, period)) = TABLE.iter().find(|row| row.0 == name) {
        let unit = if period == TIME { Unit::Nanoseconds } else { Unit::Count };
        return Some(EventSpec { unit, ..plain(name, kind, config.into(), period) });
    }
    cache(name).or_else(|| raw_code(name)).or_else(|| sysfs(name)).or_else(|| tracepoint(name))
}

fn plain(name: &str, kind: u32, config: u64, default_period: u64) -> EventSpec {
    EventSpec {
        name: name.to_string(),
        kind,
        config,
        config1: 0,
        unit: Unit::Count,
        default_period,
        precise: 0,
        exclude_kernel: false,
        exclude_user: false,
    }
}

/// `L1-dcache-load-misses`, `LLC-stores`: cache, operation, result.
fn cache(name: &str) -> Option<EventSpec> {
    let (index, rest) =
        CACHES.iter().enumerate().find_map(|(i, c)| Some((i, name.strip_prefix(c)?.strip_prefix('-')?)))?;
    OPS.iter().find_map(|&(op, code)| {
        let tail = rest.strip_prefix(op)?;
        let result = match tail {
            "s" | "es" => 0,
            "-misses" => 1,
            _ => return None,
        };
        let period = if result == 1 { 10_007 } else { MANY };
        Some(plain(name, b::PERF_TYPE_HW_CACHE, index as u64 | code << 8 | result << 16, period))
    })
}

/// `r1a8`: a raw code of the CPU's own PMU.
fn raw_code(name: &str) -> Option<EventSpec> {
    let digits = name.strip_prefix('r').filter(|d| !d.is_empty() && d.len() <= 16)?;
    Some(plain(name, b::PERF_TYPE_RAW, u64::from_str_radix(digits, 16).ok()?, SOME))
}

/// `pmu/term=value,term/`, by the formats sysfs publishes.
fn sysfs(name: &str) -> Option<EventSpec> {
    let (pmu, terms) = name.strip_suffix('/')?.split_once('/')?;
    if pmu.is_empty() || pmu.contains("..") || terms.contains("..") {
        return None;
    }
    let dir = Path::new("/sys/bus/event_source/devices").join(pmu);
    let mut spec = plain(name, read_number(&dir.join("type"))?, 0, SOME);
    for term in terms.split(',').filter(|t| !t.is_empty()) {
        apply(&dir, term, &mut spec)?;
    }
    Some(spec)
}

fn apply(dir: &Path, term: &str, spec: &mut EventSpec) -> Option<()> {
    let named = std::fs::read_to_string(dir.join("events").join(term));
    if let (false, Ok(definition)) = (term.contains('='), named) {
        return definition.trim().split(',').try_for_each(|t| set_term(dir, t, spec));
    }
    set_term(dir, term, spec)
}

fn set_term(dir: &Path, term: &str, spec: &mut EventSpec) -> Option<()> {
    let (key, value) = term.split_once('=').unwrap_or((term, "1"));
    let value = match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => value.parse().ok()?,
    };
    match key {
        "config" => spec.config = value,
        "config1" => spec.config1 = value,
        "period" => spec.default_period = value,
        _ => {
            let format = std::fs::read_to_string(dir.join("format").join(key)).ok()?;
            let (word, bits) = format.trim().split_once(':')?;
            let target = match word {
                "config" => &mut spec.config,
                "config1" => &mut spec.config1,
                _ => return None,
            };
            scatter(target, bits, value)?;
        }
    }
    Some(())
}

/// Puts the low bits of `value` where a sysfs format (`0-7,32-35`) says.
fn scatter(target: &mut u64, bits: &str, mut value: u64) -> Option<()> {
    for range in bits.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
        for bit in from..=to.min(63) {
            *target |= (value & 1) << bit;
            value >>= 1;
        }
    }
    Some(())
}

/// `sched:sched_switch`.
fn tracepoint(name: &str) -> Option<EventSpec> {
    let (group, event) = name.split_once(':')?;
    if group.contains('/') || event.contains('/') || group.starts_with('.') || event.starts_with('.') {
        return None;
    }
    let id = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .iter()
        .find_map(|root| read_number(&Path::new(root).join("events").join(group).join(event).join("id")))?;
    Some(plain(name, b::PERF_TYPE_TRACEPOINT, id.into(), FEW))
}

fn read_number(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Names of the table and of the caches, for lists and suggestions.
#[must_use]
pub fn all() -> Vec<String> {
    let mut names: Vec<String> = TABLE.iter().map(|row| row.0.to_string()).collect();
    names.extend(ALIASES.iter().map(|(alias, _)| (*alias).to_string()));
    for cache in CACHES {
        for (op, _) in OPS {
            names.push(format!("{cache}-{op}-misses"));
        }
    }
    names
}

/// Up to three known names that are near `name`.
fn suggestions(name: &str) -> Vec<String> {
    let mut near: Vec<(usize, String)> = all()
        .into_iter()
        .map(|known| (distance(&name.to_lowercase(), &known.to_lowercase()), known))
        .filter(|(d, known)| *d <= known.len().max(name.len()) / 3 || known.contains(name) && name.len() > 2)
        .collect();
    near.sort();
    near.into_iter().take(3).map(|(_, known)| known).collect()
}

/// Edits between two short words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// The tail of an error about an unknown event.
#[must_use]
pub fn did_you_mean(suggestions: &[String]) -> String {
    if suggestions.is_empty() {
        "; `whither doctor --events` lists the names, tracepoints too where tracefs is mounted".to_string()
    } else {
        format!("; did you mean {}?", suggestions.join(" or "))
    }
}

/// Whether an event is one of AMD's instruction-based sampling, by its name in sysfs.
#[must_use]
pub fn is_ibs(name: &str) -> bool {
    name.starts_with("ibs_")
}

/// The nearest period that an event takes, not above: IBS counts in steps of 16 and refuses others
/// (`arch/x86/events/amd/ibs.c`, `perf_ibs_init`; its least is 0x90).
#[must_use]
pub fn possible_period(name: &str, period: u64) -> u64 {
    if is_ibs(name) { period.max(0x90) & !0xf } else { period }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_of_tagged_samples_are_multiples_of_16() {
        assert_eq!(possible_period("ibs_op/cnt_ctl=1/", 100_003), 100_000);
        assert_eq!(possible_period("ibs_op//", 1), 0x90);
        assert_eq!(possible_period("instructions:pp", 100_003), 100_003);
    }

    #[test]
    fn names_become_codes() {
        let e = parse("cpu-clock").expect("known");
        assert_eq!((e.kind, e.config, e.unit), (1, 0, Unit::Nanoseconds));
        let e = parse("L1-dcache-load-misses:u").expect("known");
        assert_eq!((e.kind, e.config, e.exclude_kernel), (3, 0x10000, true));
        assert_eq!(parse("LLC-stores").expect("known").config, 2 | 1 << 8);
        assert_eq!(parse("cycles:pp").expect("known").precise, 2);
        assert_eq!(parse("r01c2").expect("raw").config, 0x1c2);
        assert_eq!(parse("imiss").expect("the paper's name").config, 1 | 1 << 16);
    }

    #[test]
    fn wrong_names_get_suggestions() {
        for (wrong, right) in [("cycels", "cycles"), ("page-fault", "page-faults"), ("branch-mises", "branch-misses")] {
            let Err(KernelError::UnknownEvent { suggestions, .. }) = parse(wrong) else { panic!("{wrong} is known") };
            assert!(suggestions.iter().any(|s| s == right), "{wrong}: {suggestions:?}");
        }
        assert!(parse("zzzzzzzzzz").is_err() && parse("").is_err() && parse("../x/").is_err());
    }

    #[test]
    fn bits_are_scattered_as_sysfs_says() {
        let mut word = 0;
        scatter(&mut word, "0-7,32-35", 0x1c2).expect("well formed");
        assert_eq!(word, 0x1_0000_00c2);
    }
}
