//! How procedures and positions are called in answers: demangled, with the address in the image's
//! own terms (what `objdump` prints), and with placeholders where nothing is known.

use crate::places::{Place, PlaceKind};
use std::borrow::Cow;
use std::ops::Range;
use whither_image::demangle::{Form, demangle};
use whither_image::{ImageOffset, Svma, to_offset, to_svma};
use whither_store::model::{Image, ImageKind};

/// Readable name: C++ with its parameters, which tell overloads apart; Rust without its hash; any
/// other name as it stands.
#[must_use]
pub fn demangled(name: &str) -> Cow<'_, str> {
    let form = if is_rust(name) { Form::Short } else { Form::Full };
    demangle(name, form)
}

/// Rust's own mangling, or its older one: a C++ name whose last component is a hash.
fn is_rust(name: &str) -> bool {
    let hash = |rest: &str| rest.len() > 16 && rest.bytes().take(16).all(|b| b.is_ascii_hexdigit());
    name.starts_with("_R") || name.starts_with("_ZN") && name.rsplit_once("17h").is_some_and(|(_, rest)| hash(rest))
}

/// Address of a position as tools print it for this image: the stated address in an ELF file, the
/// position itself elsewhere.
#[must_use]
pub fn address(image: &Image, at: ImageOffset) -> u64 {
    to_svma(&image.segments, at).map_or(at.0, |a| a.0)
}

/// Positions of ranges of stated addresses.
pub(crate) fn positions<'r>(
    image: &'r Image,
    ranges: &'r [Range<u64>],
) -> impl Iterator<Item = Range<ImageOffset>> + use<'r> {
    ranges.iter().map(|range| {
        let start = to_offset(&image.segments, Svma(range.start)).unwrap_or(ImageOffset(range.start));
        start..ImageOffset(start.0.saturating_add(range.end - range.start))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_stay_and_hashes_go() {
        assert_eq!(demangled("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangled("_ZN3foo17hello_hello_helloEi"), "foo::hello_hello_hello(int)");
        assert_eq!(demangled("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangled("memcpy"), "memcpy");
    }
}
