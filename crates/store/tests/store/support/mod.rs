//! Profiles to store, and their meaning independent of the order of rows and indexes.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use whither_store::model::{
    Course, EdgeSample, EdgeSource, EpochMeta, Event, EventIx, EventUnit, ExactCount, Frame, IdKind, Image, ImageId,
    ImageIx, ImageKind, ImageOffset, LapCount, Precision, Process, ProcessIx, Profile, Rate, Sample, Segment, Stack,
    StackEnd, StackIx, StackSample, ThreadName, Way,
};

/// A small generator of our own: the same numbers on every machine.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

pub(crate) fn image(n: u32) -> Image {
    let mut id = [0; 20];
    id[..4].copy_from_slice(&n.wrapping_mul(0x9e37_79b9).to_be_bytes());
    Image {
        id: ImageId(id),
        id_kind: IdKind::BuildId,
        kind: if n == 0 { ImageKind::Kernel } else { ImageKind::Elf },
        path: if n == 0 { "[kernel]".into() } else { format!("/usr/lib/lib{n}.so") },
        segments: vec![Segment { offset: 0x1000, address: 0x40_1000, size: 0x10_0000 }],
        size: 123_456 + u64::from(n),
    }
}

pub(crate) fn process(n: u64) -> Process {
    Process {
        key: n.wrapping_mul(0xdead_beef_1234_5678),
        pid: 100 + n as u32,
        start_ns: n * 1_000,
        comm: format!("comm{n}"),
        exe: format!("/bin/p{n}"),
        cgroup: "/system.slice/x.service".into(),
    }
}

pub(crate) fn event(name: &str) -> Event {
    Event { name: name.into(), unit: EventUnit::Nanoseconds, precision: Precision::Skid(1) }
}

/// `rows` random rows over a few images, processes and events; rows may repeat.
pub(crate) fn random_profile(seed: u64, rows: usize) -> Profile {
    let mut d = Dice(seed);
    let mut profile = Profile {
        events: vec![event("cycles"), event("branch-misses")],
        images: (0..6).map(image).collect(),
        processes: (0..5).map(process).collect(),
        ..Profile::default()
    };
    for _ in 0..rows {
        profile.samples.push(Sample {
            image: ImageIx(d.roll(6) as u32),
            event: EventIx(d.roll(2) as u16),
            process: ProcessIx(d.roll(5) as u32),
            tid: d.roll(2) as u32,
            slice: 1_700_000_000 + 60 * d.roll(3) as u32,
            offset: ImageOffset(if d.roll(20) == 0 { u64::MAX - d.roll(5) } else { d.roll(1 << 14) }),
            period: 192_000 + d.roll(3),
            count: 1 + d.roll(9) as u32,
        });
    }
    for _ in 0..rows.min(20) {
        let depth = d.roll(5);
        let frame = |d: &mut Dice| Frame { image: ImageIx(d.roll(6) as u32), offset: ImageOffset(d.roll(9)) };
        let frames: Vec<Frame> = (0..depth).map(|_| frame(&mut d)).collect();
        let end = if frames.is_empty() || d.roll(2) == 0 { StackEnd::Truncated } else { StackEnd::Complete };
        let stack = Stack { frames, end };
        let at = profile.stacks.iter().position(|s| *s == stack).unwrap_or_else(|| {
            profile.stacks.push(stack);
            profile.stacks.len() - 1
        });
        profile.stack_samples.push(StackSample {
            stack: StackIx(at as u32),
            event: EventIx(0),
            process: ProcessIx(d.roll(5) as u32),
            tid: 0,
            slice: 1_700_000_000,
            period: 192_000,
            count: 1 + d.roll(3) as u32,
        });
    }
    for _ in 0..rows {
        let way = match d.roll(4) {
            0 => Way::Fall,
            1 => Way::Taken,
            2 => Way::To(ImageOffset(d.roll(3))),
            _ => Way::Undecided,
        };
        profile.edges.push(EdgeSample {
            image: ImageIx(d.roll(6) as u32),
            pc: ImageOffset(d.roll(99)),
            branch: ImageOffset(u64::MAX - d.roll(9)),
            way,
            source: [EdgeSource::EvenRecords, EdgeSource::Records, EdgeSource::Registers][d.roll(3) as usize],
            count: 1 + d.roll(9) as u32,
        });
    }
    for _ in 0..rows.min(30) {
        let hits = d.roll(1000);
        profile.exact.push(ExactCount {
            image: ImageIx(d.roll(6) as u32),
            offset: ImageOffset(d.roll(99)),
            set: u64::MAX - d.roll(3),
            leads: d.roll(4) == 0,
            hits,
            whole: d.roll(hits + 1),
            crowded: d.roll(hits + 1),
            squares: hits * hits,
            windows: 1 + d.roll(3),
            enabled_ns: 1_000_000 * d.roll(99),
            hits_ns: 10_000 * hits,
        });
    }
    for _ in 0..rows.min(30) {
        let laps = d.roll(50);
        let ns = 20_000 + d.roll(900_000);
        let others = [Course::Kernel, Course::Left, Course::Otherwise];
        let to_go = Course::remaining(laps).filter(|_| d.roll(3) == 0);
        profile.laps.push(LapCount {
            image: ImageIx(d.roll(6) as u32),
            offset: ImageOffset(d.roll(9)),
            span: ns.ilog2() as u8,
            course: to_go.or(Course::steps(laps, ns)).unwrap_or(others[d.roll(3) as usize]),
            pairs: 1,
            laps,
            ns,
            handler_ns: d.roll(9000),
        });
    }
    // Names do not add up and are no facts below; they have a test of their own.
    for (process, tid) in [(1, 0), (1, 1), (4, 1)] {
        let name = format!("worker {process}/{tid}");
        profile.threads.push(ThreadName { process: ProcessIx(process), tid, name });
    }
    for cpu in 0..2 {
        profile.rates.push(Rate {
            start_ns: seed * 10_000,
            length_ns: 10_000,
            cpu,
            event: "cycles".into(),
            period: 192_000,
            delivered: d.roll(1000),
            ..Rate::default()
        });
    }
    profile
}

