//! Properties of the whole page: whatever the names, the structure stays.

use super::*;
use proptest::prelude::*;
use whither_cycles::results::analysis::Scale;
use whither_cycles::results::{Cell, EventTotals, InsnRow, LineRow, ListingRow};

fn named(name: &str) -> ReportData {
    let n = || name.to_owned();
    let provenance = Provenance {
        sources: vec![n()],
        hosts: vec![n()],
        machine: n(),
        scope: n(),
        events: vec![EventTotals { name: n(), unit: n(), samples: 5, ..EventTotals::default() }; 2],
        unknown: vec![(n(), 1)],
        notes: vec![n()],
        ..Provenance::default()
    };
    let cells = vec![Cell { samples: 5, weight: 5, share: 1.0 }; 2];
    let row = ListingRow { labels: vec![n(), n()], cells: cells.clone(), remark: Some(n()), ..ListingRow::default() };
    let listing = Listing {
        provenance: provenance.clone(),
        by: vec!["proc".into(), n()],
        rows: vec![row],
        rest: Some((1, cells.clone())),
        filters: vec![n()],
    };
    let insn = InsnRow {
        text: n(),
        inlined: Some(n()),
        line: Some((0, 1)),
        samples: vec![1.0],
        raw: vec![1],
        share: 0.5,
        ..InsnRow::default()
    };
    let annotation = Annotation {
        provenance: provenance.clone(),
        procedure: n(),
        image: n(),
        image_id: n(),
        cells,
        files: vec![n()],
        insns: vec![insn],
        lines: vec![LineRow { line: 1, text: Some(n()), ..LineRow::default() }],
        notes: vec![n()],
        ..Annotation::default()
    };
    let leaf = FlameNode { name: n(), image: n(), total: 5, own: 5, ..FlameNode::default() };
    ReportData {
        title: n(),
        provenance,
        listings: vec![listing],
        annotations: vec![annotation.into(), analysed(name).into()],
        causes: Some(Summary {
            left_out: vec![(n(), n())],
            notes: vec![n()],
            about: n(),
            ..crate::analysis_fixture::summary()
        }),
        flame: Some(FlameNode { name: n(), total: 5, children: vec![leaf], ..FlameNode::default() }),
        heat: Some(HeatMap { slices: vec![1], rows: vec![(n(), vec![1])] }),
        diff: None,
        accuracy: Some(crate::analysis_fixture::accuracy(name)),
        focus: Focus::default(),
        runs: Some(crate::analysis_fixture::runs(name)),
    }
}

/// The copy loop with this name wherever a name may stand.
fn analysed(name: &str) -> Analysis {
    let n = || name.to_owned();
    let mut a = crate::analysis_fixture::analysis();
    (a.annotation.procedure, a.annotation.image, a.model) = (n(), n(), n());
    a.annotation.insns.iter_mut().for_each(|i| i.text = n());
    (a.scale, a.missing, a.notes) = (Scale::Absolute(n()), vec![n()], vec![n()]);
    a
}

#[test]
fn an_analysed_procedure_has_blocks_bubbles_causes_and_its_graph() {
    let data = ReportData { annotations: vec![crate::analysis_fixture::analysis().into()], ..ReportData::default() };
    let page = page(&data);
    for part in [
        "% of time   CPI 6.88 (best 0.32)</td>",
        "block 2   F 1.53e9 +-4 %, high   loop",
        "class=\"st\" title=\"stall of 28.9 cycles per execution\nd D-cache miss 22.7..28.9",
        "Control-flow graph of 4 blocks",
        "equivalence class 0",
        "<td class=\"span\" style=\"--a:44.8%;--b:52.0%\">",
    ] {
        assert!(page.contains(part), "{part} is not in the page");
    }
}

#[test]
fn a_page_shows_bounds_with_their_signs() {
    let mut a = crate::analysis_fixture::bounded();
    a.insns[2].stall_cycles = Some(0.0);
    a.insns[3].culprits.clear();
    a.insns[3].unexplained = 0.0;
    let data = ReportData { causes: Some(a.summary.clone()), annotations: vec![a.into()], ..ReportData::default() };
    let page = page(&data);
    for part in [
        "CPI &gt;~ 6.88 (best 0.32)</td>",
        "F &lt;~ 1.53e9, shape +-4 %, shape high",
        "class=\"st\" title=\"stall of &gt;~ 0.0 cycles per execution\nd D-cache miss",
        "title=\"waits at best too, as the code is written\na operand dependency",
        "In all best-case 0.32 CPI, actual &gt;~ 6.90 CPI",
        "the scale of F is bounded",
    ] {
        assert!(page.contains(part), "{part} is not in the page");
    }
    assert!(!page.contains("unknown length"));
}

/// Tags in order, each cut to its name: equal for all pages of one shape.
fn skeleton(page: &str) -> Vec<String> {
    let body = page.split("<body>").nth(1).unwrap();
    let body = &body[..body.rfind("<script>").unwrap()];
    body.split('<').skip(1).map(|t| t.split([' ', '>']).next().unwrap().to_owned()).collect()
}

fn flame_data(page: &str) -> serde_json::Value {
    let start = page.split("id=\"flame-data\">").nth(1).unwrap();
    serde_json::from_str(start.split("</script>").next().unwrap()).unwrap()
}

#[test]
fn hostile_names_stay_text() {
    for name in [
        "</script><script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "a' onfocus='x",
        "<!--",
        "]]>",
        "\u{2028}\0",
    ] {
        let page = page(&named(name));
        assert_eq!(skeleton(&page), skeleton(&super::page(&named("plain"))), "{name}");
        assert_eq!(flame_data(&page)["names"][0], name);
    }
}

#[test]
fn nothing_is_loaded_from_outside() {
    let page = page(&named("x"));
    for forbidden in ["http://", "https://", "src=\"", "@import", "url(", "<link"] {
        assert!(!page.contains(forbidden), "{forbidden} in the page");
    }
}

#[test]
fn row_height_agrees_with_the_style_sheet() {
    assert!(include_str!("page.css").contains(&format!("--row: {}px;", arrows::ROW)));
}

#[test]
fn losses_and_unknowns_are_said() {
    let mut data = named("x");
    data.provenance.dropped = 1234;
    data.provenance.sideband_lost = 7;
    let page = page(&data);
    assert!(page.contains("1,234 samples dropped"));
    assert!(page.contains("7 records of mappings lost"));
}

#[test]
fn listing_links_to_the_annotated_procedure() {
    let mut data = named("f");
    data.listings[0].by[1] = "image".into();
    assert!(page(&data).contains("<a href=\"#proc-0\">f</a>"));
}

proptest! {
    #[test]
    fn any_name_leaves_the_structure_alone(name in "\\PC*|[<>&\"'/!\\-a-z\u{0}-\u{1f}]*") {
        let page = page(&named(&format!("q{name}")));
        prop_assert_eq!(skeleton(&page), skeleton(&super::page(&named("plain"))));
        prop_assert_eq!(&flame_data(&page)["names"][0], &format!("q{name}"));
    }
}
