//! The service on files of this machine and on files made here.

use super::*;
use crate::gather::GatherLimits;
use crate::model::{Event, EventIx, EventUnit, ImageIx, Precision, Process, ProcessIx, Profile, Sample};
use std::process::Command;
use whither_image::ElfSummary;

/// A C program compiled here: `work` calls an inlined helper; with debug information.
const SOURCE: &str = "static inline __attribute__((always_inline)) int helper(int x) {\n    return x * 3 + 1;\n}\n__attribute__((noinline)) int work(int n) {\n    int s = 0;\n    for (int i = 0; i < n; i++)\n        s += helper(s ^ i);\n    return s;\n}\nint main(int c, char **v) {\n    (void)v;\n    return work(c);\n}\n";

struct Built {
    dir: tempfile::TempDir,
    exe: PathBuf,
}

/// `None` (printed) without a C compiler.
fn build(flags: &[&str]) -> Option<Built> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("prog.c");
    std::fs::write(&source, SOURCE).unwrap();
    let exe = dir.path().join("prog");
    let made =
        Command::new("cc").args(["-O1", "-g", "-Wl,--build-id"]).args(flags).arg("-o").arg(&exe).arg(&source).status();
    if !made.is_ok_and(|s| s.success()) {
        println!("SKIPPED: no C compiler");
        return None;
    }
    Some(Built { dir, exe })
}

fn image_of(exe: &Path) -> Image {
    let bytes = std::fs::read(exe).unwrap();
    let summary = ElfSummary::parse(&bytes).unwrap();
    Image {
        id: summary.id,
        id_kind: summary.id_kind,
        kind: ImageKind::Elf,
        path: exe.display().to_string(),
        segments: summary.segments,
        size: bytes.len() as u64,
    }
}

fn work(service: &SymbolService, image: &Image) -> Option<Function> {
    service.functions(image).functions().iter().find(|f| &*f.name == "work").cloned()
}

fn range(f: &Function) -> Range<ImageOffset> {
    f.start..ImageOffset(f.start.0 + f.size)
}

fn objcopy(args: &[&str], from: &Path, to: &Path) {
    assert!(Command::new("objcopy").args(args).arg(from).arg(to).status().unwrap().success());
}

#[test]
fn names_lines_code_and_source_of_a_program() {
    let Some(b) = build(&[]) else { return };
    let service = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    let image = image_of(&b.exe);
    let f = work(&service, &image).unwrap();
    assert_eq!(service.code(&image, range(&f)).unwrap().len() as u64, f.size);
    let chains: Vec<Vec<SourceFrame>> =
        (0..f.size).map(|i| service.frames(&image, ImageOffset(f.start.0 + i))).collect();
    let inlined = chains.iter().find(|c| c.len() == 2).expect("the helper is inlined");
    assert_eq!(inlined[0].function.as_deref(), Some("helper"));
    assert_eq!((inlined[0].line, inlined[1].function.as_deref()), (2, Some("work")));
    let file = inlined[0].file.as_deref().unwrap();
    assert_eq!(service.source(file).unwrap()[1], "    return x * 3 + 1;");
    assert_eq!(service.problems(), Vec::<String>::new());
}

#[test]
fn damaged_lines_are_told() {
    let Some(b) = build(&[]) else { return };
    let section = b.dir.path().join("lines");
    objcopy(&["--dump-section", &format!(".debug_line={}", section.display())], &b.exe, &b.dir.path().join("copy"));
    let mut bytes = std::fs::read(&section).unwrap();
    // The length of the header.
    bytes[8..16].fill(0xff);
    std::fs::write(&section, bytes).unwrap();
    let damaged = b.dir.path().join("damaged");
    objcopy(&["--update-section", &format!(".debug_line={}", section.display())], &b.exe, &damaged);
    let service = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    let image = image_of(&damaged);
    let f = work(&service, &image).unwrap();
    assert_eq!(service.frames(&image, f.start), []);
    let problems = service.problems();
    assert!(problems.len() == 1 && problems[0].contains("is damaged, so that code has no lines"), "{problems:?}");
}

#[test]
fn a_changed_file_is_told_and_not_used() {
    let Some(b) = build(&[]) else { return };
    let image = image_of(&b.exe);
    let other = build(&["-DX", "-O2"]).unwrap();
    std::fs::copy(&other.exe, &b.exe).unwrap();
    let service = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    assert!(work(&service, &image).is_none());
    assert!(
        service
            .code(&image, ImageOffset(image.segments[0].offset)..ImageOffset(image.segments[0].offset + 4))
            .is_none()
    );
    let problems = service.problems();
    assert!(problems.len() == 1 && problems[0].contains("changed since sampling"), "{problems:?}");
}

