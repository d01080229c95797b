//! A second opinion on best cases: `llvm-mca`, where it is installed, on each block of a listing. It simulates a block repeated
//! again and again, every load a hit of the first cache and every branch foreseen, with LLVM's tables of a processor; whither's own
//! figures are of blocks where they stand, with what was measured of this core.

use anyhow::{Context, bail};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use whither_cycles::results::analysis::Analysis;

/// Rounds simulated, as by default.
const ROUNDS: f64 = 100.0;
/// Code that it does not know makes it give up on everything: halves are asked then, at most so many times in all.
const MOST_RUNS: usize = 100;
/// Longer blocks are tables or unrolled code that takes it minutes.
const LONGEST: usize = 2000;

/// Asks for every block and notes the answers.
///
/// # Errors
/// It is not installed, or does not run.
pub(crate) fn ask(a: &mut Analysis, intel: bool) -> anyhow::Result<()> {
    let program = find().context(
        "llvm-mca is not installed (Debian and Ubuntu: apt-get install llvm); without --mca its figures are left out",
    )?;
    let text: HashMap<u64, &str> = a.annotation.insns.iter().map(|i| (i.address, i.text.as_str())).collect();
    let insns = |first: usize, len: usize| a.insns.get(first..first.saturating_add(len)).unwrap_or_default();
    let blocks: Vec<Region> = (a.blocks.iter().enumerate())
        .filter(|(_, b)| (1..=LONGEST).contains(&b.len))
        .filter_map(|(at, b)| {
            let lines = insns(b.first, b.len).iter().map(|i| text.get(&i.address).map(|t| assembly(t)));
            Some(Region { at, lines: lines.collect::<Option<Vec<String>>>()? })
        })
        .collect();
    let (version, cpu) = describe(&program)?;
    let mut asked = Asked { program, intel, runs: 0, cycles: HashMap::new() };
    asked.all(&blocks)?;
    let known = asked.cycles.len();
    for (at, cycles) in asked.cycles {
        a.blocks[at].mca_cycles = Some(cycles);
    }
    a.mca = Some(format!("llvm-mca {version} for {cpu}"));
    if known < a.blocks.len() {
        a.notes.push(format!(
            "llvm-mca told nothing of {} of {} blocks: they hold code that it does not know, or are too long",
            a.blocks.len() - known,
            a.blocks.len()
        ));
    }
    Ok(())
}

struct Region {
    /// Number of the block.
    at: usize,
    lines: Vec<String>,
}

struct Asked {
    program: PathBuf,
    intel: bool,
    runs: usize,
    /// Cycles of one execution, by block.
    cycles: HashMap<usize, f64>,
}

impl Asked {
    fn all(&mut self, blocks: &[Region]) -> anyhow::Result<()> {
        if blocks.is_empty() || self.runs == MOST_RUNS {
            return Ok(());
        }
        self.runs += 1;
        match self.run(blocks)? {
            Some(cycles) => self.cycles.extend(cycles),
            None if blocks.len() > 1 => {
                let (low, high) = blocks.split_at(blocks.len() / 2);
                self.all(low)?;
                self.all(high)?;
            }
            None => {}
        }
        Ok(())
    }

    /// `None` where it does not take the code.
    fn run(&self, blocks: &[Region]) -> anyhow::Result<Option<HashMap<usize, f64>>> {
        let shown = self.program.display();
        let mut child = Command::new(&self.program)
            .args(["-mtriple=x86_64", "-iterations=100", "-instruction-info=0", "-resource-pressure=0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {shown}"))?;
        let mut stdin = child.stdin.take().context("its input is a pipe")?;
        let text = source(blocks, self.intel);
        // It reads everything before it writes anything; what it does not read tells itself by its status.
        let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
        let output = child.wait_with_output().with_context(|| format!("cannot read what {shown} says"))?;
        let _ = writer.join();
        Ok(output.status.success().then(|| answers(&String::from_utf8_lossy(&output.stdout))))
    }
}

