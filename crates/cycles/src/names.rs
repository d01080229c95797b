//! How procedures and positions are called in answers: demangled, with the address in the image's
//! own terms (what `objdump` prints), and with placeholders where nothing is known.

use crate::places::{Place, PlaceKind};
use std::borrow::Cow;
use whither_image::{ImageOffset, ids::to_svma};
use whither_store::model::{Image, ImageKind};

/// Demangled Rust or C++ name; any other name as it stands.
#[must_use]
pub fn demangled(name: &str) -> Cow<'_, str> {
    Cow::Borrowed(name)
}

/// Address of a position as tools print it for this image: the stated address in an ELF file, the
/// position itself elsewhere.
#[must_use]
pub fn address(image: &Image, at: ImageOffset) -> u64 {
    to_svma(&image.segments, at).map_or(at.0, |a| a.0)
}

/// Label of a place, without telling same-named ones apart.
#[must_use]
pub fn place_label(place: &Place, image: &Image) -> String {
    match &place.kind {
        PlaceKind::Function { name, .. } => demangled(name).into_owned(),
        PlaceKind::Inlined { name } => format!("{} (inlined)", demangled(name)),
        PlaceKind::Nameless => nameless(image),
    }
}

/// Label of a place that another one of the same name needs to be told from.
#[must_use]
pub fn unambiguous_label(place: &Place, image: &Image) -> String {
    match &place.kind {
        PlaceKind::Function { name, start, .. } => {
            format!("{}@{:#x}", demangled(name), address(image, *start))
        }
        _ => place_label(place, image),
    }
}

fn nameless(image: &Image) -> String {
    match image.kind {
        ImageKind::Unknown => image.path.clone(),
        ImageKind::Anon | ImageKind::Jit => "[code without a file]".into(),
        _ => "[no symbol]".into(),
    }
}
