//! Prints the inline chains of addresses in an ELF file with debug information, and how long opening
//! it and answering took: `lines FILE [SUPPLEMENTARY|-] ADDRESS[+SIZE]...`, addresses as stated in the file.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line example")]

use std::time::Instant;
use whither_image::{Bytes, LineService, Svma};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, supplementary, addresses @ ..] = arguments.as_slice() else {
        return Err("usage: lines FILE SUPPLEMENTARY|- ADDRESS[+SIZE]...".into());
    };
    let read = |path: &String| std::fs::read(path).map(Bytes::from);
    let debug = read(file)?;
    let supplementary = if supplementary == "-" { None } else { Some(read(supplementary)?) };
    let started = Instant::now();
    let lines = LineService::new(&debug, supplementary.as_ref())?;
    eprintln!("opened in {:?}; {:?}", started.elapsed(), lines.problems());
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
    for address in addresses {
        let started = Instant::now();
        let (start, size) = address.split_once('+').unwrap_or((address, "1"));
        let start = number(start)?;
        let runs = lines.frames_in(Svma(start)..Svma(start + number(size)?));
        let elapsed = started.elapsed();
        for run in &runs {
            println!("{:#x}", run.range.start.0);
            for f in &run.frames {
                println!(
                    "  {} {}:{}:{}",
                    f.function.as_deref().unwrap_or("?"),
                    f.file.as_deref().unwrap_or("?"),
                    f.line,
                    f.column
                );
            }
        }
        eprintln!("{address}: {} runs in {elapsed:?}", runs.len());
    }
    Ok(())
}
