//! From progress points as written to places in the code: first instructions of a source line with all its
//! inlined copies, function entries and returns, marks, variables. A place that does not exist comes back
//! with what there is instead.

use super::code::{Code, readable};
use super::program::{CodeFile, Program};
use super::words::{FileLine, NamePattern, PointPlace, TargetSpec};
use rustc_hash::FxHashMap;
use std::ops::Range;
use whither_image::data_names::variables;
use whither_image::{Flow, NameKind, StatedBytes, Svma, decode, marks, to_offset};
use whither_probe::uprobe::exits::{self, exits};
use whither_store::symbols::Symbols;

/// More places than this are no point any more.
const MOST: usize = 64;
/// Names offered for a wrong one.
const OFFERED: usize = 6;

/// Where a point is in one file of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Stated addresses of instructions.
    pub(super) code: Vec<Svma>,
    /// Stated address of a counter.
    pub(super) counter: Option<Svma>,
    /// Stated addresses whose samples count.
    pub(super) sampled: Vec<Range<u64>>,
    /// Why there is nothing, though something like it is there.
    pub(super) refused: Option<String>,
}

impl Found {
    pub(super) fn is_empty(&self) -> bool {
        self.code.is_empty() && self.counter.is_none() && self.sampled.is_empty()
    }
}

/// Looks for a point in a file of code.
pub(super) fn find(place: &PointPlace, file: usize, program: &Program, code: &mut Code) -> Found {
    let Some(of) = program.files.get(file).cloned() else { return Found::default() };
    let mut found = match place {
        PointPlace::Line(line) => Found { code: statements(line, file, &of, code), ..Found::default() },
        PointPlace::Function(name) => Found { code: entries(name, &of, code), ..Found::default() },
        PointPlace::Return(name) => returns(name, file, &of, code),
        PointPlace::Mark(name) => marked("whither", name, &of, code),
        PointPlace::Usdt(provider, name) => marked(provider, name, &of, code),
        PointPlace::Counter(name) => counter(name, &of, code),
        PointPlace::Sampled(line) => {
            let all = code.service().lines_of(&of.image, &line.file);
            let ours = all.into_iter().filter(|(_, l)| *l == line.line).map(|(r, _)| r.start.0..r.end.0);
            Found { sampled: ours.collect(), ..Found::default() }
        }
        PointPlace::Syscall(_) | PointPlace::Tracepoint(..) | PointPlace::End => Found::default(),
    };
    // Tables name code that the linker has dropped, too.
    found.code.retain(|at| to_offset(&of.image.segments, *at).is_some());
    past_refused(&mut found, &of, code);
    found.code.sort_unstable();
    found.code.dedup();
    if found.code.len() > MOST {
        found.refused = Some(format!("it has {} places, more than {MOST}; name a more special one", found.code.len()));
        found.code.clear();
    }
    found
}

/// The kernel puts no probe on some instructions, a locked addition among them. The next one runs as often, unless
/// the first one jumps away.
fn past_refused(found: &mut Found, of: &CodeFile, code: &Code) {
    if found.code.is_empty() {
        return;
    }
    let Some(bytes) = code.service().file(&of.image).and_then(|f| StatedBytes::from_elf(&f).ok()) else { return };
    for at in &mut found.code {
        // Two instructions, of at most 15 bytes; a file may end before.
        let Some(text) = (2..=30).rev().find_map(|n| bytes.get(at.0..at.0.saturating_add(n))) else { continue };
        let two = decode(text, *at);
        if let [first, next, ..] = two.as_slice()
            && first.takes_no_uprobe()
        {
            if first.flow == Flow::Next && !next.takes_no_uprobe() {
                *at = next.address;
            } else {
                found.refused = Some(format!("the kernel puts no probe on its instruction at {:#x}", at.0));
            }
        }
    }
    if found.refused.is_some() {
        found.code.clear();
    }
}

