//! Why a call was not recorded, or not all of it: indices of the counters that the agent keeps, mirrored from `enum wh_lost` of
//! `include/whither_agent.h`. What each means for a reader is told where losses become sentences.

/// `WH_LOST_BUSY`: the agent was interrupted by a signal whose handler called a probed function.
pub const LOST_BUSY: usize = 0;
/// `WH_LOST_DEPTH`: more calls in progress than the active stack holds.
pub const LOST_DEPTH: usize = 1;
/// `WH_LOST_TABLE`: no thread block or counter page was free, or no room for the stack.
pub const LOST_TABLE: usize = 2;
/// `WH_LOST_SHADOW`: the shadow of the return address could not be mapped: entry counted, no exit.
pub const LOST_SHADOW: usize = 3;
/// `WH_LOST_JUMPED`: left by longjmp, an exception or thread exit: counted, not timed.
pub const LOST_JUMPED: usize = 4;
/// `WH_LOST_EXIT`: an exit without its record: returned rightly, not timed.
pub const LOST_EXIT: usize = 5;
/// `WH_LOST_RING`: event record dropped, the ring was full.
pub const LOST_RING: usize = 6;
/// `WH_LOST_CLOCK`: recorded but for CPU time: the program has forbidden itself system calls.
pub const LOST_CLOCK: usize = 7;
/// `WH_LOST_EVENT`: recorded but for a counter of the processor, which could not be read.
pub const LOST_EVENT: usize = 8;
/// `WH_LOST_VALUE`: recorded but for a stack argument where no memory can be read.
pub const LOST_VALUE: usize = 9;
/// `WH_LOST_LOW`: as [`LOST_SHADOW`], the stack lies too low for one.
pub const LOST_LOW: usize = 10;
/// `WH_LOST_APART`: no calls, but ticks spent on changes of stack and on records left behind.
pub const LOST_APART: usize = 11;
/// `WH_LOST_FOREIGN`: counted, no exit: nothing is known of the caller's frame.
pub const LOST_FOREIGN: usize = 12;
/// `WH_LOST_OF_THREAD`: causes before are counted in blocks of threads too.
pub const LOST_OF_THREAD: usize = 13;
/// `WH_LOST_EARLY`: the thread has no thread pointer yet.
pub const LOST_EARLY: usize = 13;
/// `WH_LOST_LOCKED`: first call of a thread after the program had forbidden itself system calls.
pub const LOST_LOCKED: usize = 14;
/// `WH_LOST_SHARED`: made by a child that has its parent's memory and thread pointer.
pub const LOST_SHARED: usize = 15;
/// `WH_LOST_EDGE`: not made by a call, at the very end of a coroutine's stack.
pub const LOST_EDGE: usize = 16;
/// `WH_LOST_CAUSES`.
pub const LOST_CAUSES: usize = 17;
