//! The one way from an image position to names, lines and code when reading a store. Analyses see
//! only the [`Symbols`] trait; the real service (image finder, disk cache, stored tables) is beside it.

use crate::model::Image;
use std::ops::Range;
use std::sync::Arc;
use whither_image::{Declared, FunctionTable, ImageOffset, SourceFrame, StatedBytes, Svma};

/// Names, lines, code and source text of images.
pub trait Symbols: Send + Sync {
    /// All functions of the image, empty when nothing is known. Cheap after the first call.
    fn functions(&self, image: &Image) -> Arc<FunctionTable>;

    /// Works out what is wanted of many images at once, where that is quicker than one by one. Nothing
    /// depends on it being called.
    fn prepare(&self, _images: &[&Image]) {}

    /// Inline chain at a position, innermost first; empty without line information.
    fn frames(&self, image: &Image, at: ImageOffset) -> Vec<SourceFrame>;

    /// Machine code of a range (`None` when the bytes cannot be had or do not match the image id).
    fn code(&self, image: &Image, range: Range<ImageOffset>) -> Option<Vec<u8>>;

    /// The image's bytes by stated address (for what is no ELF file: by position), read-only data included where
    /// the file is there; else the pieces of code stored with the recording. `None` when nothing is known.
    fn stated(&self, _image: &Image) -> Option<Arc<StatedBytes>> {
        None
    }

    /// Where functions are declared, and discriminators of the code in `ranges`; empty without debug information.
    /// Takes as long as reading all of it.
    fn declared(&self, _image: &Image, _ranges: &[Range<Svma>]) -> Declared {
        Declared::default()
    }

    /// Lines of a source file, when it can be found on this machine.
    fn source(&self, file: &str) -> Option<Arc<Vec<String>>>;

    /// When a source file was last written, ns since 1970.
    fn source_written(&self, _file: &str) -> Option<u64> {
        None
    }

    /// What went wrong so far, as sentences for the user (missing debug info is not a problem).
    fn problems(&self) -> Vec<String>;
}
