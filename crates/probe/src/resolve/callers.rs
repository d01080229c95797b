//! Whose calls of a function are meant (`malloc@libfoo.so`): those that return into the code of some modules.
//! A call that a module makes as the last thing of a function (a jump) returns to that function's caller, and is
//! taken for his.

use super::{ModuleView, is_meant};
use crate::api::{Caller, Candidate, Select};
use crate::select::{Pattern, SelectError};
use std::collections::BTreeSet;

/// Callers of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Callers {
    /// Whoever calls it.
    All,
    /// Code of some modules, by their numbers, and what the user wrote.
    From { modules: BTreeSet<usize>, said: BTreeSet<String> },
}

impl Callers {
    /// The callers that a pattern means, and what is left of it; no modules where none matches.
    pub(super) fn of<'s, M: ModuleView>(modules: &[M], select: &'s Select) -> Result<(Self, &'s Select), SelectError> {
        let Select::CalledFrom { callee, callers } = select else { return Ok((Self::All, select)) };
        let pattern = Pattern::new(callers)?;
        let meant = |m: &M| m.image().is_some() && is_meant(&pattern, m.path());
        let modules = modules.iter().enumerate().filter(|(_, m)| meant(m)).map(|(i, _)| i).collect();
        Ok((Self::From { modules, said: BTreeSet::from([callers.clone()]) }, callee))
    }

    /// Nobody at all: none of the modules is there.
    pub(super) fn is_nobody(&self) -> bool {
        matches!(self, Self::From { modules, .. } if modules.is_empty())
    }

    /// These too.
    pub(super) fn join(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::From { modules, said }, Self::From { modules: more, said: further }) => {
                modules.extend(more);
                said.extend(further);
            }
            (_, Self::All) => *self = Self::All,
            (Self::All, Self::From { .. }) => {}
        }
    }

    /// A function, of these callers only, and named so.
    pub(super) fn restrict<M: ModuleView>(&self, all: &[M], candidate: &mut Candidate) {
        let Self::From { modules, said } = self else { return };
        let code = |&module: &usize| Some(Caller { module, code: all.get(module)?.mapped() });
        candidate.callers = modules.iter().filter_map(code).collect();
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        let said = said.join("|");
        if let Some(name) = candidate.names.first_mut() {
            *name = format!("{name}@{said}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_calls_is_put_together() {
        let from = |modules: &[usize], said: &str| Callers::From {
            modules: modules.iter().copied().collect(),
            said: BTreeSet::from([said.to_owned()]),
        };
        let mut callers = from(&[3], "b");
        callers.join(from(&[1, 3], "a"));
        let both = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(callers, Callers::From { modules: BTreeSet::from([1, 3]), said: both });
        callers.join(Callers::All);
        assert_eq!(callers, Callers::All);
        callers.join(from(&[1], "a"));
        assert_eq!(callers, Callers::All);
        assert!(from(&[], "a").is_nobody() && !callers.is_nobody());
    }
}
