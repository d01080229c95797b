//! Golden texts of results made by hand; the expected output is in `snapshots/`.

use super::*;
use insta::assert_snapshot;
use whither_cycles::results::analysis::{Analysis, Summary};
use whither_cycles::results::*;

fn provenance() -> Provenance {
    Provenance {
        sources: vec!["run.wh".into()],
        hosts: vec!["box".into()],
        seconds: 586.0,
        cpus: 2,
        events: vec![
            EventTotals {
                name: "cpu-clock".into(),
                unit: "ns".into(),
                samples: 6_095_201,
                weight: 1_172_154_038_462,
                idle: 1200,
            },
            EventTotals { name: "imiss".into(), unit: "count".into(), samples: 4321, ..Default::default() },
        ],
        unknown: vec![("process gone".into(), 95)],
        unknown_share: 95.0 / 6_095_201.0,
        dropped: 12,
        skipped: 3400,
        own_cost: Some(0.009),
        rate_hz: 5200.4,
        notes: vec!["this machine has no hardware events: cpu-clock is a timer".into()],
        ..Provenance::default()
    }
}

fn row(labels: [&str; 2], samples: u64, imiss: u64, cumulative: f64, remark: Option<&str>) -> ListingRow {
    let cell = |samples: u64, of: f64| Cell { samples, weight: samples, share: samples as f64 / of };
    ListingRow {
        labels: labels.map(Into::into).into(),
        cells: vec![cell(samples, 6_095_201.0), cell(imiss, 4321.0)],
        cumulative,
        error: 0.0004,
        remark: remark.map(Into::into),
    }
}

fn some_listing() -> Listing {
    let irqs = "interrupts were off before here";
    let long =
        "std::_Rb_tree<std::string, std::pair<std::string const, int>, std::less<std::string>>::_M_insert_unique(int)";
    Listing {
        provenance: provenance(),
        by: vec!["proc".into(), "image".into()],
        rows: vec![
            row(["zero_poly_arc", "/usr/lib/xorg/libffb.so"], 2_064_143, 4000, 0.3387, None),
            row([long, "/opt/app/lib/very/long/path/libthing.so.1.2.3"], 245_450, 300, 0.3789, None),
            row(["finish_task_switch", "[kernel]"], 120_000, 0, 0.3986, Some(irqs)),
            row(["_raw_spin_unlock_irq", "[kernel]"], 12, 1, 0.3986, Some(irqs)),
        ],
        rest: Some((
            1234,
            vec![
                Cell { samples: 3_665_596, weight: 1, share: 0.6014 },
                Cell { samples: 20, weight: 20, share: 0.0046 },
            ],
        )),
        filters: vec![],
    }
}

#[test]
fn a_listing_shows_figures_names_remarks_and_notes() {
    assert_snapshot!(listing(&some_listing(), &Layout::default()));
}

#[test]
fn the_json_of_a_listing_and_an_annotation_keep_their_field_names() {
    let pretty = |text: &str| -> String {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        serde_json::to_string_pretty(&value).unwrap()
    };
    assert_snapshot!(pretty(&crate::json::json(&some_listing())));
    let mut a = some_annotation();
    a.insns.truncate(1);
    assert_snapshot!(pretty(&crate::json::json(&a)));
}

#[test]
fn a_narrow_listing_cuts_names_not_figures() {
    let layout = Layout { width: 80, ..Layout::default() };
    let text = listing(&some_listing(), &layout);
    assert!(text.lines().filter(|l| l.contains('%')).all(|l| l.chars().count() <= 200));
    assert_snapshot!(text);
}

#[test]
fn filters_are_told() {
    let mut l = some_listing();
    l.filters = vec!["image libffb".into(), "user only".into()];
    assert!(listing(&l, &Layout::default()).contains("\nonly image libffb, user only\n"));
}

#[test]
fn colour_adds_escapes_and_nothing_else() {
    let plain = listing(&some_listing(), &Layout::default());
    let ansi = listing(&some_listing(), &Layout { style: Style::Ansi, ..Layout::default() });
    assert!(ansi.contains("\x1b[31m"));
    let mut stripped = ansi;
    for code in ["\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"] {
        stripped = stripped.replace(code, "");
    }
    assert_eq!(stripped, plain);
}

#[test]
fn without_any_measurement_the_header_says_so() {
    let l = Listing { by: vec!["proc".into()], ..Listing::default() };
    assert!(listing(&l, &Layout::default()).contains("own cost not measured"));
}

