//! A hand-made whole-system answer, of the size and unruliness of a real one: C++ and hostile
//! names, two events, inlined code, loops, losses. Figures are made by a small fixed generator.
#![allow(dead_code)] // each test binary uses its part

use whither_cycles::results::*;
use whither_report::html::ReportData;

/// A fixed linear congruential generator: the same page on every machine.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }
}

const NAMES: &[(&str, &str)] = &[
    ("sqlite3VdbeExec", "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6"),
    ("copy_user_generic", "[kernel]"),
    ("sqlite3BtreeIndexMoveto", "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6"),
    ("__memmove_avx512_unaligned_erms", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
    (
        "ggc_internal_alloc(unsigned long, void (*)(void*), unsigned long, unsigned long)",
        "/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
    ),
    (
        "hash_table<ggc_cache_ptr_hash<tree_node>, false, xcallocator>::find_slot_with_hash(tree_node* const&, unsigned int, insert_option)",
        "/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
    ),
    ("clear_page_erms", "[kernel]"),
    ("<alloc::vec::Vec<T> as core::iter::traits::collect::FromIterator<T>>::from_iter", "/usr/bin/rg"),
    (
        "std::operator<< <std::char_traits<char> >(std::ostream&, char const*)",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30",
    ),
    ("</script><script>document.title='owned'</script>", "/tmp/\"onmouseover=alert(1) x=\"/evil"),
    ("fn@4f3a10", "/usr/bin/gcc-12"),
    ("[unknown: process ended before its maps were read]", "[unknown]"),
];

pub(crate) fn provenance() -> Provenance {
    Provenance {
        sources: vec!["run.wh".into()],
        hosts: vec!["build-07".into()],
        machine: "AMD EPYC 9R45, Linux 6.18.2".into(),
        seconds: 10.04,
        cpus: 2,
        scope: "whole system".into(),
        events: vec![
            EventTotals {
                name: "cpu-clock".into(),
                unit: "ns".into(),
                samples: 98_211,
                weight: 18_840_000_000,
                idle: 2_109,
            },
            EventTotals { name: "page-faults".into(), unit: "count".into(), samples: 4_120, weight: 412_000, idle: 0 },
        ],
        unknown: vec![("process ended before its maps were read".into(), 31)],
        unknown_share: 0.000_31,
        dropped: 0,
        skipped: 214,
        sideband_lost: 0,
        ambiguous: 3,
        stacks: (98_000, 1_204, 12),
        own_cost: Some(0.0087),
        rate_hz: 4_989.0,
        notes: vec![
            "cpu-clock was chosen because this machine offers no hardware events (virtual machine without a PMU)"
                .into(),
            "Install libsqlite3-0-dbgsym to see source lines of libsqlite3.so.0.8.6".into(),
        ],
    }
}

fn listing(by: &[&str], rows: usize, label: impl Fn(usize) -> Vec<String>) -> Listing {
    let p = provenance();
    let totals = (p.events[0].samples, p.events[1].samples);
    let mut left = totals.0;
    let mut cumulative = 0.0;
    let rows = (0..rows)
        .map(|i| {
            let n = left / 5;
            left -= n;
            let share = n as f64 / totals.0 as f64;
            cumulative += share;
            let faults = totals.1 / (i as u64 * 2 + 9);
            ListingRow {
                labels: label(i),
                cells: vec![
                    Cell { samples: n, weight: n * 191_831, share },
                    Cell { samples: faults, weight: faults * 100, share: faults as f64 / totals.1 as f64 },
                ],
                cumulative,
                error: 1.96 * (share * (1.0 - share) / totals.0 as f64).sqrt(),
                remark: (i == 1).then(|| "samples pile up here when interrupts are switched on again".into()),
            }
        })
        .collect();
    Listing {
        provenance: p,
        by: by.iter().map(|s| (*s).into()).collect(),
        rows,
        rest: Some((
            214,
            vec![Cell { samples: left, weight: left * 191_831, share: left as f64 / totals.0 as f64 }, Cell::default()],
        )),
        filters: vec![],
    }
}

const CODE: &[(&str, Option<usize>)] = &[
    ("push   %rbp", None),
    ("mov    %rsp,%rbp", None),
    ("test   %rdx,%rdx", None),
    ("je     ", Some(22)),
    ("lea    (%rsi,%rdx,8),%r8", None),
    ("pxor   %xmm0,%xmm0", None),
    ("xor    %ecx,%ecx", None),
    ("nopw   0x0(%rax,%rax,1)", None),
    ("mov    (%rsi,%rcx,8),%rax", None),
    ("cmp    $0x3f,%rax", None),
    ("ja     ", Some(15)),
    ("imul   0x18(%rdi),%rax", None),
    ("add    (%rdi),%rax", None),
    ("movsd  (%rax),%xmm1", None),
    ("jmp    ", Some(17)),
    ("call   fallback(double const&)", None),
    ("movapd %xmm0,%xmm1", None),
    ("addsd  %xmm1,%xmm0", None),
    ("add    $0x1,%rcx", None),
    ("cmp    %rcx,%rdx", None),
    ("jne    ", Some(8)),
    ("movsd  %xmm0,0x20(%rdi)", None),
    ("pop    %rbp", None),
    ("ret", None),
];

const SOURCE: &[&str] = &[
    "double Table<double>::sum(const std::vector<size_t>& keys) {",
    "    double total = 0;",
    "    for (size_t k : keys) {",
    "        if (k < 64 && \"<b>&amp;\")",
    "            total += rows[k * stride];",
    "        else",
    "            total += fallback(k);",
    "    }",
    "    return last = total;",
    "}",
];

pub(crate) fn annotation(name: &str, image: &str, repeat: usize, with_source: bool) -> Annotation {
    let weights = [0, 0, 1, 0, 0, 0, 0, 0, 60, 5, 0, 22, 2, 410, 30, 4, 1, 190, 20, 3, 8, 1, 0, 1_u64];
    let total: u64 = weights.iter().sum::<u64>() * repeat as u64;
    let line_of = |i: usize| match i {
        0..=1 => 0,
        2..=7 => 1,
        8..=10 => 3,
        11..=14 => 4,
        15..=16 => 6,
        17..=20 => 2,
        _ => 8,
    };
    let mut insns = Vec::new();
    for r in 0..repeat {
        let base = 0x4011a0 + (r * 24 * 5) as u64;
        for (i, (text, target)) in CODE.iter().enumerate() {
            let target = target.map(|t| base + t as u64 * 5);
            let samples = weights[i] as f64 + if i == 13 { 0.5 } else { 0.0 };
            insns.push(InsnRow {
                address: base + i as u64 * 5,
                length: 5,
                text: target.map_or((*text).to_owned(), |t| format!("{text}{t:x}")),
                samples: vec![samples, (weights[i] / 40) as f64],
                raw: vec![if i > 0 { weights[i - 1] } else { 0 }, 0],
                share: samples / total as f64,
                line: Some((u32::from(i == 13), 10 + line_of(i) as u32)),
                inlined: (11..=13).contains(&i).then(|| "Row<double>::operator[](unsigned long) const".into()),
                block: (r * 4
                    + match i {
                        0..=3 => 0,
                        4..=10 => 1,
                        11..=14 => 2,
                        _ => 3,
                    }) as u32,
                target,
                ..InsnRow::default()
            });
        }
    }
    let lines = (0..SOURCE.len())
        .map(|l| {
            let samples: f64 = insns.iter().filter(|i| i.line == Some((0, 10 + l as u32))).map(|i| i.samples[0]).sum();
            LineRow {
                file: 0,
                line: 10 + l as u32,
                text: with_source.then(|| SOURCE[l].into()),
                samples: vec![samples, 0.0],
                share: samples / total as f64,
            }
        })
        .chain([LineRow {
            file: 1,
            line: 14,
            text: with_source.then(|| "    const T& operator[](size_t i) const { return data[i]; }".into()),
            samples: vec![410.5 * repeat as f64, 0.0],
            share: 410.5 * repeat as f64 / total as f64,
        }])
        .collect();
    Annotation {
        provenance: provenance(),
        procedure: name.into(),
        image: image.into(),
        image_id: "9a3cbf11e0a4bfe1f9a0f0b51b6ed2c1b3ad20aa".into(),
        range: (0x4011a0, 24 * 5 * repeat as u64),
        parts: Vec::new(),
        cells: vec![Cell { samples: total, weight: total * 191_831, share: 0.2 }],
        corrected: true,
        files: vec!["/usr/src/bench/table.cc".into(), "/usr/src/bench/row.h".into()],
        insns,
        lines,
        notes: if with_source { vec![] } else { vec!["No debug information for this image: no source lines".into()] },
    }
}

fn tree(dice: &mut Dice, depth: usize, budget: u64) -> FlameNode {
    let (name, image) = NAMES[dice.below(NAMES.len() as u64) as usize];
    let short = image.rsplit('/').next().unwrap_or(image);
    let mut node = FlameNode {
        name: name.into(),
        image: short.into(),
        kernel: image == "[kernel]",
        inlined: dice.below(5) == 0,
        total: budget,
        own: budget,
        children: vec![],
    };
    if depth > 0 {
        for _ in 0..dice.below(5) {
            let part = node.own * (10 + dice.below(60)) / 100;
            if part > 0 {
                node.own -= part;
                node.children.push(tree(dice, depth - 1, part));
            }
        }
    }
    node.children.sort_by_key(|c| std::cmp::Reverse(c.total));
    node
}

pub(crate) fn data() -> ReportData {
    let mut dice = Dice::new(7);
    let children: Vec<FlameNode> = [9_000_000_000_u64, 5_000_000_000, 2_000_000_000, 1_500_000_000, 340_000_000]
        .iter()
        .map(|&n| tree(&mut dice, 16, n))
        .collect();
    let total = children.iter().map(|c| c.total).sum();
    let flame = FlameNode { name: "all".into(), total, children, ..FlameNode::default() };
    let heat = HeatMap {
        slices: (0..50).map(|i| 1_795_000_000 + i).collect(),
        rows: NAMES
            .iter()
            .map(|(n, _)| {
                ((*n).to_owned(), (0..50).map(|i| dice.below(400) * dice.below(900) * u64::from(i % 13 != 5)).collect())
            })
            .collect(),
    };
    ReportData {
        title: "whole system, 10 s on build-07".into(),
        provenance: provenance(),
        listings: vec![
            listing(&["image"], 9, |i| vec![NAMES[i % NAMES.len()].1.into()]),
            listing(&["proc", "image"], 60, |i| {
                let (n, image) = NAMES[i % NAMES.len()];
                vec![if i < NAMES.len() { n.into() } else { format!("{n}.part.{i}") }, image.into()]
            }),
            listing(&["process"], 8, |i| vec![format!("cc1 ({})", 4000 + i)]),
        ],
        annotations: vec![
            annotation(NAMES[0].0, NAMES[0].1, 4, true).into(),
            annotation(NAMES[5].0, NAMES[5].1, 1, true).into(),
            annotation(NAMES[3].0, NAMES[3].1, 60, false).into(),
        ],
        flame: Some(flame),
        heat: Some(heat),
        ..ReportData::default()
    }
}

pub(crate) fn difference() -> Difference {
    let row = |label: &str, a: f64, b: f64, half: f64, verdict| DiffRow {
        label: label.into(),
        image: "/usr/bin/app".into(),
        share: (a, b),
        weight: (a * 1e9, b * 1e9),
        change: (b - a, half / 100.0),
        q: if verdict == Verdict::Same { 0.4 } else { 0.00002 },
        verdict,
    };
    Difference {
        by: vec!["proc".into(), "image".into()],
        a: provenance(),
        b: provenance(),
        normalised: "total".into(),
        rows: vec![
            row("parse<&Token>", 0.101, 0.174, 0.9, Verdict::Slower),
            row("hash_find", 0.20, 0.155, 1.1, Verdict::Faster),
            row("simd_scan", 0.0, 0.021, 0.3, Verdict::New),
            row("old_scan", 0.015, 0.0, 0.2, Verdict::Gone),
            row("main", 0.3, 0.298, 0.8, Verdict::Same),
        ],
        variance: "runs".into(),
        dispersion: 1.7,
        hidden: 41,
        cut: 7,
    }
}
