//! Programs met at their entry point: threads that libraries have started by then, and followers that are
//! killed on the way there.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use whither_probe::{Engine, Options, Order, PointAction, PointSpec, Select};

/// Its constructor starts a thread that is in the first bytes of `work` most of the time.
const BUSY: &str = r#"
#include <pthread.h>
#include <stdlib.h>
long work(long);
__asm__(".text\n.globl work\n.type work,@function\nwork:\n.cfi_startproc\npause\npause\npause\n"
	"lea 1(%rdi,%rdi,2),%rax\nret\n.cfi_endproc\n.size work,.-work\n");
_Atomic int over;
long calls;
static pthread_t thread;
static void *turn(void *p) { while (!over) { if (work(calls) != calls * 3 + 1) abort(); calls++; } return p; }
__attribute__((constructor)) static void begin(void) { pthread_create(&thread, 0, turn, 0); while (!*(volatile long *)&calls) {} }
void finish(void) { over = 1; pthread_join(thread, 0); }
"#;
const PROGRAM: &str = r#"
#include <time.h>
void finish(void);
extern long calls;
int main(void) { long before = *(volatile long *)&calls; struct timespec t = { 0, 50000000 }; nanosleep(&t, 0); finish(); return calls > before ? 6 : 1; }
"#;

fn compile(to: &Path, source: &str, flags: &[&str]) -> bool {
    let from = to.with_extension("c");
    std::fs::write(&from, source).unwrap();
    let made = Command::new("gcc").args(["-O2", "-pthread", "-o"]).arg(to).arg(&from).args(flags).status();
    let made = made.is_ok_and(|status| status.success());
    if !made {
        println!("SKIP: gcc {flags:?}");
    }
    made
}

fn orders() -> Vec<Order> {
    vec![Order::Include(Select::Name { function: "work".into(), module: None })]
}

const ACTIONS: [PointAction; 2] = [PointAction::Path, PointAction::Wall];

fn busy(dir: &Path) -> Option<PathBuf> {
    let (library, program) = (dir.join("libbusy.so"), dir.join("program"));
    let link = [format!("-L{}", dir.display()), format!("-Wl,-rpath,{}", dir.display()), "-lbusy".into()];
    let link: Vec<&str> = link.iter().map(String::as_str).collect();
    (compile(&library, BUSY, &["-shared", "-fPIC"]) && compile(&program, PROGRAM, &link)).then_some(program)
}

fn add(engine: &mut Engine) -> whither_probe::Added {
    let found = engine.resolve(&orders()).unwrap();
    let specs: Vec<_> = found.into_iter().map(|candidate| PointSpec { candidate, actions: ACTIONS.to_vec() }).collect();
    engine.add(&specs).unwrap()
}

fn end(engine: &mut Engine) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        engine.poll(Duration::from_millis(10)).unwrap();
        if let Some(status) = engine.status() {
            return status;
        }
        assert!(Instant::now() < deadline, "it does not end");
    }
}

#[test]
fn threads_of_constructors_stand_still_while_text_changes() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = busy(dir.path()) else { return };
    let words = [program.display().to_string()];
    for round in 0..10 {
        let mut engine = Engine::launch(&words, Options::default()).unwrap();
        for _ in 0..3 {
            let added = add(&mut engine);
            assert_eq!((added.ids.len(), added.refused.len()), (1, 0), "{added:?}");
            assert_eq!(engine.remove(&added.ids).unwrap().ids, added.ids);
        }
        assert_eq!(add(&mut engine).ids.len(), 1);
        engine.resume().unwrap();
        assert_eq!(end(&mut engine), 6, "round {round}");
        let snapshot = engine.snapshot();
        assert!(snapshot.paths.iter().map(|p| p.totals.calls).sum::<u64>() > 0, "{snapshot:?}");
    }
}

#[test]
fn a_program_with_threads_is_left_before_it_has_begun() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = busy(dir.path()) else { return };
    for round in 0..10 {
        let mut engine = Engine::launch(&[program.display().to_string()], Options::default()).unwrap();
        assert_eq!(add(&mut engine).ids.len(), 1);
        let mut child = engine.take_child();
        let detached = engine.detach().unwrap();
        assert!(detached.left.is_empty(), "{detached:?}");
        assert_eq!(child.as_mut().unwrap().wait(), 6, "round {round}");
    }
}

/// Set where this program is the controller: the script to run and follow.
const SCRIPT: &str = "WHITHER_TEST_SCRIPT";

/// Follows everything that a script executes, to its end. Nothing matches, so that most of the time some
/// program is on the way to its entry point.
fn follow(script: &str, pattern: &str) {
    let words = ["sh", "-c", script].map(String::from);
    let mut engine = Engine::launch(&words, Options::default()).unwrap();
    let select = Select::Name { function: pattern.into(), module: None };
    engine.keep(vec![Order::Include(select)], ACTIONS.to_vec());
    engine.resume().unwrap();
    end(&mut engine);
}

#[test]
fn a_follower_that_is_killed_harms_no_program_on_its_way() {
    if let Ok(script) = std::env::var(SCRIPT) {
        return follow(&script, if script.contains("measured") { "work" } else { "no_such_function" });
    }
    let kills = std::env::var("WHITHER_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = busy(dir.path()) else { return };
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..kills {
        let log = dir.path().join(if kill % 3 == 0 { format!("measured{kill}") } else { format!("{kill}") });
        // Programs with and without signals held back, and what they say of their ends.
        let script = format!(
            "for i in 1 2 3 4 5; do true || echo bad $?; env A=1 true || echo bad $?; {}; test $? = 6 || echo bad $?; \
             done >{log} 2>&1; echo done >>{log}",
            program.display(),
            log = log.display()
        );
        let mut controller = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "start::a_follower_that_is_killed_harms_no_program_on_its_way", "--nocapture"])
            .env(SCRIPT, script)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros(3_000 + (seed >> 33) % 250_000));
        controller.kill().unwrap();
        controller.wait().unwrap();
        // It ends with the last process of the script. Killed before that had begun, it never begins.
        let (tell, told) = std::sync::mpsc::channel();
        let mut pipe = controller.stdout.take().unwrap();
        std::thread::spawn(move || tell.send(pipe.read_to_end(&mut Vec::new())));
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        assert!(told.recv_timeout(Duration::from_secs(20)).is_ok(), "kill {kill}: a program hangs: {}", said());
        assert!(!said().contains("bad") && (!log.exists() || said() == "done\n"), "kill {kill}: {}", said());
    }
}
