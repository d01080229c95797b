//! Names near one that matched nothing: misspelt, or of another case, or a part of a longer one.

use super::image::is_part;
use super::{ModuleView, image::ModuleImage};
use std::collections::BTreeSet;
use whither_image::{Form, NameKind, demangle};

/// Names offered.
const MOST: usize = 5;
/// Names looked at: somebody waits for the answer.
const MOST_NAMES: usize = 300_000;

/// Names near a pattern, nearest first; those of the program come before those of libraries.
pub(super) fn suggest<M: ModuleView>(modules: &[M], pattern: &str) -> Vec<String> {
    let function = pattern.rsplit('!').next().unwrap_or(pattern);
    let function = function.trim_matches(|c: char| ".*^$()".contains(c));
    // Names are offered without arguments of templates.
    let wanted = function
        .split_once('<')
        .map_or(function, |(name, _)| if name.is_empty() { function } else { name })
        .to_lowercase();
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut scored: BTreeSet<(usize, bool, String)> = BTreeSet::new();
    let mut left = MOST_NAMES;
    for module in modules {
        if let Some(image) = module.image() {
            look(image, &wanted, module.is_main(), &mut left, &mut scored);
        }
    }
    let mut out: Vec<String> = Vec::new();
    for (_, _, name) in scored {
        if out.len() < MOST && !out.contains(&name) {
            out.push(name);
        }
    }
    out
}

fn look(image: &ModuleImage, wanted: &str, main: bool, left: &mut usize, scored: &mut BTreeSet<(usize, bool, String)>) {
    let limit = (wanted.chars().count() / 3).max(1);
    let names = image.names().iter().filter(|n| n.kind != NameKind::Mark && !is_part(&n.name));
    for name in names.take(*left) {
        *left -= 1;
        let readable = demangle(&name.name, Form::Short);
        if let Some(score) = score(wanted, &readable.to_lowercase(), limit) {
            scored.insert((score, !main, readable.into_owned()));
            if scored.len() > 4 * MOST {
                scored.pop_last();
            }
        }
    }
}

/// Distance of the whole name or of what stands behind its last `::`; a name that contains the pattern
/// is as near as the limit allows.
fn score(wanted: &str, name: &str, limit: usize) -> Option<usize> {
    let last = name.rsplit("::").next().unwrap_or(name);
    let contained = (wanted.len() >= 3 && name.contains(wanted)).then_some(limit);
    [distance(wanted, name, limit), distance(wanted, last, limit), contained].into_iter().flatten().min()
}

/// Edits, exchanged neighbours counted as one, from one text to another; `None` above `limit`.
fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > limit * 4 {
        return None;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut older: Vec<usize> = Vec::new();
    let mut old: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut cost = (old[j] + usize::from(x != y)).min(old[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *y && b[j - 1] == *x {
                cost = cost.min(older[j - 1] + 1);
            }
            row.push(cost);
        }
        older = std::mem::replace(&mut old, row);
    }
    old.last().copied().filter(|d| *d <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("lokup", "lookup", 2), Some(1));
        assert_eq!(distance("mian", "main", 1), Some(1));
        assert_eq!(distance("main", "other", 2), None);
        assert_eq!(score("push_bakc", "std::vector::push_back", 3), Some(1));
        assert_eq!(score("lookup", "findlookupbyaddress", 2), Some(2));
    }
}
