//! Symbols, lines and instructions of compiled programs and of system libraries, compared with what
//! nm, llvm-symbolizer and objdump say of the same files.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the verdict, a skip is told")]

use crate::common::{compile, run, skip};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use whither_image::{
    Bytes, ElfSummary, Flow, FunctionTable, LineService, NameSource, SourceFrame, SplitFiles, Svma, decode,
    function_table, to_offset,
};

/// Names by (address, size) as nm lists code; sizes are 0 where it knows none.
fn nm(path: &Path, flags: &[&str]) -> Option<BTreeMap<u64, Vec<(u64, String)>>> {
    let mut arguments = vec!["--defined-only", "-S"];
    arguments.extend(flags);
    arguments.push(path.to_str()?);
    let mut symbols: BTreeMap<u64, Vec<(u64, String)>> = BTreeMap::new();
    for line in run("nm", &arguments)?.lines() {
        let mut fields = line.split_whitespace().collect::<Vec<_>>();
        let name = fields.pop()?.split('@').next()?.to_owned();
        let kind = fields.pop()?;
        let number = |i: usize| fields.get(i).and_then(|f| u64::from_str_radix(f, 16).ok()).unwrap_or(0);
        if matches!(kind, "T" | "t" | "W" | "w" | "i") {
            symbols.entry(number(0)).or_default().push((number(1), name));
        }
    }
    Some(symbols)
}

/// Every symbol of nm is found under one of the names it has there, with its size.
fn compare_with_nm(path: &Path, flags: &[&str], at_least: usize) {
    let Some(expected) = nm(path, flags) else { return };
    let bytes = std::fs::read(path).unwrap();
    let segments = ElfSummary::parse(&bytes).unwrap().segments;
    let (table, problems) = function_table(&bytes, None);
    assert_eq!(problems, []);
    let mut compared = 0;
    for (address, names) in &expected {
        let Some(offset) = to_offset(&segments, Svma(*address)) else { continue };
        let found = table.find(offset).unwrap_or_else(|| panic!("{names:?} at {address:#x} is not in the table"));
        let sizes: BTreeSet<u64> = names.iter().map(|n| n.0).collect();
        let known = names.iter().any(|(_, name)| **name == *found.name);
        // A mark inside a sized function is of no account (see the module's text).
        assert!(known || sizes == [0].into(), "{address:#x}: {} is none of {names:?}", found.name);
        if known && found.start == offset && sizes.iter().all(|s| *s > 0) {
            let next = table.functions().partition_point(|f| f.start <= found.start);
            let room = table.functions().get(next).map_or(u64::MAX, |f| f.start.0 - offset.0);
            assert!(sizes.iter().any(|s| found.size == (*s).min(room)), "{address:#x}: {found:?} and {names:?}");
        }
        compared += usize::from(known);
    }
    assert!(compared >= at_least, "only {compared} symbols compared");
}

#[test]
fn symbols_of_compiled_programs() {
    let dir = tempfile::tempdir().unwrap();
    for (compiler, source) in [("gcc", "plain.c"), ("g++", "inlines.cc"), ("clang", "plain.c")] {
        let Some(program) = compile(compiler, source, &["-O2"], dir.path()) else { continue };
        compare_with_nm(&program, &[], 5);
        if source == "plain.c" {
            let (table, _) = function_table(&std::fs::read(&program).unwrap(), None);
            let stubs: BTreeSet<&str> =
                table.functions().iter().filter(|f| f.source == NameSource::Plt).map(|f| &*f.name).collect();
            // A function chosen at start is called through the name of its resolver.
            assert!(stubs.is_superset(&["printf@plt", "strlen@plt", "pick@plt"].into()), "{compiler}: {stubs:?}");
        }
    }
}

#[test]
fn symbols_of_a_32_bit_program() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-m32", "-O2", "-static", "-nostdlib", "-ffreestanding"];
    let Some(program) = compile("gcc", "bare.c", &flags, dir.path()) else { return };
    compare_with_nm(&program, &[], 3);
    let summary = ElfSummary::parse(&std::fs::read(&program).unwrap()).unwrap();
    assert_eq!((summary.is_64, summary.machine), (false, whither_image::Machine::X86));
}

#[test]
fn code_nothing_is_known_of_is_cut_into_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-O2", "-static", "-nostdlib", "-ffreestanding", "-fno-asynchronous-unwind-tables", "-s"];
    let Some(program) = compile("gcc", "bare.c", &flags, dir.path()) else { return };
    let (table, problems) = function_table(&std::fs::read(&program).unwrap(), None);
    let pieces: Vec<_> = table.functions().iter().map(|f| (&*f.name, f.source)).collect();
    assert_eq!(problems, []);
    assert_eq!(pieces[..2], [(".text+0x0", NameSource::Section), (".text+0x1000", NameSource::Section)]);
    assert!(table.functions().iter().all(|f| f.size <= 4096) && pieces.len() >= 3);
}

