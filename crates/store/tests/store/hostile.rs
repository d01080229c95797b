//! Tables with hostile bytes: real ones (the fuzz targets' seeds), changed at random. The checksums that
//! guard a store are out of the way here. Longer runs: `WHITHER_HOSTILE_ROUNDS=100000`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::Dice;
use std::path::Path;
use whither_store::fuzz;

#[test]
fn changed_tables_are_refused_or_read_but_never_fatal() {
    // The Parquet reader panics on some inputs; the store contains that, and the noise is not wanted.
    std::panic::set_hook(Box::new(|_| {}));
    let rounds: u64 = std::env::var("WHITHER_HOSTILE_ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(300);
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/store_table");
    let mut dice = Dice(11);
    let mut tables = 0;
    for seed in std::fs::read_dir(seeds).unwrap() {
        let bytes = std::fs::read(seed.unwrap().path()).unwrap();
        let (kind, table) = bytes.split_first().unwrap();
        assert!(fuzz::table(*kind, table).is_some_and(|rows| rows > 0), "the seed is a table");
        tables += 1;
        for _ in 0..rounds {
            let changed = change(table, &mut dice);
            let read = std::panic::catch_unwind(|| fuzz::table(*kind, &changed));
            assert!(read.is_ok(), "a panic escaped");
        }
    }
    assert!(tables >= 7);
}

fn change(table: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut out = table.to_vec();
    for _ in 0..=dice.roll(4) {
        // Half of the changes hit the footer, where the sizes and places are.
        let from = if dice.roll(2) == 0 { out.len().saturating_sub(700) } else { 0 };
        let at = from + dice.roll((out.len() - from).max(1) as u64) as usize;
        match dice.roll(4) {
            0 => out.truncate(at),
            1 => out.insert(at.min(out.len()), dice.roll(256) as u8),
            _ if at < out.len() => out[at] = dice.roll(256) as u8,
            _ => {}
        }
        if out.is_empty() {
            break;
        }
    }
    out
}
