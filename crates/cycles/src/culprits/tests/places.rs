//! Loops that stay with few places: their loads hit and their stores drain, but what was just stored may not be had at once.

use super::*;

const MASK: [u8; 3] = [0x83, 0xe6, 0x07]; // and $7,%esi
const STORE_BYTE: [u8; 3] = [0x88, 0x04, 0x31]; // mov %al,(%rcx,%rsi)
const STEP: [u8; 4] = [0x48, 0x83, 0xc0, 0x01]; // add $1,%rax
const SUM: [u8; 3] = [0x48, 0x03, 0x11]; // add (%rcx),%rdx
const COPY: [u8; 3] = [0x48, 0x89, 0xc6]; // mov %rax,%rsi

fn causes(body: &[&[u8]], i: usize, stall: f64) -> Vec<Cause> {
    Case::looped(&around(body)).causes(i, stall)
}

#[test]
fn a_byte_stored_somewhere_into_what_is_loaded_next_fails_to_be_forwarded() {
    let body: [&[u8]; 5] = [&COPY, &MASK, &STORE_BYTE, &STEP, &SUM];
    let judged = Case::looped(&around(&body)).judge(4, 21.5);
    assert_eq!(judged.culprits.iter().map(|c| c.cause).collect::<Vec<_>>(), [Cause::Forwarding], "{judged:?}");
    assert!(judged.culprits[0].min_cycles > 10.0);
    // mov %al,8(%rcx,%rsi): up to byte 15, behind what is loaded.
    let behind: [&[u8]; 5] = [&COPY, &MASK, &[0x88, 0x44, 0x31, 0x08], &STEP, &SUM];
    assert_eq!(causes(&behind, 4, 21.5), [Cause::DCache, Cause::StoreBuffer], "nobody here: another core");
    // Without the mask it may be anywhere: memory is a suspect then, and forwarding stays one.
    let anywhere = causes(&[&COPY, &STORE_BYTE, &STEP, &SUM], 3, 21.5);
    assert!(anywhere[0] == Cause::Forwarding && anywhere.contains(&Cause::DCache), "{anywhere:?}");
    // mov %rax,(%rcx,%rsi,8); mov (%rcx,%rdi,8),%rbx: elements of one size hold all of each other or nothing.
    let elements: [&[u8]; 3] = [&[0x48, 0x89, 0x04, 0xf1], &STEP, &[0x48, 0x8b, 0x1c, 0xf9]];
    let judged = Case::looped(&around(&elements)).judge(2, 21.5);
    assert!(judged.culprits.iter().all(|c| c.cause != Cause::Forwarding || c.max_cycles < 7.0), "{judged:?}");
    // mov %al,(%rdi,%rsi): from another register, which may count from there too.
    let other = causes(&[&COPY, &MASK, &[0x88, 0x04, 0x37], &STEP, &SUM], 4, 21.5);
    assert!(other.contains(&Cause::Forwarding), "{other:?}");
    // mov %rax,(%rdi,%rsi): wide enough.
    let wide = causes(&[&COPY, &MASK, &[0x48, 0x89, 0x04, 0x37], &STEP, &SUM], 4, 21.5);
    assert!(!wide.contains(&Cause::Forwarding), "{wide:?}");
    // The buffer on the stack: mov %al,(%rsp,%rsi); mov (%rsp),%rdx
    let local = causes(&[&COPY, &MASK, &[0x88, 0x04, 0x34], &STEP, &[0x48, 0x8b, 0x14, 0x24]], 4, 21.5);
    assert_eq!(local, [Cause::Forwarding]);
}

/// Whether a rule finds more than what another core may have done.
fn suspected(rule: Rule, body: &[&[u8]], stall: f64) -> bool {
    Case::looped(&around(body)).suspect(rule, 0, stall).is_some_and(|l| l != Likelihood::Remote)
}

#[test]
fn the_same_place_in_every_round_is_at_hand() {
    let fixed = |others: &[&[u8]]| suspected(data::data_cache, &[&[&SUM as &[u8]], others].concat(), 50.0);
    assert!(!fixed(&[&STEP]));
    // With nobody else to have done it, another core may.
    assert_eq!(causes(&[&SUM, &STEP], 0, 50.0), [Cause::DCache]);
    assert!(fixed(&[&STEP, &LOAD]), "other loads may push it out");
    // mov (%rsi,%rax),%bl behind a mask of 63, and without one
    assert!(!fixed(&[&STEP, &COPY, &[0x83, 0xe6, 0x3f], &[0x8a, 0x1c, 0x37]]));
    assert!(fixed(&[&STEP, &COPY, &[0x8a, 0x1c, 0x37]]));
    // add %rax,(%rcx): a counter, which another thread may have in the same line.
    assert!(causes(&[&[0x48, 0x01, 0x01], &STEP], 0, 50.0).contains(&Cause::DCache));
    assert!(fixed(&[&STEP, &[0xf3, 0x90]]), "pause");
    let wait = Case::looped(&[0x48, 0x83, 0x39, 0x00, 0x74, 0xfa]); // cmpq $0,(%rcx); je 0
    assert!(wait.causes(0, 50.0).contains(&Cause::DCache), "another core writes what it waits for");
}

