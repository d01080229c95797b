//! A causal answer for the tests of text and page: a knee, a contention, nothing to gain, too little data,
//! and names that try to leave their place.

use whither_causal::*;
use whither_store::causal::*;

pub(crate) fn answer() -> CausalAnswer {
    let mut rows = vec![
        target(
            0,
            "hash_find",
            &[0.03, 0.07, 0.12, 0.18, 0.2, 0.2],
            Verdict::HelpsUntil { percent: 55.0, low: 48.0, high: 61.0 },
        ),
        target(1, "compress<script>", &[0.0, 0.002, -0.003, 0.001, 0.0, 0.002], NOTHING),
        target(2, "retry", &[-0.01, -0.03, -0.06, -0.1, -0.15, -0.2], Verdict::Contention { partner: None }),
        target(3, "rare_one", &[], Verdict::NotEnoughData { missing: "zeros".into(), more_seconds: Some(30.0) }),
    ];
    rows[0].fit = Fit {
        kind: FitKind::Knee,
        slope: 0.4,
        bend: None,
        knee: Some(55.0),
        knee_low: Some(48.0),
        knee_high: Some(61.0),
        slope_after: Some(0.0),
    };
    rows[0].dots.push(Dot {
        percent: 60,
        y: Some(9.0),
        at_s: 31.0,
        stratum: 3,
        selection: Selection::Lottery,
        dropped: Some(DropReason::ForeignLoad),
    });
    CausalAnswer {
        schema: SCHEMA,
        meta: CausalMeta {
            command: "/usr/bin/kvd -c x.conf".into(),
            pid: 4711,
            processes: 2,
            threads: 18,
            duration_ns: 60_000_000_000,
            ..CausalMeta::default()
        },
        points: vec![PointRow {
            name: "handle_request".into(),
            kind: PointKind::Probe,
            end: None,
            visits: 500_000,
            per_second: 8412.3,
        }],
        assume: 30,
        confidence: 0.95,
        sort: Sort::default(),
        combine: Combine::default(),
        targets: rows,
        latency: vec![latency()],
        waits: vec![WaitRow {
            name: "lock_table".into(),
            file: "src/table.c".into(),
            line: 190,
            blocked_ns: 3_000_000_000,
            share: 0.8,
            woken_by: vec![WakerRow {
                name: "hash_find".into(),
                file: "src/table.c".into(),
                line: 217,
                share: 0.71,
                target: Some(0),
            }],
            reason: "table.c:190 waits for hash_find (71 %)".into(),
        }],
        elsewhere: None,
        dropped: vec![DroppedRow { reason: DropReason::ForeignLoad, n: 12 }],
        drift: (0..6).map(|i| DriftRow { stratum: i, at_s: f64::from(i) * 10.0, windows: 9, period_ns: 1e5 }).collect(),
        windows: WindowCounts {
            kept: 291,
            dropped: 12,
            lottery: 100,
            block: 191,
            per_second: 5.1,
            settle: Some(1.0 / 3.0),
            ..Default::default()
        },
        executor: Executor::Spin,
        executor_reason: String::new(),
        load: LoadKind::Closed,
        load_reason: "visits per real second fall with the delays".into(),
        lost: LostRow { observations: 0 },
        overhead: Some(OverheadRow {
            startup_ns: 83_000_000,
            sampling: 0.012,
            tick_share: 0.013,
            points: 0.0,
            delay: 0.11,
            own: 0.004,
        }),
        seed: 7,
        warnings: vec!["the program became 8 % slower while it was measured".into()],
        notes: vec![],
    }
}

const NOTHING: Verdict = Verdict::DoNotBother { up_to: 90, within: 0.02 };

fn target(id: u32, name: &str, ys: &[f64], verdict: Verdict) -> TargetRow {
    let percents = [15_u8, 30, 45, 60, 75, 90];
    let point = |(percent, y): (&u8, &f64)| CurvePoint {
        percent: *percent,
        windows: 8,
        visits: 12_000,
        y: *y,
        low: y - 0.02,
        high: y + 0.02,
        plain_mean: *y,
    };
    let curve: Vec<CurvePoint> = percents.iter().zip(ys).map(point).collect();
    let gain = curve.get(1).map(|p| Gain {
        percent: 30,
        y: p.y,
        low: p.low,
        high: p.high,
        rate_gain: 1.0 / (1.0 - p.y) - 1.0,
    });
    let dots = curve.iter().enumerate().map(|(i, p)| Dot {
        percent: p.percent,
        y: Some(p.y + 0.01),
        at_s: i as f64 * 5.0,
        stratum: 0,
        selection: Selection::Block,
        dropped: None,
    });
    TargetRow {
        id,
        unit: if id == 2 { Unit::Line } else { Unit::Function },
        name: name.into(),
        file: "src/table.c".into(),
        line: 217 + id,
        path: Vec::new(),
        aliases: Vec::new(),
        module: "/usr/bin/kvd".into(),
        share: 0.4 / f64::from(id + 1),
        samples: 9_000,
        windows: 60,
        zero_windows: 20,
        slope: ys.last().map(|y| y / 0.9),
        dots: dots.collect(),
        curve,
        fit: Fit::NOTHING,
        gain,
        local: gain,
        phase: None,
        other_points: Vec::new(),
        reason: match &verdict {
            Verdict::HelpsUntil { .. } => "fix this: +7.0 % if 30 % faster; no more gain beyond 55 %".into(),
            Verdict::DoNotBother { .. } => "do not bother: less than 2 % up to 90 %".into(),
            Verdict::Contention { .. } => "contention: making this faster hurts".into(),
            _ => "not enough data: no window without speed-up".into(),
        },
        verdict,
    }
}

fn latency() -> LatencyRow {
    LatencyRow {
        begin: 0,
        end: 0,
        name: "req_begin to req_end".into(),
        target: Some(0),
        target_name: "hash_find".into(),
        mean_ns: 2_100_000.0,
        under_way: 3.2,
        curve: Vec::new(),
        fit: Fit::NOTHING,
        gain: Some(Gain { percent: 30, y: 0.21, low: 0.18, high: 0.24, rate_gain: 0.27 }),
        cannot_say: None,
    }
}
