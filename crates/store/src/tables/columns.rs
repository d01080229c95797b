//! Columns to Parquet bytes and back, for any [`Table`]. Typed column writers are used directly:
//! the arrow half of the crate would triple the build for no gain here. Parquet's own reader is
//! not proof against hostile bytes, so [`decode`] contains its panics.

use super::{Coding, Kind, Spec, Table};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{DeltaBinaryPackedEncoderOptions, EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};
use rustc_hash::FxHashMap;
use std::hash::Hash;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use whither_image::ImageId;

/// Rows of a row group; the columns of one are in memory at a time, so a daemon can afford them.
const GROUP_ROWS: usize = 1 << 17;
/// Rows of a data page: what a point read has to decode at least. Each page of each column has a header of some 30
/// bytes, which weigh more than the values of a column that hardly changes.
const PAGE_ROWS: usize = 32_768;
/// Values converted at a time, so that they stay in the cache.
const BATCH_ROWS: usize = 8192;
/// More rows than this in one row group cannot be ours (see [`GROUP_ROWS`]).
const MAX_GROUP_ROWS: i64 = 1 << 26;
/// A full dictionary falls back to plain pages silently, so the limit is out of reach.
const DICT_BYTES: usize = 256 << 20;

/// Values of one column. Columns of few values are kept as distinct values plus an index per row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Id(Indexed<ImageId>),
    Text(Indexed<Box<str>>),
    Blob(Vec<Vec<u8>>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
}

/// Distinct values, and which of them each row has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Indexed<T> {
    pub(crate) values: Vec<T>,
    pub(crate) rows: Vec<u32>,
}

impl<T> Default for Indexed<T> {
    fn default() -> Self {
        Self { values: Vec::new(), rows: Vec::new() }
    }
}

impl<T> Indexed<T> {
    /// One value per row, nothing shared.
    pub(crate) fn each(values: impl IntoIterator<Item = T>) -> Self {
        let values: Vec<T> = values.into_iter().collect();
        let rows = (0..row_number(values.len())).collect();
        Self { values, rows }
    }

    pub(crate) fn get(&self, row: usize) -> &T {
        &self.values[self.rows[row] as usize]
    }
}

/// How hard to compress: quick when sealing, thorough when compacting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quality {
    Seal,
    Compact,
}

impl Quality {
    fn zstd_level(self) -> i32 {
        match self {
            Self::Seal => 3,
            // Bit-packed pages hold little slack: 19 was measured to save 2 % more, not worth its time.
            Self::Compact => 6,
        }
    }

    /// Of columns whose bytes are split: these are what compresses.
    fn split_level(self) -> i32 {
        match self {
            // Takes an eighth of sealing and saves 1 %: what a minute of samples takes is within 1 % of its bar.
            Self::Seal => 9,
            Self::Compact => 15,
        }
    }
}

