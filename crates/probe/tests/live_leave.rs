//! Programs left at an awkward moment: a handler runs whose signal has interrupted a thread inside of our
//! code. However large the program is, it must not find that code gone when the handler returns.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use whither_probe::{Engine, Options, Order, PointAction, PointSpec, Select};

/// Nine of ten moments are in a handler that has interrupted `work` or what is put around it. `OWN` is a
/// handler's own use of its stack.
const SLOW: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
__asm__(".text\n.fill 9437184,1,0x90\n");
static volatile long turns;
static void slow(int s) { volatile char own[OWN]; (void)s; own[0] = 1; for (turns = 0; turns < 1000000; turns++) own[OWN - 1] = turns; }
__attribute__((noinline, noclone)) long work(long x) { __asm__ volatile("" : "+r"(x)); return x * 3 + 1; }
int main(void) {
	struct sigaction a = { .sa_handler = slow };
	sigaction(SIGALRM, &a, 0);
	struct itimerval t = { { 0, 3000 }, { 0, 3000 } };
	setitimer(ITIMER_REAL, &t, 0);
	puts("ready"); fflush(stdout);
	for (long i = 0;; i++) if (work(i) != i * 3 + 1) abort();
}
"#;

#[test]
fn a_large_program_in_a_handler_is_left_unharmed() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("slow.c"), dir.path().join("slow"));
    std::fs::write(&from, SLOW).unwrap();
    for (own, link) in [("16", "-static"), ("16", "-pie"), ("400000", "-static")] {
        let own = format!("-DOWN={own}");
        let made = Command::new("gcc").args(["-O2", &own, link, "-o"]).arg(&to).arg(&from).status();
        if !made.is_ok_and(|status| status.success()) {
            println!("SKIP: gcc {link}");
            continue;
        }
        let mut target = Command::new(&to).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(target.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let began = Instant::now();
        for round in 0..8 {
            let mut engine = match Engine::attach(target.id(), Options::default()) {
                Ok(engine) => engine,
                Err(e) if target.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(60) => {
                    println!("{e}");
                    continue;
                }
                Err(e) => panic!("round {round}, {own} {link}: {e}"),
            };
            let work = Order::Include(Select::Name { function: "work".into(), module: None });
            let found = engine.resolve(&[work]).unwrap();
            let actions = vec![PointAction::Path, PointAction::Wall];
            let specs: Vec<_> =
                found.into_iter().map(|candidate| PointSpec { candidate, actions: actions.clone() }).collect();
            let added = engine.add(&specs).unwrap();
            let _ = engine.poll(Duration::from_millis(10)).unwrap();
            let detached = engine.detach().unwrap();
            println!("{own} {link}: {added:?} {detached:?}");
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(target.try_wait().unwrap(), None, "round {round}, {own} {link}: {detached:?}");
        }
        target.kill().unwrap();
        target.wait().unwrap();
    }
}
