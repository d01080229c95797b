//! Controllers killed at any moment of their work: the program goes on unharmed, and the next controller
//! finds it usable. The controller is this test program itself, started again.

#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use whither_probe::{Engine, Options, Order, PointAction, PointSpec, Select};

/// Set where this program is the controller: the process to work on.
const TARGET: &str = "WHITHER_TEST_TARGET";
/// Sums that must come out the same, registers full, in functions that are probed; one line a second.
const STEADY: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define N __attribute__((noinline, noclone))
static _Atomic unsigned long rounds;
N double inner(double x, int n) { double f[8]; for (int i = 0; i < 8; i++) f[i] = x + i;
	for (int k = 0; k < n; k++) for (int i = 0; i < 8; i++) f[i] = f[i] * 0.999 + 1.0 / (k + 1);
	double s = 0; for (int i = 0; i < 8; i++) s += f[i]; return s; }
N double outer(double x) { return inner(x, 2000) + inner(x + 1, 300) * 0.5; }
static void *work(void *p) {
	double first = outer(1);
	for (;;) {
		double now = outer(1);
		if (memcmp(&now, &first, 8)) { puts("wrong"); fflush(stdout); abort(); }
		rounds++;
		if (p) { struct timespec t = { 0, 200000 }; if (nanosleep(&t, 0)) abort(); }
	}
}
int main(void) {
	pthread_t t;
	pthread_create(&t, 0, work, 0);
	pthread_create(&t, 0, work, &t);
	puts("ready"); fflush(stdout);
	work(&t);
}
"#;

fn has_ended(target: &mut Child) -> Option<std::process::ExitStatus> {
    target.try_wait().unwrap()
}

fn steady(dir: &Path, flags: &[&str]) -> Option<Child> {
    let (from, to) = (dir.join("steady.c"), dir.join("steady"));
    std::fs::write(&from, STEADY).unwrap();
    let made = Command::new("gcc").args(["-O3", "-pthread", "-o"]).arg(&to).arg(&from).args(flags).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("SKIP: gcc {flags:?}");
        return None;
    }
    let mut target = Command::new(&to).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(target.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Some(target)
}

/// What a controller must not leave behind: mappings that may be executed and such of ours, with the sum of their
/// bytes, and descriptors.
fn possessions(pid: u32) -> Vec<String> {
    let mut all = Vec::new();
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    for line in std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.contains("[vsyscall]") || !(words[1].contains('x') || line.contains("whither")) {
            continue;
        }
        let (start, end) = words[0].split_once('-').unwrap();
        let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let mut bytes = vec![0; (end - start) as usize];
        // A segment is too large to be looked through, and must not be there.
        let read = words[1].contains('x') && memory.read_exact_at(&mut bytes, start).is_ok();
        let sum = bytes.iter().fold(0_u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(*b)));
        all.push(format!("{} {} {} {}", words[0], words[1], words.last().unwrap(), if read { sum } else { 0 }));
    }
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        all.push(format!("{:?}", std::fs::read_link(entry.path()).unwrap_or_default()));
    }
    all.sort();
    all
}

/// Attach, add, remove, add, detach, for ever.
fn control(pid: u32) {
    loop {
        let mut engine = match Engine::attach(pid, Options::default()) {
            Ok(engine) => engine,
            Err(error) => {
                println!("attach: {error}");
                continue;
            }
        };
        for function in ["inner", "outer"] {
            let select = Select::Name { function: function.into(), module: None };
            let found = engine.resolve(&[Order::Include(select)]).unwrap();
            let actions = vec![PointAction::Path, PointAction::Wall];
            let specs: Vec<_> =
                found.into_iter().map(|candidate| PointSpec { candidate, actions: actions.clone() }).collect();
            let added = engine.add(&specs).unwrap();
            assert!(added.refused.is_empty(), "{added:?}");
            let _ = engine.poll(Duration::from_millis(2)).unwrap();
            if function == "inner" {
                let _ = engine.remove(&added.ids).unwrap();
            }
        }
        let left = engine.detach().unwrap().left;
        if left.is_empty() {
            println!("round");
        } else {
            println!("left: {left:?}");
        }
    }
}

#[test]
fn killed_controllers_harm_nothing() {
    if let Some(pid) = std::env::var(TARGET).ok().and_then(|pid| pid.parse().ok()) {
        return control(pid);
    }
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: finding an agent again needs root");
        return;
    }
    let kills = std::env::var("WHITHER_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let dir = tempfile::tempdir().unwrap();
    for flags in [&[][..], &["-static"][..]] {
        let Some(mut target) = steady(dir.path(), flags) else { return };
        let before = possessions(target.id());
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for kill in 0..kills {
            let mut controller = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "kill::killed_controllers_harm_nothing", "--nocapture"])
                .env(TARGET, target.id().to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            std::thread::sleep(Duration::from_micros(5_000 + (seed >> 33) % 200_000));
            controller.kill().unwrap();
            controller.wait().unwrap();
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(has_ended(&mut target), None, "kill {kill}, {flags:?}");
        }
        // A controller that is left alone gets through.
        let mut engine = Engine::attach(target.id(), Options::default()).unwrap();
        let _ = engine.poll(Duration::from_millis(1)).unwrap();
        assert_eq!(engine.detach().unwrap().left, Vec::<String>::new(), "{flags:?}");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(has_ended(&mut target), None, "{flags:?}");
        let (now, only) = (possessions(target.id()), |a: &[String], b: &[String]| {
            a.iter().filter(|line| !b.contains(line)).cloned().collect::<Vec<_>>()
        });
        assert_eq!((only(&before, &now), only(&now, &before)), (vec![], vec![]), "gone and come, {flags:?}");
        target.kill().unwrap();
        target.wait().unwrap();
    }
}
