//! Flags of the verbs that keep house: `epochs`, `db`, `doctor`, `completions`, `man`.

use crate::units;
use clap::{Args, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of `whither epochs`.
#[derive(Debug, Args)]
pub(crate) struct EpochsArgs {
    /// Database directory [default: $WHITHER_DB, else /var/lib/whither for root, ~/.local/share/whither for others]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) db: Option<PathBuf>,
    /// Answer as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) action: EpochsAction,
}

/// What to do with epochs.
#[derive(Debug, Subcommand)]
pub(crate) enum EpochsAction {
    /// List the epochs: when, how long, samples, size, label
    List,
    /// End the current epoch now and begin a new one (the daemon must run)
    New {
        /// Name of the new epoch
        #[arg(default_value = "")]
        label: String,
    },
    /// Name an epoch
    Label {
        /// Epoch, as `epochs list` prints it
        epoch: String,
        /// Its name
        label: String,
    },
    /// Merge neighbouring epochs into one
    Merge {
        /// Epochs, as `epochs list` prints them
        #[arg(required = true, num_args = 2..)]
        epochs: Vec<String>,
    },
    /// Remove epochs and their samples
    Rm {
        /// Epochs, as `epochs list` prints them
        #[arg(required = true)]
        epochs: Vec<String>,
    },
}

/// Flags of `whither db`.
#[derive(Debug, Args)]
pub(crate) struct DbArgs {
    #[command(subcommand)]
    pub(crate) action: DbAction,
}

/// The store a verb works on.
#[derive(Debug, Args)]
pub(crate) struct StorePlace {
    /// Recording, database or epoch directory [default: whither.wh here (not for gc), else the database]
    #[arg(conflicts_with = "db")]
    pub(crate) path: Option<PathBuf>,
    /// This profile database
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
}

impl StorePlace {
    /// What was named, if anything was.
    pub(crate) fn named(self) -> Option<PathBuf> {
        self.path.or(self.db)
    }
}

/// What to do with a database or a recording.
#[derive(Debug, Subcommand)]
pub(crate) enum DbAction {
    /// Verify every segment; exit 1 when something is damaged
    Check {
        #[command(flatten)]
        place: StorePlace,
        /// Remove what crashed writers left behind
        #[arg(long)]
        repair: bool,
        /// Answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Merge the segments of every closed epoch into one
    Compact {
        #[command(flatten)]
        place: StorePlace,
    },
    /// Store names, code and lines of sampled functions, so that it opens on another machine
    Symbols {
        #[command(flatten)]
        place: StorePlace,
    },
    /// Drop old epochs and left-over temporary files
    Gc {
        #[command(flatten)]
        place: StorePlace,
        /// Drop epochs older than this
        #[arg(long, value_name = "TIME", value_parser = units::duration)]
        keep: Option<Duration>,
        /// Drop the oldest epochs until the database is below this size
        #[arg(long, value_name = "SIZE", value_parser = units::size)]
        max_disk: Option<u64>,
    },
}

/// Flags of `whither doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// List the events that can be sampled here, instead
    #[arg(long)]
    pub(crate) events: bool,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `whither completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Flags of `whither man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory to write the pages to
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
