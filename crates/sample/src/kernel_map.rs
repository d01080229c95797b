//! Kernel addresses: the kernel proper, its modules, BPF programs. Read once at the start of a
//! recording; BPF programs that come later arrive as side-band records. Offsets do not depend on
//! where the kernel was put at boot.

use crate::images::Images;
use crate::lives::ImageNo;
use std::collections::BTreeMap;
use whither_image::kallsyms::KernelSymbols;
use whither_image::{Function, FunctionTable, ImageId, ImageKind, ImageOffset, NameSource, build_id_from_notes};
use whither_kernel::proc;

/// A range of kernel addresses that is one image.
#[derive(Clone, Debug)]
struct Range {
    start: u64,
    end: u64,
    image: ImageNo,
    functions: FunctionTable,
}

/// A BPF program; an image of its own once it is sampled, as its name holds a hash of its code.
#[derive(Clone, Debug)]
struct Program {
    length: u64,
    image: ImageNo,
}

/// The kernel's address space.
#[derive(Debug, Default)]
pub struct KernelMap {
    ranges: Vec<Range>,
    programs: BTreeMap<u64, Program>,
    problem: Option<String>,
}

impl KernelMap {
    /// Reads /proc/kallsyms and /proc/modules.
    #[must_use]
    pub fn read(images: &mut Images) -> Self {
        let kallsyms = proc::read("/proc/kallsyms").unwrap_or_default();
        let modules = proc::read("/proc/modules").unwrap_or_default();
        match KernelSymbols::parse(&kallsyms, &modules) {
            Ok(symbols) => Self::build(symbols, images),
            Err(e) => Self { problem: Some(e.to_string()), ..Self::default() },
        }
    }

    fn build(symbols: KernelSymbols, images: &mut Images) -> Self {
        let id = proc::read("/sys/kernel/notes").ok().and_then(|n| build_id_from_notes(&n));
        let size = symbols.etext - symbols.stext;
        let image = images.kernel_part(ImageKind::Kernel, "[kernel]", id, size);
        let mut ranges = vec![Range { start: symbols.stext, end: symbols.etext, image, functions: symbols.functions }];
        for m in symbols.modules {
            let label = format!("[{}]", m.name);
            let image = images.kernel_part(ImageKind::Module, &label, module_id(&m.name), m.end() - m.base);
            ranges.push(Range { start: m.base, end: m.end(), image, functions: m.functions });
        }
        ranges.sort_by_key(|r| r.start);
        let mut map = Self { ranges, ..Self::default() };
        if let Some(bpf) = symbols.bpf {
            for f in bpf.functions.functions() {
                map.symbol(images, bpf.base + f.start.0, f.size as u32, false, &f.name);
            }
        }
        map
    }

    /// A BPF program or trampoline came or went.
    pub fn symbol(&mut self, images: &mut Images, address: u64, length: u32, gone: bool, name: &str) {
        // A program that went keeps its place until another takes it: samples of it may still come.
        if gone || length == 0 {
            return;
        }
        let image = images.labelled(ImageKind::Bpf, &format!("[bpf: {name}]"), &format!("bpf {name}"));
        self.programs.insert(address, Program { length: length.into(), image });
    }

    /// Image and offset of a kernel address.
    #[must_use]
    pub fn find(&self, pc: u64) -> Option<(ImageNo, u64)> {
        let i = self.ranges.partition_point(|r| r.start <= pc);
        if let Some(r) = i.checked_sub(1).map(|i| &self.ranges[i]).filter(|r| pc < r.end) {
            return Some((r.image, pc - r.start));
        }
        let (start, program) = self.programs.range(..=pc).next_back()?;
        (pc - start < program.length).then_some((program.image, pc - start))
    }

    /// Whether kernel addresses can be told apart at all.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Why not, when not.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Functions of a kernel image, with offsets as samples carry them.
    #[must_use]
    pub fn functions(&self, image: ImageNo, label: &str) -> Option<FunctionTable> {
        if let Some(r) = self.ranges.iter().find(|r| r.image == image) {
            return Some(r.functions.clone());
        }
        let program = self.programs.values().find(|p| p.image == image)?;
        let name = label.trim_start_matches("[bpf: ").trim_end_matches(']').into();
        let start = ImageOffset(0);
        let whole = Function { start, size: program.length, name, source: NameSource::Symbol };
        Some(FunctionTable::new(vec![whole], ImageOffset(program.length)))
    }

