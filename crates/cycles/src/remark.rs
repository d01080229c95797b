//! Remarks on rows whose figures mean something else than they seem to: time that piles up where
//! interrupts are switched on again, and code nobody could name.

use whither_store::model::{Event, EventUnit, Image, ImageKind, Precision};

/// What is said of a pile-up.
pub const IRQS_OFF: &str = "interrupts were off before here: time of the code before it piles up on this function";

/// What is said of executable memory without a file.
pub const NO_FILE: &str = "executable memory without a file (code made at run time); a /tmp/perf-PID.map would name it";

/// What is said of the idle loop.
pub const IDLE: &str = "the CPU had nothing to do";

/// Functions that end with, or directly follow, the return of interrupts.
const AFTER_IRQS_OFF: [&str; 12] = [
    "_raw_spin_unlock_irqrestore",
    "_raw_spin_unlock_irq",
    "_raw_read_unlock_irq",
    "_raw_write_unlock_irq",
    "irqentry_exit_to_user_mode",
    "irqentry_exit",
    "syscall_exit_to_user_mode",
    "exit_to_user_mode_loop",
    "do_syscall_64",
    "exc_page_fault",
    "handle_softirqs",
    "__do_softirq",
];

/// Where an idle CPU waits.
const IDLE_LOOPS: [&str; 8] = [
    "pv_native_safe_halt",
    "native_safe_halt",
    "default_idle",
    "acpi_safe_halt",
    "acpi_idle_do_entry",
    "mwait_idle",
    "poll_idle",
    "cpu_idle_poll",
];

/// And families of them, by how their names begin.
const FAMILIES: [&str; 4] = ["finish_task_switch", "asm_", "entry_SYSCALL", "swapgs_restore_regs"];

/// The remark a row deserves, if any. `function` is the mangled name when rows are procedures or
/// instructions.
#[must_use]
pub fn of(image: &Image, function: Option<&str>, event: &Event) -> Option<String> {
    if image.kind == ImageKind::Anon {
        return Some(NO_FILE.to_owned());
    }
    if image.kind == ImageKind::Kernel && function.is_some_and(is_idle) {
        return Some(IDLE.to_owned());
    }
    let pile_up = image.kind == ImageKind::Kernel && is_timer(event) && function.is_some_and(follows_irqs_off);
    pile_up.then(|| IRQS_OFF.to_owned())
}

/// A timer's interrupt waits until interrupts are on; a PMU's NMI does not.
fn is_timer(event: &Event) -> bool {
    event.unit == EventUnit::Nanoseconds && event.precision != Precision::Exact
}

/// `finish_task_switch.isra.0` and the like are the same function, compiled specially.
fn base(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

fn is_idle(name: &str) -> bool {
    IDLE_LOOPS.contains(&base(name)) || base(name).starts_with("intel_idle")
}

pub(crate) fn follows_irqs_off(name: &str) -> bool {
    let base = base(name);
    AFTER_IRQS_OFF.contains(&base) || FAMILIES.iter().any(|f| base.starts_with(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remark(kind: ImageKind, name: &str, unit: EventUnit, precision: Precision) -> Option<String> {
        let image = Image {
            id: Default::default(),
            id_kind: whither_store::model::IdKind::Synthetic,
            kind,
            path: "[kernel]".into(),
            segments: vec![],
            size: 0,
        };
        of(&image, Some(name), &Event { name: "cpu-clock".into(), unit, precision })
    }

    #[test]
    fn pile_ups_are_remarked_for_timers_only() {
        use EventUnit::{Count, Nanoseconds};
        let skid = Precision::Skid(1);
        assert!(remark(ImageKind::Kernel, "finish_task_switch.isra.0", Nanoseconds, skid).is_some());
        assert!(remark(ImageKind::Kernel, "_raw_spin_unlock_irq", Nanoseconds, skid).is_some());
        assert!(remark(ImageKind::Kernel, "_raw_spin_lock", Nanoseconds, skid).is_none());
        assert!(remark(ImageKind::Kernel, "do_syscall_64", Count, skid).is_none());
        assert!(remark(ImageKind::Kernel, "do_syscall_64", Nanoseconds, Precision::Exact).is_none());
        let idle = remark(ImageKind::Kernel, "pv_native_safe_halt", Count, Precision::Exact);
        assert_eq!(idle.as_deref(), Some(IDLE));
        assert!(remark(ImageKind::Elf, "do_syscall_64", Nanoseconds, skid).is_none());
    }
}
