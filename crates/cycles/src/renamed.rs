//! Programs that bear another file name in the later recordings (`server-1.3` after `server-1.2`): they are the same
//! one when no file of the name is on the other side and most of their own procedures are called the same.

use crate::matched::{image_label, without_clone_suffix};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use whither_store::model::{Image, ImageKind, Profile};
use whither_store::symbols::Symbols;

/// Smaller parts of all samples are not looked into.
const LEAST_SHARE: f64 = 0.01;
/// Of all own names of two programs, this share must be common.
const ALIKE: f64 = 0.5;
/// And as many at least: two small programs easily share a `usage`.
const LEAST_NAMES: usize = 3;

/// Labels of the later recordings' programs, and what they were called before.
pub(crate) fn renamed(a: &[&Profile], b: &[&Profile], symbols: &dyn Symbols) -> BTreeMap<String, String> {
    let (a, b) = (programs(a), programs(b));
    let only = |these: &Programs<'_>, others: &Programs<'_>| -> Vec<(String, FxHashSet<Arc<str>>)> {
        let lone = these.iter().filter(|(label, p)| p.share >= LEAST_SHARE && !others.contains_key(*label));
        lone.map(|(label, p)| (label.clone(), own_names(&p.images, symbols))).collect()
    };
    let (before, after) = (only(&a, &b), only(&b, &a));
    let mut pairs: Vec<(f64, &str, &str)> = Vec::new();
    for (old, old_names) in &before {
        for (new, new_names) in &after {
            pairs.extend(likeness(old_names, new_names).map(|alike| (alike, old.as_str(), new.as_str())));
        }
    }
    pairs.sort_by(|x, y| y.0.total_cmp(&x.0).then_with(|| (x.1, x.2).cmp(&(y.1, y.2))));
    let mut out = BTreeMap::new();
    let mut taken: FxHashSet<&str> = FxHashSet::default();
    for (_, old, new) in pairs {
        if !out.contains_key(new) && taken.insert(old) {
            out.insert(new.to_owned(), old.to_owned());
        }
    }
    out
}

/// What a reader should know of it.
pub(crate) fn note(renamed: &BTreeMap<String, String>) -> Option<String> {
    let pairs: Vec<String> = renamed.iter().map(|(new, old)| format!("{old} in A with {new} in B")).collect();
    (!pairs.is_empty()).then(|| {
        format!("compared under one name, as most of their procedures are called the same: {}", pairs.join(", "))
    })
}

struct Program<'a> {
    share: f64,
    images: Vec<&'a Image>,
}

type Programs<'a> = FxHashMap<String, Program<'a>>;

/// Files with samples, by label.
fn programs<'a>(side: &[&'a Profile]) -> Programs<'a> {
    let mut out: Programs<'a> = FxHashMap::default();
    let mut total = 0.0;
    for profile in side {
        for run in profile.samples.chunk_by(|x, y| x.image == y.image) {
            let image = profile.image(run[0].image);
            let weight: f64 = run.iter().map(|s| s.weight() as f64).sum();
            total += weight;
            if image.kind == ImageKind::Elf {
                let program = out.entry(image_label(image)).or_insert(Program { share: 0.0, images: Vec::new() });
                program.share += weight;
                program.images.push(image);
            }
        }
    }
    out.values_mut().for_each(|p| {
        p.share /= f64::max(total, 1.0);
        p.images.sort_by_key(|i| i.id);
        p.images.dedup_by_key(|i| i.id);
    });
    out
}

/// Names of a program's procedures, without those that half of all programs have.
fn own_names(images: &[&Image], symbols: &dyn Symbols) -> FxHashSet<Arc<str>> {
    symbols.prepare(images);
    let mut names: FxHashSet<Arc<str>> = FxHashSet::default();
    for image in images {
        let table = symbols.functions(image);
        names.extend(
            table.functions().iter().map(|f| without_clone_suffix(&f.name)).filter(|n| is_own(n)).map(Arc::from),
        );
    }
    names
}

/// Start-up code, the standard libraries of C++, Rust and Go, and names that are addresses say nothing.
fn is_own(name: &str) -> bool {
    const COMMON: [&str; 12] = [
        "main",
        "_start",
        "_init",
        "_fini",
        "frame_dummy",
        "deregister_tm_clones",
        "register_tm_clones",
        "__do_global_dtors_aux",
        "_dl_relocate_static_pie",
        "__libc_csu_init",
        "__libc_csu_fini",
        "main.main",
    ];
    const LIBRARIES: [&str; 32] = [
        "fn@",
        "_ZNSt",
        "_ZNKSt",
        "_ZSt",
        "_ZN9__gnu_cxx",
        "_ZNK9__gnu_cxx",
        "_ZN4core",
        "_ZN5alloc",
        "_ZN3std",
        "_ZN9hashbrown",
        "_ZN10std_detect",
        "_ZN5gimli",
        "_ZN9addr2line",
        "_ZN6object",
        "_ZN14rustc_demangle",
        "_R",
        "runtime.",
        "runtime/",
        "internal/",
        "sync.",
        "sync/",
        "reflect.",
        "type:",
        "fmt.",
        "os.",
        "syscall.",
        "strconv.",
        "unicode",
        "time.",
        "errors.",
        "io.",
        "io/",
    ];
    !COMMON.contains(&name) && !name.contains("@plt") && !LIBRARIES.iter().any(|l| name.starts_with(l))
}

/// Share of common names of all, when that is enough.
fn likeness(a: &FxHashSet<Arc<str>>, b: &FxHashSet<Arc<str>>) -> Option<f64> {
    let common = a.intersection(b).count();
    let alike = common as f64 / (a.len() + b.len() - common).max(1) as f64;
    (common >= LEAST_NAMES && alike >= ALIKE).then_some(alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> FxHashSet<Arc<str>> {
        all.iter().copied().filter(|n| is_own(n)).map(Arc::from).collect()
    }

    #[test]
    fn libraries_and_start_up_code_make_no_likeness() {
        let common = ["main", "_start", "_ZNSt6vectorIiE4pushEv", "runtime.mallocgc", "fn@0x3080", "memcpy@plt"];
        assert_eq!(likeness(&names(&common), &names(&common)), None);
        let own = ["parse", "_ZN3app3runEv", "main.work", "usage"];
        assert_eq!(likeness(&names(&own), &names(&own)), Some(1.0));
        assert_eq!(likeness(&names(&own), &names(&["parse", "usage", "x", "y"])), None, "two are too few");
    }
}