/// Regions named by their block.
fn source(blocks: &[Region], intel: bool) -> String {
    let mut out = String::from(if intel { ".intel_syntax noprefix\n" } else { "" });
    for block in blocks {
        out.push_str(&format!("# LLVM-MCA-BEGIN block{}\n", block.at));
        block.lines.iter().for_each(|line| out.push_str(&format!("{line}\n")));
        out.push_str("# LLVM-MCA-END\n");
    }
    out
}

/// Without what the listing says of addresses behind the operands.
fn assembly(text: &str) -> String {
    let end = [" <", " #"].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    text[..end].to_owned()
}

/// `[0] Code Region - block7` ... `Total Cycles: 403`.
fn answers(text: &str) -> HashMap<usize, f64> {
    let (mut out, mut block) = (HashMap::new(), None);
    for line in text.lines() {
        if let Some((_, name)) = line.split_once("Code Region - block") {
            block = name.trim().parse::<usize>().ok();
        } else if let Some(cycles) = line.strip_prefix("Total Cycles:") {
            let cycles = cycles.trim().parse::<f64>().ok().filter(|c| c.is_finite());
            if let (Some(at), Some(cycles)) = (block.take(), cycles) {
                out.insert(at, cycles / ROUNDS);
            }
        }
    }
    out
}

/// `llvm-mca`, or the newest `llvm-mca-N`.
fn find() -> Option<PathBuf> {
    let path: OsString = std::env::var_os("PATH")?;
    let versions = (11..=40).rev().map(|n| format!("llvm-mca-{n}"));
    let names: Vec<String> = std::iter::once("llvm-mca".to_owned()).chain(versions).collect();
    let places = || std::env::split_paths(&path);
    names.iter().flat_map(|name| places().map(move |dir| dir.join(name))).find(|file| file.is_file())
}

/// Version, and the processor that it takes this one for.
fn describe(program: &PathBuf) -> anyhow::Result<(String, String)> {
    let output =
        Command::new(program).arg("--version").output().with_context(|| format!("cannot run {}", program.display()))?;
    if !output.status.success() {
        bail!("{} --version ended with {}", program.display(), output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let after = |mark: &str| text.lines().find_map(|l| l.split_once(mark)).map(|l| l.1.trim().to_owned());
    let unknown = || "an unknown processor".to_owned();
    Ok((after("LLVM version").unwrap_or_default(), after("Host CPU:").unwrap_or_else(unknown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_those_of_their_block() {
        let text = "\n[0] Code Region - block7\n\nIterations:        100\nInstructions:      200\nTotal Cycles:      403\n\
                    \n[1] Code Region - block9\n\nTotal Cycles:      1003\nTotal Cycles:      9\n[2] Code Region - x\nTotal Cycles: 8\n";
        let told = answers(text);
        assert_eq!((told.len(), told[&7], told[&9]), (2, 4.03, 10.03));
    }

    #[test]
    fn code_it_does_not_know_costs_only_its_own_block() {
        let Some(program) = find() else {
            eprintln!("SKIP: llvm-mca is not installed");
            return;
        };
        let region = |at, lines: &[&str]| Region { at, lines: lines.iter().map(|l| assembly(l)).collect() };
        let blocks = [
            region(0, &["imul %rax,%rax", "jne 0x1000 <f+0x10>"]),
            region(1, &["(bad)"]),
            region(2, &["mov 0x10(%rip),%rax # 0x2000 <x>", "call 0x40 <puts@plt>"]),
        ];
        let mut asked = Asked { program, intel: false, runs: 0, cycles: HashMap::new() };
        asked.all(&blocks).expect("it runs");
        assert!((2.5..=5.0).contains(&asked.cycles[&0]), "a chain of multiplications: {:?}", asked.cycles);
        assert!(!asked.cycles.contains_key(&1) && asked.cycles.contains_key(&2), "{:?}", asked.cycles);
    }
}
