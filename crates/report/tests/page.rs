//! The page as a browser sees it: headless Chromium must run the script without an error and build
//! what only the script builds. Without Chromium the test says that it was skipped, and counts it.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).flat_map(|d| BROWSERS.map(|b| d.join(b))).find(|p| p.is_file())
}

fn dump_dom(browser: &Path, page: &Path, profile: &Path) -> String {
    let out = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--window-size=1400,2000", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser was found a moment ago");
    assert!(out.status.success(), "browser failed: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn write_page(name: &str, data: &whither_report::html::ReportData) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, whither_report::html::page(data)).expect("the target directory can be written");
    path
}

#[test]
fn script_runs_in_a_browser_without_error() {
    let mut data = common::data();
    data.diff = Some(common::difference());
    let page = write_page("report.html", &data);
    let Some(browser) = browser() else {
        eprintln!("SKIPPED 1: no Chromium on this machine; the page's script was not run");
        return;
    };
    let profile = tempfile::tempdir().unwrap();
    let dom = dump_dom(&browser, &page, profile.path());
    assert!(dom.contains("data-ready=\"1\""), "script did not reach its end");
    assert!(
        !dom.contains("data-js-error"),
        "script failed: {:?}",
        dom.split("data-js-error").nth(1).map(|s| &s[..s.len().min(200)])
    );
    assert!(dom.matches("role=\"treeitem\"").count() > 100, "flame graph was not drawn");
    assert!(dom.contains("Show all 60 rows"), "long listing was not folded");
    assert!(
        dom.contains("<title>whole system, 10 s on build-07 - whither</title>"),
        "a name of the target ran as script"
    );
}

#[test]
fn empty_report_still_renders() {
    let page = write_page("empty.html", &whither_report::html::ReportData::default());
    let Some(browser) = browser() else {
        eprintln!("SKIPPED 1: no Chromium on this machine; the page's script was not run");
        return;
    };
    let profile = tempfile::tempdir().unwrap();
    let dom = dump_dom(&browser, &page, profile.path());
    assert!(dom.contains("data-ready=\"1\"") && !dom.contains("data-js-error"));
}