/// The first instruction of a line in each function and each inlined copy; of the head of a loop, which begins where the loop
/// is entered and goes on where it turns, the one that each turn passes.
fn statements(line: &FileLine, file: usize, of: &CodeFile, code: &mut Code) -> Vec<Svma> {
    let all = code.service().statements(&of.image, &line.file);
    let ours: Vec<Svma> = all.into_iter().filter(|s| s.line == line.line).map(|s| s.at).collect();
    let bytes = code.service().file(&of.image);
    let bytes = bytes.and_then(|f| StatedBytes::from_elf(&f).ok());
    let mut turns: FxHashMap<Range<u64>, Vec<Range<u64>>> = FxHashMap::default();
    let mut copies: FxHashMap<_, (usize, Svma)> = FxHashMap::default();
    for at in ours {
        let extent = code.extent(file, of, at);
        let depth = extent.clone().zip(bytes.as_ref()).map_or(0, |(extent, bytes)| {
            let loops = turns.entry(extent.clone()).or_insert_with(|| backward_jumps(extent, bytes));
            loops.iter().filter(|l| l.contains(&at.0)).count()
        });
        let function = extent.map(|e| e.start);
        let mut chain = code.service().chain(&of.image, at);
        // Where in the innermost function it is tells nothing of the copy.
        if let Some(innermost) = chain.first_mut() {
            (innermost.line, innermost.column, innermost.file) = (0, 0, None);
        }
        let best = copies.entry((function, chain)).or_insert((depth, at));
        if depth > best.0 || (depth == best.0 && at < best.1) {
            *best = (depth, at);
        }
    }
    copies.into_values().map(|(_, at)| at).collect()
}

/// From where each backward jump leads to where it is: what lies in several is in nested loops.
fn backward_jumps(extent: Range<u64>, bytes: &StatedBytes) -> Vec<Range<u64>> {
    let Some(text) = bytes.get(extent.clone()) else { return Vec::new() };
    let mut loops: FxHashMap<u64, u64> = FxHashMap::default();
    for insn in decode(text, Svma(extent.start)) {
        if let Flow::Branch(to) | Flow::Jump(to) = insn.flow
            && to <= insn.address
            && extent.contains(&to.0)
        {
            // Several jumps to one head are one loop.
            let end = loops.entry(to.0).or_default();
            *end = (*end).max(insn.address.0 + 1);
        }
    }
    loops.into_iter().map(|(head, end)| head..end).collect()
}

fn entries(name: &NamePattern, of: &CodeFile, code: &Code) -> Vec<Svma> {
    if !name.may_be_in(&of.seen_as) {
        return Vec::new();
    }
    functions(name, of, code).into_iter().map(|f| f.0).collect()
}

/// Functions by exact name, else by the expression.
fn functions(name: &NamePattern, of: &CodeFile, code: &Code) -> Vec<(Svma, u64, String)> {
    let exact = code.named(of, |n| name.is(n));
    if exact.is_empty() { code.named(of, |n| name.matches(n)) } else { exact }
}

/// Instructions by which functions leave: no return address is touched.
fn returns(name: &NamePattern, file: usize, of: &CodeFile, code: &mut Code) -> Found {
    let mut found = Found::default();
    if !name.may_be_in(&of.seen_as) {
        return found;
    }
    let Some(bytes) = code.service().file(&of.image).and_then(|f| StatedBytes::from_elf(&f).ok()) else { return found };
    for (at, size, function) in functions(name, of, code) {
        let extent = code.extent(file, of, at).unwrap_or(at.0..at.0.saturating_add(size));
        let around = Around { bytes: &bytes, code: std::cell::RefCell::new(code), file, of };
        match exits(extent, &around) {
            Ok(places) => found.code.extend(places.into_iter().map(Svma)),
            Err(why) => found.refused = Some(format!("the returns of {function} cannot all be told: {why}")),
        }
    }
    if found.refused.is_some() {
        found.code.clear();
    }
    found
}

struct Around<'a> {
    bytes: &'a StatedBytes,
    code: std::cell::RefCell<&'a mut Code>,
    file: usize,
    of: &'a CodeFile,
}

impl exits::Code for Around<'_> {
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        self.bytes.get(range)
    }
    fn extent(&self, address: u64) -> Option<Range<u64>> {
        self.code.borrow_mut().extent(self.file, self.of, Svma(address))
    }
}

