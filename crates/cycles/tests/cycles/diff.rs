//! `diff` on recordings whose true change is known: nothing, or a planted one.

use crate::world::World;
use whither_cycles::results::{Difference, Verdict};
use whither_cycles::{By, DiffQuery, Error, Filter, Normalise, Pattern, Show, diff, significant_regressions};
use whither_store::model::{ImageKind, Profile};

/// A generator with a fixed seed, so that a failing test fails again.
struct Dice(u64);

impl Dice {
    fn uniform(&mut self) -> f64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform().max(1e-300), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Poisson by its normal approximation, or by counting for small means.
    fn poisson(&mut self, mean: f64) -> u32 {
        if mean > 30.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0) as u32;
        }
        let (limit, mut product, mut n) = ((-mean).exp(), self.uniform(), 0);
        while product > limit {
            product *= self.uniform();
            n += 1;
        }
        n
    }
}

const PROCEDURES: u64 = 200;
const SLICES: u32 = 20;

/// Shares fall like 1/rank; `f20` has 2 % or so of all.
fn share(f: u64) -> f64 {
    1.0 / (f + 5) as f64 / 3.6
}

/// One run: in each slice procedure `f` gets about `per_slice` times its share; `burst` scales how
/// much a procedure's rate wanders from slice to slice, `planted` scales `f8`.
fn run(dice: &mut Dice, per_slice: f64, burst: f64, planted: f64) -> World {
    let mut w = World::new("cpu-clock");
    let app = w.image(ImageKind::Elf, "/opt/v1/app");
    let p = w.process(1, "app", "");
    for f in 0..PROCEDURES {
        w.function(app, f * 0x100, 0x100, &format!("f{f}"));
    }
    for slice in 0..SLICES {
        for f in 0..PROCEDURES {
            let wander = (1.0 + burst * dice.normal()).max(0.0);
            let scale = if f == 8 { planted } else { 1.0 };
            let count = dice.poisson(per_slice * share(f) * wander * scale);
            if count > 0 {
                w.sample(app, p, f * 0x100 + 4, count).slice = 1000 + slice;
            }
        }
    }
    w
}

fn compare(a: &[World], b: &[World], query: &DiffQuery) -> Difference {
    let profiles = |w: &[World]| w.iter().map(|w| w.profile.clone()).collect::<Vec<Profile>>();
    let (pa, pb) = (profiles(a), profiles(b));
    diff(&pa.iter().collect::<Vec<_>>(), &pb.iter().collect::<Vec<_>>(), &a[0].symbols, query).unwrap()
}

fn changed(d: &Difference) -> Vec<&str> {
    d.rows.iter().filter(|r| r.verdict != Verdict::Same).map(|r| r.label.as_str()).collect()
}

#[test]
fn the_same_thing_twice_shows_no_change() {
    for burst in [0.0, 0.2, 0.6] {
        let mut flagged = 0;
        for seed in 0..20 {
            let mut dice = Dice(seed);
            let (a, b) = (run(&mut dice, 2000.0, burst, 1.0), run(&mut dice, 2000.0, burst, 1.0));
            flagged += changed(&compare(&[a], &[b], &DiffQuery::default())).len();
        }
        // 5 % of all would be 200; held at 5 % of discoveries, even ten are too many.
        assert!(flagged <= 10, "{flagged} of {} at burst {burst}", 20 * PROCEDURES);
    }
}

/// Rates that drift: each slice is like the one before.
fn drifting(dice: &mut Dice, slices: u32, memory: f64, size: f64) -> World {
    let mut w = run(dice, 0.0, 0.0, 1.0);
    let mut states: Vec<f64> = (0..PROCEDURES).map(|_| size * dice.normal()).collect();
    for slice in 0..slices {
        for f in 0..PROCEDURES {
            let state = &mut states[usize::try_from(f).unwrap()];
            *state = memory * *state + (1.0 - memory * memory).sqrt() * size * dice.normal();
            let count = dice.poisson(1000.0 * share(f) * state.exp());
            if count > 0 {
                w.sample(whither_store::model::ImageIx(0), whither_store::model::ProcessIx(0), f * 0x100, count)
                    .slice = slice;
            }
        }
    }
    w
}

