//! Kernel addresses of the machine that was recorded: the ranges that the file announces for the
//! kernel, its modules and BPF programs. The kernel running here is another one, or was loaded
//! elsewhere, unless a build-id or the place it was loaded to says otherwise.

use super::build_ids::{BuildIds, module_name};
use super::record::Mapping;
use crate::images::Images;
use crate::lives::ImageNo;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use whither_image::{ImageId, ImageKind, build_id_from_notes};
use whither_kernel::proc;

#[derive(Clone, Copy, Debug)]
struct Range {
    end: u64,
    image: ImageNo,
}

/// The recorded kernel's address space.
#[derive(Debug, Default)]
pub(super) struct KernelLayout {
    /// Modules and BPF programs.
    parts: BTreeMap<u64, Range>,
    /// The kernel proper; its range as perf tells it spans the modules too.
    kernel: Option<(u64, Range)>,
    program_sizes: FxHashMap<ImageNo, u64>,
}

impl KernelLayout {
    /// A mapping without process.
    pub(super) fn mapping(&mut self, images: &mut Images, ids: &BuildIds, m: &Mapping) {
        let end = m.start.saturating_add(m.length);
        if m.length == 0 || m.path.starts_with("[guest") {
            return;
        }
        match module_name(&m.path) {
            Some(name) => {
                let image = part(images, ImageKind::Module, &name, ids.module(&name), m.length);
                self.parts.insert(m.start, Range { end, image });
            }
            None => {
                let image = part(images, ImageKind::Kernel, "[kernel]", ids.kernel, 0);
                self.kernel = Some((m.start, Range { end, image }));
            }
        }
    }

    /// A BPF program or trampoline. One that went keeps its place: samples of it may still come.
    pub(super) fn symbol(&mut self, images: &mut Images, address: u64, length: u32, name: &str) {
        if length > 0 {
            let image = images.labelled(ImageKind::Bpf, &format!("[bpf: {name}]"), &format!("bpf {name}"));
            self.program_sizes.insert(image, length.into());
            self.parts.insert(address, Range { end: address.saturating_add(length.into()), image });
        }
    }

    /// Image and offset of a kernel address.
    pub(super) fn find(&self, pc: u64) -> Option<(ImageNo, u64)> {
        let part = self.parts.range(..=pc).next_back().map(|(start, range)| (*start, *range));
        let holds = |(start, range): &(u64, Range)| *start <= pc && pc < range.end;
        let (start, range) = part.filter(holds).or(self.kernel.filter(holds))?;
        Some((range.image, pc - start))
    }

    /// Whether the file says where the kernel is.
    pub(super) fn is_known(&self) -> bool {
        self.kernel.is_some()
    }

    /// BPF programs and their sizes in bytes.
    pub(super) fn programs(&self) -> impl Iterator<Item = (ImageNo, u64)> {
        self.program_sizes.iter().map(|(no, size)| (*no, *size))
    }
}

/// The build-id of the kernel that runs here, if it begins at this address: it is loaded to another one at every start,
/// so that a file of this host without build-ids (`perf record -B`) that tells the same one is of this very kernel.
pub(super) fn running_kernel_at(address: u64) -> Option<ImageId> {
    let symbols = BufReader::new(File::open("/proc/kallsyms").ok()?);
    // Both are among the first few; addresses that are hidden read as 0.
    let starts = symbols.lines().take(FIRST_SYMBOLS).map_while(Result::ok).filter_map(|line| {
        let (address, name) = line.split_once(' ')?;
        let is_start = matches!(name.get(2..)?, "_text" | "_stext");
        is_start.then(|| u64::from_str_radix(address, 16).ok()).flatten()
    });
    let here = address != 0 && starts.into_iter().any(|start| start == address);
    here.then(|| build_id_from_notes(&proc::read("/sys/kernel/notes").ok()?)).flatten()
}

/// Lines of `/proc/kallsyms` among which the start of the kernel is looked for.
const FIRST_SYMBOLS: usize = 20_000;

/// Without a build-id an image of the kernel is nobody's but this file's: a label alone would make it
/// one with the kernel that runs here.
fn part(images: &mut Images, kind: ImageKind, label: &str, id: Option<ImageId>, size: u64) -> ImageNo {
    match id {
        Some(id) => images.kernel_part(kind, label, Some(id), size),
        None => images.labelled(kind, label, &format!("recorded elsewhere: {label}")),
    }
}
