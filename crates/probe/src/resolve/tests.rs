//! Patterns resolved over files of this machine and over a small program compiled here.

use super::*;
use crate::api::Order;
use crate::select::parse;
use std::process::Command;
use whither_image::Bytes;

struct Plain {
    path: String,
    bias: u64,
    mapped: Range<u64>,
    main: bool,
    image: ModuleImage,
}

impl ModuleView for Plain {
    fn path(&self) -> &str {
        &self.path
    }
    fn bias(&self) -> u64 {
        self.bias
    }
    fn mapped(&self) -> Range<u64> {
        self.mapped.clone()
    }
    fn is_main(&self) -> bool {
        self.main
    }
    fn image(&self) -> Option<&ModuleImage> {
        Some(&self.image)
    }
}

const BIAS: u64 = 0x5555_0000_0000;
const PROGRAM: &str = r#"
    #include <stdlib.h>
    namespace geo {
    struct Point { int x; __attribute__((noinline)) Point operator+(Point o) const { return {x + o.x}; } };
    __attribute__((noinline)) int area(int a) { return a * a + 1; }
    __attribute__((noinline)) int area(double a) { return (int)a + 2; }
    }
    static __attribute__((noinline)) int hidden(int n) {
        return n + geo::area(n);
    }
    extern "C" __attribute__((noinline)) int first(int n) { return hidden(n) + abs(rand()); }
    extern "C" int second(int n) __attribute__((alias("first")));
    int main(int argc, char **) { geo::Point p{argc}; return first(argc) + geo::area(1.5) + (p + p).x; }
"#;

fn program(dir: &std::path::Path, flags: &[&str]) -> Option<Plain> {
    let (source, out) = (dir.join("shapes.cc"), dir.join("shapes"));
    std::fs::write(&source, PROGRAM).unwrap();
    let status = Command::new("g++").args(["-O1", "-o"]).arg(&out).arg(&source).args(flags).status();
    let Ok(status) = status else {
        println!("SKIP: no g++");
        return None;
    };
    assert!(status.success());
    let file = Bytes::from(std::fs::read(&out).unwrap());
    Some(Plain {
        path: "/opt/shapes".into(),
        bias: BIAS,
        mapped: BIAS..BIAS + (1 << 32),
        main: true,
        image: ModuleImage::new(file, None),
    })
}

fn names(modules: &[Plain], includes: &[&str], excludes: &[&str]) -> Vec<Vec<String>> {
    let include = includes.iter().map(|t| Order::Include(parse(t).unwrap()));
    let orders: Vec<Order> = include.chain(excludes.iter().map(|t| Order::Exclude(parse(t).unwrap()))).collect();
    let found = candidates(modules, &orders, &|_| None).unwrap();
    found.candidates.into_iter().map(|c| c.names).collect()
}

#[test]
fn why_nothing_is_chosen_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path(), &["-g"]) else { return };
    let why = |include: &str, exclude: &[&str]| {
        let orders = std::iter::once(Order::Include(parse(include).unwrap()));
        let orders: Vec<Order> = orders.chain(exclude.iter().map(|t| Order::Exclude(parse(t).unwrap()))).collect();
        nothing(std::slice::from_ref(&program), &orders, &|_| None).unwrap().why
    };
    assert_eq!(why("first", &["f.*"]), ["-x leaves out the one function that matches"]);
    assert_eq!(why("geo::.*", &[".*"])[0], "-x leaves out all 3 functions that match");
    assert!(why("libz.so!first", &[])[0].starts_with("libz.so: no module"));
    assert!(why("first@libz.so", &[])[0].starts_with("libz.so: no module"));
    assert_eq!(why("first", &["g"]), [""; 0]);
}

