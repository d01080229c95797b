//! Marks of Coz as progress points: counters that the program's marks ask for once, when they are first reached, of a library that
//! it is launched with (`whither_probe::coz`). Lives here: when it gets that library, and what is told where it cannot have it.

use super::points;
use super::words::{PointPlace, PointSpec};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use whither_kernel::launch::{self, Held};
use whither_probe::coz::{self, CozMark, CozTable, CozUse};

use crate::SessionError;

/// See the module.
#[derive(Default)]
pub(super) struct CozMarks {
    what: What,
    tables: FxHashMap<u32, CozTable>,
    /// Of all marks seen so far.
    names: BTreeSet<String>,
    full: bool,
}

/// What the program has.
#[derive(Default)]
enum What {
    /// Nobody has looked, or there is nothing to be seen.
    #[default]
    Nothing,
    /// Marks in these files, which get counters of this library.
    Counted(Vec<PathBuf>, OwnedFd),
    /// Marks, which get none for this reason.
    Uncounted(String),
}

impl CozMarks {
    /// Starts a command behind the gate; with the library, if the program (`executable`) has marks of Coz.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn hold(&mut self, words: &[String], executable: Option<&str>) -> Result<Held, SessionError> {
        if let (What::Nothing, Some(program)) = (&self.what, executable) {
            self.what = match coz::look_for(program.as_ref()) {
                CozUse::None => What::Nothing,
                CozUse::Possible(files) => What::Counted(files, coz::library()?),
                CozUse::Refused(why) => What::Uncounted(why),
            };
        }
        Ok(match &self.what {
            What::Counted(_, library) => launch::hold_preloaded(words, library.as_fd())?,
            What::Nothing | What::Uncounted(_) => launch::hold(words)?,
        })
    }

    /// A process that runs already: its marks have asked, and nobody answered.
    pub(super) fn attached(&mut self, pid: u32) {
        if coz::look_for(format!("/proc/{pid}/exe").as_ref()) != CozUse::None {
            let why = "marks ask for their counters once, when they are first reached: have whither launch the program (-- COMMAND)";
            self.what = What::Uncounted(why.to_owned());
        }
    }

    /// Whether the program's marks get counters.
    pub(super) fn are_counted(&self) -> bool {
        matches!(self.what, What::Counted(..))
    }

    /// The library may have come to this process, or have gone with what it has executed.
    pub(super) fn map(&mut self, pid: u32) {
        if !self.are_counted() {
            return;
        }
        match (self.tables.contains_key(&pid), CozTable::of(pid)) {
            (false, Some(table)) => {
                self.tables.insert(pid, table);
            }
            (_, None) => {
                self.tables.remove(&pid);
            }
            (true, Some(_)) => {}
        }
    }

    /// Marks that processes have reached since the last look.
    pub(super) fn look(&mut self, living: &[u32]) -> Vec<(u32, CozMark)> {
        self.tables.retain(|pid, _| living.contains(pid));
        let mut found = Vec::new();
        for (pid, table) in &mut self.tables {
            found.extend(table.look().into_iter().map(|mark| (*pid, mark)));
            self.full |= table.is_full();
        }
        self.names.extend(found.iter().map(|(_, mark)| mark.whole_name()));
        found
    }

    /// The next look tells all marks again.
    pub(super) fn forget(&mut self) {
        self.tables.values_mut().for_each(CozTable::forget);
    }

    /// Names of those that were reached.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter()
    }

    /// Whether a point is a mark that the program has, by the name in its files: it is worth waiting for.
    pub(super) fn may_come(&self, point: &PointSpec) -> bool {
        let (What::Counted(files, _), PointPlace::Mark(name)) = (&self.what, &point.place) else { return false };
        let stems = [name.strip_suffix("_begin"), name.strip_suffix("_end"), Some(name)];
        stems.into_iter().flatten().any(|stem| coz::is_named_in(files, stem))
    }

    /// Why a mark is nowhere, where the program's are Coz's; `files`: of all that runs.
    pub(super) fn missing(&self, point: &PointSpec, files: &[PathBuf]) -> Option<String> {
        let PointPlace::Mark(name) = &point.place else { return None };
        match &self.what {
            What::Nothing => coz::is_named_in(files, coz::LOOKED_FOR).then(|| {
                "the program that the command executes has marks of Coz, which are counted in what whither executes itself: name \
                 that program as the command"
                    .to_owned()
            }),
            What::Uncounted(why) => Some(format!("the program's marks are those of Coz, and cannot be counted: {why}")),
            What::Counted(..) if self.full => {
                Some("the program has more marks of Coz than can be counted (256)".to_owned())
            }
            What::Counted(..) if self.names.is_empty() => {
                Some("the program has marks of Coz, and has reached none of them yet".to_owned())
            }
            What::Counted(..) => {
                let names: Vec<String> = self.names.iter().cloned().collect();
                let near = points::nearest(name, &names);
                let offered: Vec<String> = if near.is_empty() { names } else { near };
                let offered: Vec<String> = offered.iter().map(|name| format!("mark:{name}")).collect();
                Some(format!("the program has not reached such a mark; it has reached {}", offered.join(", ")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::point;
    use super::*;

    #[test]
    fn what_is_told_where_marks_have_no_counters() {
        let told = |marks: &CozMarks, text: &str| marks.missing(&point(text).expect("a point"), &[]);
        let mut marks = CozMarks::default();
        assert_eq!(told(&marks, "mark:order"), None);
        // This program has the text that marks look for, as part of what looks for it.
        marks.attached(std::process::id());
        assert!(told(&marks, "mark:order").is_some_and(|why| why.contains("have whither launch the program")));
        assert_eq!(told(&marks, "order"), None);
        let me = std::env::current_exe().expect("a program");
        marks.what = What::Counted(vec![me.clone()], coz::library().expect("a library"));
        assert!(told(&marks, "mark:order").is_some_and(|why| why.contains("none of them yet")));
        marks.names.extend(["orders".to_owned(), "req_begin".to_owned()]);
        assert!(told(&marks, "mark:order").is_some_and(|why| why.ends_with("it has reached mark:orders")));
        let wrapped = CozMarks::default().missing(&point("mark:order").expect("a point"), &[me]);
        assert!(wrapped.is_some_and(|why| why.contains("name that program as the command")));
        let come = |text: &str| marks.may_come(&point(text).expect("a point"));
        assert!(come("mark:_coz_get_counter") && !come("mark:no\u{1}such") && !come("_coz_get_counter"));
    }
}
