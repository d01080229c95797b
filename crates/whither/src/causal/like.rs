//! What counted as the program's own code in a recording, kept as the user wrote it, so that more experiments are made
//! with the same. What does not go together is refused before anything is launched.

use crate::cli::{CausalTargets, CausalUnit, CausalWait, YesNo};
use crate::failure::Usage;
use clap::ValueEnum;
use regex::Regex;
use std::collections::BTreeSet;
use whither_store::causal::{Asked, CausalRun};

/// For the recording.
pub(super) fn asked(targets: &CausalTargets) -> Asked {
    Asked {
        unit: word(&targets.unit),
        source: targets.source.clone(),
        binary: targets.binary.clone(),
        exclude: targets.exclude.clone(),
        off_cpu: targets.off_cpu.iter().map(word).collect(),
        kernel_time: word(&targets.kernel_time),
    }
}

/// Flags, and those of the recording where none were given. One made before they were kept tells by its targets which modules
/// counted: where that is not `executable` alone, they do again.
///
/// # Errors
/// [`Usage`] when `--binary` names none of the modules that the recording has targets in.
pub(super) fn as_recorded(
    given: &CausalTargets,
    run: &CausalRun,
    executable: Option<&str>,
) -> Result<CausalTargets, Usage> {
    let modules: BTreeSet<&str> = run.targets.iter().map(|t| t.module.as_str()).filter(|m| !m.is_empty()).collect();
    let mut like = given.clone();
    let recorded = run.meta.asked.clone().unwrap_or_else(|| Asked {
        binary: executable.filter(|e| !modules.contains(e)).and_then(|_| these(&modules)),
        ..Asked::default()
    });
    if given.unit == CausalUnit::Auto {
        like.unit = CausalUnit::from_str(&recorded.unit, false).unwrap_or(given.unit);
    }
    if given.source.is_empty() {
        like.source = recorded.source;
    }
    if given.exclude.is_empty() {
        like.exclude = recorded.exclude;
    }
    if given.off_cpu.is_empty() {
        like.off_cpu = recorded.off_cpu.iter().filter_map(|w| CausalWait::from_str(w, false).ok()).collect();
    }
    if given.kernel_time == YesNo::Yes {
        like.kernel_time = YesNo::from_str(&recorded.kernel_time, false).unwrap_or(given.kernel_time);
    }
    match &given.binary {
        None => like.binary = recorded.binary,
        // One that is no expression is refused where it is read.
        Some(named)
            if Regex::new(named).is_ok_and(|r| !modules.is_empty() && !modules.iter().any(|m| r.is_match(m))) =>
        {
            let known = modules.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Usage(format!("--binary {named} is none of the recording's modules, which are {known}")));
        }
        Some(_) => {}
    }
    Ok(like)
}

/// These modules and no other.
fn these(modules: &BTreeSet<&str>) -> Option<String> {
    let all: Vec<String> = modules.iter().map(|m| regex::escape(m)).collect();
    (!all.is_empty()).then(|| format!("^(?:{})$", all.join("|")))
}

fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::causal::{Target, Unit};

    fn flags() -> CausalTargets {
        CausalTargets {
            unit: CausalUnit::Auto,
            target: vec!["libcrypto".into()],
            source: Vec::new(),
            binary: None,
            exclude: Vec::new(),
            off_cpu: Vec::new(),
            kernel_time: YesNo::Yes,
        }
    }

    fn recorded(asked: Option<Asked>) -> CausalRun {
        let target = |module: &str| Target {
            unit: Unit::Function,
            name: "f".into(),
            file: String::new(),
            line: 0,
            path: Vec::new(),
            aliases: Vec::new(),
            module: module.into(),
            image: None,
            ranges: Vec::new(),
        };
        let mut run = CausalRun {
            targets: vec![target("/lib/libcrypto.so.3"), target("/lib/libz.so.1")],
            ..CausalRun::default()
        };
        run.meta.asked = asked;
        run
    }

    #[test]
    fn what_was_asked_for_is_asked_again_unless_told_otherwise() {
        let first = CausalTargets {
            unit: CausalUnit::Function,
            binary: Some("libcrypto|libz".into()),
            exclude: vec!["x".into()],
            off_cpu: vec![CausalWait::Io],
            kernel_time: YesNo::No,
            ..flags()
        };
        let run = recorded(Some(asked(&first)));
        let like = as_recorded(&flags(), &run, Some("/bin/python3")).expect("goes together");
        assert_eq!(asked(&like), asked(&first));
        assert_eq!(like.target, ["libcrypto"]);
        let own = CausalTargets { binary: Some("libz".into()), unit: CausalUnit::Line, ..flags() };
        let like = as_recorded(&own, &run, None).expect("goes together");
        assert_eq!((like.binary.as_deref(), like.unit), (Some("libz"), CausalUnit::Line));
    }

    #[test]
    fn other_modules_are_refused_before_anything_is_launched() {
        let other = CausalTargets { binary: Some("libssl".into()), ..flags() };
        let why = as_recorded(&other, &recorded(None), None).expect_err("another scope");
        assert!(why.0.contains("libssl is none of") && why.0.contains("/lib/libz.so.1"), "{}", why.0);
    }

    #[test]
    fn a_recording_that_kept_no_flags_tells_by_its_targets() {
        let like = as_recorded(&flags(), &recorded(None), Some("/bin/python3")).expect("goes together");
        let binary = Regex::new(&like.binary.expect("its modules")).expect("an expression");
        assert!(binary.is_match("/lib/libz.so.1") && !binary.is_match("/bin/python3"));
        let mut own = recorded(None);
        own.targets[0].module = "/bin/python3".into();
        assert_eq!(as_recorded(&flags(), &own, Some("/bin/python3")).expect("goes together").binary, None);
    }
}