#[test]
fn names_of_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path(), &["-g"]) else { return };
    let modules = [program];
    let of = |include: &str| names(&modules, &[include], &[]);
    assert_eq!(of("first"), [["first", "second"]]);
    assert_eq!(of("second"), of("first"), "aliases are one function");
    let mut overloads = of("geo::area");
    overloads.sort();
    assert_eq!(overloads, [["geo::area(double)", "geo::area"], ["geo::area(int)", "geo::area"]], "kept and told apart");
    assert_eq!(of("_ZN3geo4areaEi"), [["geo::area"]]);
    assert_eq!(of("geo::Point::operator+"), [["geo::Point::operator+"]]);
    assert_eq!(of("hidden"), [["hidden"]]);
    assert_eq!(of("shapes!first"), of("first"));
    assert!(of("libc.*!first").is_empty() && of("firs").is_empty() && of("abs").is_empty());
    assert_eq!(names(&modules, &["first", "geo::.*"], &["geo::area"]).len(), 2);
    let line = PROGRAM.lines().position(|l| l.contains("return n + geo")).unwrap() + 1;
    assert_eq!(of(&format!("shapes.cc:{line}")), [["hidden"]]);
    assert_eq!(suggest(&modules, "frist").first().map(String::as_str), Some("first"));
    assert!(suggest(&modules, "hiden").contains(&"hidden".to_owned()));
}

#[test]
fn addresses_callees_and_entries_without_exit() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path(), &[]) else { return };
    let modules = [program];
    let one = |text: &str| {
        let orders = [Order::Include(parse(text).unwrap())];
        candidates(&modules, &orders, &|_| None).unwrap().candidates.pop().unwrap()
    };
    let first = one("first");
    assert_eq!(first.address, first.offset + BIAS);
    assert_eq!(one(&format!("{:#x}", first.offset + 4)), first, "inside of it");
    assert_eq!(one(&format!("shapes+{:#x}", first.offset)), first);
    assert_eq!(candidate_at(&modules, first.address + 4), Some(first.clone()));
    assert_eq!(candidate_at(&modules, 0x1000), None);
    assert_eq!((first.entry_only.clone(), first.patch.is_ok()), (None, true));
    let called: Vec<_> = callees(&modules, first.address, &|_| None).into_iter().map(|c| c.names).collect();
    assert_eq!(called, [["hidden"]], "rand is in no module here");
    assert_eq!(one("_start").entry_only.as_deref(), Some("has no caller"));
}

#[test]
fn where_return_addresses_are_read_calls_are_not_timed() {
    let dir = tempfile::tempdir().unwrap();
    let why = |flags: &[&str], library: Option<&str>| {
        let program = program(dir.path(), flags)?;
        let other = library.map(|path| Plain {
            path: path.into(),
            main: false,
            image: ModuleImage::new(Bytes::from(Vec::new()), None),
            bias: 0,
            mapped: 0..0,
        });
        let modules: Vec<Plain> = std::iter::once(program).chain(other).collect();
        let orders = [Order::Include(parse("first").unwrap())];
        let first = candidates(&modules, &orders, &|_| None).unwrap().candidates.pop().unwrap();
        Some(first.entry_only.unwrap_or_default())
    };
    let Some(plain) = why(&[], None) else { return };
    assert_eq!(plain, "");
    let sanitizer = "the program's sanitizer reads return addresses for its reports and suppressions";
    for flags in [&["-fsanitize=address"][..], &["-fsanitize=address", "-static-libasan"]] {
        assert_eq!(why(flags, None).as_deref(), Some(sanitizer), "{flags:?}");
    }
    assert_eq!(
        why(&[], Some("/usr/lib/x86_64-linux-gnu/liblsan.so.0")).as_deref(),
        Some(sanitizer),
        "linked or preloaded"
    );
    assert_eq!(why(&["-fsanitize=undefined"], None).as_deref(), Some(""), "looks at no callers");
    let gprof = "it was built with -pg, whose profiler reads return addresses for its table of callers";
    assert_eq!(why(&["-pg"], None).as_deref(), Some(gprof));
}

