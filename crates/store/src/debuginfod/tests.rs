//! The client against a small HTTP server in this process: what it asks for, what it keeps, what it
//! refuses, and that nobody asks unless told to.

use super::*;
use crate::finder::Finder;
use crate::model::{Image, ImageKind};
use crate::service::{SymbolOptions, SymbolService};
use crate::stored::StoredSymbols;
use crate::symbols::Symbols as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use whither_image::ElfSummary;

/// Answers `/buildid/ID/executable` with a file and everything else with 404, on a port of its own; it
/// ends with the test process.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn serving(id: ImageId, file: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, path) = (Arc::clone(&asked), format!("/buildid/{}/executable", id.to_hex()));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let wanted = request(&stream);
                // A client that hangs up early has its reasons.
                let _ = answer(stream, (wanted == path).then_some(&file[..]));
                log.lock().unwrap().push(wanted);
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn request(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    first.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn answer(mut stream: TcpStream, file: Option<&[u8]>) -> std::io::Result<()> {
    let (status, body) = file.map_or(("404 Not Found", &b"no such build"[..]), |file| ("200 OK", file));
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    stream.write_all(body)
}

fn curl_is_missing() -> bool {
    let missing = Command::new("curl").arg("--version").output().is_err();
    if missing {
        println!("SKIP: curl is not installed");
    }
    missing
}

/// This test's own binary under a path that does not exist.
fn own() -> (Image, Vec<u8>) {
    let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let summary = ElfSummary::parse(&bytes).unwrap();
    let image = Image {
        id: summary.id,
        id_kind: summary.id_kind,
        kind: ImageKind::Elf,
        path: "/no/such/program".into(),
        segments: summary.segments,
        size: bytes.len() as u64,
    };
    (image, bytes)
}

#[test]
fn a_program_is_fetched_once_and_kept() {
    if curl_is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, bytes) = own();
    let server = Server::serving(image.id, bytes.clone());
    let client = Debuginfod { urls: vec![server.url.clone()], cache: dir.path().join("cache") };
    let first = client.fetch(image.id, Artefact::Executable).unwrap();
    assert!(std::fs::read(&first).unwrap() == bytes);
    assert_eq!(client.fetch(image.id, Artefact::Executable), Some(first));
    assert_eq!(server.asked(), [format!("/buildid/{}/executable", image.id.to_hex())]);
    assert_eq!(client.fetch(image.id, Artefact::DebugInfo), None);
    let left: Vec<_> = std::fs::read_dir(dir.path().join("cache").join(image.id.to_hex())).unwrap().collect();
    assert_eq!(left.len(), 1, "a failed download leaves nothing: {left:?}");
}

#[test]
fn the_next_server_is_asked_when_one_is_gone() {
    if curl_is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, bytes) = own();
    let server = Server::serving(image.id, bytes);
    // A port that was free a moment ago.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = Debuginfod { urls: vec![format!("http://{gone}"), server.url], cache: dir.path().into() };
    assert!(client.fetch(image.id, Artefact::Executable).is_some());
}

#[test]
fn a_file_of_another_build_is_not_used() {
    if curl_is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, bytes) = own();
    let other = Image { id: ImageId([7; 20]), ..image.clone() };
    let finder = |server: &Server, name: &str| Finder {
        debug_dirs: Vec::new(),
        debuginfod: Some(Debuginfod { urls: vec![server.url.clone()], cache: dir.path().join(name) }),
    };
    let server = Server::serving(other.id, bytes.clone());
    assert!(finder(&server, "a").find(&other).main.is_none(), "the server lied");
    assert!(!server.asked().is_empty());
    let server = Server::serving(image.id, bytes);
    assert!(finder(&server, "b").find(&image).main.is_some());
}

#[test]
fn nobody_asks_unless_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let (image, bytes) = own();
    let server = Server::serving(image.id, bytes);
    let options =
        SymbolOptions { debug_dirs: Vec::new(), cache_dir: Some(dir.path().into()), ..SymbolOptions::default() };
    assert!(!options.debuginfod);
    let service = SymbolService::new(options, StoredSymbols::default());
    assert!(service.functions(&image).functions().is_empty());
    assert_eq!(server.asked(), [""; 0]);
}

#[test]
fn loopback_is_told_from_the_rest() {
    assert!(is_loopback("http://127.0.0.1:8002/buildid") && is_loopback("https://[::1]:1/x"));
    assert!(!is_loopback("https://debuginfod.example.org/127.0.0.1:") && !is_loopback("http://127.0.0.10/"));
}