fn insn(address: u64, text: &str, samples: f64, share: f64, line: u32) -> InsnRow {
    InsnRow {
        address,
        length: 4,
        text: text.into(),
        samples: vec![samples],
        raw: vec![samples as u64],
        share,
        line: Some((0, line)),
        ..InsnRow::default()
    }
}

fn some_annotation() -> Annotation {
    let mut insns = vec![
        insn(0x1180, "mov    (%rsi,%rax,8),%rcx", 174_727.0, 0.8612, 14),
        insn(0x1184, "mov    %rcx,(%rdi,%rax,8)", 27_766.5, 0.1369, 14),
        insn(0x1188, "add    $0x1,%rax", 390.5, 0.0019, 13),
    ];
    insns[2].inlined = Some("next".into());
    insns.extend((0..20).map(|i| insn(0x118c + i * 4, "nop", 0.0, 0.0, 15)));
    let line = |line, text: Option<&str>, samples: f64, share| LineRow {
        file: 0,
        line,
        text: text.map(Into::into),
        samples: vec![samples],
        share,
    };
    Annotation {
        provenance: Provenance { events: provenance().events[..1].to_vec(), ..Provenance::default() },
        procedure: "copy".into(),
        image: "/usr/bin/bench".into(),
        range: (0x1180, 0x5c),
        parts: Vec::new(),
        cells: vec![Cell { samples: 202_884, weight: 1, share: 0.412 }],
        corrected: true,
        files: vec!["/src/bench.c".into()],
        insns,
        lines: vec![
            line(13, Some("  for (i = 0; i < n; i++)"), 390.5, 0.0019),
            line(14, Some("    c[i] = a[i];"), 202_493.5, 0.9981),
            line(15, None, 0.0, 0.0),
        ],
        notes: vec!["no samples were split".into()],
        ..Annotation::default()
    }
}

#[test]
fn an_annotation_has_source_between_instructions_and_folds_what_is_cold() {
    assert_snapshot!(annotation(&some_annotation(), AnnotationView::Both, &Layout::default()));
}

#[test]
fn the_source_view_has_lines_only() {
    assert_snapshot!(annotation(&some_annotation(), AnnotationView::Source, &Layout::default()));
}

#[test]
fn a_procedure_without_code_still_shows_its_offsets() {
    let mut a = some_annotation();
    a.insns.iter_mut().for_each(|i| i.text.clear());
    let text = annotation(&a, AnnotationView::Asm, &Layout::default());
    assert!(text.contains("1180  (code not available)"), "{text}");
    assert!(!text.contains("bench.c"), "{text}");
}

