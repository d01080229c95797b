//! How whither ends: exit codes and the one place that prints an error with its causes. Verbs
//! return [`Ending`] or an error; they never exit.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use whither_session::SessionError;
use whither_store::StoreError;

/// How a verb ended when nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The answer was given.
    Done,
    /// The answer is "no": nothing matched, damage found, a regression behind `--gate`.
    No,
    /// Data are incomplete, and `--strict` wants to know.
    Incomplete,
    /// The launched target's own status, as a shell tells it.
    Target(i32),
}

impl Ending {
    /// For the shell.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Incomplete => 4,
            // A shell shows the low byte too.
            Self::Target(status) => status.to_le_bytes()[0],
        }
    }
}

/// Usage error.
pub(crate) const USAGE: u8 = 2;
/// The system cannot or may not.
pub(crate) const SYSTEM: u8 = 3;

/// An error of the command line that clap cannot see (an unknown event, a file that is no recording).
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

/// Prints the error with its causes and picks the exit code. A closed pipe is no error: the reader
/// has seen enough.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    // stderr may be closed too; there is nowhere left to tell.
    let _ = writeln!(anstream::stderr(), "{}", describe(error));
    ExitCode::from(code(error))
}

/// What was printed, or not because its reader has seen enough: a command that was measured keeps its own exit status then.
///
/// # Errors
/// All others.
pub(crate) fn or_seen_enough(printed: anyhow::Result<()>) -> anyhow::Result<()> {
    match printed {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|e| e.downcast_ref::<io::Error>()).any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// `whither: WHAT: WHY`, a line per cause that says something new.
fn describe(error: &anyhow::Error) -> String {
    let mut text = format!("whither: {error}");
    let mut said = error.to_string();
    for cause in error.chain().skip(1) {
        let sentence = cause.to_string();
        if !said.contains(&sentence) {
            let _ = write!(text, "\n  because {sentence}");
            said = sentence;
        }
    }
    if let Some(remedy) = remedy(error) {
        let _ = write!(text, "\n  {remedy}");
    }
    text
}

fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of).unwrap_or(SYSTEM)
}

fn code_of(error: &(dyn Error + 'static)) -> Option<u8> {
    if error.is::<Usage>() {
        return Some(USAGE);
    }
    if let Some(error) = error.downcast_ref::<whither_cycles::Error>() {
        return Some(code_of_lens(error));
    }
    if let Some(StoreError::Selection { .. } | StoreError::NotAStore { .. } | StoreError::NotADatabase { .. }) =
        error.downcast_ref::<StoreError>()
    {
        return Some(USAGE);
    }
    error.downcast_ref::<SessionError>().map(SessionError::exit_code)
}

/// A question without an answer is "no"; a question that means nothing is a slip of usage.
fn code_of_lens(error: &whither_cycles::Error) -> u8 {
    use whither_cycles::Error;
    match error {
        Error::Empty
        | Error::NothingMatched { .. }
        | Error::Inlined { .. }
        | Error::Nameless { .. }
        | Error::NoProcedure { .. }
        | Error::NothingAnalysed { .. }
        | Error::NothingCompared { .. }
        | Error::AnotherBuild { .. } => Ending::No.code(),
        _ => USAGE,
    }
}

/// A store's error, alone or as the session passes it on.
fn of_store<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a StoreError> {
    match error.downcast_ref::<SessionError>() {
        Some(SessionError::Store(inner)) => Some(inner),
        _ => error.downcast_ref(),
    }
}

/// What to do about errors whose remedy is a flag of ours, which libraries do not know.
fn remedy(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(|e| match of_store(e)? {
        StoreError::Exists { .. } => Some("add --overwrite to replace it, or choose another place with -o"),
        StoreError::Busy { .. } => Some("`whither daemon stop` ends a daemon"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn causes_are_told_once() {
        let inner = anyhow::anyhow!("permission denied");
        let outer = Err::<(), _>(inner).context("cannot read run.wh: permission denied").expect_err("an error");
        assert_eq!(describe(&outer), "whither: cannot read run.wh: permission denied");
        let outer = outer.context("cannot list");
        assert_eq!(describe(&outer), "whither: cannot list\n  because cannot read run.wh: permission denied");
    }

    #[test]
    fn a_closed_pipe_is_quiet() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("cannot print");
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("other")));
        assert!(or_seen_enough(Err(error)).is_ok() && or_seen_enough(Err(anyhow::anyhow!("disk"))).is_err());
    }

    #[test]
    fn usage_is_two_and_the_rest_is_the_system() {
        assert_eq!(code(&anyhow::Error::from(Usage("no".into())).context("outer")), USAGE);
        assert_eq!(code(&anyhow::anyhow!("disk")), SYSTEM);
    }

    #[test]
    fn an_existing_output_names_the_flag() {
        let exists = || StoreError::Exists { path: "run.wh".into() };
        for error in [anyhow::Error::from(exists()), SessionError::Store(exists()).into()] {
            assert!(describe(&error).ends_with("add --overwrite to replace it, or choose another place with -o"));
            assert_eq!(code(&error), SYSTEM);
        }
    }

    #[test]
    fn a_target_status_passes_through() {
        assert_eq!(Ending::Target(130).code(), 130);
        assert_eq!(Ending::Target(0).code(), 0);
        assert_eq!(Ending::No.code(), 1);
    }
}