#[test]
fn drift_over_several_slices_is_no_change() {
    let mut flagged = 0;
    for seed in 0..10 {
        let mut dice = Dice(4000 + seed);
        let (a, b) = (drifting(&mut dice, 60, 0.7, 0.3), drifting(&mut dice, 60, 0.7, 0.3));
        let found = changed(&compare(&[a], &[b], &DiffQuery::default())).len();
        flagged += found;
    }
    // 5 % would be 100.
    assert!(flagged <= 20, "{flagged}");
}

#[test]
fn the_same_thing_in_eight_runs_shows_no_change() {
    let mut flagged = 0;
    for seed in 0..10 {
        let mut dice = Dice(100 + seed);
        let runs = |dice: &mut Dice| (0..8).map(|_| run(dice, 500.0, 0.5, 1.0)).collect::<Vec<_>>();
        let (a, b) = (runs(&mut dice), runs(&mut dice));
        let d = compare(&a, &b, &DiffQuery::default());
        assert_eq!(d.variance, "runs");
        assert_eq!(d.a.sources.len(), 8);
        flagged += changed(&d).len();
    }
    assert!(flagged <= 5, "{flagged}");
}

#[test]
fn five_per_cent_more_in_a_procedure_of_two_per_cent_is_found_with_ten_runs() {
    let mut found = 0;
    for seed in 0..10 {
        let mut dice = Dice(1000 + seed);
        let a: Vec<World> = (0..10).map(|_| run(&mut dice, 10_000.0, 0.05, 1.0)).collect();
        let b: Vec<World> = (0..10).map(|_| run(&mut dice, 10_000.0, 0.05, 1.05)).collect();
        let d = compare(&a, &b, &DiffQuery::default());
        found += usize::from(d.rows.iter().any(|r| r.label == "f8" && r.verdict == Verdict::Slower));
    }
    assert!(found >= 9, "{found} of 10");
}

#[test]
fn the_interval_holds_the_planted_change() {
    let (mut held, mut found) = (0, 0);
    for seed in 0..40 {
        let mut dice = Dice(2000 + seed);
        let (a, b) = (run(&mut dice, 2000.0, 0.2, 1.0), run(&mut dice, 2000.0, 0.2, 1.5));
        let d = compare(&[a], &[b], &DiffQuery { show: Show::All, ..DiffQuery::default() });
        let row = d.rows.iter().find(|r| r.label == "f8").unwrap();
        let total: f64 = (0..PROCEDURES).map(share).sum();
        let truth = share(8) * 1.5 / (total + share(8) * 0.5) - share(8) / total;
        held += usize::from((row.change.0 - truth).abs() <= row.change.1);
        found += usize::from(row.verdict == Verdict::Slower);
        assert_eq!(d.variance, "slices");
    }
    assert!(held >= 35 && found >= 36, "held {held}, found {found} of 40");
}

#[test]
fn new_and_gone_procedures_are_called_so_and_versions_match() {
    let mut a = run(&mut Dice(7), 500.0, 0.0, 1.0);
    let mut b = run(&mut Dice(8), 500.0, 0.0, 1.0);
    b.profile.images[0].path = "/opt/v2/app".into();
    for (w, name, version) in [(&mut a, "old.isra.0", "1"), (&mut b, "new.isra.0", "2")] {
        let lib = w.image(ImageKind::Elf, &format!("/lib/libz.so.{version}"));
        w.function(lib, 0, 0x10, name);
        w.function(lib, 0x10, 0x10, &format!("kept.constprop.{version}"));
        let p = whither_store::model::ProcessIx(0);
        for slice in 1000..1000 + SLICES {
            w.sample(lib, p, 0, 30).slice = slice;
            w.sample(lib, p, 0x10, 30).slice = slice;
        }
    }
    b.symbols.rename("/opt/v1/app", "/opt/v2/app");
    let mut symbols = std::mem::take(&mut a.symbols);
    symbols.absorb(std::mem::take(&mut b.symbols));
    let d = diff(&[&a.profile], &[&b.profile], &symbols, &DiffQuery::default()).unwrap();
    let verdict = |name: &str| d.rows.iter().find(|r| r.label == name).map(|r| r.verdict);
    assert_eq!(verdict("new"), Some(Verdict::New));
    assert_eq!(verdict("old"), Some(Verdict::Gone));
    assert_eq!(verdict("kept"), None);
    assert_eq!(d.rows.len(), 2, "{:?}", changed(&d));
    assert_eq!(significant_regressions(&d), 1);
    assert!(d.a.notes.iter().any(|n| n.contains("must change by about")), "{:?}", d.a.notes);
    assert!(d.hidden >= PROCEDURES as usize - 40);
}