#[test]
fn of_a_piece_mapped_again_only_what_it_holds_is_a_function() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path(), &[]) else { return };
    let one = |modules: &[Plain], text: &str| {
        let orders = [Order::Include(parse(text).unwrap())];
        candidates(modules, &orders, &|_| None).unwrap().candidates
    };
    let mut modules = vec![program];
    let hidden = one(&modules, "hidden").pop().unwrap();
    let bias = 0x7f00_0000_0000;
    let piece = bias + hidden.offset;
    let file = Bytes::from(std::fs::read(dir.path().join("shapes")).unwrap());
    let (path, image) = (modules[0].path.clone(), ModuleImage::new(file, None));
    modules.push(Plain { path, bias, mapped: piece..piece + hidden.size, main: true, image });
    assert_eq!(one(&modules, "first").len(), 1);
    let both: Vec<u64> = one(&modules, "hidden").iter().map(|c| c.address).collect();
    assert_eq!(both, [BIAS + hidden.offset, piece]);
    let outside = one(&modules, "first")[0].offset + modules[1].bias;
    assert_eq!(candidate_at(&modules, outside), None, "what else lies there is not this file's");
    assert_eq!(candidate_at(&modules, piece).map(|c| c.module), Some(1));
}

#[test]
fn exits_of_run_time_systems_that_look_for_return_addresses_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path(), &[]) else { return };
    let mut modules = vec![program];
    let entry_only = |modules: &[Plain]| {
        let orders = [Order::Include(parse("hidden").unwrap())];
        candidates(modules, &orders, &|_| None).unwrap().candidates.pop().unwrap().entry_only
    };
    assert_eq!(entry_only(&modules), None);
    modules[0].path = "/usr/lib/python3/_greenlet.cpython-311-x86_64-linux-gnu.so".into();
    assert!(entry_only(&modules).is_some_and(|why| why.contains("greenlet")));
}

/// A line that is rarely reached lies in a part of its function far from the entry, which nobody calls.
#[test]
fn a_line_of_a_part_moved_away_means_the_function() {
    const SPLIT: &str = r#"
    #include <stdlib.h>
    __attribute__((cold, noinline)) void bad(int x) { exit(x); }
    volatile int seen;
    extern "C" __attribute__((noinline, noclone, used)) int split(int n) {
        seen = n;
        if (n == 12345) {
            seen = 4;
            bad(n);
        }
        return n;
    }
    int main() { return split(3); }
    "#;
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("split.cc"), dir.path().join("split"));
    std::fs::write(&source, SPLIT).unwrap();
    let Ok(status) = Command::new("g++").args(["-g", "-O2", "-o"]).arg(&out).arg(&source).status() else {
        return println!("SKIP: no g++");
    };
    assert!(status.success());
    let image = ModuleImage::new(Bytes::from(std::fs::read(&out).unwrap()), None);
    let part = image.names().iter().find(|n| &*n.name == "split.cold").expect("gcc moves cold code away").address;
    let mapped = BIAS..BIAS + (1 << 32);
    let modules = [Plain { path: "/opt/split".into(), bias: BIAS, mapped, main: true, image }];
    let line = |text: &str| SPLIT.lines().position(|l| l.contains(text)).unwrap() + 1;
    for text in ["seen = 4", "bad(n)", "if (n =="] {
        assert_eq!(names(&modules, &[&format!("split.cc:{}", line(text))], &[]), [["split"]], "{text}");
    }
    assert_eq!(names(&modules, &[&format!("{:#x}", part.0 + 1)], &[]), [["split"]], "by an address inside of it");
}