/// What a profile says, whatever its order: every row by names, with its total count.
pub(crate) fn facts(p: &Profile) -> BTreeMap<String, u64> {
    let mut facts = BTreeMap::new();
    for s in &p.samples {
        let key = format!(
            "sample {:?} {:?} {:?} {} {} {} {}",
            p.image(s.image),
            p.event(s.event),
            p.process(s.process),
            s.tid,
            s.slice,
            s.offset.0,
            s.period
        );
        *facts.entry(key).or_insert(0) += u64::from(s.count);
    }
    for s in &p.stack_samples {
        let stack = &p.stacks[s.stack.0 as usize];
        let frames: Vec<_> = stack.frames.iter().map(|f| (p.image(f.image).id, f.offset)).collect();
        let key = format!(
            "stack {frames:?} {:?} {:?} {:?} {} {} {}",
            stack.end,
            p.event(s.event),
            p.process(s.process),
            s.tid,
            s.slice,
            s.period
        );
        *facts.entry(key).or_insert(0) += u64::from(s.count);
    }
    for e in &p.edges {
        let key = format!("edge {:?} {:?} {:?} {:?} {:?}", p.image(e.image), e.pc, e.branch, e.way, e.source);
        *facts.entry(key).or_insert(0) += u64::from(e.count);
    }
    for e in &p.exact {
        let key = format!("exact {:?} {:?} {} {}", p.image(e.image), e.offset, e.set, e.leads);
        let words = [
            ("hits", e.hits),
            ("whole", e.whole),
            ("crowded", e.crowded),
            ("squares", e.squares),
            ("windows", e.windows),
            ("enabled", e.enabled_ns),
            ("taken", e.hits_ns),
        ];
        for (name, value) in words {
            *facts.entry(format!("{key} {name}")).or_insert(0) += value;
        }
    }
    for r in &p.rates {
        *facts.entry(format!("rate {r:?}")).or_insert(0) += 1;
    }
    facts
}

pub(crate) fn meta() -> EpochMeta {
    EpochMeta {
        tool: "whither test".into(),
        host: "testhost".into(),
        start_ns: 1_700_000_000_000_000_000,
        scope: "whole system".into(),
        slice_s: 60,
        ..EpochMeta::default()
    }
}

pub(crate) const WINDOW: (u64, u64) = (1_700_000_000_000_000_000, 1_700_000_180_000_000_000);
