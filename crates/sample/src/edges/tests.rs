//! Registers at known code of this very process become the rows that the code calls for.

#![allow(unsafe_code, reason = "code with known addresses, which is never run")]

use super::*;
use crate::book::{BookOptions, Folding};
use std::arch::global_asm;
use std::process::Command;
use whither_image::interp::{Field, Term};
use whither_kernel::{clock, proc};
use whither_store::model::EdgeSample;

global_asm!(
    ".globl whither_test_by_register",
    "whither_test_by_register:",
    "cmp rdi, rsi",
    "jb 1f",
    "nop",
    "1: ret",
    ".globl whither_test_by_memory",
    "whither_test_by_memory:",
    "cmp dword ptr [rdi + 8], esi",
    "jb 1f",
    "nop",
    "1: ret",
    ".globl whither_test_indirect",
    "whither_test_indirect:",
    "jmp rax",
    ".globl whither_test_turns",
    "whither_test_turns:",
    "2: dec rdi",
    "jne 2b",
    "call whither_test_indirect",
    "ret",
);

unsafe extern "C" {
    static whither_test_by_register: u8;
    static whither_test_by_memory: u8;
    static whither_test_indirect: u8;
    static whither_test_turns: u8;
}

fn by_register() -> u64 {
    (&raw const whither_test_by_register) as u64
}

fn by_memory() -> u64 {
    (&raw const whither_test_by_memory) as u64
}

fn indirect() -> u64 {
    (&raw const whither_test_indirect) as u64
}

/// A book that knows this process.
fn book() -> Book {
    let options =
        BookOptions { events: vec![], folding: Folding::PerProcess, per_process: None, threads: false, slice_s: 1 };
    let mut book = Book::new(options);
    book.scan(Some(&[std::process::id()]));
    book
}

fn sample(pc: u64, rdi: u64, rsi: u64) -> RegsIn {
    let mut registers = Registers::default();
    (registers.gpr[7], registers.gpr[6]) = (rdi, rsi);
    let pid = std::process::id();
    let who = Who::At { pid, tid: pid, time: clock::monotonic_ns() };
    RegsIn { who, pc, registers, recipe: 0, steps: [None; STEPS] }
}

fn rows(book: &mut Book) -> Vec<EdgeSample> {
    book.cut().0.edges
}

fn offset(pc: u64) -> u64 {
    let all = proc::executable_mappings(std::process::id());
    let m = all.iter().find(|m| (m.start..m.end).contains(&pc)).expect("our own code");
    pc - m.start + m.offset
}

fn ways(rows: &[EdgeSample]) -> Vec<(u64, u64, Way, u32)> {
    rows.iter().map(|e| (e.pc.0, e.branch.0, e.way, e.count)).collect()
}

#[test]
fn registers_decide_a_branch() {
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    for (rdi, rsi) in [(1, 2), (1, u64::MAX), (2, 1), (5, 5), (3, 4)] {
        edges.take(&mut book, &sample(by_register(), rdi, rsi));
    }
    let pc = offset(by_register());
    assert_eq!(ways(&rows(&mut book)), [(pc, pc + 3, Way::Fall, 2), (pc, pc + 3, Way::Taken, 3)]);
    assert_eq!(edges.orders(), [], "nothing to load");
}

