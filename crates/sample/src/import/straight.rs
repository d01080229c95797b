//! What is said of the branch records of a file: how many runs they tell of, how far these can be trusted, and which
//! records could not be used.

use crate::branches::Rows;
use whither_store::model::EdgeSource;

/// Runs between branch records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Straight {
    /// All that the records tell of.
    told: u64,
    /// Of these, in code that lies in no file.
    elsewhere: u64,
    /// Of these, seen with equal likelihood whatever they are.
    even: u64,
    /// Samples whose records are not of all kinds of branches.
    pub(super) partial: u64,
}

impl Straight {
    pub(super) fn add(&mut self, found: &Rows, source: EdgeSource) {
        let told = found.rows.len() as u64 + found.impossible + found.elsewhere;
        self.told += told;
        self.even += if source == EdgeSource::EvenRecords { told } else { 0 };
        self.elsewhere += found.elsewhere;
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let Self { elsewhere, told, even, partial } = *self;
        let mut notes = Vec::new();
        if told > 0 {
            let how = if even == told {
                "every so many taken branches: all executions are equally likely to be seen"
            } else {
                "with samples of another event, and are weighed for what that sees more of (`perf record -b -c 100003 -e \
                 br_inst_retired.near_taken`, on AMD ex_ret_brn_tkn, needs no weighing)"
            };
            notes.push(format!(
                "Branch records tell of {told} runs between two taken branches, {elsewhere} of them in code of no file. They came {how}."
            ));
        }
        if partial > 0 {
            notes.push(format!(
                "Branch records of {partial} samples were not used: of some kinds of branches only, they do not tell what ran \
                 between two of them; record with `-b` or `--branch-filter any,u`."
            ));
        }
        notes
    }
}
