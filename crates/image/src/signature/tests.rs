//! Signatures of small programs that are compiled here, against what their source says.

use super::Passed;
use crate::split::SplitFiles;
use crate::{Bytes, CodeName, LineService, Signature, code_names::code_names};
use std::path::Path;
use std::process::Command;

const C: &str = r#"
#include <stdio.h>
#include <stdint.h>
#define KEEP __attribute__((noinline, noclone, used))
typedef int whole;
enum colour { RED, GREEN };
struct pair { long a, b; };
struct large { long a[8]; };
KEEP int plain(int a, unsigned b, const char *c, whole d) { return a + (int)b + *c + d; }
KEEP unsigned long mixed(double x, signed char a, float y, volatile unsigned short b, long c) { return (unsigned long)(x + a + y + b + c); }
KEEP void nothing(_Bool yes, enum colour colour) { if (yes) printf("%d", colour); }
KEEP double real(long n) { return n * 0.5; }
KEEP int packed(int a, struct pair p, int b) { return a + (int)p.a + b; }
KEEP struct large big(int a) { struct large l = {{a}}; return l; }
typedef int four __attribute__((vector_size(32)));
struct wide { struct { four in; } held; };
KEEP struct wide wide(int a) { struct wide w = {{{a}}}; return w; }
KEEP int open_ended(int a, ...) { return a; }
static int (*volatile choose)(int, unsigned, const char *, whole) = plain;
int main(void) { nothing(1, RED); return choose(1, 2, "x", 3) + (int)mixed(1, 2, 3, 4, 5) + (int)real(2) + packed(1, (struct pair){1, 2}, 3)
    + (int)big(1).a[0] + wide(1).held.in[0] + open_ended(1, 2); }
"#;

fn built(compiler: &str, flags: &[&str], name: &str, source: &str) -> (Bytes, Vec<CodeName>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (text, program) = (dir.path().join(name), dir.path().join("program"));
    std::fs::write(&text, source).expect("writable");
    let built = Command::new(compiler).args(flags).arg("-o").arg(&program).arg(&text).current_dir(dir.path()).status();
    assert!(built.expect("a compiler").success());
    let bytes = read(&program);
    let names = code_names(&bytes, None);
    (bytes, names)
}

fn read(path: &Path) -> Bytes {
    Bytes::from(std::fs::read(path).expect("just built"))
}

fn signature(of: &(Bytes, Vec<CodeName>), name: &str) -> Option<Signature> {
    let at = of.1.iter().find(|n| &*n.name == name).expect("a function").address;
    LineService::new(&of.0, None).expect("it has lines").signatures(&[at]).remove(0)
}

const fn integer(width: u8, signed: bool) -> Passed {
    Passed::Integer { width, signed }
}

fn arguments(of: &Signature) -> [Passed; 4] {
    [1, 2, 3, 4].map(|n| of.argument(n))
}

#[test]
fn what_integer_registers_hold_is_told_by_declarations() {
    use Passed::{Nothing, Unknown};
    for flags in [&["-g", "-O2"][..], &["-g", "-gdwarf-4", "-O0"], &["-g", "-O2", "-flto"], &["-g", "-O1", "-gdwarf-3"]]
    {
        let program = built("cc", flags, "s.c", C);
        let told = |name: &str| signature(&program, name).unwrap_or_else(|| panic!("{name} is declared ({flags:?})"));
        let int = integer(4, true);
        let plain = told("plain");
        assert_eq!(
            (arguments(&plain), plain.returned()),
            ([int, integer(4, false), integer(8, false), int], int),
            "{flags:?}"
        );
        assert_eq!(plain.argument(5), Nothing);
        let mixed = told("mixed");
        assert_eq!(arguments(&mixed), [integer(1, true), integer(2, false), integer(8, true), Nothing], "{flags:?}");
        assert_eq!(mixed.returned(), integer(8, false));
        let nothing = told("nothing");
        assert_eq!(
            (arguments(&nothing)[..3].to_vec(), nothing.returned()),
            (vec![integer(1, false), integer(4, false), Nothing], Nothing)
        );
        assert_eq!(told("real").returned(), Nothing, "it gives back no integer");
        assert_eq!(arguments(&told("packed")), [int, Unknown, Unknown, Unknown], "two registers, or memory");
        let (big, wide) = (told("big"), told("wide"));
        assert_eq!((arguments(&big), big.returned()), ([Passed::Result, int, Nothing, Nothing], Nothing));
        assert_eq!((arguments(&wide)[0], wide.returned()), (Unknown, Unknown), "it may be in a vector register");
        assert_eq!(arguments(&told("open_ended")), [int, Unknown, Unknown, Unknown]);
    }
}