#[test]
fn memory_decides_when_the_recipe_for_it_was_followed() {
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    let pc = offset(by_memory());
    edges.take(&mut book, &sample(by_memory(), 0x1000, 7));
    assert_eq!(edges.orders(), [], "most places are met once");
    edges.take(&mut book, &sample(by_memory(), 0x1000, 7));
    let orders = edges.orders();
    let [Order::Put(place, recipe)] = orders[..] else { panic!("{orders:?}") };
    assert_eq!((place.pc, place.tgid), (by_memory(), std::process::id()));
    let step = recipe.step[0];
    assert_eq!((step.source[0], step.scale, step.width, step.disp), (7, [1, 0, 0], 4, 8));
    assert_eq!(recipe.step[1], Step::default());
    edges.take(&mut book, &sample(by_memory(), 0x1000, 7));
    assert_eq!(edges.orders(), [], "it is there already");
    assert_eq!(ways(&rows(&mut book)), [(pc, pc, Way::Undecided, 3)]);

    let mut loaded = |value, recipe| {
        let mut r = sample(by_memory(), 0x1000, 7);
        (r.recipe, r.steps[0]) = (recipe, value);
        edges.take(&mut book, &r);
    };
    loaded(Some(6), recipe.id);
    loaded(Some(7), recipe.id);
    loaded(None, recipe.id);
    // A recipe for what was mapped there before: its values say nothing.
    loaded(Some(6), recipe.id + 1);
    let found = ways(&rows(&mut book));
    let expect = [(pc, pc, Way::Undecided, 2), (pc, pc + 3, Way::Fall, 1), (pc, pc + 3, Way::Taken, 1)];
    assert_eq!(found, expect);
}

#[test]
fn without_loads_no_recipe_is_asked_for() {
    let (mut book, mut edges) = (book(), Edges::new(false, Spend::Freely));
    for _ in 0..5 {
        edges.take(&mut book, &sample(by_memory(), 0x1000, 7));
    }
    assert_eq!(edges.orders(), []);
}

#[test]
fn targets_in_the_same_image_are_rows() {
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    let pc = offset(indirect());
    let mut to = |target| {
        let mut r = sample(indirect(), 0, 0);
        r.registers.gpr[0] = target;
        edges.take(&mut book, &r);
    };
    to(by_memory());
    // Another image, and nothing at all.
    to(libc_function());
    to(16);
    let target = ImageOffset(offset(by_memory()));
    assert_eq!(ways(&rows(&mut book)), [(pc, pc, Way::To(target), 1), (pc, pc, Way::Undecided, 2)]);
}

/// An address in the C library, of which this process has code mapped.
fn libc_function() -> u64 {
    let all = proc::executable_mappings(std::process::id());
    all.iter().find(|m| m.path.contains("libc")).expect("a C library").start + 64
}

#[test]
fn code_that_is_in_no_file_gives_nothing() {
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    for pc in [16, u64::MAX - 4096, 1 << 63] {
        edges.take(&mut book, &sample(pc, 1, 2));
    }
    let mut stranger = sample(by_register(), 1, 2);
    stranger.who = Who::At { pid: u32::MAX, tid: u32::MAX, time: 0 };
    edges.take(&mut book, &stranger);
    assert_eq!(rows(&mut book), []);
}

