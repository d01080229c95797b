//! Hand-made loops with known counters.

use super::*;
use proptest::prelude::*;

/// Code at 0x1000.
struct Bytes(Vec<u8>);

impl Data for Bytes {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.0.checked_sub(0x1000)?).ok()?;
        self.0.get(from..from.checked_add(len)?)
    }
}

/// Address of the place, register, step, instructions of the stretch.
fn found(bytes: &[u8], from: u64) -> Vec<(u64, u8, i64, usize)> {
    let code = Code::from(&Bytes(bytes.to_vec()), Svma(from), 1000);
    let of = |c: &Counter| (code.insns[c.at].address.0, c.register, c.step, c.stretch.len());
    code.counters().iter().map(of).collect()
}

#[test]
fn pointers_and_counters_of_a_loop_are_found_from_any_of_its_instructions() {
    // 1000 mov eax,[rdi]; 1002 add rdi,4; 1006 add edx,eax; 1008 dec ecx; 100a jne 1000; 100c ret
    let bytes = [0x8b, 0x07, 0x48, 0x83, 0xc7, 0x04, 0x01, 0xc2, 0xff, 0xc9, 0x75, 0xf4, 0xc3];
    for from in [0x1000, 0x1002, 0x1008, 0x100a] {
        assert_eq!(found(&bytes, from), [(0x1008, 1, -1, 5), (0x1002, 7, 4, 5)], "{from:#x}");
    }
    assert_eq!(found(&bytes, 0x100c), []);
}

#[test]
fn a_register_set_anew_counts_within_the_inner_loop_only() {
    // 1000 xor ecx,ecx; 1002 inc ecx; 1004 cmp ecx,8; 1007 jne 1002; 1009 lea rsi,[rsi+16]; 100d cmp rsi,rdi; 1010 jne 1000; ret
    let bytes = [
        0x31, 0xc9, 0xff, 0xc1, 0x83, 0xf9, 0x08, 0x75, 0xf9, 0x48, 0x8d, 0x76, 0x10, 0x48, 0x39, 0xfe, 0x75, 0xee,
        0xc3,
    ];
    assert_eq!(found(&bytes, 0x1002), [(0x1002, 1, 1, 3), (0x1009, 6, 16, 7)]);
}

#[test]
fn counters_that_begin_where_another_has_got_to_are_known() {
    let begins = |bytes: &[u8]| {
        let code = Code::from(&Bytes(bytes.to_vec()), Svma(0x1000), 1000);
        let of = |c: &Counter| (code.insns[c.at].address.0, code.begins_at_constants(c));
        code.counters().iter().map(of).collect::<Vec<_>>()
    };
    // 1000 xor ecx,ecx; 1002 inc ecx; 1004 cmp ecx,8; 1007 jne 1002; 1009 lea rsi,[rsi+16]; 100d cmp rsi,rdi; 1010 jne 1000; ret
    let mut bytes = [
        0x31, 0xc9, 0xff, 0xc1, 0x83, 0xf9, 0x08, 0x75, 0xf9, 0x48, 0x8d, 0x76, 0x10, 0x48, 0x39, 0xfe, 0x75, 0xee,
        0xc3,
    ];
    assert_eq!(begins(&bytes), [(0x1002, true), (0x1009, false)], "rsi is the caller's");
    // 1000 mov ecx,esi
    bytes[..2].copy_from_slice(&[0x89, 0xf1]);
    assert_eq!(begins(&bytes), [(0x1002, false), (0x1009, false)]);
    // 1000 mov ecx,5; 1005 inc ecx; 1007 jne 1005; 1009 jmp 1005
    assert_eq!(begins(&[0xb9, 5, 0, 0, 0, 0xff, 0xc1, 0x75, 0xfc, 0xeb, 0xfa]), [(0x1005, true)]);
}