#[test]
fn wall_time_shows_what_shares_hide() {
    // B does everything half as often: shares are equal, time is halved.
    let (a, b) = (run(&mut Dice(1), 4000.0, 0.0, 1.0), run(&mut Dice(2), 2000.0, 0.0, 1.0));
    let total = compare(&[a], &[b], &DiffQuery::default());
    assert!(changed(&total).is_empty(), "{:?}", changed(&total));
    let (a, b) = (run(&mut Dice(1), 4000.0, 0.0, 1.0), run(&mut Dice(2), 2000.0, 0.0, 1.0));
    let wall = compare(&[a], &[b], &DiffQuery { normalise: Normalise::Wall, ..DiffQuery::default() });
    assert_eq!(wall.normalised, "wall");
    let f0 = wall.rows.iter().find(|r| r.label == "f0").unwrap();
    assert_eq!(f0.verdict, Verdict::Faster);
    assert!((f0.share.1 / f0.share.0 - 0.5).abs() < 0.05, "{:?}", f0.share);
    // Twice the requests in A makes them equal again.
    let (a, b) = (run(&mut Dice(1), 4000.0, 0.0, 1.0), run(&mut Dice(2), 2000.0, 0.0, 1.0));
    let per = compare(&[a], &[b], &DiffQuery { normalise: Normalise::Per(2000.0, 1000.0), ..DiffQuery::default() });
    assert!(changed(&per).is_empty(), "{:?}", changed(&per));
}

/// A recording of a command that was launched and ended.
fn launched(mut world: World) -> World {
    for e in &mut world.profile.epochs {
        e.target = vec!["./app".into()];
        e.target_status = Some(0);
    }
    world
}

#[test]
fn whole_commands_are_compared_by_their_time_not_by_shares() {
    // f8 takes four times its time, everything else the same: of shares, all others lose.
    let sides = |seed| (run(&mut Dice(seed), 4000.0, 0.0, 1.0), run(&mut Dice(seed + 1), 4000.0, 0.0, 4.0));
    let (a, b) = sides(1);
    let d = compare(&[launched(a)], &[launched(b)], &DiffQuery::default());
    assert_eq!((d.normalised.as_str(), changed(&d)), ("run", vec!["f8"]));
    assert_eq!(significant_regressions(&d), 1);
    // Phases of a program are no doubt of its runs: f8 runs in the last third only.
    let phased = |times: f64| {
        let mut w = run(&mut Dice(7), 4000.0, 0.0, times);
        for s in &mut w.profile.samples {
            s.slice = if (0x800..0x900).contains(&s.offset.0) { 1040 + s.slice % 5 } else { 1000 + s.slice % 30 };
        }
        launched(w)
    };
    let d = compare(&[phased(1.0)], &[phased(3.0)], &DiffQuery::default());
    assert_eq!((d.variance.as_str(), changed(&d)), ("an assumption", vec!["f8"]), "{:?}", d.rows);
    // The same work is within what runs differ by.
    let d = compare(&[phased(1.0)], &[phased(1.05)], &DiffQuery::default());
    assert!(changed(&d).is_empty(), "{:?}", changed(&d));
    // One that did not end, or others of the system: shares.
    let (a, b) = sides(1);
    let d = compare(&[launched(a)], &[b], &DiffQuery::default());
    assert_eq!(d.normalised, "total");
    let (a, mut b) = (launched(sides(1).0), launched(sides(1).1));
    b.profile.epochs[0].target_status = Some(1);
    assert_eq!(compare(&[a], &[b], &DiffQuery::default()).normalised, "total");
}

#[test]
fn shares_that_changed_within_what_runs_may_differ_by_are_hinted_at() {
    let hint = |times: f64| {
        let (a, b) = (run(&mut Dice(1), 100_000.0, 0.0, 1.0), run(&mut Dice(2), 100_000.0, 0.0, times));
        let d = compare(&[launched(a)], &[launched(b)], &DiffQuery::default());
        assert_eq!((d.normalised.as_str(), changed(&d).len()), ("run", 0));
        d.a.notes.iter().any(|n| n.contains("--per total lists them"))
    };
    assert!(hint(1.3) && !hint(1.0));
}