#[test]
fn symbols_of_system_libraries() {
    for path in ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1"] {
        if Path::new(path).exists() {
            compare_with_nm(Path::new(path), &["-D"], 1000);
            if path.contains("libc.so") {
                // The code that handlers return to bears no exported name, and begins with a byte that is not its own.
                let (table, _) = function_table(&std::fs::read(path).unwrap(), None);
                let names = ["<signal handler called>", "__restore_rt"];
                assert!(table.functions().iter().any(|f| names.contains(&&*f.name)), "{path}");
            }
        } else {
            skip(&format!("{path} is not installed"));
        }
    }
}

#[test]
fn stripped_programs_have_plt_names_and_unwind_extents() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile("gcc", "plain.c", &["-O2"], dir.path()) else { return };
    let before = nm(&program, &[]).unwrap();
    if run("strip", &[program.to_str().unwrap()]).is_none() {
        return;
    }
    let bytes = std::fs::read(&program).unwrap();
    let (table, problems) = function_table(&bytes, None);
    assert_eq!(problems, []);
    let segments = ElfSummary::parse(&bytes).unwrap().segments;
    let named =
        |name: &str, source: NameSource| table.functions().iter().any(|f| *f.name == *name && f.source == source);
    assert!(named("printf@plt", NameSource::Plt) && named("strlen@plt", NameSource::Plt), "{table:?}");
    for name in ["middle", "leaf", "main"] {
        let (address, symbols) = before.iter().find(|(_, s)| s.iter().any(|s| s.1 == name)).unwrap();
        let found = table.find(to_offset(&segments, Svma(*address)).unwrap()).unwrap();
        assert_eq!(
            (&*found.name, found.source, found.size),
            (&*format!("fn@{address:#x}"), NameSource::Unwind, symbols[0].0)
        );
    }
}

#[test]
fn a_separate_debug_file_names_the_stripped_program_and_a_wrong_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-O2", "-g", "-Wl,--build-id"];
    let Some(program) = compile("gcc", "plain.c", &flags, dir.path()) else { return };
    let (main, debug) = (dir.path().join("main"), dir.path().join("debug"));
    let copy =
        |flag: &str, from: &Path, to: &Path| run("objcopy", &[flag, from.to_str().unwrap(), to.to_str().unwrap()]);
    if copy("--only-keep-debug", &program, &debug).is_none() {
        return;
    }
    copy("--strip-all", &program, &main);
    run("objcopy", &[&format!("--add-gnu-debuglink={}", debug.display()), main.to_str().unwrap()]);
    let (whole, main, debug) =
        (std::fs::read(&program).unwrap(), std::fs::read(&main).unwrap(), std::fs::read(&debug).unwrap());
    let link = ElfSummary::parse(&main).unwrap().debuglink.unwrap();
    assert_eq!((&*link.name, link.crc), ("debug", whither_image::debuglink_crc(&debug)));
    let names = |t: &FunctionTable| t.functions().iter().map(|f| (f.start, f.size, f.name.clone())).collect::<Vec<_>>();
    let (expected, _) = function_table(&whole, None);
    let (table, problems) = function_table(&main, Some(&debug));
    assert_eq!((names(&table), problems), (names(&expected), vec![]));

    let libc = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    let (table, problems) = function_table(&main, Some(&libc));
    assert!(problems[0].sentence.contains("not used"), "{problems:?}");
    assert!(table.functions().iter().all(|f| f.source != NameSource::Symbol || &*f.name != "malloc"));
}

/// Instruction addresses of the functions with these names.
fn instructions(bytes: &[u8], names: &[&str]) -> Vec<u64> {
    let segments = ElfSummary::parse(bytes).unwrap().segments;
    let (table, _) = function_table(bytes, None);
    let functions = table.functions().iter().filter(|f| names.iter().any(|n| f.name.contains(n)));
    functions
        .flat_map(|f| {
            let at = whither_image::to_svma(&segments, f.start).unwrap();
            decode(&bytes[f.start.0 as usize..][..f.size as usize], at)
        })
        .map(|i| i.address.0)
        .collect()
}

