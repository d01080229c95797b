//! Stored symbols as columns, and back.

use super::columns::{Column, Indexed, TableError};
use super::parts::{from_word, texts, word};
use crate::stored::{StoredCode, StoredFunction, StoredLine};
use whither_image::{Function, ImageOffset};

/// Columns of [`super::FUNCS`].
pub(crate) fn funcs_to_columns(rows: &[StoredFunction]) -> Vec<Column> {
    vec![
        Column::Id(Indexed::each(rows.iter().map(|f| f.image))),
        Column::U64(rows.iter().map(|f| f.function.start.0).collect()),
        Column::U64(rows.iter().map(|f| f.function.size).collect()),
        texts(rows.iter().map(|f| &*f.function.name)),
        Column::Text(Indexed::each(rows.iter().map(|f| word(&f.function.source).into_boxed_str()))),
    ]
}

/// Rows of [`super::FUNCS`].
pub(crate) fn funcs_from_columns(columns: Vec<Column>) -> Result<Vec<StoredFunction>, TableError> {
    let Ok([Column::Id(image), Column::U64(start), Column::U64(size), Column::Text(name), Column::Text(source)]) =
        <[Column; 5]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    (0..start.len())
        .map(|i| {
            let function = Function {
                start: ImageOffset(start[i]),
                size: size[i],
                name: name.get(i).clone(),
                source: from_word("source", source.get(i))?,
            };
            Ok(StoredFunction { image: *image.get(i), function })
        })
        .collect()
}

/// Columns of [`super::CODE`].
pub(crate) fn code_to_columns(rows: &[StoredCode]) -> Vec<Column> {
    vec![
        Column::Id(Indexed::each(rows.iter().map(|c| c.image))),
        Column::U64(rows.iter().map(|c| c.start.0).collect()),
        Column::Blob(rows.iter().map(|c| c.bytes.clone()).collect()),
    ]
}

/// Rows of [`super::CODE`].
pub(crate) fn code_from_columns(columns: Vec<Column>) -> Result<Vec<StoredCode>, TableError> {
    let Ok([Column::Id(image), Column::U64(start), Column::Blob(bytes)]) = <[Column; 3]>::try_from(columns) else {
        return Err(TableError::Inconsistent);
    };
    let rows = bytes.into_iter().zip(start).enumerate();
    Ok(rows.map(|(i, (bytes, start))| StoredCode { image: *image.get(i), start: ImageOffset(start), bytes }).collect())
}

/// Columns of [`super::LINES`].
pub(crate) fn lines_to_columns(rows: &[StoredLine]) -> Vec<Column> {
    vec![
        Column::Id(Indexed::each(rows.iter().map(|l| l.image))),
        Column::U64(rows.iter().map(|l| l.offset.0).collect()),
        Column::U32(rows.iter().map(|l| l.depth).collect()),
        texts(rows.iter().map(|l| l.file.as_str())),
        Column::U32(rows.iter().map(|l| l.line).collect()),
        texts(rows.iter().map(|l| l.function.as_str())),
    ]
}

/// Rows of [`super::LINES`].
pub(crate) fn lines_from_columns(columns: Vec<Column>) -> Result<Vec<StoredLine>, TableError> {
    let Ok(
        [
            Column::Id(image),
            Column::U64(offset),
            Column::U32(depth),
            Column::Text(file),
            Column::U32(line),
            Column::Text(function),
        ],
    ) = <[Column; 6]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let rows = (0..offset.len()).map(|i| StoredLine {
        image: *image.get(i),
        offset: ImageOffset(offset[i]),
        depth: depth[i],
        file: file.get(i).to_string(),
        line: line[i],
        function: function.get(i).to_string(),
    });
    Ok(rows.collect())
}