#[test]
fn periods_may_differ() {
    let mut flagged = 0;
    for seed in 0..10 {
        let mut dice = Dice(3000 + seed);
        let a = run(&mut dice, 2000.0, 0.0, 1.0);
        let mut b = run(&mut dice, 1000.0, 0.0, 1.0);
        b.profile.samples.iter_mut().for_each(|s| s.period *= 2);
        let d = compare(&[a], &[b], &DiffQuery { normalise: Normalise::Wall, ..DiffQuery::default() });
        flagged += changed(&d).len();
    }
    // Without regard to the period nearly every procedure would show as halved.
    assert!(flagged <= 5, "{flagged}");
}

#[test]
fn an_empty_side_is_an_error() {
    let a = run(&mut Dice(1), 100.0, 0.0, 1.0);
    let filter = Filter { procs: vec![Pattern::parse("nosuch").unwrap()], ..Filter::default() };
    let query = DiffQuery { filter, ..DiffQuery::default() };
    let error = diff(&[&a.profile], &[&a.profile], &a.symbols, &query).unwrap_err();
    assert!(matches!(error, Error::NothingMatched { .. }), "{error}");
    let error = diff(&[], &[&a.profile], &a.symbols, &DiffQuery::default()).unwrap_err();
    assert!(matches!(error, Error::Empty), "{error}");
}

fn by(names: &[By]) -> DiffQuery {
    DiffQuery { by: names.to_vec(), show: Show::All, ..DiffQuery::default() }
}

/// Label, image, and shares in per cent.
fn shares(d: &Difference) -> Vec<(&str, &str, u32, u32)> {
    let percent = |x: f64| (x * 100.0).round() as u32;
    let mut rows: Vec<_> =
        d.rows.iter().map(|r| (r.label.as_str(), r.image.as_str(), percent(r.share.0), percent(r.share.1))).collect();
    rows.sort_unstable();
    rows
}

/// Two images, two processes; the server (pid 5) lives on both sides, the shell does not.
fn served(version: &str, shell_pid: u32, counts: [u32; 3]) -> World {
    let mut w = World::new("cpu-clock");
    let app = w.image(ImageKind::Elf, &format!("/opt/{version}/app"));
    let lib = w.image(ImageKind::Elf, &format!("/lib/libz.so.{version}"));
    let server = w.process(5, "server", "/web");
    w.profile.processes[server.0 as usize].start_ns = 77;
    let shell = w.process(shell_pid, "sh", "/login");
    w.profile.processes[shell.0 as usize].start_ns = 1_000 + u64::from(shell_pid);
    w.function(app, 0x100, 0x100, "serve.isra.0");
    w.function(lib, 0x200, 0x100, "inflate");
    w.frames(app, 0x104, &[("serve", "serve.c", 12)]);
    w.sample(app, server, 0x104, counts[0]).tid = 6;
    w.sample(lib, server, 0x210, counts[1]).slice = 1060;
    w.sample(lib, shell, 0x210, counts[2]);
    w
}

#[test]
fn every_grouping_of_a_listing_can_be_compared() {
    let (a, b) = (served("1", 8, [50, 30, 20]), served("2", 9, [20, 30, 50]));
    let mut symbols = a.symbols;
    symbols.absorb(b.symbols);
    let compare = |query: &DiffQuery| diff(&[&a.profile], &[&b.profile], &symbols, query).unwrap();
    let check = |names: &[By], expected: &[(&str, &str, u32, u32)]| {
        let d = compare(&by(names));
        assert_eq!(shares(&d), expected, "{names:?}");
        assert!(d.rows.iter().all(|r| r.change.1 > 0.0), "{names:?}: every change has an interval");
    };
    check(&[By::Image], &[("app", "", 50, 20), ("libz.so", "", 50, 80)]);
    check(&[By::Proc], &[("inflate", "libz.so", 50, 80), ("serve", "app", 50, 20)]);
    check(&[By::Insn], &[("inflate+0x10", "libz.so", 50, 80), ("serve+0x4", "app", 50, 20)]);
    check(&[By::Line], &[("[no line information]", "libz.so", 50, 80), ("serve.c:12", "app", 50, 20)]);
    check(&[By::File], &[("[no line information]", "", 50, 80), ("serve.c", "", 50, 20)]);
    check(&[By::Process], &[("server (5)", "", 80, 50), ("sh", "", 20, 50)]);
    check(&[By::Command], &[("server", "", 80, 50), ("sh", "", 20, 50)]);
    check(&[By::Thread], &[("server (5)", "", 30, 30), ("server (5) thread 6", "", 50, 20), ("sh", "", 20, 50)]);
    check(&[By::Cgroup], &[("/login", "", 20, 50), ("/web", "", 80, 50)]);
    check(&[By::Slice], &[("+0 s", "", 70, 70), ("+60 s", "", 30, 30)]);
    check(
        &[By::Command, By::Proc],
        &[("server  inflate", "libz.so", 30, 30), ("server  serve", "app", 50, 20), ("sh  inflate", "libz.so", 20, 50)],
    );
    assert_eq!(compare(&by(&[By::Slice])).variance, "poisson", "slices cannot tell their own variance");
    assert_eq!(compare(&by(&[])).by, ["proc", "image"]);
}

