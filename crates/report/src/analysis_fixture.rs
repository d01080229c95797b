//! An analysed procedure made by hand for tests of the printers: a copy loop after the paper's figure 2, with an
//! entry, an exit and a cold block beside the loop.

use whither_cycles::results::accuracy::{Accuracy, AccuracyRow, BranchErrors, ErrorShares};
use whither_cycles::results::analysis::{
    Analysis, BlockAnalysis, Cause, CauseRange, Confidence, Culprit, EdgeAnalysis, Estimate, Evidence, InsnAnalysis,
    Scale, Summary,
};
use whither_cycles::results::runs::{Explanation, MovedCause, RunRow, RunSet, RunStatistics};
use whither_cycles::results::{Annotation, Cell, EventTotals, InsnRow, LineRow, Provenance};

fn culprit(cause: Cause, min_cycles: f64, max_cycles: f64, at: Option<usize>) -> Culprit {
    Culprit { cause, min_cycles, max_cycles, at }
}

/// Address, text, block, line, samples, best, cycles.
type Row = (u64, &'static str, usize, u32, f64, f64, f64);

const ROWS: [Row; 10] = [
    (0x1170, "test   %rdx,%rdx", 0, 12, 0.0, 1.0, 0.0),
    (0x1173, "je     119a <+0x2a>", 0, 12, 20.0, 0.0, 2.0),
    (0x1180, "mov    (%rsi,%rax,8),%rcx", 1, 14, 174_727.0, 0.7, 29.6),
    (0x1184, "mov    %rcx,(%rdi,%rax,8)", 1, 14, 27_766.5, 0.6, 4.7),
    (0x1188, "add    $0x1,%rax", 1, 13, 390.5, 0.0, 0.1),
    (0x118c, "cmp    %rdx,%rax", 1, 13, 0.0, 0.3, 0.0),
    (0x118f, "jne    1180 <+0x10>", 1, 13, 0.0, 0.0, 0.0),
    (0x1191, "mov    $0x1,%edi", 2, 20, 0.0, 0.0, 0.0),
    (0x1196, "call   1030 <abort@plt>", 2, 20, 0.0, 0.0, 0.0),
    (0x119a, "ret", 3, 16, 0.0, 1.0, 0.0),
];

pub(crate) fn analysis() -> Analysis {
    let mut insns: Vec<InsnAnalysis> = ROWS.iter().map(insn).collect();
    insns[2].culprits = vec![culprit(Cause::DCache, 22.7, 28.9, Some(2)), culprit(Cause::Dtlb, 0.0, 6.2, Some(2))];
    insns[3].culprits = vec![culprit(Cause::StoreBuffer, 0.0, 3.1, Some(3))];
    insns[3].static_stall = Some(culprit(Cause::Operand, 0.6, 0.6, Some(2)));
    insns[3].unexplained = 1.0;
    Analysis {
        annotation: annotation(),
        evidence: Evidence::Branches,
        scale: Scale::Absolute("the loop's exits".into()),
        at_best: None,
        clock_hz: Some(4.09e9),
        model: "zen5".into(),
        decided: (12_345, 30_000),
        recorded: 0,
        mca: None,
        retired: 0,
        counted: 0,
        lapped: 0,
        remaining: 0,
        missing: Vec::new(),
        blocks: blocks(),
        edges: edges(),
        insns,
        best_cpi: Some(0.32),
        cpi: Some(6.9),
        summary: summary(),
        notes: Vec::new(),
    }
}

/// The same where executions are only bounded.
pub(crate) fn bounded() -> Analysis {
    let summary = Summary {
        bounded: true,
        unexplained_gain: 0.0,
        sampling_error: 0.0,
        dynamic_range: (0.836, 0.96),
        static_range: (0.0, 0.038),
        execution_range: (0.0, 0.123),
        ..summary()
    };
    Analysis { scale: Scale::Bounded, summary, ..analysis() }
}

fn insn(row: &Row) -> InsnAnalysis {
    let (address, _, block, _, samples, best, cycles) = *row;
    InsnAnalysis {
        address,
        block: Some(block),
        samples,
        best_cycles: best,
        cycles: Some(cycles),
        stall_cycles: Some(cycles - best),
        ..InsnAnalysis::default()
    }
}

fn blocks() -> Vec<BlockAnalysis> {
    let estimate = |value: f64, error: f64, confidence| Estimate {
        value,
        low: value * (1.0 - error),
        high: value * (1.0 + error),
        confidence,
    };
    let block = |address, first, len, class, frequency| BlockAnalysis {
        address,
        first,
        len,
        class,
        frequency,
        ..BlockAnalysis::default()
    };
    let total: f64 = ROWS.iter().map(|r| r.4).sum();
    let mut all = vec![
        block(0x1170, 0, 2, 0, estimate(1.2e4, 0.3, Confidence::Low)),
        block(0x1180, 2, 5, 1, estimate(1.53e9, 0.04, Confidence::High)),
        block(0x1191, 7, 2, 2, Estimate::default()),
        block(0x119a, 9, 1, 0, estimate(1.2e4, 0.3, Confidence::Medium)),
    ];
    for b in &mut all {
        let rows = &ROWS[b.first..b.first + b.len];
        b.samples = rows.iter().map(|r| r.4).sum();
        b.share = b.samples / total;
        b.best_cycles = rows.iter().map(|r| r.5).sum();
        b.cycles = Some(rows.iter().map(|r| r.6).sum());
    }
    all[1].loop_header = Some(1);
    all
}

fn edges() -> Vec<EdgeAnalysis> {
    let edge = |from, to, kind, value: f64, probability, evidence| EdgeAnalysis {
        from,
        to,
        kind,
        frequency: Estimate { value, low: value * 0.9, high: value * 1.1, confidence: Confidence::Medium },
        probability,
        evidence,
    };
    vec![
        edge(4, 0, "enter", 1.2e4, 1.0, 0),
        edge(0, 1, "fall", 1.15e4, 0.958, 40),
        edge(0, 3, "taken", 500.0, 0.042, 40),
        edge(1, 1, "taken", 1.52e9, 0.99999, 12_305),
        edge(1, 2, "fall", 0.0, 0.0, 12_305),
        edge(2, 3, "fall", 0.0, 1.0, 0),
        edge(1, 3, "table", 1.15e4, 0.00001, 12_305),
        edge(3, 5, "leave", 1.2e4, 1.0, 0),
    ]
}

fn annotation() -> Annotation {
    let total: f64 = ROWS.iter().map(|r| r.4).sum();
    let insns = ROWS.iter().map(|&(address, text, block, line, samples, ..)| InsnRow {
        address,
        length: 4,
        text: text.into(),
        samples: vec![samples],
        raw: vec![samples as u64],
        share: samples / total,
        line: Some((0, line)),
        block: block as u32,
        ..InsnRow::default()
    });
    let line = |line, text: &str| LineRow { line, text: Some(text.into()), samples: vec![0.0], ..LineRow::default() };
    Annotation {
        provenance: provenance(),
        procedure: "copy".into(),
        image: "/usr/bin/bench".into(),
        image_id: "00ff".into(),
        range: (0x1170, 0x2b),
        parts: Vec::new(),
        cells: vec![Cell { samples: 202_904, weight: 1, share: 0.412 }],
        corrected: true,
        files: vec!["/src/bench.c".into()],
        insns: insns.collect(),
        lines: vec![
            line(12, "void copy(long *c, long *a, long n) {"),
            line(13, "  for (i = 0; i < n; i++)"),
            line(14, "    c[i] = a[i];"),
            line(16, "}"),
        ],
        notes: Vec::new(),
    }
}

fn provenance() -> Provenance {
    Provenance {
        sources: vec!["run.wh".into()],
        seconds: 12.5,
        cpus: 2,
        rate_hz: 5200.0,
        events: vec![EventTotals {
            name: "cpu-clock".into(),
            unit: "ns".into(),
            samples: 492_485,
            ..Default::default()
        }],
        ..Provenance::default()
    }
}

pub(crate) fn summary() -> Summary {
    let of = |cause| match cause {
        Cause::DCache => (0.448, 0.52),
        Cause::Dtlb => (0.14, 0.339),
        Cause::StoreBuffer => (0.0, 0.183),
        Cause::Width => (0.018, 0.018),
        Cause::Operand => (0.02, 0.02),
        _ => (0.0, 0.0),
    };
    let causes = Cause::ALL.iter().map(|&cause| CauseRange { cause, min: of(cause).0, max: of(cause).1 });
    Summary {
        provenance: provenance(),
        about: "copy (/usr/bin/bench)".into(),
        analysed: (1, 0.931),
        left_out: vec![("[vdso]!clock_gettime".into(), "no machine code".into())],
        best_cpi: Some(0.32),
        cpi: Some(6.9),
        bounded: false,
        causes: causes.collect(),
        unexplained_stall: 0.023,
        unjudged: 0.012,
        unlikely: 0.021,
        unexplained_gain: -0.004,
        dynamic: 0.836,
        static_stall: 0.038,
        execution: 0.123,
        dynamic_range: (0.836, 0.836),
        static_range: (0.038, 0.038),
        execution_range: (0.123, 0.123),
        sampling_error: 0.007,
        samples: 202_904.0,
        notes: vec!["a note".into()],
    }
}

/// Four runs, one procedure in two groups.
pub(crate) fn runs(name: &str) -> RunStatistics {
    let set = |i: usize, total: f64| RunSet {
        name: format!("{name}{i}"),
        samples: total as u64 / 2,
        weight: 1,
        seconds: 12.5,
        total,
    };
    let row = |procedure: &str, values: [f64; 4], noise: f64| {
        let sum: f64 = values.iter().sum();
        let (min, max) = (values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(0.0, f64::max));
        RunRow {
            procedure: procedure.into(),
            image: format!("{name}.so"),
            range: (max - min) / sum,
            sum,
            share: sum / 48_000.0,
            n: 4,
            mean: sum / 4.0,
            deviation: 12.5,
            min,
            max,
            interval: Some((1.0, 2.0)),
            noise,
            two_peaks: noise < 0.005,
            values: values.into(),
        }
    };
    RunStatistics {
        provenance: provenance(),
        event: "cpu-clock".into(),
        unit: "ms".into(),
        normalised: "none".into(),
        sets: vec![set(1, 11_600.0), set(2, 12_000.0), set(3, 11_900.0), set(4, 12_500.0)],
        rows: vec![
            row(&format!("{name}smooth_"), [1937.0, 1940.0, 2401.0, 2439.5], 0.004),
            row("parmvr_", [7000.0, 7100.0, 7050.0, 7021.0], 0.006),
        ],
        hidden: 12,
        explained: Some(Explanation {
            procedure: format!("{name}smooth_"),
            runs: (format!("{name}4"), format!("{name}1")),
            figures: (2439.5, 1937.0),
            slow: summary(),
            fast: summary(),
            moved: vec![
                MovedCause { cause: Cause::DCache, slow: (1092.9, 1092.9), fast: (540.4, 540.4), certain: true },
                MovedCause { cause: Cause::StoreBuffer, slow: (0.0, 446.0), fast: (0.0, 122.0), certain: false },
            ],
            together: None,
        }),
        notes: vec![format!("{name} note")],
    }
}

/// The paper's figures 8 and 9, roughly.
pub(crate) fn accuracy(name: &str) -> Accuracy {
    let shares = |weight: f64, five: f64| {
        let mut bins = vec![0.01; 20];
        bins[10] = five;
        ErrorShares { weight, within: [five, five + 0.1, five + 0.15], within_double: 0.97, bins }
    };
    Accuracy {
        provenance: provenance(),
        exact: "callgrind".into(),
        instructions: shares(250_000.0, 0.73),
        edges: shares(1e9, 0.58),
        branches: BranchErrors { branches: 812, mean_by_samples: 0.021, mean_by_executions: 0.034, mean_seen: 0.011 },
        confidence: vec![
            (Confidence::High, 0.6, shares(150_000.0, 0.8)),
            (Confidence::Medium, 0.4, shares(100_000.0, 0.5)),
            (Confidence::Low, 0.0, ErrorShares::default()),
        ],
        overlap: 0.93,
        procedures: vec![AccuracyRow {
            procedure: format!("{name}VdbeExec"),
            image: format!("{name}.so"),
            errors: shares(120_000.0, 0.7),
            missing: 1,
            decided: 0.61,
        }],
        never_executed: 12.0,
        baseline: shares(250_000.0, 0.31),
        samples: (300_000.0, 250_000.0),
        warnings: vec![format!("{name} was counted on other input")],
        notes: vec![],
    }
}
