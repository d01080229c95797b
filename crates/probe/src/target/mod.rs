//! The target process as the engine handles it: stopped, called into, given an agent, launched,
//! followed, and left as it was found. Knows nothing of probe points.
//!
//! The kernel ties a traced thread to the thread of ours that seized it, so all of this belongs to one
//! thread (the types are not `Send`).

mod crowd;
mod detour;
mod follow;
mod follow_execs;
mod heal;
mod home;
mod image;
mod inject;
mod launch;
mod leave;
mod library;
mod locals;
pub mod maps;
mod nap;
mod opens;
mod own_fs;
mod remote;
mod rush;
mod safe;
mod stop;

pub(crate) use crowd::{Crowd, is_crowded};
pub use follow::{Seen, Tree};
pub use follow_execs::{Execs, Lived, Queue, Told, Watch};
pub use heal::heal;
pub use inject::{Load, Placed, Way, find_agent, inject, remains, retired, throws_alone};
pub use launch::{Child, Launched, launch};
pub(crate) use leave::let_move;
pub use leave::{Owned, Restored, Shadows, inside, remove, restore_returns, stop_outside, unmap};
pub use nap::{Napper, blocks_signal, free_signal, masks_of};
pub(crate) use remote::longest_borrowed;
pub use remote::{Caller, filtered};
pub(crate) use safe::runtime;
pub(crate) use stop::tend_for;
pub use stop::{Stopped, tend, tend_again};
pub use whither_kernel::memory::Memory;
pub use whither_kernel::ptrace::Regs;
