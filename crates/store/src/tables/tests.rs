//! What a table looks like to other engines, and that every value survives.

use super::columns::{Column, Indexed, Quality, decode, encode};
use super::*;
use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use std::ops::Range;
use whither_image::ImageId;

static ALL: [&Table; 19] = [
    &SAMPLES,
    &IMAGES,
    &PROCESSES,
    &STACKS,
    &FRAMES,
    &EDGES,
    &RATES,
    &FUNCS,
    &CODE,
    &LINES,
    &CALL_POINTS,
    &CALL_FRAMES,
    &CALL_PATHS,
    &CALL_THREADS,
    &CALL_NAMES,
    &CAUSAL_WINDOWS,
    &CAUSAL_VISITS,
    &CAUSAL_TARGETS,
    &CAUSAL_SAMPLES,
];

fn pick<T: Clone>(values: &[T], range: Range<usize>) -> Vec<T> {
    range.map(|i| values[i % values.len()].clone()).collect()
}

/// Columns of a table whose values come from a small pool of awkward ones.
fn columns(table: &Table, range: Range<usize>, pool: &[u64]) -> Vec<Column> {
    let texts: Vec<Box<str>> = pool.iter().map(|n| format!("t\u{e4}xt {n}").into()).collect();
    let column = |spec: &Spec| match spec.kind {
        Kind::Id => Column::Id(Indexed::each(pick(pool, range.clone()).into_iter().map(|n| {
            let mut id = [0; 20];
            id[..8].copy_from_slice(&n.to_be_bytes());
            ImageId(id)
        }))),
        Kind::Text => Column::Text(Indexed::each(pick(&texts, range.clone()))),
        Kind::Blob => Column::Blob(pick(pool, range.clone()).into_iter().map(|n| n.to_le_bytes().to_vec()).collect()),
        Kind::U32 => Column::U32(pick(pool, range.clone()).into_iter().map(|n| n as u32).collect()),
        Kind::U64 => Column::U64(pick(pool, range.clone())),
        Kind::I64 => Column::I64(pick(pool, range.clone()).into_iter().map(u64::cast_signed).collect()),
    };
    table.columns.iter().map(column).collect()
}

/// Values by row, however they are indexed.
fn plain(column: &Column) -> Vec<String> {
    match column {
        Column::Id(c) => (0..c.rows.len()).map(|i| c.get(i).to_string()).collect(),
        Column::Text(c) => (0..c.rows.len()).map(|i| c.get(i).to_string()).collect(),
        Column::Blob(v) => v.iter().map(|b| format!("{b:?}")).collect(),
        Column::U32(v) => v.iter().map(u32::to_string).collect(),
        Column::U64(v) => v.iter().map(u64::to_string).collect(),
        Column::I64(v) => v.iter().map(i64::to_string).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_value_survives(kind in 0..ALL.len(), rows in 1..300_usize, pool in prop::collection::vec(any::<u64>(), 1..40)) {
        let table = ALL[kind];
        let bytes = encode(table, rows, &|r| columns(table, r, &pool), Quality::Seal).unwrap();
        let found = decode(table, Bytes::from(bytes), &|_, _| true).unwrap();
        let expect = columns(table, 0..rows, &pool);
        for (a, b) in found.iter().zip(&expect) {
            prop_assert_eq!(plain(a), plain(b));
        }
    }
}

#[test]
fn large_tables_keep_their_encodings() {
    // Many distinct values and several row groups: a dictionary that fell back would show here.
    let pool: Vec<u64> = (0..70_001).map(|i| i * 0x9e37_79b9).collect();
    let rows = 300_000;
    for table in [&SAMPLES, &STACKS, &FRAMES, &EDGES] {
        let bytes = encode(table, rows, &|r| columns(table, r, &pool), Quality::Seal).unwrap();
        let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 3);
        for group in reader.metadata().row_groups() {
            let sorting = group.sorting_columns().unwrap();
            assert_eq!(
                sorting.iter().map(|s| s.column_idx as usize).collect::<Vec<_>>(),
                (0..table.sorted).collect::<Vec<_>>()
            );
            for (spec, column) in table.columns.iter().zip(group.columns()) {
                let encodings: Vec<Encoding> = column.encodings().collect();
                let data = match spec.coding {
                    Coding::Dict => Encoding::RLE_DICTIONARY,
                    Coding::Delta => Encoding::DELTA_BINARY_PACKED,
                    Coding::Split => Encoding::BYTE_STREAM_SPLIT,
                    Coding::Plain => Encoding::PLAIN,
                };
                let pages = column.page_encoding_stats_mask().unwrap();
                assert!(pages.is_only(data), "{}.{}: {encodings:?}", table.file, spec.name);
            }
            assert!(group.column(0).offset_index_offset().is_some(), "pages can be found without reading them all");
        }
    }
}

#[test]
fn row_groups_of_other_images_are_not_read() {
    let id = |n: usize| ImageId([n as u8; 20]);
    let make = |range: Range<usize>| {
        let mut made = columns(&SAMPLES, range.clone(), &[1, 2, 3]);
        made[0] = Column::Id(Indexed::each(range.map(|row| id(row / 140_000))));
        made
    };
    let bytes = Bytes::from(encode(&SAMPLES, 400_000, &make, Quality::Seal).unwrap());
    let wanted = id(2);
    let found = decode(&SAMPLES, bytes, &|low, high| low <= wanted && wanted <= high).unwrap();
    assert!(found[0].len() < 300_000, "{} rows read", found[0].len());
    assert_eq!(plain(&found[0]).iter().filter(|v| **v == wanted.to_string()).count(), 120_000);
}

#[test]
fn branches_of_older_recordings_were_seen_by_registers() {
    let older: Vec<Spec> = EDGES.columns.iter().filter(|c| c.before.is_none()).copied().collect();
    let older: &'static Table =
        Box::leak(Box::new(Table { file: EDGES.file, columns: Box::leak(older.into()), sorted: 5 }));
    let rows = 100_000;
    let bytes = encode(older, rows, &|r| columns(older, r, &[1, 2, 3]), Quality::Seal).unwrap();
    let found = decode(&EDGES, Bytes::from(bytes), &|_, _| true).unwrap();
    let at = EDGES.columns.iter().position(|c| c.name == "source").unwrap();
    assert!(found.iter().all(|c| c.len() == rows));
    assert!(plain(&found[at]).iter().all(|w| w == edges::REGISTERS));
}

#[test]
fn foreign_tables_are_errors() {
    let bytes = encode(&IMAGES, 5, &|r| columns(&IMAGES, r, &[1]), Quality::Seal).unwrap();
    let error = decode(&SAMPLES, Bytes::from(bytes.clone()), &|_, _| true).unwrap_err().to_string();
    assert_eq!(error, "column `event` is missing");
    for cut in 0..bytes.len() {
        assert!(decode(&IMAGES, Bytes::from(bytes[..cut].to_vec()), &|_, _| true).is_err());
    }
}
