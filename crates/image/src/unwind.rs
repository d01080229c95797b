//! Call stacks of x86-64 user code from registers and a copy of the stack, by the unwind rules in
//! `.eh_frame` and, for code that has rules for debuggers only, in `.debug_frame`; through the frames of signal
//! handlers by what the kernel puts there. Nothing of the target is touched: this works on recorded samples, also
//! elsewhere.

use crate::bytes::Bytes;
use crate::error::ImageError;
use crate::extents::{eh_frame, eh_frame_hdr, header_holds, signal_frames};
use crate::ids::{Segment, Svma};
use crate::sections::section_bytes;
use crate::unwind_rows::{RowStep, UnwindRows};
use crate::view::View;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use object::elf;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The unwind rules of one image. Cloning copies pointers: many processes share one.
#[derive(Clone, Debug, Default)]
pub struct ElfUnwindInfo {
    base: u64,
    eh_frame: Option<Part>,
    eh_frame_hdr: Option<Part>,
    text: Option<Range<u64>>,
    got: Option<Range<u64>>,
    /// Rules of `.debug_frame`, where there is one.
    for_debuggers: Option<Arc<UnwindRows>>,
    /// The code that signal handlers return to.
    signal_frames: Arc<[Range<u64>]>,
}

const DEBUG_FRAME: &str = ".debug_frame";

/// A section where it is stated to be.
#[derive(Clone, Debug)]
struct Part {
    address: u64,
    bytes: Bytes,
}

impl Part {
    fn new(file: &Bytes, address: u64, bytes: &[u8]) -> Self {
        Self { address, bytes: file.share(bytes) }
    }

    fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.bytes.len() as u64)
    }
}

impl ElfUnwindInfo {
    /// The rules in an ELF file; without any the same as [`Self::frame_pointers`].
    ///
    /// # Errors
    /// When the file is not ELF for x86-64 or its headers cannot be read.
    pub fn from_elf(file: &Bytes) -> Result<Self, ImageError> {
        let view = View::parse(file)?;
        if view.machine != elf::EM_X86_64 {
            let detail = format!("machine {} is not x86-64, the only one that can be unwound", view.machine.0);
            return Err(ImageError::broken("unwind information", detail));
        }
        let loads = view.programs.iter().filter(|p| p.kind == elf::PT_LOAD);
        let base = loads.map(|p| p.address).min().unwrap_or(0);
        if base.checked_add(u64::from(u32::MAX)).is_none() {
            return Err(ImageError::broken("unwind information", format!("it is stated at the impossible {base:#x}")));
        }
        let range = |name: &str| view.section(name).map(crate::view::Section::addresses);
        let frame = eh_frame(&view);
        let header = eh_frame_hdr(&view).filter(|h| frame.is_some_and(|f| header_holds(&view, *h, f)));
        Ok(Self {
            base,
            eh_frame: frame.map(|(at, bytes)| Part::new(file, at, bytes)),
            eh_frame_hdr: header.map(|(at, bytes)| Part::new(file, at, bytes)),
            text: range(".text"),
            got: range(".got"),
            for_debuggers: Self::for_debuggers(file, &view),
            signal_frames: signal_frames(&view).into(),
        })
    }

    fn for_debuggers(file: &Bytes, view: &View<'_>) -> Option<Arc<UnwindRows>> {
        view.section(DEBUG_FRAME)?;
        let bytes = section_bytes(file, DEBUG_FRAME).ok()?;
        Some(Arc::new(UnwindRows::of_debug_frame(view, &bytes)))
    }

    /// No rules: code that keeps frame pointers, as most JIT compilers emit.
    #[must_use]
    pub fn frame_pointers() -> Self {
        Self::default()
    }

