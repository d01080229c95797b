//! A function as a candidate: names, way of patching, cost, and whether its exit can be seen.

use super::ModuleView;
use super::image::{Beginning, ModuleImage, nameless};
use crate::api::{Candidate, CostClass, Refusal};
use std::rc::Rc;
use whither_image::{CodeMap, EntryRefusal, NoExit, Plan, PlanKind, Svma, is_emulated_by_uprobes};
use whither_store::calls::PatchKind;

/// Return twice: the second return would find our address in a frame that is gone.
const RETURN_TWICE: [&str; 19] = [
    "setjmp",
    "_setjmp",
    "__setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "__libc_sigsetjmp",
    "savectx",
    "vfork",
    "__vfork",
    "__libc_vfork",
    "getcontext",
    "__getcontext",
    "swapcontext",
    "__swapcontext",
    "clone",
    "__clone",
    "clone3",
    "__clone3",
    "__clone_internal",
];
/// Look at their own return address to learn who called.
const READ_RETURN: [&str; 19] = [
    "dlopen",
    "dlmopen",
    "dlsym",
    "dlvsym",
    "__dlopen",
    "__dlsym",
    "__libc_dlopen_mode",
    "__libc_dlsym",
    "dl_iterate_phdr",
    "__dl_iterate_phdr",
    "mcount",
    "_mcount",
    "__fentry__",
    "__morestack",
    "backtrace",
    "__backtrace",
    "_dl_catch_exception",
    "__gnu_mcount_nc",
    "_dl_open",
];
/// Never come back to their caller, though their code ends in a jump.
const NEVER_RETURN: [&str; 22] = [
    "longjmp",
    "_longjmp",
    "__longjmp",
    "siglongjmp",
    "__libc_longjmp",
    "__libc_siglongjmp",
    "__longjmp_chk",
    "____longjmp_chk",
    "setcontext",
    "__setcontext",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "abort",
    "pthread_exit",
    "__pthread_exit",
    "__cxa_throw",
    "__cxa_rethrow",
    "__stack_chk_fail",
    "thrd_exit",
    "__pthread_unwind",
];
/// Begin a thread or a program: no return address is on their stack.
const OUTERMOST: [&str; 3] = ["_start", "_dl_start_user", "_rt0_amd64_linux"];

/// The candidate at a stated address; `None` outside of code.
pub(super) fn describe<M: ModuleView>(module: &M, index: usize, image: &ModuleImage, at: Svma) -> Option<Candidate> {
    let mut candidate = told(image, at)?.candidate.clone();
    candidate.address = at.0.wrapping_add(module.bias());
    candidate.module = index;
    if candidate.names.is_empty() {
        candidate.names.push(nameless(module.path(), at));
    }
    Some(candidate)
}

/// What a file tells of a function, whichever process has it mapped, and wherever.
pub(super) struct Told {
    /// Its module and address are not those of a process; without a name where the file has none.
    candidate: Candidate,
    /// How to patch it.
    pub(super) plan: Option<Plan>,
}

/// Worked out once for each file: a shell script's programs all map the same libraries.
pub(super) fn told(image: &ModuleImage, at: Svma) -> Option<Rc<Told>> {
    image.told(at, || {
        let code = image.code().filter(|c| c.is_code(at))?;
        let entry = code.entry(at);
        let reads = || image.rows().is_some_and(|rows| code.touches_return_address(at, rows));
        let entry_only = reason(image, at)
            .or_else(|| entry.no_exit.map(no_exit))
            .or_else(|| reads().then_some("reads its return address"))
            .or_else(|| of_a_runtime(image, at))
            .map(str::to_owned);
        let looping = entry.repeats.map(|branch| Refusal::LoopToEntry { from: branch.0 });
        let patch = match looping {
            Some(refused) => Err(refused),
            None => entry.plan.as_ref().map(|plan| kind(plan.kind)).map_err(refusal),
        };
        let candidate = Candidate {
            address: at.0,
            module: 0,
            offset: at.0,
            size: entry.extent.end - entry.extent.start,
            names: image.names_at(at.0),
            cost: if patch.is_ok() { CostClass::Nanoseconds } else { trap_cost(code, at) },
            patch,
            entry_only,
            callers: Vec::new(),
        };
        Some(Told { candidate, plan: entry.plan.ok() })
    })
}

/// Why the exit must not be touched, by name and unwind rules.
fn reason(image: &ModuleImage, at: Svma) -> Option<&'static str> {
    let has = |list: &[&str]| image.raw_names_at(at).iter().any(|n| list.contains(&&*n.name));
    let unwinder = || image.raw_names_at(at).iter().any(|n| n.name.starts_with("_Unwind_"));
    if image.beginning(at) == Beginning::Outermost || has(&OUTERMOST) {
        Some("has no caller")
    } else if image.beginning(at) == Beginning::Middle {
        Some("its return address is not where functions have it")
    } else if has(&RETURN_TWICE) {
        Some("returns twice")
    } else if has(&READ_RETURN) || unwinder() {
        Some("reads its return address")
    } else if has(&NEVER_RETURN) {
        Some(no_exit(NoExit::NeverReturns))
    } else {
        None
    }
}

/// Run-time systems that look for callers by return addresses on their stacks, and end the program when they find one that they
/// do not know. Calls by code without unwind rules are left alone by the agent (V8, Java's VM); these have rules, or call each
/// other.
fn of_a_runtime(image: &ModuleImage, at: Svma) -> Option<&'static str> {
    image.raw_names_at(at).iter().find_map(|n| match &*n.name {
        name if name.starts_with("Builtins_") => Some("V8 looks for return addresses on stacks"),
        name if name.starts_with("caml") => Some("OCaml's collector looks for return addresses on stacks"),
        _ => None,
    })
}

fn no_exit(reason: NoExit) -> &'static str {
    match reason {
        NoExit::PopsArguments => "removes its arguments from the stack",
        NoExit::NeverReturns => "never returns",
        NoExit::Go => "Go code: its run-time system moves stacks, return addresses with them",
    }
}

fn kind(kind: PlanKind) -> PatchKind {
    match kind {
        PlanKind::Jump => PatchKind::Jump,
        PlanKind::Padded => PatchKind::PaddedJump,
        PlanKind::Short => PatchKind::ShortJump,
    }
}

fn refusal(reason: &EntryRefusal) -> Refusal {
    match reason {
        EntryRefusal::TooShort { bytes } => Refusal::TooShort { bytes: *bytes },
        EntryRefusal::BranchInto { from } => Refusal::BranchInto { from: *from },
        EntryRefusal::CallInside => Refusal::CallInside,
        EntryRefusal::ReturnInside => Refusal::ReturnInside,
        EntryRefusal::Immovable { what } => Refusal::Immovable { what: what.clone() },
        EntryRefusal::NotCode => Refusal::NotMapped,
        _ => Refusal::Undecodable,
    }
}

/// What a kernel breakpoint costs there: some first instructions are emulated, others single-stepped.
pub(super) fn trap_cost(code: &CodeMap, at: Svma) -> CostClass {
    let bytes = code.bytes().get(at.0..at.0.saturating_add(2)).unwrap_or_default();
    if is_emulated_by_uprobes(bytes) { CostClass::Microsecond } else { CostClass::TenMicroseconds }
}
