//! The events of a file: which attributes are columns, what their periods count, and how far their
//! addresses can be trusted.

use super::record::Layout;
use crate::branches::counts_taken;
use linux_perf_data::AttributeDescription;
use linux_perf_data::linux_perf_event_reader::{
    AttrFlags, BranchSampleFormat, IpSkidConstraint, PerfEventAttr, PerfEventType, SampleFormat, SamplingPolicy,
    SoftwareCounterType,
};
use whither_kernel::events::is_ibs;
use whither_store::model::{EdgeSource, Event, EventUnit, Precision};

/// One attribute of the file.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Column its samples go to; `None` for attributes that only carry side-band records.
    pub(super) event: Option<u16>,
    /// Fields of its samples.
    pub(super) layout: Layout,
    /// Period of samples that do not tell theirs.
    pub(super) period: u64,
    /// Most frames of a stack.
    pub(super) max_stack: usize,
    /// Branch records of its samples.
    pub(super) branches: Branches,
}

/// What the branch records of an event are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branches {
    None,
    /// Some kinds of branches only: what runs between two of them is not straight.
    Partial,
    Whole(EdgeSource),
}

/// Attributes by number, and the columns. `cpu`: what the file says of it.
pub(super) fn sources(attributes: &[AttributeDescription], cpu: &str) -> (Vec<Source>, Vec<Event>) {
    let mut events: Vec<Event> = Vec::new();
    let sources = attributes
        .iter()
        .map(|description| {
            let event = (!is_side_band(&description.attr)).then(|| column(&mut events, description));
            source(description, event.flatten(), cpu)
        })
        .collect();
    (sources, events)
}

fn source(description: &AttributeDescription, event: Option<u16>, cpu: &str) -> Source {
    let attr = &description.attr;
    let layout = Layout {
        sample: attr.sample_format.bits(),
        read: attr.read_format.bits(),
        branch_index: attr.branch_sample_format.contains(BranchSampleFormat::HW_INDEX),
        user_registers: attr.sample_regs_user,
        build_ids: attr.flags.contains(AttrFlags::BUILD_ID),
    };
    // 127 is the kernel's default limit (perf_event_max_stack).
    let max_stack = if attr.sample_max_stack == 0 { 127 } else { attr.sample_max_stack.into() };
    Source { event, layout, period: nominal_period(attr), max_stack, branches: branches(description, cpu) }
}

fn branches(description: &AttributeDescription, cpu: &str) -> Branches {
    let attr = &description.attr;
    let kinds = attr.branch_sample_format;
    match () {
        () if !attr.sample_format.contains(SampleFormat::BRANCH_STACK) => Branches::None,
        // Stacks made from a processor's trace say nothing of kinds, and have all.
        () if kinds.is_empty() || kinds.contains(BranchSampleFormat::ANY) => {
            Branches::Whole(evenness(description, cpu))
        }
        () => Branches::Partial,
    }
}

/// A rate instead of a period asks for fewer records where there are many branches.
fn evenness(description: &AttributeDescription, cpu: &str) -> EdgeSource {
    let attr = &description.attr;
    let (kind, config) = match attr.type_ {
        PerfEventType::DynamicPmu(kind, config, ..) => (kind, config),
        _ => (0, 0),
    };
    let name = description.name.as_deref().unwrap_or_default();
    let by_period = matches!(attr.sampling_policy, SamplingPolicy::Period(_));
    if by_period && counts_taken(kind, config, name, cpu) { EdgeSource::EvenRecords } else { EdgeSource::Records }
}

fn is_side_band(attr: &PerfEventAttr) -> bool {
    matches!(attr.type_, PerfEventType::Software(SoftwareCounterType::Dummy))
}

/// Attributes of one event (one per CPU type, or per CPU) share a column.
fn column(events: &mut Vec<Event>, description: &AttributeDescription) -> Option<u16> {
    let event = event(description, events.len());
    let at = events.iter().position(|e| *e == event).unwrap_or_else(|| {
        events.push(event);
        events.len() - 1
    });
    u16::try_from(at).ok()
}

fn event(description: &AttributeDescription, number: usize) -> Event {
    let attr = &description.attr;
    let name = description.name.clone().unwrap_or_default();
    let name = if matches!(attr.type_, PerfEventType::Tracepoint(_)) { name.as_str() } else { plain_name(&name) };
    let name = if name.is_empty() { format!("event{number}") } else { name.to_owned() };
    let unit = if is_time(attr) { EventUnit::Nanoseconds } else { EventUnit::Count };
    let precision = if is_ibs(&name) { Precision::Exact } else { precision(attr) };
    Event { name, unit, precision }
}

/// Without modifiers that do not choose what is counted: `cpu-clock:ppp` is `cpu-clock`, but
/// `cycles:u` stays.
fn plain_name(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((plain, modifiers)) if !modifiers.is_empty() && modifiers.chars().all(|c| "pPHGS".contains(c)) => plain,
        _ => name,
    }
}

fn is_time(attr: &PerfEventAttr) -> bool {
    use SoftwareCounterType::{CpuClock, TaskClock};
    matches!(attr.type_, PerfEventType::Software(CpuClock | TaskClock))
}

/// Timers interrupt once the oldest instruction has completed, hardware counters somewhere behind;
/// other software events and tracepoints happen at their address.
fn precision(attr: &PerfEventAttr) -> Precision {
    match attr.type_ {
        _ if is_time(attr) => Precision::Skid(1),
        PerfEventType::Software(_) | PerfEventType::Tracepoint(_) => Precision::Exact,
        _ => match attr.flags.ip_skid_constraint() {
            IpSkidConstraint::ZeroSkid | IpSkidConstraint::ZeroSkidOrRandomization => Precision::Exact,
            _ => Precision::Unknown,
        },
    }
}

fn nominal_period(attr: &PerfEventAttr) -> u64 {
    match attr.sampling_policy {
        SamplingPolicy::Period(period) => period.get(),
        SamplingPolicy::Frequency(hertz) if is_time(attr) && hertz > 0 => 1_000_000_000 / hertz,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_modifiers_are_no_part_of_the_name() {
        assert_eq!(plain_name("cpu-clock:ppp"), "cpu-clock");
        assert_eq!(plain_name("cycles:u"), "cycles:u");
        assert_eq!(plain_name("cycles:P"), "cycles");
        assert_eq!(plain_name("r00c0:"), "r00c0:");
    }
}