#[test]
fn a_stripped_program_finds_its_debug_file_by_build_id_and_by_link() {
    let Some(b) = build(&[]) else { return };
    let debug = b.dir.path().join("prog.debug");
    objcopy(&["--only-keep-debug"], &b.exe, &debug);
    let stripped = b.dir.path().join("stripped");
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--strip-all", &link], &b.exe, &stripped);
    let image = image_of(&stripped);

    // By link, beside the file.
    let service = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    let f = work(&service, &image).expect("named by the debug file");
    assert!(!service.frames(&image, f.start).is_empty());

    // By build-id, below a debug directory; and when the program itself is gone.
    let hex = image.id.to_hex();
    let dir = b.dir.path().join("dbg/.build-id").join(&hex[..2]);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::rename(&debug, dir.join(format!("{}.debug", &hex[2..]))).unwrap();
    let options = SymbolOptions { debug_dirs: vec![b.dir.path().join("dbg")], ..SymbolOptions::default() };
    let by_id = SymbolService::new(options.clone(), StoredSymbols::default());
    assert_eq!(work(&by_id, &image), Some(f.clone()));
    std::fs::remove_file(&stripped).unwrap();
    let alone = SymbolService::new(options, StoredSymbols::default());
    let found = work(&alone, &image).expect("the debug file alone names it");
    assert_eq!((found.start, found.size), (f.start, f.size));
    assert!(!alone.frames(&image, f.start).is_empty());
    assert!(alone.code(&image, range(&f)).is_none());
}

#[test]
fn a_debug_file_with_another_checksum_is_not_used() {
    let Some(b) = build(&["-Wl,--build-id=none"]) else { return };
    let debug = b.dir.path().join("prog.debug");
    objcopy(&["--only-keep-debug"], &b.exe, &debug);
    let stripped = b.dir.path().join("stripped");
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--strip-all", &link], &b.exe, &stripped);
    let mut bytes = std::fs::read(&debug).unwrap();
    bytes.push(0);
    std::fs::write(&debug, bytes).unwrap();
    let service = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    assert!(work(&service, &image_of(&stripped)).is_none());
}

#[test]
fn the_cache_answers_without_the_file_and_sees_new_debug_files() {
    let Some(b) = build(&[]) else { return };
    let debug = b.dir.path().join("away.debug");
    objcopy(&["--only-keep-debug"], &b.exe, &debug);
    let stripped = b.dir.path().join("stripped");
    objcopy(&["--strip-all"], &b.exe, &stripped);
    let image = image_of(&stripped);
    let options = SymbolOptions {
        cache_dir: Some(b.dir.path().join("cache")),
        debug_dirs: vec![b.dir.path().join("dbg")],
        ..SymbolOptions::default()
    };
    let first = SymbolService::new(options.clone(), StoredSymbols::default()).functions(&image);
    assert!(first.functions().iter().all(|f| &*f.name != "work"));
    std::fs::remove_file(&stripped).unwrap();
    assert_eq!(SymbolService::new(options.clone(), StoredSymbols::default()).functions(&image), first);

    let hex = image.id.to_hex();
    let dir = b.dir.path().join("dbg/.build-id").join(&hex[..2]);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::rename(&debug, dir.join(format!("{}.debug", &hex[2..]))).unwrap();
    assert!(work(&SymbolService::new(options, StoredSymbols::default()), &image).is_some());
}

/// Both have the same build id.
#[test]
fn the_cache_knows_a_stripped_copy_from_the_whole_file() {
    let Some(b) = build(&[]) else { return };
    let stripped = b.dir.path().join("stripped");
    objcopy(&["--strip-all"], &b.exe, &stripped);
    let options = SymbolOptions { cache_dir: Some(b.dir.path().join("cache")), ..SymbolOptions::default() };
    let service = || SymbolService::new(options.clone(), StoredSymbols::default());
    assert!(work(&service(), &image_of(&stripped)).is_none());
    assert!(work(&service(), &image_of(&b.exe)).is_some());
    assert!(work(&service(), &image_of(&stripped)).is_some(), "what is known of the build stays known");
}

/// Its name is the image's choice.
#[test]
fn the_cache_sees_that_the_debug_file_has_come_which_the_image_names() {
    let Some(b) = build(&[]) else { return };
    let debug = b.dir.path().join("names.dbg");
    objcopy(&["--only-keep-debug"], &b.exe, &debug);
    let stripped = b.dir.path().join("stripped");
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--strip-all", &link], &b.exe, &stripped);
    let away = b.dir.path().join("away");
    std::fs::rename(&debug, &away).unwrap();
    let image = image_of(&stripped);
    let options = SymbolOptions { cache_dir: Some(b.dir.path().join("cache")), ..SymbolOptions::default() };
    let service = || SymbolService::new(options.clone(), StoredSymbols::default());
    assert!(work(&service(), &image).is_none());
    std::fs::rename(&away, &debug).unwrap();
    assert!(work(&service(), &image).is_some());
}