#[test]
fn few_stores_to_few_places_fill_no_buffer() {
    let full = |body: &[&[u8]], cycles: f64| suspected(data::store_buffer, body, cycles);
    let few: [&[u8]; 4] = [&STEP, &COPY, &MASK, &STORE_BYTE];
    assert!(!full(&few, 20.0));
    assert!(full(&few, 1.5), "about one per cycle");
    assert!(full(&[&STEP, &COPY, &STORE_BYTE], 20.0), "anywhere in memory");
    let locked = [&few[..], &[&[0xf0, 0x48, 0x01, 0x07]]].concat();
    assert!(full(&locked, 20.0), "a locked operation: there are other threads");
}

/// Two threads, one of which reads a word twice in a round while the other writes its neighbour in the same line.
#[test]
fn loads_of_one_place_by_a_loop_may_each_miss_as_another_core_writes_its_line() {
    // mov (%rcx),%rdi
    let read: [u8; 3] = [0x48, 0x8b, 0x39];
    let twice: [&[u8]; 4] = [&SUM, &STEP, &read, &STEP];
    for i in [0, 2] {
        let judged = Case::looped(&around(&twice)).judge(i, 5.0);
        assert_eq!(judged.culprits.iter().map(|c| (c.cause, c.min_cycles)).collect::<Vec<_>>(), [(Cause::DCache, 0.0)]);
        assert_eq!(judged.unexplained, 0.0);
        assert!(Case::looped(&around(&twice)).judge(i, 0.1).culprits.is_empty(), "the quick twin");
    }
    // mov %rax,(%rcx) between: the second comes from the store.
    let stored: [&[u8]; 4] = [&SUM, &STEP, &[0x48, 0x89, 0x01], &read];
    assert!(!causes(&stored, 3, 5.0).contains(&Cause::DCache));
    // In straight code there is no time for it.
    assert!(!Case::straight(0x1000, &twice.concat()).causes(2, 5.0).contains(&Cause::DCache));
}

/// A load of what was accessed just before: whether another core may have taken its line depends on who else runs.
#[test]
fn an_access_just_before_does_not_clear_a_line_that_other_cores_write() {
    // mov (%rcx),%rdi; add $1,%rax; add 8(%rcx),%rdx; mov %rax,16(%rcx)
    let near: [&[u8]; 4] = [&[0x48, 0x8b, 0x39], &STEP, &[0x48, 0x03, 0x51, 0x08], &[0x48, 0x89, 0x41, 0x10]];
    let judged =
        |body: &[&[u8]], threads: Threads, i: usize| Case { threads, ..Case::looped(&around(body)) }.judge(i, 300.0);
    let blamed = |judged: &Judged| judged.culprits.iter().find(|c| c.cause == Cause::DCache).map(|c| c.max_cycles);
    let parallel = judged(&near, Threads::Parallel, 2);
    assert_eq!(parallel.culprits.first().map(|c| c.cause), Some(Cause::DCache), "{parallel:?}");
    assert_eq!(
        (blamed(&parallel), parallel.unexplained),
        (Some(300.0), 0.0),
        "all of it, not the way to the next line"
    );
    assert!(blamed(&judged(&near, Threads::Unknown, 2)).is_some(), "somebody must have done it");
    assert!(blamed(&judged(&near, Threads::One, 2)).is_none_or(|max| max < 200.0), "one thread has its line");
    // The very bytes: mov (%rcx),%rdi; add $1,%rax; add (%rcx),%rdx; mov %rax,16(%rcx)
    let same: [&[u8]; 4] = [near[0], near[1], &SUM, near[3]];
    assert!(blamed(&judged(&same, Threads::Parallel, 2)).is_some());
    // The stack is nobody else's: mov (%rsp),%rdi; add $1,%rax; add (%rsp),%rdx
    let stack: [&[u8]; 3] = [&[0x48, 0x8b, 0x3c, 0x24], &STEP, &[0x48, 0x03, 0x14, 0x24]];
    assert!(blamed(&judged(&stack, Threads::Parallel, 2)).is_none());
    // Just stored: mov %rax,(%rcx); add (%rcx),%rdx
    let stored: [&[u8]; 2] = [&[0x48, 0x89, 0x01], &SUM];
    assert!(blamed(&judged(&stored, Threads::Parallel, 1)).is_none(), "it comes from the store");
}
