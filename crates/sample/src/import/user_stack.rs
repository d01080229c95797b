//! Stacks of `perf record --call-graph dwarf`: the file has user registers and a copy of the stack, which are unwound
//! here by the rules of the images, where those are still on this machine as they were.

use super::record::{Mode, UserCopy};
use crate::images::Images;
use crate::lives::{Life, LifeNo};
use crate::unwind::{Unwinders, Walk};
use whither_store::model::StackEnd;

/// Return addresses of user code, innermost first, and whether they reach the outermost function.
pub(super) fn unwound(
    unwinders: &mut Unwinders,
    images: &Images,
    life: Option<(LifeNo, &Life)>,
    copy: &UserCopy,
) -> (Vec<u64>, StackEnd) {
    let Some((no, life)) = life else { return (vec![copy.ip], StackEnd::Truncated) };
    // The pid may be anyone's by now: files are looked for by their paths alone.
    let walk = Walk { images, no, maps: &life.maps, pid: u32::MAX };
    unwinders.walk(&walk, [copy.ip, copy.sp, copy.bp], &copy.bytes)
}

/// A walk by frame pointers that ends in its first user frame met code without them.
pub(super) fn is_lone(chain: &[u64], mode: Mode, context: impl Fn(u64) -> Option<Mode>) -> bool {
    let (mut mode, mut user) = (mode, 0);
    for &value in chain {
        match context(value) {
            Some(next) => mode = next,
            None => user += usize::from(mode == Mode::User),
        }
    }
    user == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_frame_is_no_stack() {
        let marker = |v: u64| (v == 99).then_some(Mode::User);
        assert!(is_lone(&[1, 2, 99, 5], Mode::Kernel, marker), "one user frame behind two of the kernel");
        assert!(is_lone(&[5], Mode::User, marker));
        assert!(!is_lone(&[5, 6], Mode::User, marker));
        assert!(!is_lone(&[1, 2], Mode::Kernel, marker), "a kernel thread has none");
    }
}
