//! What is known of the core of this machine: measured once per CPU model, kept as a text file in the cache directory,
//! stored with every recording. The analysis happens elsewhere; here it is only decided whether to measure.

use std::path::{Path, PathBuf};
use std::time::Duration;
use whither_kernel::calibrate::{self, Figures};
use whither_kernel::proc;
use whither_store::CoreFacts;

/// The facts of this machine's core: from the cache, or measured now and put there. Without facts the sentence says why.
/// Measuring takes about a tenth of a second of one CPU; figures two weeks old are measured anew, the clock each time.
///
/// # Errors
/// A sentence for the user: what could not be measured, and what that means.
pub fn core_facts(cache: Option<&Path>) -> Result<CoreFacts, String> {
    let cpu = proc::cpu_identity();
    let path = cache.map(|dir| file(dir, &cpu));
    if let Some(mut facts) = path.as_deref().and_then(|p| read(p, &cpu)) {
        facts.clock_hz = calibrate::clock_hz().ok().or(facts.clock_hz);
        return Ok(facts);
    }
    let figures = calibrate::calibrate().map_err(|e| {
        format!("the core was not measured ({e}): best cases are those of a generic core, without cycles")
    })?;
    let facts = facts(&figures, cpu);
    for note in &figures.notes {
        tracing::debug!("{note}");
    }
    // What a busy core let through is good for this recording alone.
    if let Some(path) = path.filter(|_| figures.steady) {
        keep(&path, &facts);
    }
    Ok(facts)
}

/// One file per kind of CPU, so that a home shared by machines is right on all of them.
fn file(dir: &Path, cpu: &str) -> PathBuf {
    let safe: String = cpu.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    dir.join("cores").join(format!("{safe}.toml"))
}

/// Microcode, firmware settings and hosts change.
const OLD: Duration = Duration::from_secs(14 * 24 * 3600);

fn read(path: &Path, cpu: &str) -> Option<CoreFacts> {
    let written = std::fs::metadata(path).ok()?.modified().ok()?;
    if written.elapsed().is_ok_and(|age| age > OLD) {
        return None;
    }
    let facts: CoreFacts = toml::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
    (facts.cpu == cpu && facts.method == calibrate::METHOD).then_some(facts)
}

/// Best effort: a cache that cannot be written costs the next recording a tenth of a second.
fn keep(path: &Path, facts: &CoreFacts) {
    let write = || -> std::io::Result<()> {
        let text = toml::to_string(facts).map_err(std::io::Error::other)?;
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        let temporary = path.with_extension(format!("{}.new", std::process::id()));
        std::fs::write(&temporary, text)?;
        std::fs::rename(&temporary, path)
    };
    if let Err(e) = write() {
        tracing::debug!(error = %e, "core facts not cached");
    }
}

fn facts(figures: &Figures, cpu: String) -> CoreFacts {
    let get = |name: &str| figures.get(name);
    CoreFacts {
        cpu,
        method: calibrate::METHOD,
        clock_hz: get("clock_hz"),
        add_immediate: get("add_immediate"),
        imul: get("imul"),
        div32: get("div32"),
        div64: get("div64"),
        div_every: get("div_every"),
        load: get("load"),
        fp_add: get("fp_add"),
        fp_mul: get("fp_mul"),
        fma: get("fma"),
        fp_div: get("fp_div"),
        fp_div_every: get("fp_div_every"),
        sqrt: get("sqrt"),
        sqrt_every: get("sqrt_every"),
        alus: get("alus"),
        width: get("width"),
        taken: get("taken"),
        forward: get("forward"),
        forward_fail: get("forward_fail"),
        mispredict: get("mispredict"),
        lock: get("lock"),
        l2: get("l2"),
        l3: get("l3"),
        dram: get("dram"),
        dtlb_walk: get("dtlb_walk"),
        latencies: figures.chains().map(|(name, value)| (name.to_owned(), value)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_measured_once_and_kept_as_text() {
        let dir = tempfile::tempdir().unwrap();
        let first = match core_facts(Some(dir.path())) {
            Ok(first) => first,
            Err(e) => return println!("SKIP: {e}"),
        };
        assert!(first.clock_hz.is_some_and(|hz| hz > 2e8), "{first:?}");
        let path = file(dir.path(), &first.cpu);
        let Ok(text) = std::fs::read_to_string(&path) else { return println!("SKIP: others use this core") };
        assert!(text.contains("imul = "), "{text}");
        // What stands there is used, not measured again.
        std::fs::write(&path, text.replace("imul = ", "imul = 1")).unwrap();
        let again = core_facts(Some(dir.path())).unwrap();
        assert_ne!(again.imul, first.imul);
        // A file of another way of measuring, or of no meaning, is replaced.
        std::fs::write(&path, "method = 0\n").unwrap();
        let Ok(anew) = core_facts(Some(dir.path())) else { return println!("SKIP: the clock changes") };
        assert_ne!(anew.imul, again.imul);
        std::fs::write(&path, "not a table").unwrap();
        let Ok(anew) = core_facts(Some(dir.path())) else { return println!("SKIP: the clock changes") };
        assert_ne!(anew.imul, again.imul);
    }

    #[test]
    fn every_figure_has_its_place() {
        let names = [
            "clock_hz",
            "add_immediate",
            "imul",
            "div32",
            "div64",
            "div_every",
            "load",
            "fp_add",
            "fp_mul",
            "fma",
            "fp_div",
            "fp_div_every",
            "sqrt",
            "sqrt_every",
            "alus",
            "width",
            "taken",
            "forward",
            "forward_fail",
            "mispredict",
            "lock",
            "l2",
            "l3",
            "dram",
            "dtlb_walk",
        ];
        let figures =
            Figures { values: names.iter().zip(1..).map(|(n, v)| (*n, f64::from(v))).collect(), ..Figures::default() };
        let table = toml::Table::try_from(facts(&figures, "x".into())).unwrap();
        for (name, value) in names.iter().zip(1..) {
            assert_eq!(table[*name].as_float(), Some(f64::from(value)), "{name}");
        }
        assert_eq!(table.len(), names.len() + 2, "cpu and method, and nothing that is not measured");
        let chains = Figures { values: vec![("crc", 3.0)], ..Figures::default() };
        assert_eq!(facts(&chains, "x".into()).latencies.get("crc"), Some(&3.0));
    }
}
