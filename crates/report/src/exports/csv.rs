//! Comma-separated values (RFC 4180): one line per sampled position, event, process and slice, the
//! finest grain the profile has.

use super::names::Namer;
use super::{Options, failed};
use crate::error::Error;
use std::io::Write;
use whither_store::model::{EventUnit, Frame, Profile};
use whither_store::symbols::Symbols;

const HEADER: &str =
    "event,unit,image,image_id,procedure,address,file,line,command,pid,tid,cgroup,slice,period,samples,weight\r\n";

/// Writes all sample rows.
///
/// # Errors
/// See [`super::write`].
pub fn write(profile: &Profile, symbols: &dyn Symbols, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let mut namer = Namer::new(profile, symbols, options.lines);
    out.write_all(HEADER.as_bytes()).map_err(failed("csv"))?;
    for s in &profile.samples {
        let (event, image, process) = (profile.event(s.event), profile.image(s.image), profile.process(s.process));
        let named = namer.frame(Frame { image: s.image, offset: s.offset });
        let (inner, outer) = (&named[0], &named[named.len() - 1]);
        let unit = match event.unit {
            EventUnit::Nanoseconds => "ns",
            EventUnit::Count => "count",
        };
        let line = [
            field(&event.name),
            unit.into(),
            field(&image.path),
            image.id.to_hex(),
            field(&outer.name),
            format!("{:#x}", namer.address(s.image, s.offset)),
            field(&inner.file),
            if inner.line > 0 { inner.line.to_string() } else { String::new() },
            field(&process.comm),
            process.pid.to_string(),
            s.tid.to_string(),
            field(&process.cgroup),
            s.slice.to_string(),
            s.period.to_string(),
            s.count.to_string(),
            s.weight().to_string(),
        ];
        write!(out, "{}\r\n", line.join(",")).map_err(failed("csv"))?;
    }
    Ok(())
}

/// Quoted where the text holds a separator, a quote or a line break.
pub(super) fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
