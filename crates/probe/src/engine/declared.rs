//! Integers that are summed as functions declare them: width and sign come from debug information where nobody stated
//! them. A register is wider than an `int`, and what its upper half holds is nobody's business (psABI for AMD64, 3.2.3):
//! summed whole it is a number that the program never had.

use super::Engine;
use super::adding::name;
use crate::api::{PointAction, PointSpec, Source, ValueSpec};
use crate::resolve;
use whither_image::{Passed, Signature};

/// So many functions are named in a sentence.
const NAMED: usize = 3;

impl Engine {
    /// The same points, with what their functions declare; what they declare not to have is not summed.
    pub(super) fn as_declared(&mut self, specs: &[PointSpec]) -> Vec<PointSpec> {
        let mut specs = specs.to_vec();
        if !specs.iter().any(|s| s.actions.iter().any(|a| open_value(a).is_some())) {
            return specs;
        }
        let functions: Vec<_> = specs.iter().map(|s| &s.candidate).collect();
        let told = resolve::signatures(self.modules.list(), &functions);
        let mut missing = Missing::default();
        for (spec, signature) in specs.iter_mut().zip(&told) {
            let of = name(&spec.candidate);
            spec.actions.retain_mut(|action| settle(action, signature.as_ref(), &of, &mut missing));
        }
        missing.sentences().into_iter().for_each(|sentence| self.note(sentence));
        specs
    }
}

/// What could not be taken from declarations: values, with the functions they are not in.
#[derive(Default)]
struct Missing {
    whole: Vec<ValueSpec>,
    /// Some of these functions are Fortran's, by their names.
    fortran: bool,
    nowhere: Vec<(ValueSpec, Vec<String>)>,
    /// The first argument of these is where to put what they give back.
    results: Vec<(ValueSpec, Vec<String>)>,
}

impl Missing {
    fn whole(&mut self, value: &ValueSpec, of: &str) {
        self.fortran |= matches!(value.source, Source::Arg(_)) && is_fortran(of);
        if !self.whole.contains(value) {
            self.whole.push(value.clone());
        }
    }

    fn nowhere(&mut self, value: &ValueSpec, of: &str) {
        note(&mut self.nowhere, value, of);
    }

    fn results(&mut self, value: &ValueSpec, of: &str) {
        note(&mut self.results, value, of);
    }

    fn sentences(&self) -> Vec<String> {
        let whole = self.whole.iter().map(|value| {
            let (name, from) = (&value.name, source(value.source));
            format!(
                "{name} is summed from whole registers of 64 bits where no debug information declares a width; for an int write \
                 {name}={from}:4:signed, for an unsigned int {name}={from}:4"
            )
        });
        let nowhere = self.nowhere.iter().map(|(value, functions)| {
            let (name, from) = (&value.name, source(value.source));
            let lacks = match value.source {
                Source::Arg(n) => format!("by declaration there is no integer argument {n}"),
                Source::Ret | Source::Event(_) => "by declaration no integer is given back".to_owned(),
            };
            format!(
                "{name} is not summed in {}: {lacks}; {name}={from}:8 sums the register all the same",
                enumerated(functions)
            )
        });
        let fortran = self.fortran.then(|| {
            "Fortran hands over addresses of arguments (but for those with VALUE), so what is summed of them are addresses".to_owned()
        });
        let results = self.results.iter().map(|(value, functions)| {
            let (name, from) = (&value.name, source(value.source));
            format!(
                "{name} is not summed in {}: by declaration {from} is where to put the structure that is given back, and what \
                 they are given begins at arg2",
                enumerated(functions)
            )
        });
        whole.chain(fortran).chain(nowhere).chain(results).collect()
    }
}

fn note(list: &mut Vec<(ValueSpec, Vec<String>)>, value: &ValueSpec, of: &str) {
    match list.iter_mut().find(|(v, _)| v == value) {
        Some((_, functions)) => functions.push(of.to_owned()),
        None => list.push((value.clone(), vec![of.to_owned()])),
    }
}

