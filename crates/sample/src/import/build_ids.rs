//! The build-ids that `perf record` appends for the images its samples fell into (HEADER_BUILD_ID):
//! MMAP2 records name files by device and inode, which mean nothing on another machine.

use rustc_hash::FxHashMap;
use whither_image::ImageId;

/// Build-ids by image.
#[derive(Debug, Default)]
pub(super) struct BuildIds {
    /// The kernel's.
    pub(super) kernel: Option<ImageId>,
    modules: FxHashMap<String, ImageId>,
    files: FxHashMap<String, ImageId>,
}

impl BuildIds {
    /// Reads the section; entries after a damaged one are lost, as their places are not known.
    pub(super) fn parse(section: &[u8]) -> Self {
        let mut ids = Self::default();
        let mut rest = section;
        while let Some((kernel, path, id, tail)) = entry(rest) {
            rest = tail;
            match (kernel, module_name(&path)) {
                (true, Some(name)) => ids.modules.insert(name, id),
                (true, None) => {
                    ids.kernel = Some(id);
                    None
                }
                (false, _) => ids.files.insert(path, id),
            };
        }
        ids
    }

    /// Of a module, by its bracketed name.
    pub(super) fn module(&self, name: &str) -> Option<ImageId> {
        self.modules.get(name).copied()
    }

    /// Of a file, by the path its mappings have.
    pub(super) fn file(&self, path: &str) -> Option<ImageId> {
        self.files.get(path).copied()
    }
}

/// `u32 type, u16 misc, u16 size, i32 pid, u8 id[20], u8 id size, u8 pad[3], path`
fn entry(bytes: &[u8]) -> Option<(bool, String, ImageId, &[u8])> {
    const FIXED: usize = 36;
    const HAS_SIZE: u16 = 1 << 15;
    let misc = u16::from_le_bytes(bytes.get(4..6)?.try_into().ok()?);
    let size = usize::from(u16::from_le_bytes(bytes.get(6..8)?.try_into().ok()?));
    let body = bytes.get(..size).filter(|b| b.len() >= FIXED)?;
    let length = if misc & HAS_SIZE != 0 { usize::from(body[32]).min(20) } else { 20 };
    let path = &body[FIXED..];
    let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
    let path = String::from_utf8_lossy(&path[..end]).into_owned();
    let kernel = misc & 7 == 1;
    Some((kernel, path, ImageId::from_build_id(&body[12..12 + length]), &bytes[size..]))
}

/// Label of a kernel module from what perf calls it: `[ext4]`, or the path of `ext4.ko.xz`. `None`
/// for the kernel itself.
pub(super) fn module_name(path: &str) -> Option<String> {
    if path.starts_with("[kernel") || path.starts_with("[guest.kernel") {
        return None;
    }
    let file = path.rsplit('/').next().unwrap_or(path);
    if let Some(name) = file.strip_prefix('[').and_then(|f| f.strip_suffix(']')) {
        return Some(format!("[{}]", name.replace('-', "_")));
    }
    let stem = [".xz", ".gz", ".zst"].iter().find_map(|ext| file.strip_suffix(ext)).unwrap_or(file);
    // The kernel names modules with underscores, whatever the file is called.
    stem.strip_suffix(".ko").map(|name| format!("[{}]", name.replace('-', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_bytes(misc: u16, id: &[u8], path: &str) -> Vec<u8> {
        let size = u16::try_from(36 + path.len() + 1).expect("short path");
        let mut bytes = [&0u32.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes(), &[0xff; 4]].concat();
        bytes.extend(id);
        bytes.resize(12 + 20, 0);
        bytes.extend([u8::try_from(id.len()).expect("at most 20"), 0, 0, 0]);
        bytes.extend(path.bytes().chain([0]));
        bytes
    }

    #[test]
    fn kernel_modules_and_files_are_kept_apart() {
        let section = [
            entry_bytes(0x8001, &[1; 20], "[kernel.kallsyms]"),
            entry_bytes(0x8001, &[2; 20], "/lib/modules/6.1/kernel/snd-seq.ko.xz"),
            entry_bytes(0x8002, &[3; 16], "/usr/bin/x"),
        ]
        .concat();
        let ids = BuildIds::parse(&section);
        assert_eq!(ids.kernel, Some(ImageId([1; 20])));
        assert_eq!(ids.module("[snd_seq]"), Some(ImageId([2; 20])));
        assert_eq!(ids.file("/usr/bin/x"), Some(ImageId::from_build_id(&[3; 16])));
        // A cut section keeps what is whole.
        assert_eq!(BuildIds::parse(&section[..section.len() - 3]).file("/usr/bin/x"), None);
        assert_eq!(BuildIds::parse(&section[..40]).kernel, None);
    }

    #[test]
    fn module_names_come_from_paths_and_brackets() {
        assert_eq!(module_name("[kernel.kallsyms]_text"), None);
        assert_eq!(module_name("/usr/lib/debug/boot/vmlinux-6.1"), None);
        assert_eq!(module_name("[virtio_net]").as_deref(), Some("[virtio_net]"));
        assert_eq!(module_name("/lib/modules/6.1/kernel/fs/ext4/ext4.ko").as_deref(), Some("[ext4]"));
    }
}
