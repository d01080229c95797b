//! Hash maps, B-trees, a sieve, a matrix product and text: what Rust programs are made of. The work depends on its argument alone
//! (the hash has no seed), so that a counted run and a recorded one go the same ways.

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

#[derive(Default)]
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = (self.0 ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[inline(never)]
fn hashed(random: &mut Random) -> u64 {
    let mut map: HashMap<u64, u64, BuildHasherDefault<Fnv>> = HashMap::default();
    for i in 0..20_000 {
        *map.entry(random.next() % 5_000).or_default() += i;
    }
    map.iter().map(|(k, v)| k ^ v).fold(0, u64::wrapping_add)
}

#[inline(never)]
fn ordered(random: &mut Random) -> u64 {
    let mut tree = BTreeMap::new();
    for i in 0..15_000 {
        tree.insert(random.next() % 20_000, i);
        if i % 3 == 0 {
            tree.remove(&(random.next() % 20_000));
        }
    }
    tree.range(500..9_000).map(|(k, v)| k * v).fold(0, u64::wrapping_add)
}

#[inline(never)]
fn sieve(limit: usize) -> usize {
    let mut composite = vec![false; limit];
    for i in 2..limit {
        if !composite[i] {
            let mut multiple = i * i;
            while multiple < limit {
                composite[multiple] = true;
                multiple += i;
            }
        }
    }
    composite.iter().skip(2).filter(|c| !**c).count()
}

#[inline(never)]
fn product(random: &mut Random) -> f64 {
    const N: usize = 60;
    let mut of = || -> Vec<f64> { (0..N * N).map(|_| (random.next() % 100) as f64).collect() };
    let (a, b) = (of(), of());
    let mut sum = 0.0;
    for i in 0..N {
        for j in 0..N {
            let cell: f64 = (0..N).map(|k| a[i * N + k] * b[k * N + j]).sum();
            if cell > 100_000.0 {
                sum += cell;
            }
        }
    }
    sum
}

#[inline(never)]
fn text(random: &mut Random) -> usize {
    let mut words = String::new();
    for _ in 0..4_000 {
        for _ in 0..2 + random.next() % 8 {
            words.push(char::from(b'a' + (random.next() % 6) as u8));
        }
        words.push(' ');
    }
    let mut seen: Vec<&str> = words.split(' ').collect();
    seen.sort_unstable();
    seen.dedup();
    seen.len() + words.matches("abc").count()
}

#[inline(never)]
fn merged(random: &mut Random) -> u64 {
    let mut heap: BinaryHeap<u64> = (0..500).map(|_| random.next() % 100_000).collect();
    let mut sum = 0_u64;
    for _ in 0..10_000 {
        let Some(top) = heap.pop() else { break };
        sum = sum.wrapping_add(top);
        heap.push(if top % 5 == 0 { random.next() % 100_000 } else { top / 2 + random.next() % 1_000 });
    }
    sum
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut random = Random(88_172_645_463_325_252);
    let mut sum = 0.0;
    for _ in 0..rounds {
        let whole = hashed(&mut random) % 1_000 + ordered(&mut random) % 1_000 + merged(&mut random) % 1_000;
        sum += whole as f64 + (sieve(60_000) + text(&mut random)) as f64 + product(&mut random);
    }
    println!("{sum}");
}
