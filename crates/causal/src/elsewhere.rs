//! Time outside of all targets: in libraries that are not in scope, where nothing can be found until the user asks for
//! it. A ranking of what is left would look like an answer.

use crate::quality::overhead;
use crate::results::{ElsewhereRow, ModuleRow};
use rustc_hash::FxHashMap;
use whither_store::causal::{CausalRun, Unit};

/// From this part of the samples on it is told.
const MUCH: f64 = 0.2;
/// So many runs are short ones.
const MANY_RUNS: u32 = 8;
/// Modules that are named.
const NAMED: usize = 3;
/// A smaller part of the samples is not named.
const LEAST: f64 = 0.01;

/// Where samples lay; `None` where nothing was sampled.
pub(crate) fn row(run: &CausalRun) -> Option<ElsewhereRow> {
    let mut row = if run.elsewhere.all > 0 { recorded(run) } else { guessed(run)? };
    let steps = overhead(run).map_or(0.0, |o| o.points);
    row.reason = sentence(&row, run, steps, &|module| is_chosen(run, module));
    Some(row)
}

/// Whether a module's functions may be targets: others of it are, or it is the command.
fn is_chosen(run: &CausalRun, module: &str) -> bool {
    let command = run.meta.command.split(' ').next().unwrap_or_default();
    run.targets.iter().any(|t| t.module == module) || (!command.is_empty() && base(command) == base(module))
}

fn recorded(run: &CausalRun) -> ElsewhereRow {
    let all = run.elsewhere.all as f64;
    let of = |m: &whither_store::causal::ModuleSamples| ModuleRow {
        module: m.module.clone(),
        outside: m.outside as f64 / all,
        charged: m.charged as f64 / all,
    };
    let modules: Vec<ModuleRow> = run.elsewhere.modules.iter().map(of).collect();
    ElsewhereRow {
        outside: modules.iter().map(|m| m.outside).sum(),
        charged: Some(modules.iter().map(|m| m.charged).sum()),
        modules,
        reason: String::new(),
    }
}

/// Older recordings know which samples no target has, and nothing of where they were.
fn guessed(run: &CausalRun) -> Option<ElsewhereRow> {
    let mut strata: FxHashMap<(u32, Option<Unit>), (u64, u64)> = FxHashMap::default();
    for row in &run.samples {
        let unit = row.target.and_then(|t| run.targets.get(t as usize)).map(|t| t.unit);
        let (sum, largest) = strata.entry((row.stratum, unit)).or_default();
        *sum = sum.saturating_add(row.all);
        *largest = row.all.max(*largest);
    }
    // A sample belongs to one line, one function and so on at once, and with callees to all on its stack.
    let mut whole: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
    for ((stratum, unit), (sum, largest)) in strata {
        let (inside, outside) = whole.entry(stratum).or_default();
        match unit {
            None => *outside = sum,
            Some(Unit::OffCpu) => {}
            Some(Unit::Inclusive) => *inside = largest.max(*inside),
            Some(Unit::Line | Unit::Function | Unit::Path) => *inside = sum.max(*inside),
        }
    }
    let (inside, outside) = whole.values().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    let all = (inside + outside) as f64;
    (all > 0.0 && run.meta.pid > 0).then(|| ElsewhereRow {
        outside: outside as f64 / all,
        charged: None,
        modules: Vec::new(),
        reason: String::new(),
    })
}

/// What the user must know; empty where little lies elsewhere. `steps`: part of the time that breakpoints of points take, which
/// the kernel steps over in a page of no file.
fn sentence(row: &ElsewhereRow, run: &CausalRun, steps: f64, is_chosen: &dyn Fn(&str) -> bool) -> String {
    let outside = |m: &ModuleRow| m.outside + m.charged;
    let made = row.modules.iter().filter(|m| m.module.is_empty()).map(outside).sum::<f64>();
    if made > LEAST && made < 1.5 * steps && row.outside - made < MUCH {
        return String::new();
    }
    let mut parts = Vec::new();
    if row.outside >= MUCH {
        let names = named(row, |m| m.outside);
        let whole = 100.0 * row.outside;
        parts.push(if names.is_empty() {
            format!(
                "{whole:.0} % of the samples are in no target, with no code of the program on their stacks (libraries; which ones \
                 this recording does not know)"
            )
        } else {
            format!("{whole:.0} % of the samples are in no target, with no code of the program on their stacks: {names}")
        });
    }
    // One that does a good part of the work, not a sum of little calls.
    let working = row.modules.iter().filter(|m| m.charged >= MUCH).max_by(|a, b| a.charged.total_cmp(&b.charged));
    if let Some(m) = working {
        parts.push(format!(
            "{:.0} % of the samples are in {} and count for the calls into it",
            100.0 * m.charged,
            base(&m.module)
        ));
    }
    let Some(first) = parts.first_mut() else { return String::new() };
    first.insert_str(0, "outside of what is measured: ");
    // Then no library helps.
    if made > row.modules.iter().map(outside).sum::<f64>() / 2.0 {
        // Of short runs the libraries are not known yet.
        let advice = if run.meta.runs > MANY_RUNS {
            "code of no file has no functions to be targets here: what the program makes itself (a JIT compiler), or libraries of runs that \
             ended before it was known where these lie: give each run more work"
        } else {
            "code that the program makes itself (a JIT compiler) has no functions to be targets here: name the C code it calls, or ask \
             `whither prof` where its time goes"
        };
        return format!("{}; {advice}", parts.join("; "));
    }
    let largest = row.modules.iter().filter(|m| !m.module.is_empty());
    let largest = largest.max_by(|a, b| (a.outside + a.charged).total_cmp(&(b.outside + b.charged)));
    let library = largest.map_or("LIBRARY", |m| base(&m.module));
    if largest.is_some_and(|m| is_chosen(&m.module)) {
        return format!(
            "{}; {library} is measured, but for code whose source files lie where systems and package managers keep those of others \
             (/usr, .cargo/registry): --source '*' makes all of it targets, and a narrower pattern some",
            parts.join("; ")
        );
    }
    format!("{}; --binary {library} makes its functions targets", parts.join("; "))
}

