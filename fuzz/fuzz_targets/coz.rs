//! Profiles of Coz, and what is answered from them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_causal::coz::{Format, export, import};
use whither_causal::{AnalyseOptions, analyse};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let Ok(run) = import(&text) else { return };
    for format in [Format::Tabs, Format::JsonLines] {
        let exported = export(&run, format);
        if exported.left_out == 0 {
            let again = import(&exported.text).expect("what was written is read");
            assert_eq!(again.windows.len(), run.windows.len());
        }
    }
    // An answer is a bootstrap per target: enough of them say nothing new.
    if run.targets.len() <= 4 && run.windows.len() <= 64 {
        let answer = analyse(&run, &AnalyseOptions::default());
        assert_eq!(answer.targets.len(), run.targets.len());
    }
});
