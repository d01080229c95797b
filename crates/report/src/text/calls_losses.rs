//! Losses of call-path profiles as sentences: what is not counted, or counted without time, with the remedy. Parts that a sentence
//! names add up to its number.

use super::calls::{n_calls, told_apart};
use super::number::thousands;
use whither_calls::{CallProfile, FunctionRow};

/// Calls that are not counted, or without what is known of others, by cause.
pub(super) fn losses(p: &CallProfile) -> Vec<String> {
    let l = &p.lost;
    // Those left last are noticed by the agent at the next probed call, if one comes.
    let facts = p.facts();
    let missing = facts.untimed.values().fold(0_u64, |sum, n| sum.saturating_add(*n));
    let left = if l.jumped > 0 && l.shadow == 0 && l.exit == 0 { l.jumped.max(missing) } else { l.jumped };
    let jumped = format!(
        "counted without time: left by longjmp, an exception or the end of the thread{}",
        without_time(p, left)
    );
    // Calls of several causes without their times are told together: which call had which is not known, and parts have to add up.
    let mixed = l.jumped > 0 && l.shadow.saturating_add(l.exit) > 0 && missing > 0;
    let causes = [
        (
            l.busy,
            ["call", "calls"],
            "not counted: made by signal handlers that interrupted the measuring itself, or right after one had jumped out of it, or under strict seccomp (--safe counts those)",
        ),
        (
            l.depth,
            ["call", "calls"],
            "not counted: too many probed calls in progress at once; probe fewer recursive functions",
        ),
        (
            [l.early, l.locked, l.shared, l.edge].into_iter().fold(l.table, u64::saturating_sub),
            ["call", "calls"],
            "not counted: tables full; probe fewer functions or lower --depth",
        ),
        (l.early, ["call", "calls"], "not counted: made before the C library of a static program was ready"),
        (
            l.shared,
            ["call", "calls"],
            "not counted: made by a child that shares its parent's memory (vfork, or clone(CLONE_VM) with a stack of its own)",
        ),
        (
            l.locked,
            ["call", "calls"],
            "not counted: made by threads that called first after the program had forbidden itself system calls (seccomp)",
        ),
        (
            l.edge,
            ["call", "calls"],
            "not counted: not made by a call (code that begins a coroutine), made where a stack was nearly full, or with a return address that begins a page",
        ),
        // Of callers without unwind tables a note says more.
        (l.shadow.saturating_sub(l.foreign), ["call", "calls"], ALONE),
        (left, ["call", "calls"], jumped.as_str()),
        (l.exit, ["exit", "exits"], "without an entry: returned rightly, not timed"),
        (l.ring, ["event record", "event records"], "dropped: the ring was full; emit from fewer calls"),
        (
            if l.paths > 0 { facts.other.calls.max(l.paths) } else { 0 },
            ["call", "calls"],
            "not told apart by path: the tables of paths are full; they are under [other paths]; probe fewer functions, or lower --depth or --recursion",
        ),
    ];
    let is_told = |(n, _, why): &&(u64, [&str; 2], &str)| *n > 0 && !(mixed && (*why == jumped || *why == ALONE));
    let told = causes.iter().filter(is_told);
    let told =
        told.map(|(n, [one, many], why)| format!("{} {} {why}", thousands(*n), if *n == 1 { one } else { many }));
    told.chain(mixed.then(|| without_time_together(p, missing))).collect()
}

/// Calls that could be counted only.
const ALONE: &str = "counted without time: their return addresses had to be left alone";

/// `21,040 calls counted without time, of jumper (21,000), body (40): ...; noticed were 20,980 left by ..., 60 whose ...`.
fn without_time_together(p: &CallProfile, missing: u64) -> String {
    let alone = p.lost.shadow.saturating_sub(p.lost.foreign);
    let noticed = [
        (p.lost.jumped, "left by longjmp, an exception or the end of the thread"),
        (alone, "whose return addresses had to be left alone"),
        (p.lost.foreign, "from code without unwind tables"),
    ];
    let noticed = noticed.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", thousands(n)));
    let noticed: Vec<String> = noticed.collect();
    format!(
        "{} counted without time{}; noticed were {}",
        n_calls(missing),
        without_time(p, missing),
        noticed.join(", ")
    )
}

/// `, of pass (2,000), parse (3): their totals are at least what is shown`.
fn without_time(p: &CallProfile, all_calls: u64) -> String {
    const MOST: usize = 5;
    let untimed = p.facts().untimed;
    let of = |f: &FunctionRow| untimed.get(&f.id).copied().unwrap_or(0);
    let mut all: Vec<(&FunctionRow, u64)> = p.functions.iter().map(|f| (f, of(f))).filter(|(_, n)| *n > 0).collect();
    all.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let named = all.iter().take(MOST).map(|(f, n)| format!("{} ({})", told_apart(&p.functions, f), thousands(*n)));
    let mut named: Vec<String> = named.collect();
    if all.len() > MOST {
        let more = all.iter().skip(MOST).fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
        named.push(format!("{} more functions ({})", thousands((all.len() - MOST) as u64), thousands(more)));
    }
    let parts = all.iter().fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
    if !named.is_empty() && parts < all_calls {
        named.push(format!("others ({})", thousands(all_calls - parts)));
    }
    if named.is_empty() {
        String::new()
    } else {
        format!(", of {}: times shown with > are at least so long", named.join(", "))
    }
}