    /// Whether there are rules at all.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.eh_frame.is_some() || self.for_debuggers.is_some()
    }

    fn sections(&self) -> ExplicitModuleSectionInfo<Bytes> {
        let range = |part: &Option<Part>| part.as_ref().map(Part::range);
        let bytes = |part: &Option<Part>| part.as_ref().map(|p| p.bytes.clone());
        ExplicitModuleSectionInfo {
            base_svma: self.base,
            text_svma: self.text.clone(),
            got_svma: self.got.clone(),
            eh_frame_svma: range(&self.eh_frame),
            eh_frame: bytes(&self.eh_frame),
            eh_frame_hdr_svma: range(&self.eh_frame_hdr),
            eh_frame_hdr: bytes(&self.eh_frame_hdr),
            ..Default::default()
        }
    }
}

/// What is added to a stated address to get the address in memory, for a mapping that starts at
/// `map_start` and shows the file from `map_offset` on. `None` when no executable segment overlaps
/// that page.
#[must_use]
pub fn load_bias(segments: &[Segment], map_start: u64, map_offset: u64) -> Option<u64> {
    const PAGE: u64 = 4096;
    let holds = |s: &&Segment| {
        let first = s.offset & !(PAGE - 1);
        map_offset >= first && map_offset - first < s.size.saturating_add(s.offset - first)
    };
    let segment = segments.iter().find(holds)?;
    let stated = segment.address.wrapping_add(map_offset.wrapping_sub(segment.offset));
    Some(map_start.wrapping_sub(stated))
}

/// The registers a stack walk starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRegs {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer register, whether or not the code uses it as one.
    pub bp: u64,
}

/// Why a stack walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackEnd {
    /// At the outermost function: the stack is whole.
    Root,
    /// As many frames as were asked for.
    DepthLimit,
    /// The next frame lies behind the copied part of the stack.
    BeyondCopy,
    /// The next address is in no known module, so the walk went astray or a mapping is missing.
    UnknownCode,
    /// The rules contradict the stack.
    Broken,
}

/// A call stack, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserStack {
    /// The instruction pointer, then return addresses as they stand on the stack: subtract 1 to
    /// look up the line of the call. Also where a signal interrupted the program is one behind.
    pub addresses: Vec<u64>,
    /// Why there are no more.
    pub end: StackEnd,
}

/// Rules already looked up. One can serve many [`Unwinder`]s.
pub struct UnwindCache(CacheX86_64);

impl Default for UnwindCache {
    fn default() -> Self {
        Self(CacheX86_64::new())
    }
}

impl fmt::Debug for UnwindCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnwindCache")
    }
}

/// The modules of one process, and the walk over its stacks.
#[derive(Clone, Default)]
pub struct Unwinder {
    inner: UnwinderX86_64<Bytes>,
    /// By start in memory.
    modules: BTreeMap<u64, Placed>,
}

/// A module in memory.
#[derive(Clone, Debug)]
struct Placed {
    end: u64,
    bias: u64,
    for_debuggers: Option<Arc<UnwindRows>>,
    signal_frames: Arc<[Range<u64>]>,
}

impl Placed {
    fn is_signal_frame(&self, at: Svma) -> bool {
        self.signal_frames.iter().any(|range| range.contains(&at.0))
    }
}

impl fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwinder").field("modules", &self.modules).finish_non_exhaustive()
    }
}

impl Unwinder {
    /// A process without modules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds executable memory: addresses `range` in the process belong to the image with these
    /// rules, moved by `bias` (see [`load_bias`]; 0 for code without an image). Modules that it
    /// overlaps are removed, as a new mapping replaces the old.
    pub fn add_module(&mut self, range: Range<u64>, bias: u64, info: &ElfUnwindInfo) {
        if range.is_empty() {
            return;
        }
        self.remove_overlapping(&range);
        let (for_debuggers, signal_frames) = (info.for_debuggers.clone(), Arc::clone(&info.signal_frames));
        self.modules.insert(range.start, Placed { end: range.end, bias, for_debuggers, signal_frames });
        // Positions in a module are 32-bit numbers counted from its base, which code without an
        // image does not have.
        let (base, sections) = if info.has_rules() {
            (bias.wrapping_add(info.base), info.sections())
        } else {
            (range.start, ExplicitModuleSectionInfo::default())
        };
        self.inner.add_module(Module::new(String::new(), range, base, sections));
    }

