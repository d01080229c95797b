//! Every function of large programs is probed while they do real work: the output is what it is without,
//! and nearly all functions take the cheap patch. Which programs: those of bar 19 that are installed.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::calls_live::{Probed, code, limited, number, program, run};
use crate::support::{alone, need_root, text, workload};
use std::path::Path;
use std::process::Command;

/// Share of a program's functions that must take a jump.
const CHEAP: f64 = 0.98;

/// Runs a command plain and with every function of the module probed. `None`: the program is not here.
#[allow(clippy::print_stdout, reason = "a skip must be seen")]
fn everything(module: &str, words: &[&str]) -> Option<Probed> {
    if !Path::new(words[0]).exists() {
        println!("SKIP: {} is not installed", words[0]);
        return None;
    }
    let [plain, again] = [(); 2].map(|()| limited(&program(words)).output().unwrap());
    assert_eq!(plain.stdout, again.stdout, "{words:?} does not print the same twice");
    assert!(!plain.stdout.is_empty(), "{words:?} prints nothing: {}", text(&plain.stderr));
    let run = run(&["-f", &format!("{module}!.*"), "-m", "count,wall"], words);
    assert_eq!(run.code, code(&plain), "status of {words:?}:\n{}", run.stderr);
    assert!(
        run.stdout == text(&plain.stdout),
        "{words:?}: {} bytes on stdout, {} unprobed",
        run.stdout.len(),
        plain.stdout.len()
    );
    assert!(number(&run.document["whole"]["calls"]) > 1000, "{words:?}: {}", run.document["whole"]);
    Some(run)
}

/// Asserts that so many functions were probed, nearly all by a jump.
fn assert_cheap(run: &Probed, at_least: usize) {
    let functions = run.document["functions"].as_array().unwrap();
    let refused = run.document["refused"].as_array().unwrap();
    let jumps = functions.iter().filter(|f| f["patch"].as_str().is_some_and(|p| p.contains("jump"))).count();
    let all = functions.len() + refused.len();
    assert!(all >= at_least, "only {all} functions");
    assert!(
        jumps as f64 >= CHEAP * all as f64,
        "{jumps} of {all} by a jump; refused {:?}",
        refused.iter().take(5).collect::<Vec<_>>()
    );
}

