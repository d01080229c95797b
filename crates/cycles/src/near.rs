//! Near matches for names that were not found: restricted edit distance, with a little credit for
//! a common part, over the names that have samples.

/// At most `n` names that look like `wanted`, nearest first. `names` in order of importance: ties
/// keep that order.
pub fn near_matches<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>, n: usize) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let limit = (wanted.chars().count() / 3).max(1);
    let mut scored: Vec<(usize, String)> = names
        .into_iter()
        .filter_map(|name| Some((score(&wanted, &name.to_lowercase(), limit)?, name.to_owned())))
        .collect();
    scored.sort_by_key(|(score, _)| *score);
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.truncate(n);
    scored.into_iter().map(|(_, name)| name).collect()
}

/// Distance of the whole name or of its last path component (`ns::name` or `name(args)`).
fn score(wanted: &str, name: &str, limit: usize) -> Option<usize> {
    let base = last_component(name);
    let whole = distance(wanted, name, limit);
    let part = distance(wanted, base, limit);
    let contained = (wanted.len() >= 3 && name.contains(wanted)).then_some(limit);
    [whole, part, contained].into_iter().flatten().min()
}

/// `name` of `a::b<c>::name(args)`.
#[must_use]
pub fn last_component(name: &str) -> &str {
    let head = without_arguments(name);
    let mut depth = 0i32;
    let mut after = 0;
    let bytes = head.as_bytes();
    for (i, &byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'(' => depth += 1,
            b'>' | b')' => depth -= 1,
            b':' if depth == 0 && i > 0 && bytes[i - 1] == b':' => after = i + 1,
            _ => {}
        }
    }
    &head[after..]
}

/// `a::b<c>::name` of `a::b<c>::name(args) const`; `operator()` stays whole.
#[must_use]
pub fn without_arguments(name: &str) -> &str {
    let head = name.strip_suffix(" const").unwrap_or(name);
    if !head.ends_with(')') {
        return name;
    }
    let mut depth = 0;
    for (i, byte) in head.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let is_name = i == 0 || head[..i].ends_with("operator");
            return if is_name { name } else { &head[..i] };
        }
    }
    name
}

/// Edit distance with transpositions of neighbours, `None` above `limit`.
fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().filter(|&d| d <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_and_missing_letters_are_near() {
        let names = ["memcpy", "memset", "compute", "Parser::parse(int)"];
        assert_eq!(near_matches("mempcy", names, 3), ["memcpy"]);
        assert_eq!(near_matches("comptue", names, 3), ["compute"]);
        assert_eq!(near_matches("prase", names, 3), ["Parser::parse(int)"]);
        assert!(near_matches("unrelated", names, 3).is_empty());
    }

    #[test]
    fn the_nearest_comes_first_and_long_names_are_cut_off_early() {
        assert_eq!(near_matches("copy", ["copu_x", "copy2"], 5), ["copy2"]);
        assert_eq!(distance("a", &"b".repeat(10_000), 3), None);
    }

    #[test]
    fn the_last_component_leaves_namespaces_and_arguments() {
        assert_eq!(last_component("a::b<c::d>::e(f::g)"), "e");
        assert_eq!(last_component("main"), "main");
        assert_eq!(last_component("std::vector<a::b, c<d>>::push_back(a::b&&)"), "push_back");
        assert_eq!(last_component("(anonymous namespace)::f(void (*)(int)) const"), "f");
        assert_eq!(last_component("X::operator()(int)"), "operator()");
        assert_eq!(last_component("X::operator()"), "operator()");
        assert_eq!(last_component(")("), ")(");
    }
}