#[test]
fn gathered_symbols_serve_where_the_files_are_not() {
    let Some(b) = build(&[]) else { return };
    let image = image_of(&b.exe);
    let here = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    let f = work(&here, &image).unwrap();
    let profile = Profile {
        events: vec![Event { name: "cycles".into(), unit: EventUnit::Count, precision: Precision::Exact }],
        images: vec![image.clone()],
        processes: vec![Process {
            key: 1,
            pid: 1,
            start_ns: 0,
            comm: "prog".into(),
            exe: String::new(),
            cgroup: String::new(),
        }],
        samples: vec![Sample {
            image: ImageIx(0),
            event: EventIx(0),
            process: ProcessIx(0),
            tid: 0,
            slice: 0,
            offset: ImageOffset(f.start.0 + 2),
            period: 1,
            count: 9,
        }],
        ..Profile::default()
    };
    let stored = here.gather(&profile, GatherLimits::default());
    assert_eq!(stored.funcs.len(), 1);

    let epoch = tempfile::tempdir().unwrap();
    stored.write(epoch.path()).unwrap();
    let read = StoredSymbols::read(epoch.path()).unwrap();
    std::fs::remove_file(&b.exe).unwrap();
    let there = SymbolService::new(SymbolOptions::default(), read);
    assert_eq!(work(&there, &image), Some(f.clone()));
    assert_eq!(there.code(&image, range(&f)), here.code(&image, range(&f)));
    for at in (f.start.0..f.start.0 + f.size).map(ImageOffset) {
        let without_column =
            |frames: Vec<SourceFrame>| -> Vec<_> { frames.into_iter().map(|f| (f.function, f.file, f.line)).collect() };
        assert_eq!(without_column(there.frames(&image, at)), without_column(here.frames(&image, at)), "{at:?}");
    }
    assert!(there.frames(&image, ImageOffset(f.start.0 + f.size)).is_empty(), "ranges end with the function");
}

#[test]
fn source_paths_are_mapped() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.c"), "one\ntwo\n").unwrap();
    let options = SymbolOptions {
        source_prefix_map: vec![("/build".into(), dir.path().display().to_string())],
        ..SymbolOptions::default()
    };
    let service = SymbolService::new(options, StoredSymbols::default());
    assert_eq!(*service.source("/build/a.c").unwrap(), ["one", "two"]);
    assert!(service.source("/build/b.c").is_none());
    assert!(service.source("relative.c").is_none());
}

#[test]
fn bytes_that_are_provided_stand_in_for_a_file_without_a_name() {
    let Some(b) = build(&[]) else { return };
    let image = image_of(&b.exe);
    let bytes = std::fs::read(&b.exe).unwrap();
    // Another program took its place.
    std::fs::write(&b.exe, b"#!/bin/sh\n").unwrap();
    let without = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    assert!(work(&without, &image).is_none());
    let mut service = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    service.provide(image.id, bytes.into());
    let f = work(&service, &image).unwrap();
    assert!(service.code(&image, range(&f)).is_some());
    assert!(service.frames(&image, f.start)[0].file.as_deref().is_some_and(|file| file.ends_with("prog.c")));
    assert_eq!(service.problems(), Vec::<String>::new());
}

#[test]
fn names_that_are_learned_replace_those_told_before() {
    let image = |id: u8| Image {
        id: ImageId([id; 20]),
        id_kind: crate::model::IdKind::Synthetic,
        kind: ImageKind::Jit,
        path: "[jit]".into(),
        segments: Vec::new(),
        size: 0,
    };
    let named = |id: u8, name: &str, start: u64| StoredFunction {
        image: ImageId([id; 20]),
        function: Function {
            start: ImageOffset(start),
            size: 8,
            name: name.into(),
            source: whither_image::NameSource::Symbol,
        },
    };
    let mut service = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    service.learn(ImageId([2; 20]), vec![named(2, "b", 16), named(2, "a", 0)]);
    service.learn(ImageId([1; 20]), vec![named(1, "other", 0)]);
    let names = |service: &SymbolService, id| {
        let table = service.functions(&image(id));
        table.functions().iter().map(|f| f.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((names(&service, 1), names(&service, 2)), (vec!["other".into()], vec!["a".into(), "b".into()]));
    service.learn(ImageId([2; 20]), vec![named(2, "c", 4)]);
    assert_eq!((names(&service, 1), names(&service, 2)), (vec!["other".into()], vec!["c".into()]));
}
