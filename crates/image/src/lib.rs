//! What a program image says of itself: ELF structure, symbols, lines, inlined functions, unwind
//! rules and machine code. Bytes come in, values go out: no file is opened here, so every parser can
//! be fuzzed and used on bytes from anywhere. Broken input yields an error or a partial value with
//! a list of problems, never a panic.

#![forbid(unsafe_code)]

pub mod blocks;
pub mod bytes;
pub mod callees;
pub mod cfg;
pub mod code_names;
pub mod condensed;
pub mod counters;
pub mod data_names;
pub mod declared;
pub mod demangle;
pub mod disasm;
pub mod dwarf;
pub mod effects;
pub mod elf;
pub mod error;
mod extents;
pub mod functions;
mod go_names;
pub mod graph;
pub mod ids;
pub mod interp;
pub mod jitdump;
pub mod jump_tables;
pub mod kallsyms;
mod mini_debug;
pub mod notes;
pub mod perfmap;
mod plt;
pub mod relocate;
pub mod return_reads;
pub mod rules_only;
mod section_notes;
mod sections;
pub mod signature;
pub mod source;
mod split;
pub mod stated;
pub mod statements;
pub mod symbols;
mod table_bytes;
pub mod unwind;
pub mod unwind_rows;
pub mod usdt;
mod view;
pub mod window;

pub use blocks::{Before, Block, Blocks};
pub use bytes::Bytes;
pub use callees::{Callee, Linkage, PointerCalls, SlotTarget, callees, pointer_calls};
pub use cfg::Cfg;
pub use code_names::{CodeName, NameKind, code_names};
pub use condensed::condensed;
pub use declared::Declared;
pub use demangle::{Form, demangle};
pub use disasm::{Flow, Insn, Printer, Syntax, decode, disassemble, is_emulated_by_uprobes};
pub use dwarf::{FrameRun, LineService};
pub use effects::{Effects, EffectsReader, MemRef, OpClass, RegSet, effects};
pub use elf::{
    DebugAltLink, DebugLink, ElfKind, ElfSummary, Machine, PrefixId, build_id_from_prefix, code_hash, debuglink_crc,
};
pub use error::{ImageError, Problem};
pub use functions::{Function, FunctionTable, NameSource};
pub use go_names::is_go_program;
pub use ids::{IdKind, ImageId, ImageKind, ImageOffset, Segment, Svma, to_offset, to_svma};
pub use jitdump::{JitDump, JitFunction, JitLine};
pub use jump_tables::JumpTable;
pub use kallsyms::{KernelSymbols, ModuleSymbols};
pub use notes::build_id_from_notes;
pub use perfmap::parse_perf_map;
pub use relocate::{RelocateError, Relocated, relocate};
pub use rules_only::rules_only;
pub use section_notes::build_id_from_sections;
pub use signature::{Passed, Signature};
pub use source::SourceFrame;
pub use split::SplitFiles;
pub use stated::{StatedBytes, constant_parts};
pub use statements::Statement;
pub use symbols::function_table;
pub use unwind::{ElfUnwindInfo, StackEnd, UnwindCache, Unwinder, UserRegs, UserStack, load_bias};
pub use unwind_rows::UnwindRows;
pub use usdt::{Mark, marks};
pub use window::{CallSite, CodeMap, Entry, EntryRefusal, NoExit, Plan, PlanKind};