/// `function file:line:column`, innermost first, as llvm-symbolizer tells it.
fn symbolizer(program: &Path, addresses: &[u64]) -> Option<Vec<Vec<String>>> {
    let object = format!("--obj={}", program.display());
    let mut arguments = vec![object, "--inlines".into(), "--functions=linkage".into(), "--no-demangle".into()];
    arguments.extend(addresses.iter().map(|a| format!("{a:#x}")));
    let text = run("llvm-symbolizer", &arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
    let chain = |chain: &str| {
        let lines: Vec<&str> = chain.lines().collect();
        // The symbol table gives its outermost names; the debug information knows no `.cold`.
        lines.chunks(2).map(|pair| without_column_of_line_0(&pair.join(" ").replace(".cold ", " "))).collect()
    };
    Some(text.trim_end().split("\n\n").map(chain).collect())
}

/// A column means nothing when the line is not known.
fn without_column_of_line_0(frame: &str) -> String {
    match frame.rsplit_once(':') {
        Some((rest, _)) if rest.ends_with(":0") => format!("{rest}:0"),
        _ => frame.to_owned(),
    }
}

fn shown(frames: &[SourceFrame]) -> Vec<String> {
    let part = |f: &SourceFrame| {
        let text = |t: &Option<std::sync::Arc<str>>| t.as_deref().unwrap_or("??").to_owned();
        format!("{} {}:{}:{}", text(&f.function), text(&f.file), f.line, f.column)
    };
    frames.iter().map(part).collect()
}

#[test]
fn lines_and_inlines_of_compiled_programs() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = ["main", "total", "check", "middle", "leaf"];
    for (compiler, source) in [("gcc", "plain.c"), ("g++", "inlines.cc"), ("clang", "plain.c")] {
        for flags in [&["-O2", "-gdwarf-4"][..], &["-O2", "-gdwarf-5"], &["-O1", "-gdwarf-5", "-gz"]] {
            let Some(program) = compile(compiler, source, flags, dir.path()) else { continue };
            let bytes = std::fs::read(&program).unwrap();
            let addresses = instructions(&bytes, &wanted);
            assert!(addresses.len() > 30, "{compiler} {flags:?}");
            let Some(expected) = symbolizer(&program, &addresses) else { continue };
            let lines = LineService::new(&Bytes::from(bytes), None).unwrap();
            assert_eq!(lines.problems(), []);
            let stated: Vec<Svma> = addresses.iter().map(|a| Svma(*a)).collect();
            for ((at, frames), expected) in addresses.iter().zip(lines.frames_at(&stated)).zip(expected) {
                assert_eq!(shown(&frames), expected, "{compiler} {source} {flags:?} at {at:#x}");
            }
        }
    }
}

#[test]
fn runs_cover_a_function_and_agree_with_single_questions() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile("g++", "inlines.cc", &["-O2", "-g"], dir.path()) else { return };
    let bytes = std::fs::read(&program).unwrap();
    let addresses = instructions(&bytes, &["main"]);
    let lines = LineService::new(&Bytes::from(bytes), None).unwrap();
    let range = Svma(addresses[0])..Svma(addresses[addresses.len() - 1] + 1);
    let runs = lines.frames_in(range.clone());
    assert_eq!((runs[0].range.start, runs[runs.len() - 1].range.end), (range.start, range.end));
    assert!(runs.windows(2).all(|w| w[0].range.end == w[1].range.start && w[0].frames != w[1].frames));
    assert!(runs.iter().any(|r| r.frames.len() >= 2), "nothing was inlined");
    for at in addresses {
        let run = runs.iter().find(|r| r.range.contains(&Svma(at))).unwrap();
        assert_eq!(run.frames, lines.frames(Svma(at)));
    }
}

#[test]
fn split_debug_information_still_has_lines() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile("gcc", "plain.c", &["-O2", "-g", "-gsplit-dwarf"], dir.path()) else { return };
    let bytes = std::fs::read(&program).unwrap();
    let addresses = instructions(&bytes, &["middle"]);
    let lines = LineService::new(&Bytes::from(bytes), None).unwrap();
    let Some(expected) = symbolizer(&program, &addresses) else { return };
    for (at, chain) in addresses.iter().zip(expected) {
        let frames = lines.frames(Svma(*at));
        let place = shown(&frames)[0].split_once(' ').unwrap().1.to_owned();
        assert_eq!((frames.len(), &*place), (1, chain[0].split_once(' ').unwrap().1), "at {at:#x}");
    }
}

/// Split debug information in a directory, as a service would find it.
struct Places {
    directory: std::path::PathBuf,
    package: Option<std::path::PathBuf>,
}

impl SplitFiles for Places {
    fn package(&self) -> Option<Bytes> {
        self.package.as_ref().and_then(|p| std::fs::read(p).ok()).map(Bytes::from)
    }