/// A table could not be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    #[error("{0}")]
    Parquet(#[from] ParquetError),
    #[error("column `{0}` is missing")]
    MissingColumn(&'static str),
    #[error("column `{0}` has another type than this version writes")]
    WrongType(&'static str),
    #[error("a row group claims {0} rows")]
    TooManyRows(i64),
    #[error("column `{column}` has {found} of {expected} rows")]
    ShortColumn { column: &'static str, found: usize, expected: usize },
    #[error("column `{0}` holds text that is not UTF-8")]
    NotText(&'static str),
    #[error("column `{column}` holds the unknown value `{value}`")]
    BadValue { column: &'static str, value: String },
    #[error("the Parquet pages are inconsistent (the reader gave up)")]
    Inconsistent,
}

/// Encodes a table of `rows` rows. `columns` gives the columns of a range of rows, in the order of the
/// table's specification: only one row group at a time is in memory as columns.
pub(crate) fn encode(
    table: &Table,
    rows: usize,
    columns: &dyn Fn(Range<usize>) -> Vec<Column>,
    quality: Quality,
) -> Result<Vec<u8>, TableError> {
    let mut writer = SerializedFileWriter::new(Vec::new(), schema(table)?, Arc::new(properties(table, quality)?))?;
    for start in (0..rows).step_by(GROUP_ROWS) {
        let mut group = writer.next_row_group()?;
        for column in columns(start..rows.min(start + GROUP_ROWS)) {
            write_column(&mut group, &column)?;
        }
        group.close()?;
    }
    Ok(writer.into_inner()?)
}

/// Decodes a table. `keep` is asked with the smallest and largest image id of each row group.
pub(crate) fn decode(
    table: &Table,
    bytes: Bytes,
    keep: &(dyn Fn(ImageId, ImageId) -> bool + Sync),
) -> Result<Vec<Column>, TableError> {
    // Lengths inside the pages are trusted by the Parquet reader; a file that passed its checksum
    // but lies about them must not take the caller down.
    catch_unwind(AssertUnwindSafe(|| decode_unguarded(table, bytes, keep))).unwrap_or(Err(TableError::Inconsistent))
}

impl Column {
    /// Rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Id(c) => c.rows.len(),
            Self::Text(c) => c.rows.len(),
            Self::Blob(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
        }
    }

    fn empty(kind: Kind) -> Self {
        match kind {
            Kind::Id => Self::Id(Indexed::default()),
            Kind::Text => Self::Text(Indexed::default()),
            Kind::Blob => Self::Blob(Vec::new()),
            Kind::U32 => Self::U32(Vec::new()),
            Kind::U64 => Self::U64(Vec::new()),
            Kind::I64 => Self::I64(Vec::new()),
        }
    }
}

fn row_number(n: usize) -> u32 {
    u32::try_from(n).expect("a table in memory has fewer than 2^32 rows")
}

fn schema(table: &Table) -> Result<Arc<Type>, ParquetError> {
    let fields: Result<Vec<_>, ParquetError> = table.columns.iter().map(|c| field(c).map(Arc::new)).collect();
    Ok(Arc::new(Type::group_type_builder("whither").with_fields(fields?).build()?))
}

fn field(spec: &Spec) -> Result<Type, ParquetError> {
    let (physical, logical, length) = match spec.kind {
        Kind::Id => (Physical::FIXED_LEN_BYTE_ARRAY, None, 20),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String), -1),
        Kind::Blob => (Physical::BYTE_ARRAY, None, -1),
        Kind::U32 => (Physical::INT32, Some(LogicalType::integer(32, false)), -1),
        Kind::U64 => (Physical::INT64, Some(LogicalType::integer(64, false)), -1),
        Kind::I64 => (Physical::INT64, Some(LogicalType::integer(64, true)), -1),
    };
    Type::primitive_type_builder(spec.name, physical)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(logical)
        .with_length(length)
        .build()
}

fn properties(table: &Table, quality: Quality) -> Result<WriterProperties, ParquetError> {
    let sorting = (0i32..).take(table.sorted).map(|column_idx| SortingColumn {
        column_idx,
        descending: false,
        nulls_first: false,
    });
    let mut props = WriterProperties::builder()
        .set_created_by(concat!("whither ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(quality.zstd_level())?))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(BATCH_ROWS)
        .set_dictionary_page_size_limit(DICT_BYTES)
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_sorting_columns(Some(sorting.collect()));
    for spec in table.columns {
        let path = ColumnPath::from(spec.name);
        props = props.set_column_dictionary_enabled(path.clone(), spec.coding == Coding::Dict);
        props = match spec.coding {
            Coding::Delta => props
                .set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
                .set_column_delta_binary_packed_encoder_options(path, delta_layout()?),
            Coding::Split => props
                .set_column_encoding(path.clone(), Encoding::BYTE_STREAM_SPLIT)
                .set_column_compression(path, Compression::ZSTD(ZstdLevel::try_new(quality.split_level())?)),
            Coding::Dict | Coding::Plain => props,
        };
    }
    // The page index serves point reads of one image; for other columns it is weight without use.
    if table.sorted > 0 {
        let first = ColumnPath::from(table.columns[0].name);
        props = props.set_column_statistics_enabled(first, EnabledStatistics::Page);
    }
    Ok(props.build())
}

/// The smallest blocks the format allows. Where the next process begins, offsets jump back, and the jump
/// widens every value of its block: default blocks of 256 take 7 % more on a compiler's samples.
fn delta_layout() -> Result<DeltaBinaryPackedEncoderOptions, ParquetError> {
    DeltaBinaryPackedEncoderOptions::try_new(128, 4)
}

fn write_column<W: std::io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &Column,
) -> Result<(), ParquetError> {
    match column {
        Column::Id(c) => {
            let values: Vec<FixedLenByteArray> = c.values.iter().map(|id| id.0.to_vec().into()).collect();
            write_indexed::<FixedLenByteArrayType, W>(group, &values, &c.rows)
        }
        Column::Text(c) => {
            let values: Vec<ByteArray> = c.values.iter().map(|s| ByteArray::from(&**s)).collect();
            write_indexed::<ByteArrayType, W>(group, &values, &c.rows)
        }
        Column::Blob(v) => write_values::<ByteArrayType, _, W>(group, v, |b| ByteArray::from(b.as_slice())),
        Column::U32(v) => write_values::<Int32Type, _, W>(group, v, |x| x.cast_signed()),
        Column::U64(v) => write_values::<Int64Type, _, W>(group, v, |x| x.cast_signed()),
        Column::I64(v) => write_values::<Int64Type, _, W>(group, v, |x| *x),
    }
}

fn write_values<T: DataType, V, W: std::io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[V],
    convert: impl Fn(&V) -> T::T,
) -> Result<(), ParquetError> {
    let mut column =
        group.next_column()?.ok_or_else(|| ParquetError::General("more columns than the schema has".into()))?;
    let mut page: Vec<T::T> = Vec::with_capacity(BATCH_ROWS.min(values.len()));
    for part in values.chunks(BATCH_ROWS) {
        page.clear();
        page.extend(part.iter().map(&convert));
        column.typed::<T>().write_batch(&page, None, None)?;
    }
    column.close()
}

/// As [`write_values`]; where a value repeats for long, as in sorted columns, it is not copied again.
fn write_indexed<T: DataType, W: std::io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    rows: &[u32],
) -> Result<(), ParquetError> {
    let mut column =
        group.next_column()?.ok_or_else(|| ParquetError::General("more columns than the schema has".into()))?;
    let mut page: Vec<T::T> = Vec::with_capacity(BATCH_ROWS.min(rows.len()));
    let mut last: &[u32] = &[];
    for part in rows.chunks(BATCH_ROWS) {
        if part != last {
            page.clear();
            page.extend(part.iter().map(|&i| values[i as usize].clone()));
            last = part;
        }
        column.typed::<T>().write_batch(&page, None, None)?;
    }
    column.close()
}

fn decode_unguarded(
    table: &Table,
    bytes: Bytes,
    keep: &(dyn Fn(ImageId, ImageId) -> bool + Sync),
) -> Result<Vec<Column>, TableError> {
    let reader = SerializedFileReader::new(bytes)?;
    let places = find_columns(table, &reader)?;
    let mut columns: Vec<Column> = table.columns.iter().map(|c| Column::empty(c.kind)).collect();
    for g in 0..reader.num_row_groups() {
        let group = reader.get_row_group(g)?;
        let rows = group.metadata().num_rows();
        if !(0..=MAX_GROUP_ROWS).contains(&rows) {
            return Err(TableError::TooManyRows(rows));
        }
        if !wanted(table, &*group, &places, keep) {
            continue;
        }
        for ((spec, column), &place) in table.columns.iter().zip(&mut columns).zip(&places) {
            if let Some(place) = place {
                read_column(spec, group.get_column_reader(place)?, usize::try_from(rows).unwrap_or(0), column)?;
            }
        }
    }
    fill_in(table, &places, &mut columns);
    Ok(columns)
}

/// Gives columns that the file lacks their value from before. The first column of a table is in every file.
fn fill_in(table: &Table, places: &[Option<usize>], columns: &mut [Column]) {
    let rows = columns.first().map_or(0, Column::len);
    for ((spec, place), column) in table.columns.iter().zip(places).zip(columns) {
        if let (Some(before), None) = (spec.before, place) {
            *column = Column::Text(Indexed { values: vec![before.into()], rows: vec![0; rows] });
        }
    }
}

/// Where each column is; `None` for those that older files lack.
fn find_columns(table: &Table, reader: &SerializedFileReader<Bytes>) -> Result<Vec<Option<usize>>, TableError> {
    let schema = reader.metadata().file_metadata().schema_descr();
    table
        .columns
        .iter()
        .map(|spec| {
            let found = schema.columns().iter().position(|c| c.path().parts() == [spec.name]);
            let Some(place) = found else {
                return spec.before.map(|_| None).ok_or(TableError::MissingColumn(spec.name));
            };
            let column = schema.column(place);
            let required = column.max_def_level() == 0 && column.max_rep_level() == 0;
            let same = required && column.physical_type() == physical(spec.kind);
            let same = same && (spec.kind != Kind::Id || column.type_length() == 20);
            if same { Ok(Some(place)) } else { Err(TableError::WrongType(spec.name)) }
        })
        .collect()
}

fn physical(kind: Kind) -> Physical {
    match kind {
        Kind::Id => Physical::FIXED_LEN_BYTE_ARRAY,
        Kind::Text | Kind::Blob => Physical::BYTE_ARRAY,
        Kind::U32 => Physical::INT32,
        Kind::U64 | Kind::I64 => Physical::INT64,
    }
}

/// Whether a row group can hold an image asked for; without statistics it can.
fn wanted(
    table: &Table,
    group: &dyn RowGroupReader,
    places: &[Option<usize>],
    keep: &(dyn Fn(ImageId, ImageId) -> bool + Sync),
) -> bool {
    let of_ids = table.columns.iter().zip(places).find(|(c, _)| c.kind == Kind::Id);
    let Some((_, &Some(place))) = of_ids else { return true };
    let bound = |bytes: Option<&[u8]>| bytes.and_then(|b| b.try_into().ok()).map(ImageId);
    let column = group.metadata().column(place);
    let bounds = column.statistics().map(|s| (bound(s.min_bytes_opt()), bound(s.max_bytes_opt())));
    match bounds {
        Some((Some(low), Some(high))) => keep(low, high),
        _ => true,
    }
}

fn read_column(spec: &Spec, reader: ColumnReader, rows: usize, into: &mut Column) -> Result<(), TableError> {
    let expected = into.len() + rows;
    match (reader, &mut *into) {
        (ColumnReader::FixedLenByteArrayColumnReader(r), Column::Id(c)) => {
            let mut index = Index::new(c, |b: &[u8]| b.try_into().ok().map(ImageId));
            let whole = read_pages(r, rows, |page| index.add(page.iter().map(|v: &FixedLenByteArray| v.data())))?;
            whole.then_some(()).ok_or(TableError::WrongType(spec.name))?;
        }
        (ColumnReader::ByteArrayColumnReader(r), Column::Text(c)) => {
            let mut index = Index::new(c, |b: &[u8]| std::str::from_utf8(b).ok().map(Box::from));
            let whole = read_pages(r, rows, |page| index.add(page.iter().map(|v: &ByteArray| v.data())))?;
            whole.then_some(()).ok_or(TableError::NotText(spec.name))?;
        }
        (ColumnReader::ByteArrayColumnReader(r), Column::Blob(v)) => extend(r, rows, v, |b| b.data().to_vec())?,
        (ColumnReader::Int32ColumnReader(r), Column::U32(v)) => extend(r, rows, v, |x| x.cast_unsigned())?,
        (ColumnReader::Int64ColumnReader(r), Column::U64(v)) => extend(r, rows, v, |x| x.cast_unsigned())?,
        (ColumnReader::Int64ColumnReader(r), Column::I64(v)) => extend(r, rows, v, |x| *x)?,
        _ => return Err(TableError::WrongType(spec.name)),
    }
    let found = into.len();
    if found == expected { Ok(()) } else { Err(TableError::ShortColumn { column: spec.name, found, expected }) }
}

fn extend<T: DataType, V>(
    reader: ColumnReaderImpl<T>,
    rows: usize,
    into: &mut Vec<V>,
    convert: impl Fn(&T::T) -> V,
) -> Result<(), ParquetError> {
    into.reserve(rows.min(GROUP_ROWS));
    let take = |page: &[T::T]| {
        into.extend(page.iter().map(&convert));
        true
    };
    read_pages(reader, rows, take).map(drop)
}

/// Hands out the values page by page, until `take` refuses one (then the answer is false) or they end. A lying row count
/// reserves no memory for values that never come.
fn read_pages<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    mut take: impl FnMut(&[T::T]) -> bool,
) -> Result<bool, ParquetError> {
    let mut page = Vec::with_capacity(rows.min(BATCH_ROWS));
    let mut left = rows;
    while left > 0 {
        page.clear();
        let (read, ..) = reader.read_records(left.min(BATCH_ROWS), None, None, &mut page)?;
        if read == 0 {
            break;
        }
        if !take(&page) {
            return Ok(false);
        }
        left -= read.min(left);
    }
    Ok(true)
}