#[test]
fn bar_19_bash() {
    need_root!();
    let _alone = alone();
    let script = r#"
        declare -A words; n=0
        fib() { local a=$1; (( a < 2 )) && { echo $a; return; }; echo $(( $(fib $((a-1))) + $(fib $((a-2))) )); }
        for i in {1..400}; do words[k$((i % 17))]+="$i,"; n=$((n + i * i)); done
        for k in "${!words[@]}"; do [[ ${words[$k]} =~ ([0-9]+),$ ]] && echo "$k ${BASH_REMATCH[1]} ${#words[$k]}"; done | sort
        echo "$n $(fib 7)"; printf '%s|%05.2f\n' "${words[k3]//,/;}" 3.14159
        trap 'echo trapped' USR1; kill -USR1 $$; while read -r a b; do echo "$b $a"; done < <(seq 1 20 | paste - -)
        cat <<< "$(case abc in a*) echo glob;; esac)"; ( exit 7 ); echo $?; exec 3>&1; echo to3 >&3; eval 'echo ev$((2**10))'
    "#;
    if let Some(run) = everything("bash", &["/bin/bash", "-c", script]) {
        assert_cheap(&run, 2000);
    }
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn bar_19_git() {
    need_root!();
    let _alone = alone();
    let repository = tempfile::tempdir().unwrap();
    let at = repository.path().to_str().unwrap();
    let made = Command::new("sh")
        .args(["-c", r#"cd "$0" && git init -q . && git config user.name a && git config user.email a@b && git config core.pager cat
            for i in 1 2 3 4 5 6 7 8; do seq $i 400 > f$((i % 3)); seq 1 $((i * 90)) > g; git add . && git commit -q -m "c $i"; done"#, at])
        .output();
    if !made.is_ok_and(|m| m.status.success()) {
        println!("SKIP: git is not installed");
        return;
    }
    for words in [
        &["log", "-p", "--stat", "--format=%s"][..],
        &["blame", "-s", "g"],
        &["diff", "--word-diff", "HEAD~5"],
        &["rev-list", "--objects", "--all"],
        &["grep", "-n", "7.$"],
    ] {
        let words: Vec<&str> = [&["/usr/bin/git", "-C", at], words].concat();
        if let Some(run) = everything("git", &words) {
            assert_cheap(&run, 4000);
        }
    }
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn bar_19_python() {
    need_root!();
    let _alone = alone();
    let script = r#"
import json, re, hashlib, decimal, fractions, threading, collections, itertools, zlib, struct, random, contextlib, functools
random.seed(7)
data = {str(i): [random.random(), {"k": "x" * (i % 9)}, None, True] for i in range(300)}
text = json.dumps(data, sort_keys=True); assert json.loads(text) == data
print(hashlib.sha256(text.encode()).hexdigest(), zlib.crc32(zlib.compress(text.encode())))
print(len(re.findall(r"(\d+)\.(\d{3})", text)), re.sub(r"x+", lambda m: str(len(m[0])), text)[:99])
print(sum(fractions.Fraction(1, n) for n in range(1, 60)), decimal.Decimal(2).sqrt())
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def gen(n):
    try:
        for i in range(n): yield i
    finally: print("closed", n)
def deep(n):
    if n == 0: raise ValueError("bottom")
    try: deep(n - 1)
    except ValueError as e: raise KeyError(n) from e
for g in (gen(5), gen(10)): print(next(g), next(g)); g.close()
try: deep(80)
except KeyError as e: print("caught", e)
out = []
threads = [threading.Thread(target=lambda i=i: out.append(fib(12 + i))) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]; print(sorted(out))
try: (lambda f: f(f))(lambda f: f(f))
except RecursionError: print("recursion")
print(struct.unpack("<dq", struct.pack("<dq", 1.5, -7)), collections.Counter("mississippi").most_common(2), list(itertools.permutations("abc"))[-1])
"#;
    if let Some(run) = everything("python3.*", &["/usr/bin/python3", "-I", "-c", script]) {
        assert_cheap(&run, 6500);
    }
}

#[test]
fn bar_19_gdb() {
    need_root!();
    let _alone = alone();
    let subject = workload("calls-callcost").display().to_string();
    let words = [
        "/usr/bin/gdb",
        "-nx",
        "-batch",
        "-ex",
        "info functions target",
        "-ex",
        "disassemble main",
        "-ex",
        "info line main",
        "-ex",
        "ptype struct share",
        &subject,
    ];
    if let Some(run) = everything("gdb", &words) {
        assert_cheap(&run, 15000);
    }
}

#[test]
fn bar_19_sqlite() {
    need_root!();
    let _alone = alone();
    let sql = "create table t(a integer primary key, b text, c real); with recursive n(i) as (select 1 union all select i+1 from n where i<3000) \
               insert into t select i, hex(i*7919), i*0.37 from n; create index x on t(b); select count(*), sum(c), max(b) from t; \
               select b, c from t where b like '3%4' order by c desc limit 20; explain query plan select * from t where b='3031';";
    everything("libsqlite3.*", &["/usr/bin/sqlite3", ":memory:", sql]);
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn bar_19_cc1() {
    need_root!();
    let _alone = alone();
    let Ok(found) = Command::new("gcc").arg("-print-prog-name=cc1").output() else {
        println!("SKIP: gcc is not installed");
        return;
    };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/calls/calltarget.c");
    let cc1 = text(&found.stdout).trim().to_owned();
    if let Some(run) = everything("cc1", &[&cc1, "-quiet", "-O2", "-o", "-", source]) {
        assert_cheap(&run, 30000);
    }
}

/// The C library of a program that uses much of it.
#[test]
fn bar_19_libc() {
    need_root!();
    let _alone = alone();
    let script = "sort /etc/services | awk '{print $1, NF}' | sed 's/tcp/TCP/' | sha256sum; date -u -d @0; printf '%.5f\\n' 1.25; ls / | wc -l";
    if let Some(run) = everything("libc.so.*", &["/bin/sh", "-c", script]) {
        assert_cheap(&run, 2500);
    }
}
