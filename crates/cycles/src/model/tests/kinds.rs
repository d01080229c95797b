//! Kinds of instructions: what is measured of each, and operands and results that do not come with the others.

use super::*;

/// What was measured of a kind replaces its vendor's least, and part of a cycle is no cycle.
#[test]
fn kinds_have_latencies_of_their_own() {
    // crc32 %rcx,%rax; jmp
    let crc = [0xf2, 0x48, 0x0f, 0x38, 0xf1, 0xc1, 0xeb, 0xf8];
    assert!(near(looped(&crc).blocks[0].best_cycles, 3.0, 0.01));
    let core = |cpu: &str, figures: &[(&str, f64)]| {
        let latencies = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Core::from_facts(&CoreFacts { cpu: cpu.into(), latencies, ..CoreFacts::default() })
    };
    let popcnt = |core: &Core| {
        let insns = effects(&decode(&[0xf3, 0x48, 0x0f, 0xb8, 0xc0, 0xeb, 0xf9], Svma(0x1000))); // popcnt %rax,%rax; jmp
        schedule(core, &insns, std::slice::from_ref(&(0..2)), &|_| vec![(0, 1.0)]).blocks[0].best_cycles
    };
    let intel = "Intel(R) Xeon(R) family 6 model 207";
    assert!(
        near(popcnt(&core(intel, &[])), 3.0, 0.01) && near(popcnt(&core("AMD family 25 model 17", &[])), 1.0, 0.01)
    );
    assert!(near(popcnt(&core(intel, &[("bits", 1.02)])), 1.0, 0.01), "as measured");
    let measured =
        core(intel, &[("exchange", 1.51), ("cpuid", 3255.3), ("of another version", 7.0), ("bits_every", 0.99)]);
    assert_eq!((measured.latency.exchange, measured.latency.cpuid, measured.bit_units), (1, 3255, 1));
}

#[test]
fn the_high_half_of_a_product_comes_later_and_kept_lanes_are_needed_later() {
    let core =
        Core { latency: Latencies { mul_high: 4, transfer: 2, lane: 3, ..Latencies::default() }, ..Core::default() };
    let round = |code: &[u8]| {
        let insns = effects(&decode(code, Svma(0x1000)));
        schedule(&core, &insns, std::slice::from_ref(&(0..insns.len())), &|_| vec![(0, 1.0)]).blocks[0].best_cycles
    };
    // mul %rcx; jmp and mul %rcx; mov %rdx,%rax; jmp
    assert!(near(round(&[0x48, 0xf7, 0xe1, 0xeb, 0xfb]), 3.0, 0.01));
    assert!(near(round(&[0x48, 0xf7, 0xe1, 0x48, 0x89, 0xd0, 0xeb, 0xf8]), 4.0, 0.01));
    // pinsrq $0,%rcx,%xmm0; jmp and pinsrq $0,%rax,%xmm0; movq %xmm0,%rax; jmp
    assert!(near(round(&[0x66, 0x48, 0x0f, 0x3a, 0x22, 0xc1, 0, 0xeb, 0xf7]), 1.0, 0.01));
    assert!(near(round(&[0x66, 0x48, 0x0f, 0x3a, 0x22, 0xc0, 0, 0x66, 0x48, 0x0f, 0x7e, 0xc0, 0xeb, 0xf2]), 5.0, 0.01));
}