    fn unit(&self, _: &str, name: &str) -> Option<Bytes> {
        let file = self.directory.join(Path::new(name).file_name()?);
        std::fs::read(file).ok().map(Bytes::from)
    }
}

#[test]
fn inlined_functions_come_from_files_beside_and_from_packages() {
    let compiler = "g++";
    for (version, packer) in [("-gdwarf-4", "dwp"), ("-gdwarf-5", "llvm-dwp")] {
        let dir = tempfile::tempdir().unwrap();
        let flags = ["-O2", version, "-gsplit-dwarf"];
        let Some(program) = compile(compiler, "inlines.cc", &flags, dir.path()) else { continue };
        let whole = tempfile::tempdir().unwrap();
        let unsplit = compile(compiler, "inlines.cc", &["-O2", version], whole.path()).unwrap();
        let bytes = std::fs::read(&program).unwrap();
        let addresses = instructions(&bytes, &["main", "total", "check"]);
        assert_eq!(addresses, instructions(&std::fs::read(&unsplit).unwrap(), &["main", "total", "check"]));
        let expected = LineService::new(&Bytes::from(std::fs::read(&unsplit).unwrap()), None).unwrap();
        let same = |lines: &LineService, how: &str| {
            assert_eq!(lines.problems(), [], "{compiler} {version} {how}");
            for at in addresses.iter().copied().map(Svma) {
                assert_eq!(shown(&lines.frames(at)), shown(&expected.frames(at)), "{compiler} {version} {how} {at:?}");
            }
            assert_eq!(lines.declared(&[]).line("main"), expected.declared(&[]).line("main"));
        };
        let open = |directory: &Path, package: Option<std::path::PathBuf>| {
            let places = Places { directory: directory.to_owned(), package };
            LineService::with_split(&Bytes::from(bytes.clone()), None, Box::new(places)).unwrap()
        };
        same(&open(dir.path(), None), "files");
        let package = dir.path().join("packed.dwp");
        if run(packer, &["-e", program.to_str().unwrap(), "-o", package.to_str().unwrap()]).is_some() {
            same(&open(Path::new("/nowhere"), Some(package)), "package");
        }
        // Of another build, or nowhere: lines without functions, and a word about it.
        let other = tempfile::tempdir().unwrap();
        compile(compiler, "inlines.cc", &["-O1", version, "-gsplit-dwarf"], other.path()).unwrap();
        for lost in [Path::new("/nowhere"), other.path()] {
            let lines = open(lost, None);
            assert!(lines.problems()[0].to_string().contains(".dwo"), "{:?}", lines.problems());
            let at = Svma(addresses[0]);
            assert_eq!(lines.frames(at).len(), 1);
            assert_eq!(lines.frames(at)[0].line, expected.frames(at)[0].line, "{compiler} {version}");
        }
    }
}

#[test]
fn a_supplementary_file_holds_the_shared_names() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let flags = ["-O2", "-gdwarf-4"];
    let (Some(a), Some(b)) =
        (compile("g++", "inlines.cc", &flags, one.path()), compile("g++", "inlines.cc", &flags, two.path()))
    else {
        return;
    };
    let before = std::fs::read(&a).unwrap();
    let alt = one.path().join("alt");
    if run("dwz", &["-m", alt.to_str().unwrap(), a.to_str().unwrap(), b.to_str().unwrap()]).is_none() {
        return;
    }
    let (after, alt) = (std::fs::read(&a).unwrap(), std::fs::read(alt).unwrap());
    let summary = ElfSummary::parse(&after).unwrap();
    assert_eq!(summary.debugaltlink.unwrap().build_id, ElfSummary::parse(&alt).unwrap().id);
    let addresses = instructions(&before, &["main", "total", "check"]);
    let plain = LineService::new(&Bytes::from(before), None).unwrap();
    let shared = LineService::new(&Bytes::from(after.clone()), Some(&Bytes::from(alt))).unwrap();
    let alone = LineService::new(&Bytes::from(after), None).unwrap();
    for at in addresses.into_iter().map(Svma) {
        let expected = plain.frames(at);
        assert_eq!(shared.frames(at), expected, "at {at:?}");
        // Without the supplementary file the lines are still right.
        let line = |frames: &[SourceFrame]| frames.first().map(|f| (f.file.clone(), f.line));
        assert_eq!(line(&alone.frames(at)), line(&expected), "at {at:?}");
    }
}

