//! Names of kernel functions from the kernel that runs now, for recordings that hold none: only where the build-id
//! says that it is the kernel, or the module, that was sampled. Offsets do not depend on where it was put at boot.

use crate::model::{IdKind, Image, ImageKind};
use std::fs::read;
use whither_image::kallsyms::KernelSymbols;
use whither_image::{FunctionTable, build_id_from_notes};

/// Functions of a kernel image; `None` when it is another one, or its addresses are hidden.
pub(crate) fn functions(image: &Image) -> Option<FunctionTable> {
    if image.id_kind != IdKind::BuildId {
        return None;
    }
    let module = image.path.trim_matches(['[', ']']);
    let notes = match image.kind {
        ImageKind::Kernel => "/sys/kernel/notes".to_owned(),
        // A name, not a path: a crafted one must not lead elsewhere.
        ImageKind::Module if !module.contains(['/', '.']) => format!("/sys/module/{module}/notes/.note.gnu.build-id"),
        _ => return None,
    };
    if build_id_from_notes(&read(notes).ok()?)? != image.id {
        return None;
    }
    let modules = read("/proc/modules").unwrap_or_default();
    let symbols = KernelSymbols::parse(&read("/proc/kallsyms").ok()?, &modules).ok()?;
    match image.kind {
        ImageKind::Kernel => Some(symbols.functions),
        _ => symbols.modules.into_iter().find(|m| m.name == module).map(|m| m.functions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_image::ImageId;

    fn kernel(id: ImageId) -> Image {
        let (id_kind, kind) = (IdKind::BuildId, ImageKind::Kernel);
        Image { id, id_kind, kind, path: "[kernel]".into(), segments: Vec::new(), size: 0 }
    }

    #[test]
    fn only_the_kernel_that_was_sampled_lends_its_names() {
        assert!(functions(&kernel(ImageId([7; 20]))).is_none(), "another kernel");
        let Some(id) = read("/sys/kernel/notes").ok().and_then(|n| build_id_from_notes(&n)) else {
            println!("SKIP: this kernel has no build-id to read");
            return;
        };
        let Some(table) = functions(&kernel(id)) else {
            println!("SKIP: kernel addresses are hidden here");
            return;
        };
        assert!(table.functions().iter().any(|f| &*f.name == "schedule"), "{} functions", table.functions().len());
        let module = Image { kind: ImageKind::Module, path: "[../../etc]".into(), ..kernel(id) };
        assert!(functions(&module).is_none());
    }
}