/// `liblzma.so.5 76 %, libc.so.6 2 %`.
fn named(row: &ElsewhereRow, part: impl Fn(&ModuleRow) -> f64) -> String {
    let mut modules: Vec<&ModuleRow> = row.modules.iter().filter(|m| part(m) >= LEAST).collect();
    modules.sort_by(|a, b| part(b).total_cmp(&part(a)));
    let one = |m: &&ModuleRow| format!("{} {:.0} %", base(&m.module), 100.0 * part(m));
    modules.iter().take(NAMED).map(one).collect::<Vec<_>>().join(", ")
}

fn base(module: &str) -> &str {
    match module.rsplit('/').next() {
        None | Some("") => "code of no file",
        Some(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::causal::{CausalMeta, Elsewhere, ModuleSamples, TargetSamples};

    fn module(module: &str, outside: u64, charged: u64) -> ModuleSamples {
        ModuleSamples { module: module.into(), outside, charged }
    }

    fn told(modules: Vec<ModuleSamples>) -> String {
        let run = CausalRun { elsewhere: Elsewhere { all: 1000, modules }, ..CausalRun::default() };
        row(&run).expect("samples").reason
    }

    #[test]
    fn libraries_that_do_the_work_are_named_with_what_to_do() {
        let xz = vec![module("/lib/liblzma.so.5", 780, 0), module("/lib/libc.so.6", 30, 20), module("", 4, 0)];
        assert_eq!(
            told(xz),
            "outside of what is measured: 81 % of the samples are in no target, with no code of the program on their stacks: \
                 liblzma.so.5 78 %, libc.so.6 3 %; --binary liblzma.so.5 makes its functions targets"
        );
        assert_eq!(
            told(vec![module("/lib/libsqlite3.so.0", 0, 900), module("/lib/libc.so.6", 10, 50)]),
            "outside of what is measured: 90 % of the samples are in libsqlite3.so.0 and count for the calls into it; \
                 --binary libsqlite3.so.0 makes its functions targets"
        );
        assert_eq!(told(vec![module("/lib/libc.so.6", 100, 150)]), "");
        let node = told(vec![module("", 780, 0), module("/lib/libc.so.6", 30, 20)]);
        assert!(
            node.contains("code of no file 78 %") && node.contains("a JIT compiler") && !node.contains("--binary"),
            "{node}"
        );
        let elsewhere = Elsewhere { all: 1000, modules: vec![module("", 780, 0)] };
        let mut short = CausalRun { elsewhere, ..CausalRun::default() };
        short.meta.runs = 200;
        assert!(row(&short).expect("samples").reason.contains("give each run more work"));
    }

    #[test]
    fn what_is_measured_but_for_its_source_files_is_told_so() {
        let elsewhere = Elsewhere { all: 1000, modules: vec![module("/home/me/zmain", 940, 0)] };
        let mut run = CausalRun { elsewhere, ..CausalRun::default() };
        run.meta.command = "./zmain -T2".into();
        let told = row(&run).expect("samples").reason;
        assert!(told.contains("--source '*'") && !told.contains("--binary"), "{told}");
    }

    #[test]
    fn breakpoints_that_are_stepped_over_are_no_library() {
        let elsewhere = Elsewhere { all: 1000, modules: vec![module("", 390, 0), module("/lib/libc.so.6", 3, 0)] };
        let mut run = CausalRun { elsewhere, ..CausalRun::default() };
        (run.meta.pid, run.meta.duration_ns) = (7, 1_000_000_000);
        assert!(row(&run).expect("samples").reason.contains("code of no file 39 %"));
        run.overhead.points_ns = 410_000_000;
        assert_eq!(row(&run).expect("samples").reason, "");
    }

    #[test]
    fn recordings_that_know_no_modules_tell_the_share() {
        let samples = |target, all| TargetSamples { target, all, ..TargetSamples::default() };
        let targets = crate::waits::tests::named(&["f", "g"]);
        let mut run = CausalRun {
            meta: CausalMeta { pid: 7, ..CausalMeta::default() },
            targets,
            samples: vec![samples(None, 780), samples(Some(0), 120), samples(Some(1), 100)],
            ..CausalRun::default()
        };
        let found = row(&run).expect("samples");
        assert!((found.outside - 0.78).abs() < 1e-9 && found.charged.is_none(), "{found:?}");
        assert!(found.reason.contains("78 % of the samples are in no target"), "{found:?}");
        assert!(found.reason.ends_with("--binary LIBRARY makes its functions targets"), "{found:?}");
        // A profile of Coz counts nothing else.
        run.meta.pid = 0;
        assert_eq!(row(&run), None);
    }
}
