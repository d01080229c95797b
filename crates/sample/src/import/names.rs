//! Names that no file on disk has: of the kernel and its modules (when the one that was recorded runs
//! here, by build-id), of BPF programs (told by the file), of the vDSO and of generated code.

use super::Imported;
use crate::images::{Images, own_vdso};
use crate::kernel_map::KernelMap;
use whither_image::perfmap::parse_perf_map;
use whither_image::{Function, FunctionTable, IdKind, ImageKind, ImageOffset, NameSource, build_id_from_notes};
use whither_kernel::proc;
use whither_store::model::Image;
use whither_store::{StoredFunction, StoredSymbols};

/// What this machine can tell of the images of an imported file.
#[must_use]
pub fn local_names(imported: &Imported) -> StoredSymbols {
    let mut running = Running::default();
    let mut names = StoredSymbols::default();
    for image in &imported.profile.images {
        let table = match image.kind {
            ImageKind::Kernel | ImageKind::Module if image.id_kind == IdKind::BuildId => running.functions(image),
            ImageKind::Bpf => program(imported, image),
            ImageKind::Vdso => vdso(image),
            ImageKind::Jit => generated(imported, image),
            _ => None,
        };
        let functions = table.iter().flat_map(|t| t.functions());
        names.funcs.extend(functions.map(|f| StoredFunction { image: image.id, function: f.clone() }));
    }
    names
}

/// The kernel that runs here, read when first asked for.
#[derive(Default)]
struct Running {
    images: Images,
    map: Option<KernelMap>,
}

impl Running {
    fn functions(&mut self, image: &Image) -> Option<FunctionTable> {
        if self.map.is_none() {
            // Reading all symbols takes a while: only if it is the right kernel at all.
            let id = proc::read("/sys/kernel/notes").ok().and_then(|notes| build_id_from_notes(&notes));
            if image.kind == ImageKind::Kernel && id != Some(image.id) {
                return None;
            }
            self.map = Some(KernelMap::read(&mut self.images));
        }
        let no = self.images.kernel_part(image.kind, &image.path, Some(image.id), 0);
        self.map.as_ref()?.functions(no, &image.path)
    }
}

/// A BPF program is one function from its first byte on.
fn program(imported: &Imported, image: &Image) -> Option<FunctionTable> {
    let (_, size) = *imported.programs.iter().find(|(id, _)| *id == image.id)?;
    let name = image.path.trim_start_matches("[bpf: ").trim_end_matches(']').into();
    let function = Function { start: ImageOffset(0), size, name, source: NameSource::Symbol };
    Some(FunctionTable::new(vec![function], ImageOffset(size)))
}

fn vdso(image: &Image) -> Option<FunctionTable> {
    let bytes = own_vdso()?;
    let summary = whither_image::ElfSummary::parse(&bytes).ok()?;
    (summary.id == image.id).then(|| whither_image::function_table(&bytes, None).0)
}

fn generated(imported: &Imported, image: &Image) -> Option<FunctionTable> {
    let (_, pid) = imported.jit_images.iter().find(|(id, _)| *id == image.id)?;
    Some(parse_perf_map(&crate::jit::read_perf_map(&crate::jit::Home::of(*pid), 0)?).0)
}
