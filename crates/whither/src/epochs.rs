//! `whither epochs`: the intervals of a profile database. Listing, naming, merging and removing are
//! the store's; beginning a new one is the running daemon's.

use crate::answer;
use crate::cli::{EpochsAction, EpochsArgs};
use crate::failure::Ending;
use crate::units::{show_bytes, show_count};
use crate::{collect, places};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use whither_session::Control;
use whither_store::{Database, EpochInfo, StoreError};

/// `whither epochs ...`.
pub(crate) fn epochs(args: EpochsArgs) -> anyhow::Result<Ending> {
    let EpochsArgs { db, json, action } = args;
    if let EpochsAction::New { label } = action {
        return collect::control(db, &Control::NewEpoch { label });
    }
    let place = places::database(db);
    let database = Database::open(&place)?;
    let shown = match action {
        EpochsAction::List => list(&database)?,
        EpochsAction::Label { epoch, label } => name(&database, &place, &epoch, &label)?,
        EpochsAction::Merge { epochs } => vec![database.merge(&epochs.join(","))?],
        EpochsAction::Rm { epochs } => database.remove(&epochs.join(","))?,
        EpochsAction::New { .. } => unreachable!("handled above"),
    };
    let rows: Vec<Row> = shown.iter().map(Row::from).collect();
    answer::print(&if json { as_json(&rows)? } else { as_text(&rows) })?;
    Ok(if rows.is_empty() { Ending::No } else { Ending::Done })
}

/// The epoch that a daemon writes is named by the daemon.
fn name(database: &Database, place: &Path, epoch: &str, label: &str) -> anyhow::Result<Vec<EpochInfo>> {
    match database.label(epoch, label) {
        Err(StoreError::Busy { path }) => {
            // By its own name: a label or a date may select others by now.
            let open = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let command = Control::Label { epoch: open.clone(), label: label.to_owned() };
            let reply = whither_session::control(place, &command)?;
            anyhow::ensure!(reply == Control::NAMED, "{}", reply.trim_end());
            Ok(database.select(&open)?)
        }
        done => Ok(done?),
    }
}

/// Unreadable epochs are told and do not hide the others.
fn list(database: &Database) -> anyhow::Result<Vec<EpochInfo>> {
    let (epochs, problems) = database.epochs()?;
    for problem in problems {
        crate::tell::tell!("whither: {problem}");
    }
    Ok(epochs)
}

/// One epoch as it is shown.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    host: String,
    label: String,
    start_ns: u64,
    end_ns: u64,
    state: &'static str,
    rows: u64,
    bytes: u64,
}

impl From<&EpochInfo> for Row {
    fn from(info: &EpochInfo) -> Self {
        let name = info.path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        Self {
            name: name.trim_start_matches("epoch=").to_owned(),
            host: info.host.clone(),
            label: info.label.clone(),
            start_ns: info.start_ns,
            end_ns: info.end_ns,
            state: if info.sealed { "closed" } else { "open" },
            rows: info.rows,
            bytes: info.bytes,
        }
    }
}

fn as_json(rows: &[Row]) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct Epochs<'a> {
        schema: &'static str,
        epochs: &'a [Row],
    }
    Ok(serde_json::to_string(&Epochs { schema: "whither.epochs/1", epochs: rows })?)
}

fn as_text(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no epochs".into();
    }
    let mut out = format!(
        "{:<22} {:<12} {:>9} {:>12} {:>10}  {:<6}  label\n",
        "epoch", "host", "length", "rows", "size", "state"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "{:<22} {:<12} {:>9} {:>12} {:>10}  {:<6}  {}",
            row.name,
            row.host,
            length(row),
            show_count(row.rows),
            show_bytes(row.bytes),
            row.state,
            row.label
        );
    }
    out
}

/// Of an open epoch: until now.
fn length(row: &Row) -> String {
    let now =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    let end = if row.end_ns == 0 { now } else { row.end_ns };
    whither_report::text::duration(end.saturating_sub(row.start_ns) as f64 / 1e9)
}