/// As gfortran and flang name procedures: `solve_`, `__grid_MOD_step`, `_QMgridPstep`.
fn is_fortran(name: &str) -> bool {
    let plain = name.strip_suffix('_').is_some_and(|stem| !stem.is_empty() && !stem.ends_with('_'));
    let lower = !name.contains(|c: char| c.is_ascii_uppercase() || c == ':');
    (plain && lower) || name.contains("_MOD_") || name.starts_with("_QM")
}

fn enumerated(functions: &[String]) -> String {
    let shown = functions.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match functions.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn source(source: Source) -> String {
    match source {
        Source::Arg(n) => format!("arg{n}"),
        Source::Ret | Source::Event(_) => "ret".into(),
    }
}

/// A value whose width the user left open.
fn open_value(action: &PointAction) -> Option<&ValueSpec> {
    match action {
        PointAction::Sum(value) if value.declared && !matches!(value.source, Source::Event(_)) => Some(value),
        _ => None,
    }
}

/// Whether the action stays; its value gets the width and sign that are declared.
fn settle(action: &mut PointAction, told: Option<&Signature>, of: &str, missing: &mut Missing) -> bool {
    let Some(open) = open_value(action) else { return true };
    let passed = match (open.source, told) {
        (Source::Arg(n), Some(signature)) => signature.argument(n),
        (Source::Ret, Some(signature)) => signature.returned(),
        _ => Passed::Unknown,
    };
    match passed {
        Passed::Unknown => missing.whole(open, of),
        Passed::Nothing => {
            missing.nowhere(open, of);
            return false;
        }
        Passed::Result => {
            missing.results(open, of);
            return false;
        }
        Passed::Integer { width, signed } => {
            if let PointAction::Sum(value) = action {
                (value.width, value.signed) = (width, signed || value.signed);
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &str, source: Source) -> PointAction {
        PointAction::Sum(ValueSpec {
            name: name.into(),
            source,
            width: 8,
            signed: false,
            declared: true,
            loads: vec![],
        })
    }

    #[test]
    fn fortran_is_said_to_hand_over_addresses() {
        let told = |of: &str, source| {
            let mut missing = Missing::default();
            assert!(settle(&mut open("n", source), None, of, &mut missing));
            missing.sentences().iter().any(|s| s.contains("Fortran"))
        };
        for of in ["solve_", "__grid_MOD_step", "_QMgridPstep"] {
            assert!(told(of, Source::Arg(2)) && !told(of, Source::Ret), "{of}");
        }
        for of in ["solve", "_init", "__libc_start_main", "std::copy_", "Made_", "__"] {
            assert!(!told(of, Source::Arg(2)), "{of}");
        }
    }

    #[test]
    fn what_nothing_declares_is_summed_whole_and_said_once() {
        let mut missing = Missing::default();
        for of in ["f", "g"] {
            let mut action = open("got", Source::Ret);
            assert!(settle(&mut action, None, of, &mut missing));
            assert_eq!(action, open("got", Source::Ret));
        }
        let told = missing.sentences();
        assert!(told.len() == 1 && told[0].contains("got=ret:4:signed"), "{told:?}");
    }

    #[test]
    fn functions_without_the_value_are_named_up_to_three() {
        let mut missing = Missing::default();
        let PointAction::Sum(value) = open("n", Source::Arg(3)) else { panic!("a value") };
        ["a", "b", "c", "d"].iter().for_each(|of| missing.nowhere(&value, of));
        let told = missing.sentences();
        assert!(told.len() == 1 && told[0].starts_with("n is not summed in a, b, c and 1 more: "), "{told:?}");
        assert!(told[0].contains("no integer argument 3") && told[0].contains("n=arg3:8"), "{told:?}");
        let mut missing = Missing::default();
        missing.results(&value, "big");
        assert!(missing.sentences()[0].contains("begins at arg2"));
    }
}