#[test]
fn methods_take_their_object_first_and_others_languages_tell_nothing() {
    const CPP: &str = "struct Box { int held; __attribute__((noinline)) bool holds(short n) const; Box(const Box&); };\n\
        bool Box::holds(short n) const { return held == n; }\n\
        enum class Small : signed char { A }; __attribute__((noinline)) Small turn(Small s, Box b, int n) { return n ? s : Small(b.held); }\n\
        int main() {}\n";
    let program = built("c++", &["-g", "-O2"], "s.cpp", CPP);
    let holds = signature(&program, "_ZNK3Box5holdsEs").expect("declared");
    assert_eq!((holds.argument(1), holds.argument(2)), (integer(8, false), integer(2, true)));
    assert_eq!(holds.returned(), integer(1, false));
    let turn = signature(&program, "_Z4turn5Small3Boxi").expect("declared");
    assert_eq!(
        (turn.argument(1), turn.argument(2), turn.returned()),
        (integer(1, true), Passed::Unknown, integer(1, true))
    );
}

#[test]
fn line_tables_alone_declare_nothing() {
    let program = built("cc", &["-g1", "-O2"], "s.c", C);
    let told = signature(&program, "plain");
    assert!(told.is_none_or(|s| (s.argument(1), s.returned()) == (Passed::Unknown, Passed::Unknown)));
}

/// Where the compiler left parts of units.
struct Beside(tempfile::TempDir);

impl SplitFiles for Beside {
    fn package(&self) -> Option<Bytes> {
        None
    }
    fn unit(&self, _: &str, name: &str) -> Option<Bytes> {
        std::fs::read(self.0.path().join(Path::new(name).file_name()?)).ok().map(Bytes::from)
    }
}

#[test]
fn units_in_files_of_their_own_are_told_apart() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("a.c"), "short one(signed char a) { return a; }\n").expect("writable");
    std::fs::write(at("b.c"), "long two(unsigned b) { return b; }\nint main(void) { return 0; }\n").expect("writable");
    let cc = |args: &[&str]| Command::new("cc").args(args).current_dir(dir.path()).status().expect("cc").success();
    assert!(cc(&["-g", "-gsplit-dwarf", "-O1", "-c", "a.c"]) && cc(&["-g", "-gsplit-dwarf", "-O1", "-c", "b.c"]));
    assert!(cc(&["-o", "program", "a.o", "b.o"]));
    let bytes = read(&at("program"));
    let names = code_names(&bytes, None);
    let start = |name: &str| names.iter().find(|n| &*n.name == name).expect("a function").address;
    let functions = [start("one"), start("two")];
    let lines = LineService::with_split(&bytes, None, Box::new(Beside(dir))).expect("it has lines");
    let told: Vec<_> = lines.signatures(&functions).into_iter().map(|s| s.expect("declared")).collect();
    assert_eq!((told[0].argument(1), told[0].returned()), (integer(1, true), integer(2, true)));
    assert_eq!((told[1].argument(1), told[1].returned()), (integer(4, false), integer(8, true)));
}

/// What is rarely done lies in a part of its own, far from the entry; linkers put it in front.
const SPLIT: &str = "#include <stdlib.h>\n\
    __attribute__((cold, noinline)) void bad(int x) { exit(x); }\n\
    volatile int seen;\n\
    __attribute__((noinline, noclone, used)) int split(int fd, short n) { seen = fd; if (n == 12345) { bad(fd); seen = 4; bad(n); } return n; }\n\
    int main(void) { return split(3, 0); }\n";

#[test]
fn functions_in_several_parts_begin_with_the_first() {
    for flags in [&["-g", "-O2"][..], &["-g", "-O2", "-gdwarf-4"], &["-g", "-O2", "-flto"]] {
        let program = built("cc", flags, "s.c", SPLIT);
        assert!(program.1.iter().any(|n| &*n.name == "split.cold"), "{flags:?}");
        let told = signature(&program, "split").unwrap_or_else(|| panic!("split is declared ({flags:?})"));
        assert_eq!(arguments(&told)[..3], [integer(4, true), integer(2, true), Passed::Nothing], "{flags:?}");
        assert_eq!(told.returned(), integer(4, true));
        assert_eq!(signature(&program, "split.cold"), None, "a part takes nothing");
    }
}

#[test]
fn an_address_inside_a_function_is_none_that_begins() {
    let program = built("cc", &["-g", "-O2"], "s.c", C);
    let at = program.1.iter().find(|n| &*n.name == "plain").expect("a function").address;
    let lines = LineService::new(&program.0, None).expect("it has lines");
    assert_eq!(lines.signatures(&[crate::Svma(at.0 + 1), crate::Svma(0)]), [None, None]);
}