    /// Removes the module that starts at `start`, if there is one.
    pub fn remove_module(&mut self, start: u64) {
        if self.modules.remove(&start).is_some() {
            self.inner.remove_module(start);
        }
    }

    fn remove_overlapping(&mut self, range: &Range<u64>) {
        let below = self.modules.range(..range.end).rev();
        let hit: Vec<u64> = below.take_while(|(_, placed)| placed.end > range.start).map(|(start, _)| *start).collect();
        for start in hit {
            self.remove_module(start);
        }
    }

    /// Walks a stack: `stack` holds the bytes from `regs.sp` on. At most `max_depth` addresses.
    #[must_use]
    pub fn unwind(&self, cache: &mut UnwindCache, regs: UserRegs, stack: &[u8], max_depth: usize) -> UserStack {
        let mut read = |at: u64| {
            let start = usize::try_from(at.checked_sub(regs.sp).ok_or(())?).map_err(|_| ())?;
            let word = stack.get(start..start.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_le_bytes(word.try_into().map_err(|_| ())?))
        };
        let mut frame = Frame { regs, address: FrameAddress::from_instruction_pointer(regs.ip) };
        let mut addresses = Vec::new();
        let end = loop {
            if addresses.len() >= max_depth {
                break StackEnd::DepthLimit;
            }
            if !addresses.is_empty() && !self.knows(frame.address.address_for_lookup()) {
                break StackEnd::UnknownCode;
            }
            addresses.push(frame.told(addresses.is_empty()));
            match self.step(&mut frame, cache, &mut read) {
                Ok(Some(next)) => frame.address = next,
                Ok(None) | Err(framehop::Error::ReturnAddressIsNull) => break StackEnd::Root,
                Err(framehop::Error::CouldNotReadStack(at)) if at.wrapping_sub(regs.sp) >= stack.len() as u64 => {
                    break if at >= regs.sp { StackEnd::BeyondCopy } else { StackEnd::Broken };
                }
                Err(_) => break StackEnd::Broken,
            }
        };
        UserStack { addresses, end }
    }

