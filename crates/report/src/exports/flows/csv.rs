//! One line per basic block (RFC 4180), like the counts that pixie made by instrumenting.

use super::Counted;
use crate::text::confidence;
use std::io::{self, Write};
use whither_cycles::results::analysis::Scale;

const HEADER: &str = "image,image_id,procedure,block,address,instructions,class,executions,low,high,confidence,scale,\
                      count,samples,best_cycles,cycles\r\n";

pub(super) fn write(all: &[Counted<'_>], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(HEADER.as_bytes())?;
    for f in all {
        let a = f.analysis();
        let scale = match &a.scale {
            Scale::Relative => "per call",
            Scale::Bounded => "at most",
            Scale::Absolute(_) | Scale::Counted | Scale::Sampled => "absolute",
        };
        for (i, b) in a.blocks.iter().enumerate() {
            let e = &b.frequency;
            let cells = [
                super::super::csv::field(&f.flows.image.path),
                f.flows.image.id.to_hex(),
                super::super::csv::field(&f.flows.name),
                (i + 1).to_string(),
                format!("{:#x}", b.address),
                b.len.to_string(),
                b.class.to_string(),
                e.value.to_string(),
                e.low.to_string(),
                e.high.to_string(),
                confidence(e.confidence).into(),
                scale.into(),
                f.count(e.value).to_string(),
                b.samples.to_string(),
                b.best_cycles.to_string(),
                b.cycles.map(|c| c.to_string()).unwrap_or_default(),
            ];
            write!(out, "{}\r\n", cells.join(","))?;
        }
    }
    Ok(())
}
