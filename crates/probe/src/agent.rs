//! The agent that is put into targets: its bytes and where its symbols are. It is compiled from
//! `agent/` by the build script; nothing here runs in the target or talks to one.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use object::{Object, ObjectSymbol};

/// The shared object, as it is to be loaded into the target.
pub const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.so"));

/// Distance from a return slot to the shadow word that holds its true return address. The unwind
/// description of the agent's entry holds the same number.
pub const SHADOW: i64 = -0x1000_0000_0000 + 0x1_0000;

/// Entries of `wh_shadow_set`: blocks of return slots whose shadow is mapped, an open-addressed table.
pub const SHADOW_SET: usize = 65536;

/// Places by which calls return whose exit is seen (`agent/offsets.h`, as the next).
pub const EXITS: usize = 16384;

/// Bytes of each.
pub const EXIT_BYTES: u64 = 16;

/// Bytes of stack that one entry of `wh_shadow_set` stands for.
pub const SHADOW_BLOCK: u64 = 0x10000;

/// Entries of `wh_maps`: address, and bytes with the process (or 0) in the upper half.
pub const MAPS: usize = 8192;

/// A symbol that the agent exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Symbol {
    /// Where stubs of points with an exit jump to.
    EntryExit,
    /// Where stubs of points that only count entries jump to.
    EntryOnly,
    /// Where stubs of places inside of functions call.
    EntrySite,
    /// Common entry of the function by which the unwinder of a static program looks for rules.
    EntryUnwind,
    /// `u64 wh_pace_start(u64 signal)`: threads are ticked by this signal from now on; 0 = done.
    PaceStart,
    /// `u64 wh_pace_stop(u64 signal)`: the signal is the program's again.
    PaceStop,
    /// `u64 wh_start(struct wh_start *)`: 0 = ready.
    Start,
    /// `void wh_stop(void)`: nothing is recorded any more.
    Stop,
    /// `u64 wh_calibrate(u64 rounds, u32 how)`: ticks of 64 calls of [`Symbol::Empty`] or [`Symbol::Bare`].
    Calibrate,
    /// What functions with a seen exit find in their return slots leads here: [`EXITS`] places of [`EXIT_BYTES`] bytes.
    Exits,
    /// `u64[EXITS]`: where calls go on that return by each place; 0: by none that has an address of its own.
    Returns,
    /// First byte of the agent's code.
    CodeBegin,
    /// Behind the last byte of the agent's code.
    CodeEnd,
    /// A `syscall` instruction followed by a trap.
    SyscallInsn,
    /// An empty function that calibration probes.
    Empty,
    /// One with nothing in it at all.
    Bare,
    /// The table of mapped shadow blocks: `u64[SHADOW_SET]`, 0 = unused.
    ShadowSet,
    /// The table of the agent's other private mappings: `u64[MAPS][2]`, see the header.
    Maps,
}

impl Symbol {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::EntryExit,
        Self::EntryOnly,
        Self::EntrySite,
        Self::EntryUnwind,
        Self::PaceStart,
        Self::PaceStop,
        Self::Start,
        Self::Stop,
        Self::Calibrate,
        Self::Exits,
        Self::Returns,
        Self::CodeBegin,
        Self::CodeEnd,
        Self::SyscallInsn,
        Self::Empty,
        Self::Bare,
        Self::ShadowSet,
        Self::Maps,
    ];

    /// Its name in the agent's dynamic symbol table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EntryExit => "wh_entry_exit",
            Self::EntryOnly => "wh_entry_only",
            Self::EntrySite => "wh_entry_site",
            Self::EntryUnwind => "wh_entry_unwind",
            Self::PaceStart => "wh_pace_start",
            Self::PaceStop => "wh_pace_stop",
            Self::Start => "wh_start",
            Self::Stop => "wh_stop",
            Self::Calibrate => "wh_calibrate",
            Self::Exits => "wh_exits",
            Self::Returns => "wh_returns",
            Self::CodeBegin => "wh_code_begin",
            Self::CodeEnd => "wh_code_end",
            Self::SyscallInsn => "wh_syscall_insn",
            Self::Empty => "wh_empty",
            Self::Bare => "wh_bare",
            Self::ShadowSet => "wh_shadow_set",
            Self::Maps => "wh_maps",
        }
    }

    /// Name of a symbol that [`IMAGE`] lacks; it must not be used then.
    #[must_use]
    pub fn missing() -> Option<&'static str> {
        Self::ALL.into_iter().find(|symbol| !SYMBOLS.contains_key(symbol)).map(Self::name)
    }

    /// Its offset from the address where the first byte of [`IMAGE`] is mapped; 0 when it is missing.
    #[must_use]
    pub fn offset(self) -> u64 {
        SYMBOLS.get(&self).copied().unwrap_or(0)
    }
}

static SYMBOLS: LazyLock<BTreeMap<Symbol, u64>> = LazyLock::new(|| {
    let Ok(file) = object::File::parse(IMAGE) else { return BTreeMap::new() };
    file.dynamic_symbols()
        .filter_map(|symbol| {
            let name = symbol.name().ok()?;
            Symbol::ALL.into_iter().find(|wanted| wanted.name() == name).map(|wanted| (wanted, symbol.address()))
        })
        .collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_has_every_symbol() {
        assert_eq!(Symbol::missing(), None);
        for symbol in Symbol::ALL {
            assert_ne!(symbol.offset(), 0, "{}", symbol.name());
        }
    }
}
