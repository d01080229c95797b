//! What can go wrong when asking this lens something: always about the question or the data, never
//! about files or rights (those belong to `store` and `session`).

use thiserror::Error;

/// Why a question has no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A name filter is not a valid regular expression.
    #[error(
        "the pattern `{pattern}` is not a valid regular expression ({why}); write /RE/, a glob with * or ?, or plain text"
    )]
    Pattern {
        /// As the user wrote it.
        pattern: String,
        /// What the parser says.
        why: String,
    },
    /// No such grouping.
    #[error("there is no grouping `{name}`; choose from {}", crate::listing::By::NAMES.join(", "))]
    Grouping {
        /// As the user wrote it.
        name: String,
    },
    /// The recording has no such event.
    #[error("this recording has no event `{name}`; it has {have}{}", did_you_mean(.near))]
    Event {
        /// As the user wrote it.
        name: String,
        /// Events there are, joined by commas.
        have: String,
        /// Names that look alike.
        near: Vec<String>,
    },
    /// Nothing was sampled.
    #[error("the recording holds no samples; record for longer, or see `whither doctor`")]
    Empty,
    /// Nothing passes the filters.
    #[error("no sample matches {filters}{}; the recording has {samples} samples in all", did_you_mean(.near))]
    NothingMatched {
        /// Filters in force.
        filters: String,
        /// Images that look like those asked for, where no image of the recording is one of these.
        near: Vec<String>,
        /// Samples of the recording.
        samples: u64,
    },
    /// No procedure of those asked for can be looked into.
    #[error("no procedure could be analysed, all were left out ({about}): {}", why_not(.reasons))]
    NothingAnalysed {
        /// What was asked for.
        about: String,
        /// Reasons, commonest first, each with how many procedures it holds for and the one of them with most samples.
        reasons: Vec<(String, usize, String)>,
    },
    /// Exact counts of other programs.
    #[error(
        "none of the recorded images is in the exact counts, which have {have}; count the same program that was recorded"
    )]
    NothingExact {
        /// Objects counted.
        have: String,
    },
    /// The counts are of another build of an image.
    #[error(
        "the exact counts of {image} are of another build: only {fit} of {counted} counted addresses begin an instruction of \
         the recorded file; run callgrind on this file, or leave it out with --image"
    )]
    AnotherBuild {
        /// Path.
        image: String,
        /// Counted addresses in procedures compared.
        counted: usize,
        /// Those that begin an instruction.
        fit: usize,
    },
    /// Not one sample lies where something was counted.
    #[error("no sample can be compared with the exact counts: {why}")]
    NothingCompared {
        /// What stood in the way.
        why: String,
    },
    /// There is no stack to build a tree from.
    #[error("{}", no_stacks(*.recorded))]
    NoStacks {
        /// Rows of stacks in the recording, before filters.
        recorded: usize,
    },
    /// Runs cannot be set against what was asked for.
    #[error("cannot compare the runs: {why}")]
    Runs {
        /// What does not fit.
        why: String,
    },
    /// No procedure of that name has samples.
    #[error("no sampled procedure matches `{name}`{}; `whither prof` lists those with samples", did_you_mean(.near))]
    NoProcedure {
        /// As the user wrote it.
        name: String,
        /// Names that look alike, the nearest first.
        near: Vec<String>,
    },
    /// The procedure has been inlined wherever it was sampled.
    #[error("`{name}` was inlined into {}: look at the procedures that it is part of", .into.join(", "))]
    Inlined {
        /// As the user wrote it.
        name: String,
        /// Procedures that hold its code, most samples first.
        into: Vec<String>,
    },
    /// A row of `prof` that is no procedure.
    #[error("`{name}` is no procedure: {what}")]
    Nameless {
        /// As the user wrote it.
        name: String,
        /// What it is instead.
        what: &'static str,
    },
    /// Several procedures match.
    #[error("`{name}` matches {} procedures; name one as IMAGE!NAME or by address: {}", .candidates.len(), list(.candidates))]
    Ambiguous {
        /// As the user wrote it.
        name: String,
        /// What matches, most samples first: `IMAGE!NAME` (samples).
        candidates: Vec<(String, u64)>,
    },
}

/// ` (did you mean a, b?)`, or nothing.
fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(" (did you mean {}?)", near.join(", ")) }
}

fn no_stacks(recorded: usize) -> String {
    if recorded == 0 {
        "the recording holds no call stacks; record with -g".to_owned()
    } else {
        format!("no call stack matches the filters; the recording has {recorded} rows of stacks")
    }
}

fn why_not(reasons: &[(String, usize, String)]) -> String {
    const SHOWN: usize = 3;
    let reason = |(why, n, first): &(String, usize, String)| match n {
        1 => format!("{first}: {why}"),
        n => format!("{first} and {} more: {why}", n - 1),
    };
    let told: Vec<String> = reasons.iter().take(SHOWN).map(reason).collect();
    if told.is_empty() { "it holds no procedure with samples".to_owned() } else { told.join("; ") }
}

fn list(candidates: &[(String, u64)]) -> String {
    const SHOWN: usize = 8;
    let mut text: Vec<String> =
        candidates.iter().take(SHOWN).map(|(name, n)| format!("{name} ({n} samples)")).collect();
    if candidates.len() > SHOWN {
        text.push(format!("and {} more", candidates.len() - SHOWN));
    }
    text.join(", ")
}
