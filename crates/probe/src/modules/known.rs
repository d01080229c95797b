//! What has been worked out of files: programs of a tree map the same ones again and again, and a compiler's
//! names and unwind rows take a quarter of a second. Kept as long as the thread that drives the engine lives;
//! a file counts as the same by its identity, number and size.

use super::{Module, Rows};
use crate::resolve::ModuleImage;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;
use whither_image::ImageId;
use whither_store::DebugFiles;

/// What tells files apart.
type Key = (ImageId, u64, usize);

thread_local! {
    static IMAGES: RefCell<FxHashMap<Key, Rc<ModuleImage>>> = RefCell::default();
    static ROWS: RefCell<FxHashMap<Key, Rows>> = RefCell::default();
}

fn key(module: &Module) -> Option<Key> {
    // What is in no file (the vDSO) costs nothing to read again.
    Some((module.id?, module.inode, module.file.as_ref()?.len())).filter(|(_, inode, _)| *inode != 0)
}

/// A module's file, with everything worked out of it before.
pub(crate) fn image(module: &Module) -> Option<Rc<ModuleImage>> {
    let file = module.file.clone()?;
    let make = || {
        let debug = DebugFiles::beside(&module.path, &file);
        Rc::new(ModuleImage::new(file, debug))
    };
    match key(module) {
        Some(key) => Some(IMAGES.with_borrow_mut(|all| Rc::clone(all.entry(key).or_insert_with(make)))),
        None => Some(make()),
    }
}

/// Rows worked out before.
pub(super) fn rows(module: &Module) -> Option<Rows> {
    let key = key(module)?;
    ROWS.with_borrow(|all| all.get(&key).cloned())
}

/// Keeps a module's rows.
pub(super) fn keep_rows(module: &Module, rows: &Rows) {
    if let Some(key) = key(module) {
        ROWS.with_borrow_mut(|all| all.insert(key, rows.clone()));
    }
}