/// Turns plain values into distinct values and row indexes. Sorted tables have long runs of equal
/// values that share one buffer (the dictionary's), so most rows cost one pointer comparison.
struct Index<'a, T, C> {
    into: &'a mut Indexed<T>,
    known: FxHashMap<T, u32>,
    convert: C,
}

impl<'a, T: Clone + Eq + Hash, C: Fn(&[u8]) -> Option<T>> Index<'a, T, C> {
    fn new(into: &'a mut Indexed<T>, convert: C) -> Self {
        Self { into, known: FxHashMap::default(), convert }
    }

    /// False when a value cannot be converted.
    fn add<'v>(&mut self, values: impl ExactSizeIterator<Item = &'v [u8]>) -> bool {
        let mut last: Option<(&[u8], u32)> = None;
        self.into.rows.reserve(values.len());
        for now in values {
            let same = last.filter(|(b, _)| (b.as_ptr() == now.as_ptr() && b.len() == now.len()) || *b == now);
            let ix = match same {
                Some((_, ix)) => ix,
                None => match (self.convert)(now) {
                    Some(value) => self.number(value),
                    None => return false,
                },
            };
            last = Some((now, ix));
            self.into.rows.push(ix);
        }
        true
    }

    fn number(&mut self, value: T) -> u32 {
        let next = row_number(self.into.values.len());
        let ix = *self.known.entry(value.clone()).or_insert(next);
        if ix == next {
            self.into.values.push(value);
        }
        ix
    }
}
