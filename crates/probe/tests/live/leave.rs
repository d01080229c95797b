//! Programs left at an awkward moment: a handler runs whose signal has interrupted a thread inside of our
//! code. However large the program is, it must not find that code gone when the handler returns. Or a probed library is
//! gone that nobody has told us of yet: there is nothing to be restored, and nothing of ours stays. Or a thread sleeps out of
//! reach while the others are stopped: it must not stand still when it wakes.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::{BufRead, BufReader, Write};
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

/// Unloads its library when it is told to, and says so.
const UNLOADS: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
__attribute__((noinline, noclone)) long base(long x) { __asm__ volatile("" : "+r"(x)); return x + 1; }
int main(int n, char **v) {
	void *h = dlopen(v[n - 1], RTLD_NOW);
	long (*plug)(long) = (long (*)(long))dlsym(h, "plug");
	printf("%ld\n", base(plug(2))); fflush(stdout);
	getchar();
	dlclose(h);
	puts("closed"); fflush(stdout);
	for (;;) getchar();
}
"#;
const PLUG: &str = "long plug(long x) { __asm__ volatile(\"\" : \"+r\"(x)); return x * 3 + 1; }";

#[test]
fn a_library_that_is_gone_keeps_nothing_of_ours() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("unloads.c"), UNLOADS).unwrap();
    std::fs::write(at("plug.c"), PLUG).unwrap();
    let gcc = |flags: &[&str], from: &str, to: &str| {
        Command::new("gcc").args(flags).arg(at(from)).arg("-o").arg(at(to)).status().is_ok_and(|s| s.success())
    };
    if !gcc(&["-O2", "-shared", "-fPIC"], "plug.c", "plug.so") || !gcc(&["-O2", "-ldl"], "unloads.c", "unloads") {
        println!("SKIP: gcc");
        return;
    }
    let command = Command::new(at("unloads")).arg(at("plug.so")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut target = command.unwrap();
    let mut lines = BufReader::new(target.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "8");
    let mut engine = Engine::attach(target.id(), Options::default()).unwrap();
    let either = Order::Include(Select::Name { function: "base|plug".into(), module: None });
    let found = engine.resolve(&[either]).unwrap();
    let spec = |candidate| PointSpec { candidate, actions: vec![PointAction::Path, PointAction::Wall] };
    let added = engine.add(&found.into_iter().map(spec).collect::<Vec<_>>()).unwrap();
    assert_eq!((added.ids.len(), added.refused), (2, Vec::new()));
    target.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "closed");
    let detached = engine.detach().unwrap();
    assert!(detached.left.is_empty(), "{detached:?}");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", target.id())).unwrap();
    assert!(!maps.contains("whither"), "{maps}");
    target.kill().unwrap();
    target.wait().unwrap();
}

/// Half of the time asleep where no signal reaches: its child is to become another program.
const FORKS: &str = r#"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline, noclone)) long work(long x) { __asm__ volatile("" : "+r"(x)); return x * 3 + 1; }
int main(void) {
	puts("ready"); fflush(stdout);
	for (long i = 0;; i++) {
		usleep(3000);
		pid_t child = vfork();
		if (child == 0) { usleep(3000); _exit((int)work(i) & 0); }
		waitpid(child, 0, 0);
	}
}
"#;

/// How often a thread has left its processor by itself.
fn switches(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

/// One that stands still for ever must not outlive a failure.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_thread_that_slept_out_of_reach_at_the_attach_runs_on() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("forks.c"), dir.path().join("forks"));
    std::fs::write(&from, FORKS).unwrap();
    if !Command::new("gcc").arg("-O2").arg("-o").arg(&to).arg(&from).status().is_ok_and(|s| s.success()) {
        println!("SKIP: gcc");
        return;
    }
    let mut target = Killed(Command::new(&to).stdout(Stdio::piped()).spawn().unwrap());
    let target = &mut target.0;
    let mut line = String::new();
    BufReader::new(target.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    for round in 0..20 {
        let mut engine = Engine::attach(target.id(), Options::default()).unwrap();
        let work = Order::Include(Select::Name { function: "work".into(), module: None });
        let found = engine.resolve(&[work]).unwrap();
        let specs: Vec<_> =
            found.into_iter().map(|candidate| PointSpec { candidate, actions: vec![PointAction::Wall] }).collect();
        engine.add(&specs).unwrap();
        let before = switches(target.id());
        let began = Instant::now();
        // A hundred turns would take 0.7 s; one that is never let go makes none.
        while switches(target.id()) < before + 20 {
            assert!(began.elapsed() < Duration::from_secs(10), "round {round}: it stands still");
            let _ = engine.poll(Duration::from_millis(50)).unwrap();
        }
        engine.detach().unwrap();
        assert_eq!(target.try_wait().unwrap(), None, "round {round}");
    }
}