    /// Where a kernel image lies in memory now.
    #[must_use]
    pub fn base(&self, image: ImageNo) -> Option<u64> {
        let range = self.ranges.iter().find(|r| r.image == image).map(|r| r.start);
        range.or_else(|| self.programs.iter().find(|(_, p)| p.image == image).map(|(start, _)| *start))
    }
}

fn module_id(name: &str) -> Option<ImageId> {
    let notes = proc::read(&format!("/sys/module/{name}/notes/.note.gnu.build-id")).ok()?;
    build_id_from_notes(&notes)
}

/// Where the kernel idles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleCode {
    /// The section of idle routines.
    pub section: (u64, u64),
    /// `pv_native_safe_halt`, which lies elsewhere; (0, 0) when the kernel has none.
    pub halt: (u64, u64),
}

impl IdleCode {
    /// Whether an address is of it.
    #[must_use]
    pub fn holds(&self, pc: u64) -> bool {
        [self.section, self.halt].iter().any(|(from, to)| (*from..*to).contains(&pc))
    }
}

/// The kernel's idle code: a sample of pid 0 elsewhere is real work done in interrupts on an idle
/// CPU. `None` when addresses are hidden.
#[must_use]
pub fn idle_code() -> Option<IdleCode> {
    parse_idle_code(&proc::read("/proc/kallsyms").ok()?)
}

fn parse_idle_code(kallsyms: &[u8]) -> Option<IdleCode> {
    let text = String::from_utf8_lossy(kallsyms);
    let at = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok().filter(|&a| a != 0);
    let address = |name: &str| text.lines().find(|l| l.ends_with(name)).and_then(at);
    let section = (address(" __cpuidle_text_start")?, address(" __cpuidle_text_end")?);
    let halt = address(" pv_native_safe_halt").map_or((0, 0), |from| {
        // It ends where the next symbol starts; it is a few instructions long.
        let next = text.lines().filter_map(at).filter(|&a| a > from).min();
        (from, next.unwrap_or(from + 16).min(from + 64))
    });
    Some(IdleCode { section, halt })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &[u8] = b"ffffffff81000000 T _stext\nffffffff81000100 T schedule\nffffffff81002000 T _etext\n\
        ffffffffc0001000 t probe\t[loop]\nffffffffc0009000 t bpf_prog_0123456789abcdef_x\t[bpf]\n";

    #[test]
    fn idle_code_is_a_section_and_a_halt() {
        let text = b"ffffffff82000010 t other\nffffffff82000000 t pv_native_safe_halt\n\
            ffffffff82001000 T __cpuidle_text_start\nffffffff82002000 T __cpuidle_text_end\n";
        let idle = parse_idle_code(text).expect("readable");
        assert_eq!(idle.section, (0xffff_ffff_8200_1000, 0xffff_ffff_8200_2000));
        assert_eq!(idle.halt, (0xffff_ffff_8200_0000, 0xffff_ffff_8200_0010));
        assert_eq!(parse_idle_code(b"0000000000000000 T __cpuidle_text_start\n"), None);
    }

    #[test]
    fn addresses_find_their_image() {
        let mut images = Images::default();
        let symbols = KernelSymbols::parse(KALLSYMS, b"loop 40960 0 - Live 0xffffffffc0001000\n").expect("readable");
        let mut map = KernelMap::build(symbols, &mut images);
        let (kernel, offset) = map.find(0xffff_ffff_8100_0180).expect("in the kernel");
        assert_eq!((images.get(kernel).path.as_str(), offset), ("[kernel]", 0x180));
        let table = map.functions(kernel, "[kernel]").expect("known");
        assert_eq!(table.find(ImageOffset(0x180)).map(|f| &*f.name), Some("schedule"));
        let (module, offset) = map.find(0xffff_ffff_c000_1010).expect("in the module");
        assert_eq!((images.get(module).path.as_str(), offset), ("[loop]", 0x10));
        map.symbol(&mut images, 0xffff_ffff_c000_b000, 0x80, false, "bpf_prog_aa_late");
        let (late, offset) = map.find(0xffff_ffff_c000_b07f).expect("in the program");
        assert_eq!((images.get(late).path.as_str(), offset), ("[bpf: bpf_prog_aa_late]", 0x7f));
        assert_eq!(map.functions(late, "[bpf: bpf_prog_aa_late]").expect("known").functions().len(), 1);
        assert!(map.find(0xffff_ffff_d000_0000).is_none());
    }
}
