//! Points and targets of `whither causal` that are nowhere: told at once where they can never come, waited for where a library
//! may be opened that has them.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{alone, need_root, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Computes for a while, opens a library if it is given one, and calls what that has again and again.
const MAIN: &str = r#"
#include <stdlib.h>
#include <time.h>
#ifdef OPENS
#include <dlfcn.h>
#endif
static long spent(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
__attribute__((noinline)) int early_work(int x) {
    for (volatile int i = 0; i < 100000; i++) x += i;
    return x;
}
int main(void) {
    int (*work)(int) = early_work;
    int sum = 0;
    while (spent() < 500) sum += work(sum);
#ifdef OPENS
    work = (int (*)(int))dlsym(dlopen(OPENS, RTLD_NOW), "late_work");
#endif
    while (spent() < 4000) sum += work(sum);
    return sum == 1;
}
"#;
const LATE: &str = "__attribute__((noinline)) int late_work(int x) {\n\
                    for (volatile int i = 0; i < 100000; i++) x += i;\nreturn x;\n}\n";

fn built(dir: &Path, name: &str, code: &str, flags: &[&str]) -> PathBuf {
    let (source, out) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&source, code).unwrap();
    let built = Command::new("gcc").args(["-O1", "-g"]).args(flags).arg("-o").arg(&out).arg(&source).output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    out
}

fn measured(args: &[&str], program: &Path) -> (Output, Duration) {
    let began = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_whither"));
    let done = command.arg("causal").args(args).args(["-n", "1", "--"]).arg(program).output().unwrap();
    (done, began.elapsed())
}

#[test]
fn what_can_never_come_is_told_at_once_and_what_may_is_waited_for() {
    need_root!();
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let library = built(dir.path(), "liblate.so", LATE, &["-shared", "-fPIC"]);
    let opens = built(dir.path(), "opens", MAIN, &[&format!("-DOPENS=\"{}\"", library.display())]);
    let closed = built(dir.path(), "closed", MAIN, &[]);
    for args in [["--progress", "no_such"].as_slice(), &["--progress", "early_work", "--target", "no_such"]] {
        let (told, soon) = measured(args, &closed);
        let (waited, late) = measured(args, &opens);
        for done in [&told, &waited] {
            let said = text(&done.stderr);
            assert!(
                done.status.code() == Some(2) && said.contains("`no_such`: the program has no such"),
                "{args:?}: {said}"
            );
        }
        assert!(2 * soon < late, "{args:?}: {soon:?} without, {late:?} with libraries that may come");
    }
    let (found, _) = measured(&["--progress", "late_work"], &opens);
    assert!(found.status.code() != Some(2), "{}", text(&found.stderr));
    assert!(text(&found.stderr).contains("progress at late_work"), "{}", text(&found.stderr));
}