fn marked(provider: &str, name: &str, of: &CodeFile, code: &Code) -> Found {
    let mut found = Found::default();
    let Some(bytes) = code.service().file(&of.image) else { return found };
    for mark in marks(&bytes).into_iter().filter(|m| m.provider == provider && m.name == name) {
        if mark.semaphore == Svma(0) {
            found.code.push(mark.at);
        } else {
            found.refused = Some(
                "the program reaches this mark only while a tracer holds its semaphore, which would mean to write into the \
                 program; name the line or the function instead"
                    .into(),
            );
        }
    }
    found
}

fn counter(name: &str, of: &CodeFile, code: &Code) -> Found {
    let mut found = Found::default();
    let Some(bytes) = code.service().file(&of.image) else { return found };
    match variables(&bytes, |n| n == name).as_slice() {
        [] => {}
        [one] if one.size == 8 => found.counter = Some(one.at),
        [one] => found.refused = Some(format!("it has {} bytes; a counter has 8 (uint64_t)", one.size)),
        many => found.refused = Some(format!("{} variables have this name", many.len())),
    }
    found
}

/// Names of marks of `whither.h` in a file.
pub(super) fn own_marks(of: &CodeFile, code: &Code) -> Vec<String> {
    let Some(bytes) = code.service().file(&of.image) else { return Vec::new() };
    let mut names: Vec<String> =
        marks(&bytes).into_iter().filter(|m| m.provider == "whither").map(|m| m.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What a file has that resembles a point it does not have: a sentence, or nothing.
pub(super) fn instead(place: &PointPlace, of: &CodeFile, code: &Code) -> Option<String> {
    if let PointPlace::Function(name) | PointPlace::Return(name) = place
        && let Some(line) = code.service().declared(&of.image, &[]).line(&name.text)
    {
        return Some(format!(
            "{} is defined in line {line} of its file, and has no code of its own: it was inlined into its callers, or nobody calls \
             it; name a line of what calls it (FILE:LINE)",
            name.text
        ));
    }
    if let PointPlace::Function(_) | PointPlace::Return(_) = place
        && let Some(stripped) = nameless(of, code)
    {
        return Some(stripped);
    }
    let offered = match place {
        PointPlace::Line(line) | PointPlace::Sampled(line) => return lines_instead(line, of, code),
        PointPlace::Function(name) | PointPlace::Return(name) => names_instead(&name.text, of, code),
        PointPlace::Mark(_) => own_marks(of, code).into_iter().map(|m| format!("mark:{m}")).collect(),
        PointPlace::Usdt(provider, name) => {
            let bytes = code.service().file(&of.image)?;
            let all: Vec<String> = marks(&bytes).iter().map(|m| format!("usdt:{}:{}", m.provider, m.name)).collect();
            nearest(&format!("usdt:{provider}:{name}"), &all)
        }
        PointPlace::Counter(name) => {
            let bytes = code.service().file(&of.image)?;
            let all = variables(&bytes, |_| true).into_iter().filter(|v| v.size == 8);
            nearest(name, &all.map(|v| readable(&v.name)).collect::<Vec<_>>())
        }
        PointPlace::Syscall(_) | PointPlace::Tracepoint(..) | PointPlace::End => Vec::new(),
    };
    (!offered.is_empty()).then(|| format!("there are {}", offered.join(", ")))
}

/// That calls of a function that is a point were inlined, so that its own code does not see them.
pub(super) fn inlined(place: &PointPlace, of: &CodeFile, code: &Code) -> Option<String> {
    let (PointPlace::Function(name) | PointPlace::Return(name)) = place else { return None };
    let declared = code.service().declared(&of.image, &[]);
    let line = declared.line(&name.text).filter(|_| declared.is_inlined(&name.text))?;
    Some(format!(
        "calls of {} were inlined into its callers and are no visits, only those of its own code are; name a line of its body (FILE:LINE; it is \
         defined in line {line} of its file) to count all",
        name.text
    ))
}

/// What a file has that resembles a target it may not have.
pub(super) fn like_target(target: &TargetSpec, of: &CodeFile, code: &Code) -> Option<String> {
    match target {
        TargetSpec::Line(line) => lines_instead(line, of, code),
        TargetSpec::Function(name, _) => {
            let offered = names_instead(&name.text, of, code);
            let has = offered.iter().any(|n| name.is(n));
            (!has && !offered.is_empty()).then(|| format!("there are {}", offered.join(", ")))
        }
    }
}

fn lines_instead(line: &FileLine, of: &CodeFile, code: &Code) -> Option<String> {
    if !code.service().has_lines(&of.image) {
        let path = &of.seen_as;
        return Some(format!("{path} has no debug information (compile with -g, or name a function)"));
    }
    let statements = code.service().statements(&of.image, &line.file);
    if statements.is_empty() {
        let wanted = line.file.rsplit('/').next().unwrap_or_default();
        let near = nearest(wanted, &sources(of, code));
        let near = if near.is_empty() { String::new() } else { format!("; there are {}", near.join(", ")) };
        return Some(format!("no code of {} comes from {}{near}", of.seen_as, line.file));
    }
    let mut lines: Vec<u32> = statements.iter().map(|s| s.line).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.sort_by_key(|l| l.abs_diff(line.line));
    lines.truncate(OFFERED);
    lines.sort_unstable();
    let shown: Vec<String> = lines.iter().map(|l| format!("{}:{l}", line.file)).collect();
    Some(format!("the compiler left no statement there; the nearest are {}", shown.join(", ")))
}

/// Whether none of a file's own functions can be named.
pub(super) fn is_nameless(of: &CodeFile, code: &Code) -> bool {
    // The kernel's own page need not have any that the program could mean.
    of.seen_as != "[vdso]" && !code.service().names(&of.image).iter().any(|n| n.kind == NameKind::Function)
}

/// Why they cannot.
fn nameless(of: &CodeFile, code: &Code) -> Option<String> {
    is_nameless(of, code).then(|| {
        format!(
            "{} has no symbols (it was stripped), so that its functions have no names: take the file as it was linked, or a \
             point that needs none (syscall:NAME)",
            of.seen_as
        )
    })
}

/// Names of the source files that functions of a file begin in.
fn sources(of: &CodeFile, code: &Code) -> Vec<String> {
    /// So many functions come from any file of a program that somebody looks for.
    const LOOKED_AT: usize = 4000;
    let names = code.service().names(&of.image);
    let functions = names.iter().filter(|n| n.kind == NameKind::Function).take(LOOKED_AT);
    let mut found: Vec<String> = functions
        .filter_map(|f| code.service().chain(&of.image, f.address).last()?.file.clone())
        .map(|file| file.rsplit('/').next().unwrap_or_default().to_owned())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn names_instead(wanted: &str, of: &CodeFile, code: &Code) -> Vec<String> {
    let names = code.service().names(&of.image);
    let all: Vec<String> = names.iter().filter(|n| n.kind == NameKind::Function).map(|n| readable(&n.name)).collect();
    nearest(wanted, &all)
}

/// Names like a wrong one, best first.
pub(super) fn nearest(wanted: &str, names: &[String]) -> Vec<String> {
    let low = wanted.to_lowercase();
    let score = |name: &String| {
        let name = name.to_lowercase();
        if !low.is_empty() && name.contains(&low) {
            return Some(name.len() - low.len());
        }
        let last = name.rsplit("::").next().unwrap_or(&name);
        let away = distance(&low, last).min(distance(&low, &name));
        (away <= 2 + low.chars().count() / 4 && away < low.chars().count()).then_some(100 + away)
    };
    let mut found: Vec<(usize, &String)> = names.iter().filter_map(|n| Some((score(n)?, n))).collect();
    found.sort();
    found.dedup();
    found.into_iter().take(OFFERED).map(|(_, name)| name.clone()).collect()
}

/// Edits between two words, a long word counting as far away.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    if b.len() > 200 || a.len() > 200 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = before + usize::from(x != *y);
            before = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(before + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names() {
        let names = ["handle_request", "handle_reply", "main", "net::Server::handle", "x"].map(str::to_owned);
        assert_eq!(nearest("handel_request", &names), ["handle_request"]);
        assert_eq!(nearest("handle", &names)[0], "handle_reply");
        assert!(nearest("handle", &names).contains(&"net::Server::handle".to_owned()));
        assert!(nearest("zzzzzz", &names).is_empty() && nearest("", &names).is_empty());
        assert_eq!((distance("abc", "abd"), distance("", "ab")), (1, 2));
    }
}