    /// To the caller's frame: its registers, and where it stands.
    fn step(
        &self,
        frame: &mut Frame,
        cache: &mut UnwindCache,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Result<Option<FrameAddress>, framehop::Error> {
        let at = frame.address.address_for_lookup();
        if let Some(placed) = self.placed(at) {
            let stated = Svma(at.wrapping_sub(placed.bias));
            if placed.is_signal_frame(stated) {
                frame.regs = interrupted(frame.regs.sp, read)?;
                return Ok(Some(FrameAddress::from_instruction_pointer(frame.regs.ip)));
            }
            let step = placed.for_debuggers.as_ref().map(|rows| rows.step(stated, &mut frame.regs, read));
            match step {
                Some(RowStep::Caller(back)) => return caller(back).map(Some),
                Some(RowStep::Root) => return Ok(None),
                Some(RowStep::Unread(at)) => return Err(framehop::Error::CouldNotReadStack(at)),
                Some(RowStep::NoRule) | None => {}
            }
        }
        let UserRegs { ip, sp, bp } = frame.regs;
        let mut regs = UnwindRegsX86_64::new(ip, sp, bp);
        let back = self.inner.unwind_frame(frame.address, &mut regs, &mut cache.0, read)?;
        frame.regs = UserRegs { ip: regs.ip(), sp: regs.sp(), bp: regs.bp() };
        back.map(caller).transpose()
    }

    fn placed(&self, address: u64) -> Option<&Placed> {
        self.modules.range(..=address).next_back().map(|(_, placed)| placed).filter(|placed| address < placed.end)
    }

    fn knows(&self, address: u64) -> bool {
        self.placed(address).is_some()
    }
}

/// A frame of a walk.
struct Frame {
    regs: UserRegs,
    address: FrameAddress,
}

impl Frame {
    /// As it goes into the stack. What a signal interrupted is told like a return address, one behind where it stands.
    fn told(&self, is_first: bool) -> u64 {
        match self.address {
            FrameAddress::InstructionPointer(ip) if !is_first => ip.saturating_add(1),
            other => other.address(),
        }
    }
}

fn caller(back: u64) -> Result<FrameAddress, framehop::Error> {
    FrameAddress::from_return_address(back).ok_or(framehop::Error::ReturnAddressIsNull)
}

/// Registers that a signal interrupted, from where the stack pointer is when the handler has returned: at the
/// `struct ucontext` (arch/x86/include/asm/sigframe.h `rt_sigframe`, include/uapi/asm/sigcontext.h).
fn interrupted(context: u64, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Result<UserRegs, framehop::Error> {
    const BP: u64 = 120;
    const SP: u64 = 160;
    const IP: u64 = 168;
    let mut word = |offset: u64| {
        let at = context.wrapping_add(offset);
        read(at).map_err(|()| framehop::Error::CouldNotReadStack(at))
    };
    Ok(UserRegs { ip: word(IP)?, sp: word(SP)?, bp: word(BP)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_their_index_are_shared_not_copied() {
        let Ok(file) = std::fs::read("/bin/true").map(Bytes::from) else {
            return eprintln!("skipped: no /bin/true");
        };
        let info = ElfUnwindInfo::from_elf(&file).unwrap();
        let inside = |part: &Option<Part>| {
            let start = part.as_ref().unwrap().bytes.as_ptr() as usize;
            (file.as_ptr() as usize..file.as_ptr() as usize + file.len()).contains(&start)
        };
        assert!(inside(&info.eh_frame) && inside(&info.eh_frame_hdr));
    }

    #[test]
    fn the_frame_of_a_signal_handler_leads_to_what_was_interrupted() {
        let path = "/lib/x86_64-linux-gnu/libc.so.6";
        let Ok(file) = std::fs::read(path).map(Bytes::from) else {
            return eprintln!("skipped: no {path}");
        };
        let info = ElfUnwindInfo::from_elf(&file).unwrap();
        let [restorer] = &*info.signal_frames else { panic!("{:?}", info.signal_frames) };
        let mut unwinder = Unwinder::new();
        unwinder.add_module(0..1 << 30, 0, &info);
        // Code that keeps frame pointers was interrupted; its caller is the outermost frame.
        let (code, sp, frame) = (1 << 40, 0x7ff0_0000_u64, 0x7ff0_0180_u64);
        unwinder.add_module(code..code + 0x1000, 0, &ElfUnwindInfo::frame_pointers());
        let mut stack = vec![0; 512];
        let mut put = |at: u64, value: u64| stack[(at - sp) as usize..][..8].copy_from_slice(&value.to_le_bytes());
        put(sp + 120, frame);
        put(sp + 160, frame - 0x20);
        put(sp + 168, code + 0x10);
        put(frame + 8, code + 0x20);
        let regs = UserRegs { ip: restorer.end - 1, sp, bp: 0 };
        let walked = unwinder.unwind(&mut UnwindCache::default(), regs, &stack, 8);
        assert_eq!(walked.addresses[..2], [restorer.end - 1, code + 0x11], "{walked:x?}");
        // Too little was copied: no guess.
        let walked = unwinder.unwind(&mut UnwindCache::default(), regs, &stack[..168], 8);
        assert_eq!((walked.addresses.len(), walked.end), (1, StackEnd::BeyondCopy));
    }

    #[test]
    fn bias_of_a_mapping() {
        let segments = [Segment { offset: 0x1234, address: 0x40_3234, size: 0x5000 }];
        // The loader maps whole pages: the one that holds the segment's first byte begins before it.
        assert_eq!(load_bias(&segments, 0x7f00_0000_1000, 0x1000), Some(0x7f00_0000_1000 - 0x40_3000));
        assert_eq!(load_bias(&segments, 0x7f00_0000_3000, 0x3000), Some(0x7f00_0000_1000 - 0x40_3000));
        assert_eq!(load_bias(&segments, 0x7f00_0000_3000, 0x9000), None);
    }
}
