//! Prints the function table of an ELF file (and its debug file) and how long making it took.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line example")]

use std::time::Instant;
use whither_image::{ElfSummary, function_table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let main = std::fs::read(paths.first().ok_or("usage: functions FILE [DEBUGFILE]")?)?;
    let debug = paths.get(1).map(std::fs::read).transpose()?;
    let summary = ElfSummary::parse(&main)?;
    let started = Instant::now();
    let (table, problems) = function_table(&main, debug.as_deref());
    eprintln!("{} {} functions in {:?}; {problems:?}", summary.id, table.functions().len(), started.elapsed());
    for f in table.functions() {
        println!("{:#x} {:#x} {:?} {}", f.start.0, f.size, f.source, f.name);
    }
    Ok(())
}