#[test]
fn recipes_go_with_their_life_and_when_there_are_too_many() {
    let (book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    let no = book.code_at(sample(by_memory(), 0, 0).who, by_memory()).expect("our own code").life;
    let place = |n: u64| Place { pc: n, tgid: 1, spare: 0 };
    let at = |n: u64| (ImageNo(0), n);
    for n in 0..MOST_RECIPES as u64 {
        edges.install(place(n), Recipe::default(), no, at(n));
    }
    assert_eq!(edges.orders().len(), MOST_RECIPES);
    edges.install(place(1 << 40), Recipe::default(), LifeNo(u32::MAX), at(0));
    let orders = edges.orders();
    assert_eq!(orders.iter().filter(|o| matches!(o, Order::Remove(_))).count(), MOST_RECIPES);
    assert_eq!(edges.installed.len(), 1);
    edges.install(place(7), Recipe::default(), no, at(7));
    edges.orders();
    edges.forget(&book);
    assert_eq!(edges.orders(), [Order::Remove(place(1 << 40))], "its life is not in the book");
    assert_eq!(edges.installed.len(), 1);
}

#[test]
fn a_recipe_is_named_in_its_process_alone() {
    let (book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    let no = book.code_at(sample(by_memory(), 0, 0).who, by_memory()).expect("our own code").life;
    let at = (ImageNo(0), 8);
    let mut put = |pc, tgid, life, at| -> Option<u32> {
        edges.install(Place { pc, tgid, spare: 0 }, Recipe::default(), life, at);
        edges.orders().iter().find_map(|o| if let Order::Put(_, r) = o { Some(r.id) } else { None })
    };
    let ids = [
        put(0x1000, 1, no, at),
        put(0x2000, 2, no, at),
        put(0x3000, 2, no, at),
        put(0x1000, 1, LifeNo(u32::MAX), at),
        put(0x1000, 1, LifeNo(u32::MAX), (ImageNo(1), 8)),
    ];
    let distinct: std::collections::BTreeSet<_> = ids.iter().flatten().collect();
    assert_eq!(distinct.len(), ids.len(), "the same place in another process, twice in one, after exec, other code");
    assert_eq!(put(0x2000, 2, no, at), None, "it is there already");
}

fn step(terms: &[(Source, i16)], disp: i64, field: Field, load: Option<u8>) -> RecipeStep {
    let term = |n: usize| terms.get(n).map(|&(source, scale)| Term { source, scale });
    RecipeStep { terms: std::array::from_fn(term), disp, field, load, image_relative: false }
}

#[test]
fn recipes_are_told_as_the_kernel_side_follows_them() {
    let (gpr, own) = (Source::Gpr, Source::Step);
    let signed = Field { from: 0, bits: 32, signed: true };
    let steps = [
        step(&[(gpr(15), 1), (gpr(0), 8)], -16, Field::WHOLE, Some(8)),
        step(&[(own(0), -1), (gpr(1), 1)], 4, signed, None),
        RecipeStep { image_relative: true, ..step(&[], 0x4000, Field::WHOLE, Some(1)) },
        step(&[(gpr(1), 1)], 0, Field { from: 8, bits: 8, signed: false }, None),
        step(&[(gpr(1), 1)], 0, Field::WHOLE, Some(3)),
    ];
    let told = recipe_of(&steps, 0x5555_0000_0000).expect("a recipe");
    assert_eq!((told.id, told.step[4].used), (0, 0), "3 bytes are never loaded");
    let of = |s: &Step| (s.source, s.scale, s.disp, s.width);
    let shifts = |s: &Step| (s.up, s.down, s.signed, s.used);
    assert_eq!(of(&told.step[0]), ([15, 0, 0], [1, 8, 0], (-16_i64).cast_unsigned(), 8));
    assert_eq!(of(&told.step[1]), ([16, 1, 0], [-1, 1, 0], 4, 0));
    assert_eq!(of(&told.step[2]), ([0; 3], [0; 3], 0x5555_0000_4000, 1));
    assert_eq!(shifts(&told.step[0]), (0, 0, 0, 1));
    assert_eq!(shifts(&told.step[1]), (32, 32, 1, 1));
    assert_eq!(shifts(&told.step[3]), (48, 56, 0, 1));
    assert_eq!(recipe_of(&[], 0), None);
    let values = [Some(1), Some(2), None, Some(4), Some(5), None];
    assert_eq!(loads_of(&steps, &values), [Some(1), None, Some(5), None], "the others are computed here");
}

/// The kernel side's own words, compiled for here, and the interpreter must find the same sums: a value is taken to
/// stand at the address that the interpreter computes.
#[test]
fn kernel_side_and_interpreter_add_up_alike() {
    let mut word = 7_u64;
    let mut dice = move || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        word ^ word >> 29
    };
    let (mut cases, mut expect) = (Vec::new(), String::new());
    for n in 0..2000 {
        let values: [u64; 16 + STEPS] = std::array::from_fn(|_| dice());
        let terms: Vec<(Source, i16)> = (0..n % 4)
            .map(|_| {
                (
                    if dice() % 2 == 0 { Source::Gpr(dice() as u8 % 16) } else { Source::Step(dice() as u8 % 6) },
                    dice() as i16,
                )
            })
            .collect();
        let from = if n % 3 == 0 { dice() as u8 % 64 } else { 0 };
        let bits = 1 + dice() as u8 % (64 - from);
        let field = if n % 5 == 0 { Field::WHOLE } else { Field { from, bits, signed: dice() % 2 == 0 } };
        let step = RecipeStep { image_relative: n % 7 == 0, ..step(&terms, dice().cast_signed(), field, None) };
        let bias = dice() << 12;
        let told = recipe_of(&[step], bias).expect("a step");
        cases.extend(told.bytes());
        cases.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        let sum = step.sum(|s| Some(values[usize::from(number(s))]), bias).expect("all is known");
        expect.push_str(&format!("{sum:x}\n"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let program = r#"
        #include <stdio.h>
        #include "whither_abi.h"
        int main(void) {
            struct wh_recipe recipe;
            WH_U64 value[WH_GPRS + WH_STEPS];
            while (fread(&recipe, sizeof(recipe), 1, stdin) == 1 && fread(value, sizeof(value), 1, stdin) == 1)
                printf("%llx\n", (unsigned long long)wh_sum(&recipe.step[0], value));
        }"#;
    std::fs::write(path("sums.c"), program).expect("written");
    std::fs::write(path("cases"), cases).expect("written");
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");
    let built = Command::new("cc").args(["-O1", "-I", include, "-o"]).arg(path("sums")).arg(path("sums.c")).status();
    assert!(built.expect("a C compiler is needed to build whither at all").success());
    let input = std::fs::File::open(path("cases")).expect("just written");
    let out = Command::new(path("sums")).stdin(input).output().expect("just built");
    assert!(String::from_utf8_lossy(&out.stdout) == expect, "sums differ");
}

fn turns() -> u64 {
    (&raw const whither_test_turns) as u64
}

/// A walk from the turns on.
fn path(code: u32, hops: &[(u32, u32)], wanted: u64) -> Path {
    Path {
        tgid: std::process::id(),
        tag: 9,
        pc: turns(),
        time: clock::monotonic_ns(),
        wanted,
        code,
        last: 0,
        at_target: false,
        end: if wanted == 0 { whither_abi::path::End::Length } else { whither_abi::path::End::NewCode },
        steps: 100,
        took: 0,
        passed: 0,
        near: 0,
        hops: hops.to_vec(),
    }
}

/// What this process has added to stated addresses.
fn own_bias(book: &Book) -> u64 {
    let own = std::process::id();
    let at = book.code_at(Who::At { pid: own, tid: own, time: clock::monotonic_ns() }, turns()).expect("our own code");
    load_bias(&book.image(at.mapped.image).segments, at.mapped.start, at.mapped.offset).expect("a mapping of our own")
}

/// The number of the instruction at a stated address.
fn number_at(orders: &WalkOrders, at: u64) -> u32 {
    orders.places.iter().find(|p| p.1 == at).unwrap_or_else(|| panic!("{at:#x} in {orders:x?}")).2
}

/// A process, and what is added to stated addresses where it has this program's code.
fn told(orders: &WalkOrders) -> Vec<(u32, u64)> {
    let has = |parts: &[whither_abi::path::Part], image| parts.iter().find(|p| p.image == image).map(|p| p.bias);
    let image = |o: &WalkOrders| o.spaces.first().and_then(|(_, parts)| parts.first()).map(|p| p.image);
    orders.spaces.iter().filter_map(|(life, parts)| Some((life.tgid, has(parts, image(orders)?)?))).collect()
}

#[test]
fn code_is_prepared_where_a_walk_wants_to_go_and_its_transfers_become_runs() {
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    let orders = edges.take_walks(&mut book, std::iter::once(path(0, &[], turns())));
    let bias = own_bias(&book);
    let op = |orders: &WalkOrders, number: u32| orders.ops.iter().find(|o| o.0 == number).expect("prepared").1;
    let (dec, jne, call) = (turns() - bias, turns() + 3 - bias, turns() + 5 - bias);
    let (dec_no, jne_no, call_no) = (number_at(&orders, dec), number_at(&orders, jne), number_at(&orders, call));
    assert_eq!(op(&orders, dec_no).next, jne_no);
    assert_eq!((op(&orders, jne_no).next, op(&orders, jne_no).taken), (call_no, dec_no));
    // The call's target and where it returns to, the jump that ends it: all are there, and nobody waits for a first walk.
    assert_eq!(op(&orders, call_no).taken, number_at(&orders, indirect() - bias));
    assert_eq!(op(&orders, call_no).imm, call + 5);
    number_at(&orders, call + 5);
    assert!(orders.anew.is_none() && orders.ops.len() == orders.places.len());
    let [(life, parts)] = &orders.spaces[..] else { panic!("{orders:?}") };
    assert_eq!((life.tgid, life.tag), (std::process::id(), 9));
    assert!(parts.iter().any(|p| p.bias == bias && (p.start..p.end).contains(&turns())), "{parts:x?}");
    let again = edges.take_walks(&mut book, std::iter::once(path(0, &[], turns())));
    assert_eq!(again, WalkOrders::default(), "it is there already");

    // Two turns and the way out: two runs between three transfers.
    let hops = [(jne_no, dec_no), (jne_no, dec_no), (call_no, number_at(&orders, indirect() - bias))];
    edges.take_walks(&mut book, std::iter::once(path(0, &hops, 0)));
    edges.take_walks(&mut book, std::iter::once(path(1, &hops, 0)));
    let at = offset(turns());
    let expect = [(at, at + 3, Way::To(ImageOffset(at)), 1), (at, at + 5, Way::To(ImageOffset(offset(indirect()))), 1)];
    let found = rows(&mut book);
    assert_eq!(ways(&found), expect, "walks of another preparation mean nothing");
    assert!(found.iter().all(|e| e.source == EdgeSource::Walks));
}

#[test]
fn when_there_is_no_room_numbers_are_given_anew() {
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    edges.walked.room = walks::Room(1 << 12);
    let mut at = turns();
    let mut all = 0;
    let mut orders = WalkOrders::default();
    // This test program has code enough, and what is no instruction is prepared as well.
    for n in 0_u64.. {
        at = turns() + n * 1021;
        let Some(_) = proc::executable_mappings(std::process::id()).iter().find(|m| (m.start..m.end).contains(&at))
        else {
            break;
        };
        orders = edges.take_walks(&mut book, std::iter::once(path(0, &[], at)));
        all += orders.ops.len();
        if orders.anew.is_some() {
            break;
        }
    }
    assert_eq!(orders.anew, Some(1), "{all} instructions up to {at:#x}");
    assert!(orders.ops.is_empty() && orders.places.is_empty());
    let fresh = edges.take_walks(&mut book, std::iter::once(path(1, &[], turns())));
    assert!(fresh.ops.iter().any(|o| o.0 == 1) && fresh.anew.is_none());
}

#[test]
fn no_memory_is_read_of_a_process_that_has_mapped_a_device() {
    thread_local!(static MAPPED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    edges.devices = Devices::told_by(|pid| pid == std::process::id() && MAPPED.get(), |_| MAPPED.get().into());
    let mut blocked = |edges: &mut Edges| (0..2).for_each(|_| edges.take(&mut book, &sample(by_memory(), 0x1000, 7)));
    blocked(&mut edges);
    let mut other = self::book();
    edges.take_walks(&mut other, std::iter::once(path(0, &[], turns())));
    assert_eq!(edges.orders().len(), 1, "nothing is mapped yet");
    MAPPED.set(true);
    let soon = clock::monotonic_ns() + 10_000_000_000;
    let orders = edges.orders_at(soon);
    assert!(matches!(orders[..], [Order::Remove(_)]), "{orders:?}");
    assert_eq!(edges.take_walks(&mut other, std::iter::empty()).anew, Some(1));
    // It stays so.
    MAPPED.set(false);
    blocked(&mut edges);
    assert_eq!(edges.orders_at(soon + 10_000_000_000), []);
    assert_eq!(edges.take_walks(&mut other, std::iter::once(path(1, &[], turns()))), WalkOrders::default());
}

#[test]
fn a_device_in_the_place_of_something_as_large_is_found_later() {
    thread_local!(static MAPPED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    edges.devices = Devices::told_by(|_| MAPPED.get(), |_| 7);
    (0..2).for_each(|_| edges.take(&mut book, &sample(by_memory(), 0x1000, 7)));
    assert_eq!(edges.orders().len(), 1);
    MAPPED.set(true);
    let now = clock::monotonic_ns();
    assert_eq!(edges.orders_at(now + 10_000_000_000), []);
    assert!(matches!(edges.orders_at(now + 17_000_000_000)[..], [Order::Remove(_)]));
    // Where nobody walks, walks are not begun by it.
    assert_eq!(edges.take_walks(&mut book, std::iter::empty()), WalkOrders::default());
}

#[test]
fn walks_through_what_is_mapped_no_more_mean_nothing() {
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    let orders = edges.take_walks(&mut book, std::iter::once(path(0, &[], turns())));
    let at = turns() - own_bias(&book);
    let hops = [(number_at(&orders, at + 3), number_at(&orders, at)); 3];
    edges.take_walks(&mut book, std::iter::once(path(0, &hops, 0)));
    assert_eq!(rows(&mut book).len(), 1);
    // The same file a page further on, as another library would be.
    let own = proc::executable_mappings(std::process::id());
    let m = own.iter().find(|m| (m.start..m.end).contains(&turns())).expect("our own code");
    let page = turns() & !4095;
    let file = whither_kernel::records::MappedFile::Inode { major: m.device.0, minor: m.device.1, inode: m.inode };
    let (pid, start, offset) = (std::process::id(), page, m.offset + page - m.start + 4096);
    let mmap =
        whither_kernel::records::Mmap { pid, start, length: 4096, offset, file, exec: true, path: m.path.clone() };
    let time = clock::monotonic_ns();
    let body = whither_kernel::records::Body::Mmap(mmap);
    book.record(&whither_kernel::records::Record { time, cpu: 0, pid, tid: pid, id: 0, body });
    book.forget(clock::monotonic_ns() + 60_000_000_000);
    let found = edges.take_walks(&mut book, std::iter::once(path(0, &hops, 0)));
    assert_eq!(rows(&mut book), []);
    // The kernel side is told what is there now.
    let parts = found.spaces.first().map_or(&[][..], |s| &s.1);
    assert!(parts.iter().any(|p| p.start == page && p.end == page + 4096), "{found:x?}");
}

/// A process that has this program's code so much above stated addresses; and where its turns are.
fn mapped_at(book: &mut Book, pid: u32, above: u64) -> u64 {
    let own = std::process::id();
    let time = clock::monotonic_ns();
    let bias = own_bias(book);
    let mappings = proc::executable_mappings(own);
    let m = mappings.iter().find(|m| (m.start..m.end).contains(&turns())).expect("our own code");
    let file = whither_kernel::records::MappedFile::Inode { major: m.device.0, minor: m.device.1, inode: m.inode };
    let (start, length, offset) = (m.start - bias + above, m.end - m.start, m.offset);
    let mmap = whither_kernel::records::Mmap { pid, start, length, offset, file, exec: true, path: m.path.clone() };
    let body = whither_kernel::records::Body::Mmap(mmap);
    book.record(&whither_kernel::records::Record { time, cpu: 0, pid, tid: pid, id: 0, body });
    turns() - bias + above
}

fn walk_at(book: &mut Book, edges: &mut Edges, pid: u32, above: u64) -> WalkOrders {
    let at = mapped_at(book, pid, above);
    edges.take_walks(book, std::iter::once(Path { tgid: pid, pc: at, ..path(0, &[], at) }))
}

#[test]
fn code_is_prepared_once_for_all_processes_wherever_they_have_it() {
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    edges.devices = Devices::told_by(|_| false, |_| 0);
    let above = 0x5555_0000_0000;
    let first = walk_at(&mut book, &mut edges, 4_100_001, 0);
    let second = walk_at(&mut book, &mut edges, 4_100_002, above);
    assert!(first.ops.len() > 3, "{first:?}");
    assert_eq!(told(&first), [(4_100_001, 0)]);
    assert_eq!(told(&second), [(4_100_002, above)]);
    assert_eq!(second, WalkOrders { spaces: second.spaces.clone(), ..WalkOrders::default() });
    // What the second one walks through is where it has it.
    let at = turns() - own_bias(&book);
    let hops = [(number_at(&first, at + 3), number_at(&first, at)); 3];
    let walk = Path { tgid: 4_100_002, pc: at + above, ..path(0, &hops, 0) };
    edges.take_walks(&mut book, std::iter::once(walk.clone()));
    let from = offset(turns());
    assert_eq!(ways(&rows(&mut book)), [(from, from + 3, Way::To(ImageOffset(from)), 2)]);
    // Nobody has told of this one, so nobody can have walked there.
    mapped_at(&mut book, 4_100_003, above);
    edges.take_walks(&mut book, std::iter::once(Path { tgid: 4_100_003, ..walk }));
    assert_eq!(rows(&mut book), []);
}

/// A compiler is over before its first samples could be answered.
#[test]
fn a_process_knows_from_its_beginning_what_others_of_its_program_know() {
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    edges.devices = Devices::told_by(|pid| pid == 4_200_003, |_| 0);
    let above = 0x5555_0000_0000;
    walk_at(&mut book, &mut edges, 4_200_001, 0);
    let mut begun = |pid: u32, known: bool| {
        if known {
            mapped_at(&mut book, pid, above);
        }
        let task = Task { why: whither_abi::WHY_EXECED, tgid: pid, tid: pid, tag: 9, ..Task::default() };
        let task = Task { time: clock::monotonic_ns(), ..task };
        edges.begun(&book, std::iter::once(&task));
        edges.take_walks(&mut book, std::iter::empty())
    };
    assert_eq!(told(&begun(4_200_002, true)), [(4_200_002, above)]);
    assert_eq!(begun(4_200_002, true), WalkOrders::default(), "once");
    assert_eq!(begun(4_200_003, true), WalkOrders::default(), "it has a device");
    assert_eq!(begun(4_200_004, false), WalkOrders::default(), "nobody");
}

#[test]
fn code_that_was_waited_for_is_led_to_when_it_is_prepared() {
    let (mut book, mut edges) = (book(), Edges::new(true, Spend::Freely));
    // This test program has places enough from which more is reached than is prepared at once.
    let reached = (0..1000_u64).find_map(|n| {
        edges.take_walks(&mut book, std::iter::once(path(0, &[], turns() + n * 1021)));
        edges.walked.some_awaited()
    });
    let (awaited, from) = reached.expect("more code than is prepared at once");
    let at = awaited + own_bias(&book);
    let orders = edges.take_walks(&mut book, std::iter::once(path(0, &[], at)));
    let number = number_at(&orders, awaited);
    let led = orders.ops.iter().rev().find(|o| o.0 == from).expect("told anew").1;
    assert!(led.next == number || led.taken == number, "{led:?} to {number}");
}