#[test]
fn a_difference_shows_change_interval_and_chance() {
    let row = |label: &str, share, change, q, verdict| DiffRow {
        label: label.into(),
        image: "app".into(),
        share,
        weight: (1.0, 1.0),
        change,
        q,
        verdict,
    };
    let d = Difference {
        by: vec!["proc".into(), "image".into()],
        a: provenance(),
        b: Provenance { notes: vec!["only in B".into()], ..provenance() },
        normalised: "total".into(),
        rows: vec![
            row("parse", (0.20, 0.25), (0.05, 0.01), 0.0000001, Verdict::Slower),
            row("hash", (0.10, 0.08), (-0.02, 0.012), 0.031, Verdict::Faster),
            row("extra", (0.0, 0.01), (0.01, 0.001), 0.0, Verdict::New),
        ],
        variance: "slices".into(),
        dispersion: 1.7,
        hidden: 412,
        cut: 0,
    };
    assert_snapshot!(difference(&d, &Layout::default()));
    let none = Difference { rows: vec![], ..d };
    assert!(difference(&none, &Layout::default()).contains("no procedure changed beyond chance"));
    let by = |names: &[&str]| Difference { by: names.iter().map(|n| (*n).into()).collect(), ..none.clone() };
    for (names, word) in [
        (&["image"][..], "412 images within"),
        (&["process"], "412 processes within"),
        (&["process", "proc", "image"], "412 rows within"),
        (&["insn", "image"], "no instruction changed"),
    ] {
        let text = difference(&by(names), &Layout::default());
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_tree_is_cut_where_branches_get_small() {
    let leaf =
        |name: &str, own| FlameNode { name: name.into(), image: "app".into(), own, total: own, ..FlameNode::default() };
    let main = FlameNode {
        children: vec![leaf("work", 90), leaf("tiny", 1), leaf("tinier", 1)],
        own: 8,
        total: 100,
        ..leaf("main", 0)
    };
    let root = FlameNode { name: "all".into(), total: 100, children: vec![main], ..FlameNode::default() };
    let answer = CallTree {
        provenance: provenance(),
        event: "cpu-clock".into(),
        filters: vec!["process make".into()],
        tree: root,
    };
    assert_snapshot!(tree(&answer, 0.02, None, &Layout::default()));
    let heaviest = tree(&answer, 0.0, Some(3), &Layout::default());
    assert!(heaviest.contains("work") && !heaviest.contains("tiny") && heaviest.contains("(2 smaller)"), "{heaviest}");
}

#[test]
fn an_analysis_shows_blocks_bubbles_and_causes() {
    let a = crate::analysis_fixture::analysis();
    let narrow = Layout { width: 110, ..Layout::default() };
    let text = analysis(&a, AnnotationView::Both, Blocks::Warm, &narrow);
    let too_long: Vec<&str> = text.lines().skip(2).filter(|l| l.chars().count() > 110).collect();
    assert_eq!(too_long, Vec::<&str>::new());
    assert_snapshot!(text);
}

#[test]
fn lines_fit_the_width() {
    let mut a = crate::analysis_fixture::analysis();
    a.annotation.image = format!("/opt/{}/bench", "very-long/".repeat(9));
    let causes = Summary { about: a.annotation.image.clone(), ..crate::analysis_fixture::summary() };
    for width in [80, 60] {
        let layout = Layout { width, ..Layout::default() };
        let texts = [
            analysis(&a, AnnotationView::Both, Blocks::Warm, &layout).lines().take(8).collect::<Vec<_>>().join("\n"),
            annotation(&a.annotation, AnnotationView::Both, &layout).lines().take(6).collect::<Vec<_>>().join("\n"),
            summary(&causes, &layout),
            accuracy(&crate::analysis_fixture::accuracy("sqlite3"), 0, &layout),
        ];
        for line in texts.iter().flat_map(|t| t.lines()) {
            let is_table = line.contains("factor 2") || line.starts_with("high ") || line.contains("image");
            assert!(line.chars().count() <= width || is_table, "{width}: {line}");
        }
    }
}

#[test]
fn bounds_are_told_as_bounds_and_add_up() {
    let a = crate::analysis_fixture::bounded();
    let text = analysis(&a, AnnotationView::Both, Blocks::Warm, &Layout::default());
    for part in ["F <~ 1.53e9, shape +-4 %", "actual >~ 6.90 CPI", "= 0.32 CPI, actual 34.4/5 >~ 6.88 CPI"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let mut loose = Analysis { at_best: Some(0.25), ..a.clone() };
    loose.blocks[1].best_cycles = 100.0;
    let wide = Layout { width: 1000, ..Layout::default() };
    let text = analysis(&loose, AnnotationView::Both, Blocks::Warm, &wide);
    let room = "has no room (<~), and for 0.25 of them if blocks took their best cases one after the other";
    let below =
        "(below its best: F is too high, 3.82e8 if all took their best cases, or what other blocks wait for hides it)";
    assert!(text.contains(room) && text.contains(below), "{text}");
    let shown = summary(&a.summary, &Layout::default());
    assert!(shown.contains("actual >~ 6.90 CPI"), "{shown}");
    let lines = summary_lines(&a.summary);
    let of = |name: &str| lines.iter().find(|l| l.name == name).unwrap().range();
    assert_eq!([of("subtotal dynamic"), of("total stall")], ["83.6 .. 96.0 %", "87.7 .. 100.0 %"]);
    assert_eq!([of("subtotal static"), of("execution")], ["0.0 .. 3.8 %", "0.0 .. 12.3 %"]);
    assert!(!shown.contains("gain") && !shown.contains("sampling error"), "{shown}");
    let beyond = Summary { execution_range: (-0.1, 1.02), ..a.summary };
    let most = summary_lines(&beyond).iter().map(|l| l.max).fold(0.0, f64::max);
    assert!(most <= 1.0 && summary_lines(&beyond).iter().all(|l| l.min >= 0.0), "{most}");
}

#[test]
fn lines_of_a_summary_add_up_as_they_stand() {
    let s = crate::analysis_fixture::summary();
    let lines = summary_lines(&s);
    let of = |name: &str| lines.iter().find(|l| l.name == name).unwrap().max;
    let at = |name: &str| lines.iter().position(|l| l.name == name).unwrap();
    assert!(at("unexplained gain") > at("execution"), "the gain is no dynamic stall");
    near(of("total stall"), of("subtotal dynamic") + of("subtotal static"));
    near(of("total tallied"), lines[at("total stall")..at("total tallied")].iter().map(|l| l.max).sum());
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9, "{a} and {b}");
}

#[test]
fn ways_are_told_as_far_as_they_were_seen() {
    use whither_cycles::results::analysis::EdgeAnalysis;
    let ways = |seen: u64, width: usize| {
        let mut a = crate::analysis_fixture::analysis();
        let way = EdgeAnalysis { from: 1, kind: "table", evidence: 0, ..a.edges[0].clone() };
        a.edges.retain(|e| e.from != 1);
        a.edges.extend((0..9).map(|to| EdgeAnalysis {
            to: to % 4,
            probability: f64::from(u8::try_from(to).unwrap()) / 36.0,
            evidence: if to == 8 { seen } else { 0 },
            ..way.clone()
        }));
        let text = analysis(&a, AnnotationView::Asm, Blocks::Only(2), &Layout { width, ..Layout::default() });
        text.lines().find(|l| l.contains("->")).unwrap().trim().to_owned()
    };
    assert!(ways(0, 200).starts_with("-> block 1 table, block 2 table"), "{}", ways(0, 200));
    assert!(!ways(0, 200).contains('%') && ways(0, 200).ends_with("(not seen)"), "{}", ways(0, 200));
    assert!(ways(7, 200).starts_with("-> block 1 22 % table, block 4 19 % table"), "{}", ways(7, 200));
    assert_eq!(ways(1234, 80), "-> block 1 22.22 % table, block 4 19.44 % table, 7 more (1,234 seen)");
}

#[test]
fn all_blocks_or_one() {
    let a = crate::analysis_fixture::analysis();
    let shown = |blocks| analysis(&a, AnnotationView::Asm, blocks, &Layout::default());
    assert!(shown(Blocks::Warm).contains("… 2 cold blocks, 3 instructions"), "{}", shown(Blocks::Warm));
    assert!(!shown(Blocks::All).contains("cold block") && shown(Blocks::All).contains("block 3 of 4"));
    let one = shown(Blocks::Only(2));
    assert!(one.contains("block 2 of 4") && !one.contains("block 1 of 4") && !one.contains("where the time goes"));
    assert!(!shown(Blocks::All).contains("bench.c"), "assembly only");
}

#[test]
fn without_a_scale_no_cycles_are_told_and_the_reason_once() {
    use whither_cycles::results::analysis::{Evidence, Scale};
    let mut a = crate::analysis_fixture::analysis();
    (a.scale, a.evidence, a.clock_hz, a.cpi, a.best_cpi) = (Scale::Relative, Evidence::Samples, None, None, None);
    (a.summary.cpi, a.summary.best_cpi) = (None, None);
    a.blocks.iter_mut().for_each(|b| b.cycles = None);
    a.insns.iter_mut().for_each(|i| (i.cycles, i.stall_cycles) = (None, None));
    let text = analysis(&a, AnnotationView::Both, Blocks::All, &Layout::default());
    assert!(!text.contains("CPI") && !text.contains(" cy  "), "{text}");
    assert_eq!(text.matches("so no cycles can be told").count(), 1, "{text}");
    assert_eq!(text.matches("per call of the procedure").count(), 1, "{text}");
    assert_snapshot!(text);
}

#[test]
fn branch_records_are_named_where_figures_rest_on_them() {
    use whither_cycles::results::analysis::Evidence;
    let mut a = crate::analysis_fixture::analysis();
    (a.evidence, a.recorded) = (Evidence::Records, 12_345);
    let text = analysis(&a, AnnotationView::Both, Blocks::All, &Layout::default());
    assert!(text.contains("from the CPU's branch records (12,345 runs between taken branches)"), "{text}");
    assert!(text.contains("(branch records, high)") && !text.contains("branch evidence"), "{text}");
}

#[test]
fn a_summary_has_the_lines_of_figure_four() {
    assert_snapshot!(summary(&crate::analysis_fixture::summary(), &Layout::default()));
}

#[test]
fn runs_have_the_columns_of_figure_three_and_what_moved() {
    assert_snapshot!(run_statistics(&crate::analysis_fixture::runs("r"), Some(1), &Layout::default()));
}

#[test]
fn accuracy_has_both_histograms_and_what_confidence_is_worth() {
    assert_snapshot!(accuracy(&crate::analysis_fixture::accuracy("sqlite3"), 9, &Layout::default()));
}