/// Address and flow as objdump's text tells them.
fn objdump(path: &str) -> Option<Vec<(u64, Flow)>> {
    let text = run("objdump", &["-d", "--no-show-raw-insn", "-j", ".text", path])?;
    let insn = |line: &str| {
        let (address, text) = line.split_once(":\t")?;
        let address = u64::from_str_radix(address.trim(), 16).ok()?;
        let mut words = text.split_whitespace().filter(|w| !matches!(*w, "bnd" | "notrack" | "repz" | "cs"));
        let (mnemonic, operand) = (words.next()?, words.next().unwrap_or(""));
        let target = Svma(u64::from_str_radix(operand.trim_start_matches("0x"), 16).unwrap_or(0));
        let indirect = operand.starts_with('*');
        Some((
            address,
            match mnemonic {
                m if m.starts_with("jmp") && indirect => Flow::IndirectJump,
                m if m.starts_with("call") && indirect => Flow::IndirectCall,
                m if m.starts_with("jmp") => Flow::Jump(target),
                m if m.starts_with("call") => Flow::Call(target),
                m if m.starts_with('j') || m.starts_with("loop") => Flow::Branch(target),
                m if m.starts_with("ret") => Flow::Return,
                "ud2" | "hlt" | "int3" => Flow::Trap,
                "(bad)" => Flow::Invalid,
                _ => Flow::Next,
            },
        ))
    };
    Some(text.lines().filter_map(insn).collect())
}

#[test]
fn instructions_of_system_programs() {
    for path in ["/bin/true", "/bin/ls", "/bin/bash"] {
        let Some(expected) = objdump(path) else { return };
        let bytes = std::fs::read(path).unwrap();
        let headers = run("readelf", &["-SW", path]).unwrap();
        let line = headers.lines().find(|l| l.contains(" .text ")).unwrap();
        let fields: Vec<&str> = line.split_whitespace().skip_while(|f| *f != ".text").collect();
        let number = |i: usize| u64::from_str_radix(fields[i], 16).unwrap();
        let (address, offset, size) = (number(2), number(3) as usize, number(4) as usize);
        let decoded = decode(&bytes[offset..offset + size], Svma(address));
        assert!(decoded.len() > 500, "{path}");
        for (ours, theirs) in decoded.iter().zip(&expected) {
            assert_eq!((ours.address.0, ours.flow), *theirs, "{path}");
        }
        assert_eq!(decoded.len(), expected.len(), "{path}");
    }
}

/// Packs the symbols of a program into itself and strips it, as Fedora's packages are made.
fn with_mini_debug_info(program: &Path, dir: &Path) -> Option<std::path::PathBuf> {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let program = program.to_str()?;
    let (debug, mini, packed, out) = (path("debug"), path("mini"), path("mini.xz"), path("stripped"));
    run("objcopy", &["--only-keep-debug", program, &debug])?;
    run(
        "objcopy",
        &["-S", "--remove-section", ".comment", "--keep-symbol", "twice", "--keep-symbol", "main", &debug, &mini],
    )?;
    run("xz", &["--keep", &mini])?;
    run("strip", &["-o", &out, program])?;
    run("objcopy", &["--add-section", &format!(".gnu_debugdata={packed}"), &out])?;
    Some(out.into())
}

#[test]
fn symbols_packed_into_a_stripped_program() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("p.c");
    std::fs::write(
        &source,
        "static __attribute__((noinline)) int twice(int x) { __asm__ volatile(\"\"); return 2 * x; }\n\
         int main(int n, char **v) { (void)v; return twice(n); }\n",
    )
    .unwrap();
    let program = dir.path().join("program");
    if run("cc", &["-O1", "-o", program.to_str().unwrap(), source.to_str().unwrap()]).is_none() {
        return;
    }
    let Some(stripped) = with_mini_debug_info(&program, dir.path()) else { return };
    let place = |path: &Path, name: &str| {
        let (table, problems) = function_table(&std::fs::read(path).unwrap(), None);
        assert_eq!(problems, []);
        table.functions().iter().find(|f| &*f.name == name).map(|f| (f.start, f.size, f.source))
    };
    for name in ["twice", "main"] {
        let truth = place(&program, name).expect("the whole program has it");
        assert_eq!(place(&stripped, name), Some(truth), "{name}");
        assert_eq!(truth.2, NameSource::Symbol);
    }
    // The same file with the section damaged says so and gives the rest.
    let mut bytes = std::fs::read(&stripped).unwrap();
    let magic = bytes.windows(6).position(|w| w == [0xfd, b'7', b'z', b'X', b'Z', 0]).unwrap();
    bytes[magic + 30] ^= 0x55;
    let (table, problems) = function_table(&bytes, None);
    assert!(problems.iter().any(|p| p.to_string().contains(".gnu_debugdata")), "{problems:?}");
    assert!(!table.functions().is_empty());
}