/// Of a file without line tables it is not said that no code comes from the line.
#[test]
fn a_line_of_a_program_without_line_tables_is_told_from_a_line_without_code() {
    let dir = tempfile::tempdir().unwrap();
    let why = |program: Plain, text: &str| {
        let orders = [Order::Include(parse(text).unwrap())];
        nothing(&[program], &orders, &|_| None).unwrap()
    };
    let Some(bare) = program(dir.path(), &[]) else { return };
    let told = why(bare, "shapes.cc:5");
    assert!(told.why.len() == 1 && told.why[0].contains("shapes has no debug information (line tables)"), "{told:?}");
    assert!(!told.for_good, "a library may come from that file");
    assert!(is_of_line(&told.why[0], "shapes.cc:5") && !is_of_line(&told.why[0], "shapes.cc:50"));
    let known = || program(dir.path(), &["-g"]).unwrap();
    let lines = |text: &str| candidates(&[known()], &[Order::Include(parse(text).unwrap())], &|_| None).unwrap().lines;
    assert_eq!(why(known(), "shapes.cc:5000").why, ["no code comes from shapes.cc:5000"]);
    assert!(is_of_line("no code comes from shapes.cc:5000", "shapes.cc:5000") && lines("shapes.cc:5000").is_empty());
    let some = (1..200).map(|n| format!("shapes.cc:{n}")).find(|line| !lines(line).is_empty()).unwrap();
    assert_eq!(lines(&some).concat(), some);
}

#[test]
fn an_address_of_a_module_that_is_there_is_no_function_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path(), &[]) else { return };
    let modules = [program];
    let why = |text: &str| nothing(&modules, &[Order::Include(parse(text).unwrap())], &|_| None).unwrap();
    let told = why("shapes+0x10");
    assert_eq!((told.why, told.for_good), (vec!["0x10 is in no function of shapes".to_owned()], true));
    let told = why("libother.so+0x10");
    assert_eq!(
        (told.why, told.for_good),
        (vec!["libother.so+0x10: no module of that name was loaded when it was looked for; the program itself is shapes".to_owned()], false)
    );
    let note = &why("libother.so!f").why[0];
    assert!(!is_refuted(note, ["/lib/libc.so.6"].into_iter()), "{note}");
    assert!(is_refuted(note, ["/lib/libc.so.6", "/lib/libother.so"].into_iter()), "a program executed later has it");
    assert!(!is_refuted("libother.so: something else", ["/lib/libother.so"].into_iter()));
    let told = why("nosuch");
    assert!(told.why.is_empty() && !told.for_good, "{told:?}");
}

#[test]
fn a_stripped_program_has_functions_without_names() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path(), &["-s"]) else { return };
    let modules = [program];
    let all = names(&modules, &["shapes!.*"], &[]);
    assert!(all.len() >= 6 && all.iter().flatten().all(|n| n.starts_with("shapes+0x")), "{all:?}");
    assert!(names(&modules, &["first"], &[]).is_empty());
}

#[test]
fn functions_of_the_c_library() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    let Ok(file) = std::fs::read(path).map(Bytes::from) else {
        return println!("SKIP: no {path}");
    };
    let modules = [Plain {
        path: path.into(),
        bias: 0x7f00_0000_0000,
        mapped: 0x7f00_0000_0000..0x7f01_0000_0000,
        main: false,
        image: ModuleImage::new(file, None),
    }];
    let find =
        |text: &str, read: ReadWord<'_>| candidates(&modules, &[Order::Include(parse(text).unwrap())], read).unwrap();
    let reason = |text: &str| find(text, &|_| None).candidates.pop().unwrap().entry_only;
    assert_eq!(reason("_setjmp").as_deref(), Some("returns twice"));
    assert_eq!(reason("vfork").as_deref(), Some("returns twice"));
    assert_eq!(reason("dlsym").as_deref(), Some("reads its return address"));
    assert_eq!(reason("exit").as_deref(), Some("never returns"));
    assert_eq!(reason("qsort"), None);
    // strlen is chosen at load time: the slot in the library's own table tells which.
    let unknown = find("strlen", &|_| None);
    assert!(unknown.candidates.is_empty() && unknown.notes[0].contains("chosen at its first use"), "{unknown:?}");
    let qsort = find("libc!qsort", &|_| None).candidates.pop().unwrap();
    assert_eq!(find("libc.so!qsort", &|_| None).candidates, std::slice::from_ref(&qsort));
    let chosen = find("strlen", &|_| Some(qsort.address));
    assert_eq!(chosen.candidates, [qsort]);
    // libc exports nothing else that is one of these letters apart.
    assert!(suggest(&modules, "mallco").contains(&"malloc".to_owned()));
}
