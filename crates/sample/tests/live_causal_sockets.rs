//! Who asks on a connection, as the causal back end counts it: the end that has connected. A server that is attached to while it works on a
//! request has not been seen to be asked there. Who ends a connection after an answer is known by that answer. Needs root and BPF, and the tracepoints of sockets (Linux 6.3).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the verdict, a skip is told")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use whither_sample::causal::{CausalBpf, CausalConfig, Facts};

const ROUNDS: u64 = 50;

fn exchange(mut with: &TcpStream) {
    with.write_all(&[1]).unwrap();
    with.read_exact(&mut [0]).unwrap();
}

fn answers(mut to: &TcpStream, rounds: u64) {
    for _ in 0..rounds {
        to.read_exact(&mut [0]).unwrap();
        to.write_all(&[2]).unwrap();
    }
}

fn line_of(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// A connection for each request, which ends when it is answered; it is waited for.
fn answers_anew(at: &TcpListener) {
    for _ in 0..ROUNDS {
        let (connection, _) = at.accept().unwrap();
        answers(&connection, 1);
        assert_eq!((&connection).read(&mut [0]).unwrap(), 0);
    }
}

/// Takes a request and answers it when it is told to; then more of them; then others on connections of their own; then asks itself, at the port that it is told.
#[test]
#[ignore = "the measured program of the test below"]
fn the_child() {
    let mut orders = std::io::stdin().lock();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("\nport {}", listener.local_addr().unwrap().port());
    let (connection, _) = listener.accept().unwrap();
    (&connection).read_exact(&mut [0]).unwrap();
    println!("asked");
    line_of(&mut orders);
    (&connection).write_all(&[2]).unwrap();
    answers(&connection, ROUNDS);
    answers_anew(&listener);
    let port: u16 = line_of(&mut orders).parse().unwrap();
    let peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    (0..ROUNDS).for_each(|_| exchange(&peer));
    line_of(&mut orders);
}

/// Begun, and at work on a request.
fn begun() -> (Child, TcpStream) {
    let me = std::env::current_exe().unwrap();
    let mut child = Command::new(me)
        .args(["--exact", "the_child", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = lines.find_map(|l| l.unwrap().strip_prefix("port ").map(str::to_owned)).expect("it listens");
    let connection = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    (&connection).write_all(&[1]).unwrap();
    assert!(lines.any(|l| l.unwrap() == "asked"));
    // What it prints at its end must not fail.
    std::thread::spawn(move || lines.for_each(drop));
    (child, connection)
}

/// Until none of its threads has anything to do.
fn until_it_waits(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let waits = |tid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    };
    while !whither_kernel::proc::threads(pid).into_iter().all(waits) {
        assert!(Instant::now() < deadline, "process {pid} does not come to rest");
        std::thread::yield_now();
    }
}

/// What a window without speed-up sees of this.
fn seen(exec: &mut CausalBpf, what: impl FnOnce()) -> Facts {
    exec.begin(0).unwrap();
    what();
    exec.end().unwrap()
}

/// A request on a connection of its own, which ends when the other side waits for that.
fn asks_anew(of: u32, address: std::net::SocketAddr) {
    let connection = TcpStream::connect(address).unwrap();
    exchange(&connection);
    until_it_waits(of);
}

#[test]
fn a_connection_s_request_that_was_under_way_is_no_reason_to_take_its_server_for_who_asks() {
    let mut exec = match CausalBpf::open(&CausalConfig::default()) {
        Ok(exec) => exec,
        Err(why) if why.is_refusal() => return println!("SKIP: BPF is not allowed here: {why}"),
        Err(why) => panic!("{why}"),
    };
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    if !symbols.contains("__traceiter_sock_send_length") {
        return println!("SKIP: this kernel has no sock_send_length");
    }
    let (mut child, connection) = begun();
    let mut orders = child.stdin.take().unwrap();
    exec.watch(child.id()).unwrap();
    let served = seen(&mut exec, || {
        writeln!(orders).unwrap();
        (&connection).read_exact(&mut [0]).unwrap();
        (0..ROUNDS).for_each(|_| exchange(&connection));
    });
    let address = connection.peer_addr().unwrap();
    let anew = seen(&mut exec, || (0..ROUNDS).for_each(|_| asks_anew(child.id(), address)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let asks = seen(&mut exec, || {
        writeln!(orders, "{}", listener.local_addr().unwrap().port()).unwrap();
        answers(&listener.accept().unwrap().0, ROUNDS);
    });
    drop(orders);
    assert!(child.wait().unwrap().success());
    // One that finds its request there has not waited for it.
    assert!(served.asked.times > ROUNDS / 2, "a server is asked: {:?}", served.asked);
    assert!(asks.asked.times < ROUNDS / 5, "a client asks: {:?}", asks.asked);
    // The first request of a connection is of nobody known, its end is.
    let known = anew.asked.times.saturating_sub(anew.asked.unknown);
    assert!(anew.asked.unknown > 0 && known > ROUNDS / 2, "its end is known by the answer: {:?}", anew.asked);
}