#[test]
fn calls_lose_what_they_may_change_and_two_steps_are_none() {
    // 1000 call 1100; 1005 inc ebx; 1007 inc ecx; 1009 jne 1000
    assert_eq!(found(&[0xe8, 0xfb, 0, 0, 0, 0xff, 0xc3, 0xff, 0xc1, 0x75, 0xf5], 0x1000), [(0x1005, 3, 1, 4)]);
    // 1000 inc ebx; 1002 inc ebx; 1004 jne 1000
    assert_eq!(found(&[0xff, 0xc3, 0xff, 0xc3, 0x75, 0xfa], 0x1000), []);
    // The stack pointer; a register added to another; 16 bits.
    assert_eq!(found(&[0x48, 0x83, 0xc4, 0x08, 0x75, 0xfa], 0x1000), []);
    assert_eq!(found(&[0x01, 0xc3, 0x66, 0xff, 0xc1, 0x75, 0xf9], 0x1000), []);
}

#[test]
fn differences_are_divided_by_steps() {
    let counter = |step, narrow| Counter { at: 0, register: 0, step, narrow, stretch: vec![0] };
    assert_eq!(counter(16, false).executions(0x1000, 0x1100), Some(16));
    assert_eq!(counter(16, false).executions(0x1000, 0x1108), None);
    assert!(counter(16, false).executions(0x1100, 0x1000).is_some_and(|n| n > 1 << 59), "backwards");
    assert!(counter(12, false).executions(0x1000, 0x1004).is_some_and(|n| n > 1 << 59), "no whole number");
    assert_eq!(counter(-1, true).executions(5, 0), Some(5));
    assert_eq!(counter(1, true).executions(0xffff_ffff, 1), Some(2));
    assert_eq!(counter(1, true).executions(1 << 40, 7 | 1 << 41), Some(7), "the upper half is not the register's");
    assert_eq!(counter(i64::MIN, false).executions(0, i64::MIN.cast_unsigned()), Some(1));
    assert_eq!(counter(i64::MIN, true).executions(0, 0), None);
    assert_eq!(counter(7, false).executions(3, 3), Some(0));
}

/// Every node of a component reaches every other, and none of two components do both.
fn are_components(next: &[Vec<usize>], barred: &[bool], found: &[Vec<usize>]) -> bool {
    let reach = |from: usize| {
        let mut seen = vec![false; next.len()];
        let mut todo = vec![from];
        while let Some(n) = todo.pop() {
            for &to in next[n].iter().filter(|&&to| !barred[to]) {
                if !std::mem::replace(&mut seen[to], true) {
                    todo.push(to);
                }
            }
        }
        seen
    };
    let all: Vec<Vec<bool>> = (0..next.len()).map(reach).collect();
    let both = |a: usize, b: usize| !barred[a] && !barred[b] && all[a][b] && all[b][a];
    let of = |n: usize| found.iter().position(|c| c.contains(&n));
    (0..next.len()).all(|a| (0..next.len()).all(|b| (of(a).is_some() && of(a) == of(b)) == both(a, b)))
}

proptest! {
    #[test]
    fn steps_are_counted_however_often_the_register_overflows(
        step in any::<i64>(), narrow in any::<bool>(), laps in 0_u64..1 << 30, before in any::<u64>(),
    ) {
        let step = if narrow { i64::from(step as i32) } else { step };
        // At most two bits of the register are lost.
        let step = if step.trailing_zeros() > 2 { step | 1 } else { step };
        let after = before.wrapping_add(step.cast_unsigned().wrapping_mul(laps));
        let counter = Counter { at: 0, register: 0, step, narrow, stretch: vec![0] };
        prop_assert_eq!(counter.executions(before, after), Some(laps));
    }

    #[test]
    fn components_are_what_reaches_each_other(
        edges in proptest::collection::vec((0_usize..12, 0_usize..12), 0..30),
        barred in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let mut next = vec![Vec::new(); 12];
        edges.iter().for_each(|&(a, b)| next[a].push(b));
        prop_assert!(are_components(&next, &barred, &components(&next, |i| barred[i])));
    }

    #[test]
    fn any_bytes_give_counters_that_step(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let code = Code::from(&Bytes(bytes), Svma(0x1000), 50);
        prop_assert!(code.insns.len() <= 50);
        for c in code.counters() {
            prop_assert!(c.step != 0 && c.stretch.contains(&c.at) && c.stretch.is_sorted());
        }
    }
}

