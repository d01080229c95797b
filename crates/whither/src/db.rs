//! `whither db`: verify, compact and trim what is on disk. The work is the store's; here it becomes
//! sentences, JSON and an exit code.

use crate::answer;
use crate::cli::{DbAction, DbArgs, StorePlace};
use crate::failure::Ending;
use crate::units::{show_bytes, show_count};
use crate::{places, source};
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use whither_store::{
    CompactPolicy, Compacted, Database, Dropped, Finding, GcReport, Limit, RetentionPolicy, Severity, StoreError,
};

/// `whither db ...`.
pub(crate) fn db(args: DbArgs) -> anyhow::Result<Ending> {
    match args.action {
        DbAction::Check { place, repair, json } => check(&store(place)?, repair, json),
        DbAction::Compact { place } => compact(&store(place)?),
        DbAction::Symbols { place } => {
            whither_session::gather(&store(place)?)?;
            Ok(Ending::Done)
        }
        DbAction::Gc { place, keep, max_disk } => gc(&places::database(place.named()), keep, max_disk),
    }
}

fn store(place: StorePlace) -> anyhow::Result<PathBuf> {
    place.named().map_or_else(source::default_source, Ok)
}

/// The answer is "no" when something sealed is damaged; leftovers of a crash are no damage.
fn check(path: &Path, repair: bool, json: bool) -> anyhow::Result<Ending> {
    if repair {
        let rebuilt = whither_store::rebuild(path)?;
        rebuilt.iter().for_each(|dir| crate::tell::tell!("whither: described {} anew from its parts", dir.display()));
        let removed = whither_store::repair(path)?;
        removed.iter().for_each(|left| crate::tell::tell!("whither: removed {}", left.display()));
    }
    let findings = whither_store::check(path)?;
    answer::print(&if json { findings_json(path, &findings) } else { findings_text(path, &findings) })?;
    let damaged = findings.iter().any(|f| f.severity == Severity::Damage);
    Ok(if damaged { Ending::No } else { Ending::Done })
}

fn severity(finding: &Finding) -> &'static str {
    match finding.severity {
        Severity::Leftover => "leftover",
        Severity::Stranger => "stranger",
        Severity::Damage => "damaged",
    }
}

fn findings_text(path: &Path, findings: &[Finding]) -> String {
    if findings.is_empty() {
        return format!("{}: sound", path.display());
    }
    let mut out = String::new();
    for finding in findings {
        let _ = writeln!(out, "{:<8}  {}: {}", severity(finding), finding.path.display(), finding.what);
    }
    out
}

fn findings_json(path: &Path, findings: &[Finding]) -> String {
    let line = |f: &Finding| json!({ "path": f.path, "severity": severity(f), "what": f.what });
    let findings: Vec<_> = findings.iter().map(line).collect();
    json!({ "schema": "whither.check/1", "path": path, "findings": findings }).to_string()
}

fn compact(path: &Path) -> anyhow::Result<Ending> {
    let done = whither_store::compact(path, CompactPolicy::default())?;
    done.problems.iter().for_each(|p| crate::tell::tell!("whither: {p}"));
    answer::print(&compacted(path, &done))?;
    Ok(if done.problems.is_empty() { Ending::Done } else { Ending::No })
}

fn compacted(path: &Path, done: &Compacted) -> String {
    if done.epochs == 0 {
        return format!("{}: nothing to merge", path.display());
    }
    format!(
        "{}: {} segments of {} epochs merged, {} rows to {}, {} to {}",
        path.display(),
        done.segments,
        done.epochs,
        show_count(done.rows.0),
        show_count(done.rows.1),
        show_bytes(done.bytes.0),
        show_bytes(done.bytes.1)
    )
}

fn gc(path: &Path, keep: Option<Duration>, max_disk: Option<u64>) -> anyhow::Result<Ending> {
    let now =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    if keep.is_none() && max_disk.is_none() && matches!(Database::open(path), Err(StoreError::NotADatabase { .. })) {
        answer::print(&collected(path, &whither_store::gc_recording(path)?))?;
        return Ok(Ending::Done);
    }
    let done = Database::open(path)?.gc(RetentionPolicy { max_age: keep, max_bytes: max_disk }, now)?;
    done.problems.iter().for_each(|p| crate::tell::tell!("whither: {p}"));
    answer::print(&collected(path, &done))?;
    Ok(if done.problems.is_empty() { Ending::Done } else { Ending::No })
}

fn collected(path: &Path, done: &GcReport) -> String {
    let mut out = String::new();
    for dropped in &done.dropped {
        let _ = writeln!(out, "{}", drop_line(dropped));
    }
    for left in &done.leftovers {
        let _ = writeln!(out, "removed {} of a crashed writer", left.display());
    }
    let _ = write!(out, "{}: {} now", path.display(), show_bytes(done.bytes));
    out
}

fn drop_line(dropped: &Dropped) -> String {
    let why = match dropped.why {
        Limit::Age => "older than --keep",
        Limit::Bytes => "to stay below --max-disk",
    };
    format!(
        "dropped {} ({} rows, {}): {why}",
        dropped.path.display(),
        show_count(dropped.rows),
        show_bytes(dropped.bytes)
    )
}
