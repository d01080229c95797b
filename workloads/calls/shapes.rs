//! True call paths in Rust: closures, trait objects, iterators, generics, recursion, a panic caught, and
//! destructors that run during it. Each function keeps its name on a stack of our own; with the argument
//! `truth` the paths to `target` are printed, `path CALLS NAMES`, sorted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static STACK: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    static PATHS: RefCell<BTreeMap<String, u64>> = const { RefCell::new(BTreeMap::new()) };
}

struct Here;

impl Here {
    fn at(name: &'static str) -> Self {
        STACK.with_borrow_mut(|s| s.push(name));
        Self
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        STACK.with_borrow_mut(Vec::pop);
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
fn target(x: u64) -> u64 {
    let path = STACK.with_borrow(|s| s.join(" > ")) + " > target";
    PATHS.with_borrow_mut(|p| *p.entry(path).or_default() += 1);
    black_box(x * 3 + 1)
}

macro_rules! shape {
    ($name:ident, $way:ident, $left:ident, $body:expr) => {
        #[inline(never)]
        #[unsafe(no_mangle)]
        fn $name($way: u64, $left: u32) -> u64 {
            let _here = Here::at(stringify!($name));
            black_box($body)
        }
    };
}

shape!(plain, way, left, {
    let text = "x".repeat((way % 50) as usize);
    next(way, left) + text.len() as u64
});
shape!(boxed, way, left, {
    let call: Box<dyn Fn(u32) -> u64> = Box::new(move |l| next(way, l));
    call(left) + 1
});
shape!(iterated, way, left, (0..3).map(|i| next(way + i, left.min(2))).filter(|y| y % 2 == 0).sum::<u64>());
shape!(sorted, way, left, {
    let mut values = [5u64, 3, 9, 1];
    values.sort_by_key(|v| next(way ^ *v, left.min(1)) % 7);
    values[0]
});
shape!(caught, way, left, {
    let fallen = catch_unwind(AssertUnwindSafe(|| falling(way, left)));
    fallen.unwrap_or_else(|_| next(way, left.min(2)))
});
shape!(falling, way, left, {
    let _dropped = Dropped(way, left.min(2));
    if way % 3 == 0 { std::panic::panic_any(way) } else { next(way, left) + 1 }
});
shape!(dropping, way, left, next(way / 3, left));
shape!(next, way, left, {
    const SHAPES: [fn(u64, u32) -> u64; 5] = [plain, boxed, iterated, sorted, caught];
    if left > 0 { SHAPES[(way % 5) as usize](way / 5, left - 1) % 0xffff + 1 } else { target(way & 0xffff) }
});

struct Dropped(u64, u32);

impl Drop for Dropped {
    fn drop(&mut self) {
        black_box(dropping(self.0, self.1));
    }
}

fn main() {
    std::panic::set_hook(Box::new(|_| ()));
    let (mut state, mut sum) = (88172645463325252u64, 0u64);
    for _ in 0..1500 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sum = sum.wrapping_add(next(state >> 8, (state % 6) as u32));
    }
    let calls: u64 = PATHS.with_borrow(|p| p.values().sum());
    println!("sum {sum}\ncalls_target {calls}");
    if std::env::args().nth(1).as_deref() == Some("truth") {
        PATHS.with_borrow(|paths| paths.iter().for_each(|(path, calls)| println!("path {calls} {path}")));
    }
}