/// Branch, whether it leaves when taken, register, step, bound, relation, addresses from which no step is to come.
type Left = (u64, bool, u8, i64, Bound, Relation, Vec<u64>);

fn left(bytes: &[u8], from: u64) -> Vec<Left> {
    let code = Code::from(&Bytes(bytes.to_vec()), Svma(0x1000), 1000);
    let at = code.insns.binary_search_by_key(&Svma(from), |i| i.address).expect("an instruction");
    let mut exits = Exits::of(&code);
    let found: Vec<Exit> = (0..code.insns.len()).filter_map(|i| exits.at(i)).collect();
    let address = |i: usize| code.insns[i].address.0;
    let of = |e: &Exit| {
        let settled = e.settled.iter().map(|&i| address(i)).collect();
        (address(e.branch), e.when_taken, e.register, e.step, e.bound, e.leaves, settled)
    };
    found.iter().filter(|e| e.stretch.contains(&at)).map(of).collect()
}

#[test]
fn loops_that_end_by_count_are_found() {
    // 1000 mov eax,[rdi]; 1002 add rdi,4; 1006 add edx,eax; 1008 dec ecx; 100a jne 1000; 100c ret
    let down = [0x8b, 0x07, 0x48, 0x83, 0xc7, 0x04, 0x01, 0xc2, 0xff, 0xc9, 0x75, 0xf4, 0xc3];
    assert_eq!(left(&down, 0x1006), [(0x100a, false, 1, -1, Bound::Value(0), Relation::Equal, vec![0x100a])]);
    // 1000 cmp eax,edx; 1002 jge 1008; 1004 inc eax; 1006 jmp 1000; 1008 ret
    let up = [0x39, 0xd0, 0x7d, 0x04, 0xff, 0xc0, 0xeb, 0xf8, 0xc3];
    let at_least = Relation::AtLeast(Sign::Signed);
    let settled = vec![0x1000, 0x1002, 0x1006];
    assert_eq!(left(&up, 0x1004), [(0x1002, true, 0, 1, Bound::Register(2), at_least, settled.clone())]);
    // The same, compared the other way round: 1000 cmp edx,eax; 1002 jle 1008
    let turned = [0x39, 0xc2, 0x7e, 0x04, 0xff, 0xc0, 0xeb, 0xf8, 0xc3];
    assert_eq!(left(&turned, 0x1004), [(0x1002, true, 0, 1, Bound::Register(2), at_least, settled)]);
    // 1000 inc ebx; 1002 cmp ebx,8; 1005 call 1100; 100a jne 1000
    assert_eq!(left(&[0xff, 0xc3, 0x83, 0xfb, 0x08, 0xe8, 0xf6, 0, 0, 0, 0x75, 0xf4, 0xc3], 0x1000), []);
    // Not in each round: 1000 test al,1; 1002 je 1006; 1004 inc ecx; 1006 cmp ecx,edx; 1008 jne 1000
    assert_eq!(left(&[0xa8, 0x01, 0x74, 0x02, 0xff, 0xc1, 0x39, 0xd1, 0x75, 0xf6, 0xc3], 0x1000), []);
    // Several times in a round: 1000 inc ecx; 1002 test al,1; 1004 je 1000; 1006 cmp ecx,edx; 1008 jne 1000
    assert_eq!(left(&[0xff, 0xc1, 0xa8, 0x01, 0x74, 0xfa, 0x39, 0xd1, 0x75, 0xf6, 0xc3], 0x1000), []);
    // A bound that the loop moves: 1004 inc eax; 1006 dec edx; 1008 jmp 1000
    assert_eq!(left(&[0x39, 0xd0, 0x7d, 0x06, 0xff, 0xc0, 0xff, 0xca, 0xeb, 0xf6, 0xc3], 0x1004), []);
}