#[test]
fn a_planted_change_of_an_image_is_found_and_the_same_twice_is_not() {
    let with_library = |dice: &mut Dice, count: f64| {
        let mut w = run(dice, 2000.0, 0.1, 1.0);
        let lib = w.image(ImageKind::Elf, "/lib/libz.so.1");
        for slice in 1000..1000 + SLICES {
            w.sample(lib, whither_store::model::ProcessIx(0), 0, dice.poisson(count).max(1)).slice = slice;
        }
        w
    };
    let query = DiffQuery { by: vec![By::Image], ..DiffQuery::default() };
    let (mut found, mut flagged) = (0, 0);
    for seed in 0..20 {
        let mut dice = Dice(5000 + seed);
        let (a, b) = (with_library(&mut dice, 200.0), with_library(&mut dice, 260.0));
        let d = compare(&[a], &[b], &query);
        let library = d.rows.iter().find(|r| r.label == "libz.so");
        found += usize::from(library.is_some_and(|r| r.verdict == Verdict::Slower));
        let (a, b) = (with_library(&mut dice, 200.0), with_library(&mut dice, 200.0));
        flagged += changed(&compare(&[a], &[b], &query)).len();
    }
    assert!(found >= 18 && flagged <= 4, "found {found} of 20, flagged {flagged} of 40");
}

/// The run of another build, whose file bears another name and whose procedures are called `f0`, `f1`, ...
fn renamed(mut w: World, to: &str) -> World {
    w.symbols.rename("/opt/v1/app", to);
    w.profile.images[0].path = to.into();
    w.profile.images[0].id = whither_image::ImageId([9; 20]);
    w
}

#[test]
fn a_program_under_another_name_is_the_same_one() {
    let mut dice = Dice(11);
    let before = run(&mut dice, 4_000.0, 0.0, 1.0);
    let after = renamed(run(&mut dice, 4_000.0, 0.0, 2.0), "/opt/app-1.3");
    let mut sides = [before, after];
    let later = std::mem::take(&mut sides[1].symbols);
    sides[0].symbols.absorb(later);
    let [before, after] = sides;
    let query = DiffQuery { show: Show::All, ..DiffQuery::default() };
    let d = compare(&[before], &[after], &query);
    assert_eq!(changed(&d), ["f8"], "only what was planted");
    let note = "compared under one name, as most of their procedures are called the same: app in A with app-1.3 in B";
    assert!(d.a.notes.iter().any(|n| n == note), "{:?}", d.a.notes);
}

#[test]
fn a_program_with_other_procedures_is_another_one() {
    let mut dice = Dice(12);
    let mut before = run(&mut dice, 400.0, 0.0, 1.0);
    let mut after = World::new("cpu-clock");
    let other = after.image(ImageKind::Elf, "/opt/other");
    let p = after.process(1, "other", "");
    for f in 0..20 {
        after.function(other, f * 0x100, 0x100, &format!("g{f}"));
        after.sample(other, p, f * 0x100 + 4, 500);
    }
    let later = std::mem::take(&mut after.symbols);
    before.symbols.absorb(later);
    let d = compare(&[before], &[after], &DiffQuery::default());
    assert!(d.rows.iter().all(|r| matches!(r.verdict, Verdict::New | Verdict::Gone)), "{:?}", d.rows);
    assert!(!d.a.notes.iter().any(|n| n.contains("compared under one name")));
}
