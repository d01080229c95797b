//! Cached function tables: the checksum is put right so that damage goes deeper; what is accepted is
//! written back as it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::FunctionTable;

fuzz_target!(|data: &[u8]| {
    let _ = FunctionTable::from_bytes(data);
    let Ok(table) = FunctionTable::from_bytes(&sealed(data)) else { return };
    let again = FunctionTable::from_bytes(&table.to_bytes()).expect("what was written can be read");
    assert_eq!(again, table);
});

/// Header and checksum around the input.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut bytes = b"WFT\x01".to_vec();
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}