#[test]
fn an_inner_loop_and_the_one_around_it_each_have_their_exit() {
    // 1000 xor ecx,ecx; 1002 inc ecx; 1004 cmp ecx,8; 1007 jne 1002; 1009 lea rsi,[rsi+16]; 100d cmp rsi,rdi; 1010 jne 1000; ret
    let bytes = [
        0x31, 0xc9, 0xff, 0xc1, 0x83, 0xf9, 0x08, 0x75, 0xf9, 0x48, 0x8d, 0x76, 0x10, 0x48, 0x39, 0xfe, 0x75, 0xee,
        0xc3,
    ];
    let inner = (0x1007, false, 1, 1, Bound::Value(8), Relation::Equal, vec![0x1004, 0x1007]);
    let outer = (0x1010, false, 6, 16, Bound::Register(7), Relation::Equal, vec![0x100d, 0x1010]);
    assert_eq!(left(&bytes, 0x1002), [inner, outer.clone()]);
    assert_eq!(left(&bytes, 0x1009), [outer]);
    let code = Code::from(&Bytes(bytes.to_vec()), Svma(0x1000), 1000);
    let mut exits = Exits::of(&code);
    let found: Vec<Exit> = (0..code.insns.len()).filter_map(|i| exits.at(i)).collect();
    assert_eq!(found.iter().map(|e| exits.is_simple(e)).collect::<Vec<_>>(), [true, false]);
}

fn relations() -> impl Strategy<Value = Relation> {
    use Relation::{Above, AtLeast, AtMost, Below, Equal};
    use Sign::{Signed, Unsigned};
    prop::sample::select(vec![
        Equal,
        AtLeast(Signed),
        AtLeast(Unsigned),
        Above(Signed),
        Above(Unsigned),
        AtMost(Signed),
        AtMost(Unsigned),
        Below(Signed),
        Below(Unsigned),
    ])
}

fn holds(relation: Relation, bits: u32, a: u64, b: u64) -> bool {
    let unused = 64 - bits;
    let key = |v: u64, sign: Sign| match sign {
        Sign::Signed => i128::from((v << unused).cast_signed()),
        Sign::Unsigned => i128::from(v << unused),
    };
    match relation {
        Relation::Equal => a << unused == b << unused,
        Relation::Unequal => a << unused != b << unused,
        Relation::AtLeast(s) => key(a, s) >= key(b, s),
        Relation::Above(s) => key(a, s) > key(b, s),
        Relation::AtMost(s) => key(a, s) <= key(b, s),
        Relation::Below(s) => key(a, s) < key(b, s),
    }
}

proptest! {
    /// Against stepping, as far as that goes without overflow.
    #[test]
    fn what_is_to_go_is_what_stepping_takes(
        leaves in relations(), wide: bool, settled: bool, from in -300_i64..300, bound in -300_i64..300, step in -9_i64..9,
    ) {
        prop_assume!(step != 0);
        let bits = if wide { 64 } else { 32 };
        let exit = Exit {
            branch: 0, when_taken: true, register: 3, step, bound: Bound::Register(5), leaves, bits,
            stretch: vec![0], settled: vec![0],
        };
        let mut registers = [0; 16];
        (registers[3], registers[5]) = (from.cast_unsigned(), bound.cast_unsigned());
        let first = if settled { from } else { from + step };
        let unsigned = matches!(leaves, Relation::AtLeast(s) | Relation::Above(s) | Relation::AtMost(s) | Relation::Below(s) if s == Sign::Unsigned);
        let values = (0..700_i64).map(|k| first + k * step);
        // A number that passes 0 overflows as an unsigned one.
        let known = values.take_while(|v| !unsigned || (*v < 0) == (first < 0));
        let counted = known.clone().position(|v| holds(leaves, bits, v.cast_unsigned(), registers[5])).map(|k| k as u64 + 1);
        let told = exit.to_go(settled, &registers);
        if counted.is_some() {
            prop_assert_eq!(told, counted);
        } else {
            prop_assert!(told.is_none_or(|n| n > known.count() as u64), "{:?}", told);
        }
    }
}
