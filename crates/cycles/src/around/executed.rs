//! Graphs against what was really executed: real programs under callgrind, which counts every instruction and
//! every jump. Each executed jump inside a function must be an edge of its graph, each executed instruction
//! must stand in a block, and those of one block must have run equally often, unless the graph says that it
//! is incomplete.

use super::Around;
use crate::accuracy::callgrind::{ExactObject, parse_callgrind};
use std::path::Path;
use std::process::{Command, Stdio};
use whither_image::cfg::{Cfg, EdgeKind};
use whither_image::jump_tables::Data;
use whither_image::{ElfSummary, Flow, Function, ImageKind, Insn, NameSource, Svma};
use whither_store::model::Image;
use whither_store::{StoredSymbols, SymbolOptions, SymbolService};

/// Disagreements of one graph with one execution.
#[derive(Default)]
struct Found {
    functions: usize,
    incomplete: usize,
    /// Executions of instructions, and those in incomplete graphs.
    executions: (u64, u64),
    jumps: usize,
    wrong: Vec<String>,
}

impl Found {
    fn wrong(&mut self, what: String) {
        self.wrong.push(what);
    }
}

/// Runs a command under callgrind; `None` when valgrind or the command is not here.
fn executed(command: &[&str], folder: &Path) -> Option<Vec<ExactObject>> {
    let out = folder.join("callgrind.out");
    let run = Command::new("timeout")
        .args(["240", "valgrind", "--tool=callgrind", "--dump-instr=yes", "--collect-jumps=yes", "--skip-plt=no"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .args(command)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .ok()?;
    if !run.success() {
        return None;
    }
    let text = std::fs::read(&out).ok()?;
    Some(parse_callgrind(&String::from_utf8_lossy(&text)).expect("callgrind's own format"))
}

fn image(path: &str) -> Option<Image> {
    let file = std::fs::read(path).ok()?;
    let summary = ElfSummary::parse(&file).ok()?;
    let (id, id_kind) = (summary.id, summary.id_kind);
    let (kind, size) = (ImageKind::Elf, file.len() as u64);
    Some(Image { id, id_kind, kind, path: path.to_owned(), segments: summary.segments, size })
}

fn compare(object: &ExactObject) -> Option<Found> {
    let image = image(&object.path)?;
    let symbols = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    let around = Around::new(&image, &symbols);
    let mut executed: Vec<u64> = object.counts.keys().copied().collect();
    executed.sort_unstable();
    let mut found = Found::default();
    let mut reached = 0;
    for &at in &executed {
        if at < reached {
            continue;
        }
        let Some(f) = around.function_at(Svma(at)) else { continue };
        let extent = around.extent_of(f);
        reached = extent.end;
        if matches!(f.source, NameSource::Symbol | NameSource::Unwind) {
            function(&Cfg::new(extent, &around), &f.name, &around, object, &mut found);
        }
    }
    Some(found)
}

fn function(cfg: &Cfg, name: &str, around: &Around<'_>, object: &ExactObject, found: &mut Found) {
    found.functions += 1;
    // Where the C library jumps over a LOCK prefix, the same instruction has two addresses.
    let locked = |at: u64| around.bytes(Svma(at), 1) == Some(&[0xf0]);
    let unlocked =
        |at: u64| cfg.insns.binary_search_by_key(&at, |i| i.address.0).is_err() && locked(at.wrapping_sub(1));
    let ran = |at: u64| object.counts.get(&at).copied().unwrap_or(0);
    let count = |at: Svma| ran(at.0) + if locked(at.0) && unlocked(at.0 + 1) { ran(at.0 + 1) } else { 0 };
    let all: u64 = cfg.insns.iter().map(|i| count(i.address)).sum();
    found.executions.0 += all;
    if !cfg.missing.is_empty() {
        found.incomplete += 1;
        found.executions.1 += all;
        return;
    }
    for part in &cfg.parts {
        for (&at, &n) in object.counts.iter().filter(|(at, n)| part.contains(at) && **n > 0) {
            let known = cfg.insns.binary_search_by_key(&at, |i| i.address.0).is_ok() || unlocked(at);
            if cfg.block_at(Svma(at)).is_none() || !known {
                found.wrong(format!("{name}: {at:#x} was executed {n} times and is in no block"));
            }
        }
    }
    for (&(from, to), &n) in object.jumps.iter().filter(|(_, n)| **n > 0) {
        let inside = |at: u64| cfg.parts.iter().any(|p| p.contains(&at));
        if inside(from)
            && cfg.insns.binary_search_by_key(&from, |i| i.address.0).is_ok_and(|i| jumps(cfg.insns[i].flow))
        {
            found.jumps += 1;
            let to = if unlocked(to) { to - 1 } else { to };
            if !has_edge(cfg, from, to, inside(to)) {
                found.wrong(format!("{name}: {from:#x} jumped {n} times to {to:#x}, which is no edge"));
            }
        }
    }
    // Assembly of the C library jumps from one function into the middle of another.
    let holds = |at: u64| cfg.parts.iter().any(|p| p.contains(&at));
    let entered = |at: Svma| {
        object.functions.values().any(|f| *f == at.0) || object.jumps.keys().any(|j| j.1 == at.0 && !holds(j.0))
    };
    for block in &cfg.blocks {
        let all = &cfg.insns[block.insns.clone()];
        // Valgrind counts every round of a repeated string instruction.
        let insns: Vec<_> = all.iter().filter(|i| !repeats(around, i)).collect();
        for pair in insns.windows(2) {
            let (a, b) = (count(pair[0].address), count(pair[1].address));
            // What a call does not come back from is counted on one side only.
            let call = matches!(pair[0].flow, Flow::Call(_) | Flow::IndirectCall);
            if a != b && !(call && b < a) && !entered(pair[1].address) {
                found.wrong(format!(
                    "{name}: {} ran {a} times, {} behind it {b}",
                    hex(pair[0].address),
                    hex(pair[1].address)
                ));
            }
        }
        let last = &all[all.len() - 1];
        if count(last.address) > 0 && !cfg.edges.iter().any(|e| cfg.block_at(last.address) == Some(e.from)) {
            after_the_end(cfg, name, last.end(), object, found);
        }
    }
}

/// `rep movs` and its like.
fn repeats(around: &Around<'_>, insn: &Insn) -> bool {
    let bytes = around.bytes(insn.address, usize::from(insn.len)).unwrap_or_default();
    bytes.first().is_some_and(|b| matches!(b, 0xf2 | 0xf3 | 0x66))
        && bytes.last().is_some_and(|b| matches!(b, 0xa4..=0xa7 | 0xaa..=0xaf))
        && bytes.len() <= 4
}

fn hex(at: Svma) -> String {
    format!("{:#x}", at.0)
}

fn jumps(flow: Flow) -> bool {
    matches!(flow, Flow::Jump(_) | Flow::Branch(_) | Flow::IndirectJump)
}

fn has_edge(cfg: &Cfg, from: u64, to: u64, inside: bool) -> bool {
    let Some(a) = cfg.block_at(Svma(from)) else { return false };
    let b = if inside { cfg.block_at(Svma(to)) } else { None };
    cfg.edges.iter().any(|e| {
        e.from == a
            && match b {
                Some(b) => e.to == b && cfg.insns[cfg.blocks[b].insns.start].address.0 == to,
                None => e.kind == EdgeKind::Leave,
            }
    })
}

/// A call said to never return was executed: what stands behind it must have run no more than it was jumped to.
fn after_the_end(cfg: &Cfg, name: &str, next: Svma, object: &ExactObject, found: &mut Found) {
    let ran = object.counts.get(&next.0).copied().unwrap_or(0);
    let jumped: u64 = object.jumps.iter().filter(|(j, _)| j.1 == next.0).map(|(_, n)| n).sum();
    if cfg.block_at(next).is_some() && ran > jumped {
        found.wrong(format!("{name}: the call before {} came back", hex(next)));
    }
}

/// Checks all images of a command's execution.
fn check(what: &str, command: &[&str], folder: &Path) {
    let Some(objects) = executed(command, folder) else {
        println!("SKIP: no valgrind, or {what} cannot be run under it");
        return;
    };
    let (mut functions, mut executions) = (0, (0, 0));
    let mut wrong = Vec::new();
    for object in &objects {
        let Some(found) = compare(object) else { continue };
        functions += found.functions;
        executions = (executions.0 + found.executions.0, executions.1 + found.executions.1);
        println!(
            "{what}: {}: {} functions, {} incomplete ({:.1} % of executions), {} jumps, {} wrong",
            object.path,
            found.functions,
            found.incomplete,
            100.0 * found.executions.1 as f64 / found.executions.0.max(1) as f64,
            found.jumps,
            found.wrong.len()
        );
        wrong.extend(found.wrong.into_iter().map(|w| format!("{}: {w}", object.path)));
    }
    assert!(functions > 20, "{what}: only {functions} functions were executed");
    assert!(executions.1 * 20 < executions.0, "{what}: over 5 % of what was executed is in incomplete graphs");
    assert!(wrong.is_empty(), "{what}: {} disagreements:\n  {}", wrong.len(), wrong.join("\n  "));
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Switches, an endless sort, string functions of the C library.
const WORK: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int sum(int *a, int n) {
    int s = 0;
    for (int i = 0; i < n; i++)
        switch (a[i] % 11) {
        case 0: s += i; break;
        case 1: s ^= a[i]; break;
        case 2: s *= 3; break;
        case 3: s -= a[s & 7]; break;
        case 5: s += n; break;
        case 7: s |= 5; /* fall through */
        case 8: s--; break;
        }
    return s;
}
static int order(const void *a, const void *b) { return *(int *)a - *(int *)b; }
int main(void) {
    int n = 3000, *a = malloc(n * sizeof *a);
    if (!a) abort();
    for (int i = 0; i < n; i++) a[i] = rand();
    for (int k = 0; k < 20; k++) {
        char text[64];
        snprintf(text, sizeof text, "%d %5.3f %s", sum(a, n), k / 3.0, k & 1 ? "odd" : "even");
        if (strlen(text) > 60 || strstr(text, "none")) puts(text);
        qsort(a, n, sizeof *a, order);
    }
    return 0;
}
"#;

#[test]
fn a_compiled_workload() {
    for (options, what) in [(&["-O2"][..], "workload"), (&["-O2", "-no-pie", "-fno-plt"], "workload without PIE")] {
        let folder = folder();
        std::fs::write(folder.path().join("work.c"), WORK).expect("written");
        let built = Command::new("gcc")
            .args(options)
            .args(["-Wl,--build-id", "-o", "work", "work.c"])
            .current_dir(folder.path())
            .status();
        if !built.is_ok_and(|s| s.success()) {
            println!("SKIP: no gcc");
            return;
        }
        check(what, &["./work"], folder.path());
    }
}

#[test]
fn a_database() {
    let query = "create table t(a,b); insert into t with recursive n(i) as (select 1 union all select i+1 from n where i<3000) \
                 select i, printf('%d-%s', i%17, hex(i)) from n; create index x on t(b); select count(*), sum(length(b)) from t \
                 where b like '%7%' group by a%7 order by 2;";
    check("sqlite3", &["sqlite3", ":memory:", query], folder().path());
}

#[test]
fn an_interpreter() {
    let work = "import re,json\nd={str(i):[i,i*2.5,None] for i in range(300)}\ns=json.dumps(d)\nprint(len(json.loads(s)),\
                len(re.findall('[0-9]+',s)),sorted(d)[:3])";
    check("python3", &["/usr/bin/python3", "-S", "-c", work], folder().path());
}

#[test]
#[ignore = "takes minutes: part of `make acceptance`"]
fn a_compiler() {
    let Ok(found) = Command::new("gcc").arg("-print-prog-name=cc1").output() else {
        println!("SKIP: no gcc");
        return;
    };
    let folder = folder();
    std::fs::write(folder.path().join("work.c"), WORK).expect("written");
    let cc1 = String::from_utf8_lossy(&found.stdout);
    check("cc1", &[cc1.trim(), "-O2", "-quiet", "-o", "/dev/null", "work.c"], folder.path());
}

/// A function with a frame and an unlikely part, which compilers put elsewhere.
const COLD: &str = r#"
__attribute__((noinline, noclone, cold)) void report(int *a, int n) { __asm__ volatile("" :: "r"(a), "r"(n) : "memory"); }
__attribute__((noinline, noclone)) int work(int n) {
    int a[64];
    for (int i = 0; i < 64; i++) a[i] = i ^ n;
    __asm__ volatile("" :: "r"(a) : "memory");
    if (__builtin_expect(a[n & 63] == 77, 0)) { report(a, n); report(a, a[3]); a[5] = n; }
    __asm__ volatile("" :: "r"(a) : "memory");
    return a[5] + a[n & 7];
}
int main(int c, char **v) { (void)v; return work(c); }
"#;

#[test]
fn without_names_a_part_elsewhere_belongs_to_its_function_and_adopts_nothing() {
    let folder = folder();
    let path = folder.path().join("cold");
    std::fs::write(folder.path().join("cold.c"), COLD).expect("written");
    let built =
        Command::new("gcc").args(["-O2", "-s", "-o"]).arg(&path).arg("cold.c").current_dir(folder.path()).status();
    if !built.is_ok_and(|s| s.success()) {
        println!("SKIP: no gcc");
        return;
    }
    let image = image(&path.display().to_string()).expect("an image");
    let symbols = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    let around = Around::new(&image, &symbols);
    let unnamed = around.functions().functions().iter().filter(|f| f.source == NameSource::Unwind);
    // The head of the linkage table has a frame of its own kind, too.
    let (framed, whole): (Vec<_>, Vec<_>) = unnamed.partition(|f| around.has_frame(f) == Some(true));
    let parts = |f: &Function| Cfg::new(around.extent_of(f), &around).parts;
    assert!(framed.iter().all(|f| parts(f) == [around.extent_of(f)]), "they adopt nothing");
    let elsewhere: Vec<_> = whole.iter().flat_map(|f| parts(f).split_off(1)).collect();
    let [cold] = &elsewhere[..] else { panic!("parts elsewhere: {elsewhere:x?}") };
    assert!(framed.iter().any(|f| around.extent_of(f) == *cold));
}
