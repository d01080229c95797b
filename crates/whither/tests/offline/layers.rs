//! The floors of ARCHITECTURE.md, held by reading the manifests: a crate uses lower floors only, no
//! analysis and no report reaches the kernel, a collector or a probe, and none of those reaches an
//! analysis. A new crate must be entered here before it builds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A crate, its floor, and the crates of ours it may name.
const FLOORS: &[(&str, u8, &[&str])] = &[
    ("abi", 0, &[]),
    ("image", 1, &["abi"]),
    ("kernel", 1, &["abi"]),
    ("stats", 1, &[]),
    // For programs that are measured; its tests read the notes it leaves.
    ("progress", 2, &["image"]),
    ("store", 2, &["abi", "image"]),
    ("sample", 2, &["abi", "image", "kernel", "store"]),
    ("probe", 2, &["abi", "image", "kernel", "store"]),
    ("cycles", 3, &["image", "stats", "store"]),
    ("calls", 3, &["image", "stats", "store"]),
    ("causal", 3, &["image", "stats", "store"]),
    ("iostack", 3, &["image", "stats", "store"]),
    ("critpath", 3, &["image", "stats", "store"]),
    ("session", 4, &["abi", "image", "kernel", "stats", "store", "sample", "probe"]),
    // Of the store only the values: rows of a profile for exports.
    ("report", 4, &["image", "store", "cycles", "calls", "causal", "iostack", "critpath"]),
    (
        "whither",
        5,
        &[
            "abi", "image", "kernel", "stats", "store", "sample", "probe", "cycles", "calls", "causal", "iostack",
            "critpath", "session", "report",
        ],
    ),
];

const ANALYSES: &[&str] = &["cycles", "calls", "causal", "iostack", "critpath"];
const COLLECTORS: &[&str] = &["kernel", "sample", "probe"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Short name of a workspace crate.
fn short(package: &str) -> &str {
    package.strip_prefix("whither-").unwrap_or(package)
}

/// Every crate of ours with the crates of ours its manifest names, tests and build scripts included.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let mut edges = BTreeMap::new();
    for entry in std::fs::read_dir(root().join("crates")).expect("the crates folder is there") {
        let path = entry.expect("a readable folder").path().join("Cargo.toml");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let manifest: toml::Table = text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = manifest["package"]["name"].as_str().expect("a package has a name");
        let used = ["dependencies", "dev-dependencies", "build-dependencies"]
            .iter()
            .filter_map(|section| manifest.get(*section)?.as_table())
            .flat_map(toml::Table::keys)
            .filter(|dependency| dependency.starts_with("whither-"))
            .map(|dependency| short(dependency).to_owned())
            .collect();
        edges.insert(short(name).to_owned(), used);
    }
    assert!(edges.len() >= 9, "the workspace has more crates than {edges:?}");
    edges
}

fn floor(name: &str) -> &'static (&'static str, u8, &'static [&'static str]) {
    FLOORS.iter().find(|f| f.0 == name).unwrap_or_else(|| panic!("crate {name} has no floor: enter it in layers.rs"))
}

#[test]
fn manifests_name_only_what_their_floor_allows() {
    let mut wrong = Vec::new();
    for (name, used) in edges() {
        let (_, _, allowed) = floor(&name);
        wrong.extend(used.iter().filter(|u| !allowed.contains(&u.as_str())).map(|u| format!("{name} -> {u}")));
    }
    assert!(wrong.is_empty(), "edges that the floors forbid: {wrong:?}");
}

#[test]
fn the_floors_themselves_only_point_down() {
    for (name, level, allowed) in FLOORS {
        for used in *allowed {
            // Collectors stand beside the store they write into.
            let beside = *used == "store" && COLLECTORS.contains(name);
            let below = floor(used).1 < *level;
            assert!(below || beside, "{name} (floor {level}) may not use {used} (floor {})", floor(used).1);
        }
    }
}

/// Everything reachable from a crate by the real manifests.
fn reach(from: &str, edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![from.to_owned()];
    while let Some(name) = todo.pop() {
        for next in edges.get(&name).into_iter().flatten() {
            if seen.insert(next.clone()) {
                todo.push(next.clone());
            }
        }
    }
    seen
}

#[test]
fn asking_and_collecting_never_meet_below_the_session() {
    let edges = edges();
    let disjoint = |from: &str, forbidden: &[&str]| {
        let met: Vec<_> = reach(from, &edges).into_iter().filter(|r| forbidden.contains(&r.as_str())).collect();
        assert!(met.is_empty(), "{from} reaches {met:?}");
    };
    ANALYSES.iter().chain(&["report"]).for_each(|asking| disjoint(asking, COLLECTORS));
    COLLECTORS.iter().for_each(|collecting| disjoint(collecting, ANALYSES));
}
