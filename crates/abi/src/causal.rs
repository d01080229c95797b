//! Words of the causal profiler's kernel side, mirrored from `include/whither_causal.h`.

/// Most frames of a recorded sample.
pub const FRAMES: usize = 16;
