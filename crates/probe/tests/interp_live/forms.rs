//! Random instructions of the forms that compilers use, and dice that fall alike in every run.

/// Numbers that repeat from run to run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A register's content: often one at which flags change.
    pub(crate) fn value(&mut self) -> u64 {
        let w = self.word();
        match self.below(6) {
            0 => self.pick(&[0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, u64::MAX]),
            1 => w & 0xff,
            2 => w & 0xffff_ffff,
            3 => 1 << (w & 63),
            _ => w,
        }
    }
}

/// What stands behind an opcode.
#[derive(Clone, Copy)]
pub(crate) enum Tail {
    None,
    Byte,
    /// 16 or 32 bits, by the operand size.
    Word,
    /// `mov $,%reg`: 64 bits with REX.W.
    Wide,
}

/// Opcode bytes, whether a ModRM byte follows and which of its digits are allowed, and the immediate.
pub(crate) type Form = (&'static [u8], Option<&'static [u8]>, Tail);
pub(crate) const ANY: Option<&[u8]> = Some(&[0, 1, 2, 3, 4, 5, 6, 7]);
pub(crate) const FORMS: &[Form] = &[
    (&[0x00], ANY, Tail::None),
    (&[0x01], ANY, Tail::None),
    (&[0x02], ANY, Tail::None),
    (&[0x03], ANY, Tail::None),
    (&[0x80], ANY, Tail::Byte),
    (&[0x81], ANY, Tail::Word),
    (&[0x83], ANY, Tail::Byte),
    (&[0x84], ANY, Tail::None),
    (&[0x85], ANY, Tail::None),
    (&[0xa8], None, Tail::Byte),
    (&[0xf6], Some(&[0]), Tail::Byte),
    (&[0xf7], Some(&[0]), Tail::Word),
    (&[0xf6], Some(&[2, 3, 4, 5, 6, 7]), Tail::None),
    (&[0xf7], Some(&[2, 3, 4, 5, 6, 7]), Tail::None),
    (&[0xfe], Some(&[0, 1]), Tail::None),
    (&[0xff], Some(&[0, 1, 6]), Tail::None),
    (&[0x86], ANY, Tail::None),
    (&[0x87], ANY, Tail::None),
    (&[0x88], ANY, Tail::None),
    (&[0x89], ANY, Tail::None),
    (&[0x8a], ANY, Tail::None),
    (&[0x8b], ANY, Tail::None),
    (&[0xc6], Some(&[0]), Tail::Byte),
    (&[0xc7], Some(&[0]), Tail::Word),
    (&[0xb3], None, Tail::Byte),
    (&[0xb8], None, Tail::Wide),
    (&[0x8d], ANY, Tail::None),
    (&[0xc0], Some(&[0, 1, 2, 3, 4, 5, 7]), Tail::Byte),
    (&[0xc1], Some(&[0, 1, 2, 3, 4, 5, 7]), Tail::Byte),
    (&[0xd0], Some(&[0, 1, 4, 5, 7]), Tail::None),
    (&[0xd1], Some(&[0, 1, 2, 3, 4, 5, 7]), Tail::None),
    (&[0xd2], Some(&[0, 1, 4, 5, 7]), Tail::None),
    (&[0xd3], Some(&[0, 1, 4, 5, 7]), Tail::None),
    (&[0x0f, 0xaf], ANY, Tail::None),
    (&[0x69], ANY, Tail::Word),
    (&[0x6b], ANY, Tail::Byte),
    (&[0x0f, 0xa3], ANY, Tail::None),
    (&[0x0f, 0xab], ANY, Tail::None),
    (&[0x0f, 0xb3], ANY, Tail::None),
    (&[0x0f, 0xbb], ANY, Tail::None),
    (&[0x0f, 0xba], Some(&[4, 5, 6, 7]), Tail::Byte),
    (&[0x0f, 0xbc], ANY, Tail::None),
    (&[0x0f, 0xbd], ANY, Tail::None),
    (&[0xf3, 0x0f, 0xbc], ANY, Tail::None),
    (&[0xf3, 0x0f, 0xbd], ANY, Tail::None),
    (&[0xf3, 0x0f, 0xb8], ANY, Tail::None),
    (&[0x0f, 0x40], ANY, Tail::None),
    (&[0x0f, 0x90], Some(&[0]), Tail::None),
    (&[0x0f, 0xb6], ANY, Tail::None),
    (&[0x0f, 0xb7], ANY, Tail::None),
    (&[0x0f, 0xbe], ANY, Tail::None),
    (&[0x0f, 0xbf], ANY, Tail::None),
    (&[0x63], ANY, Tail::None),
    (&[0x0f, 0xa4], ANY, Tail::Byte),
    (&[0x0f, 0xa5], ANY, Tail::None),
    (&[0x0f, 0xac], ANY, Tail::Byte),
    (&[0x0f, 0xad], ANY, Tail::None),
    (&[0x0f, 0xc0], ANY, Tail::None),
    (&[0x0f, 0xc1], ANY, Tail::None),
    (&[0x0f, 0xb0], ANY, Tail::None),
    (&[0x0f, 0xb1], ANY, Tail::None),
    (&[0x0f, 0xc8], None, Tail::None),
    (&[0x0f, 0x38, 0xf0], ANY, Tail::None),
    (&[0x0f, 0x38, 0xf1], ANY, Tail::None),
    (&[0x98], None, Tail::None),
    (&[0x99], None, Tail::None),
    (&[0xf5], None, Tail::None),
    (&[0xf8], None, Tail::None),
    (&[0xf9], None, Tail::None),
    (&[0x9e], None, Tail::None),
    (&[0x9f], None, Tail::None),
    (&[0x50], None, Tail::None),
    (&[0x58], None, Tail::None),
    (&[0x6a], None, Tail::Byte),
    (&[0x8f], Some(&[0]), Tail::None),
    (&[0xc9], None, Tail::None),
    (&[0x9c], None, Tail::None),
    (&[0xa4], None, Tail::None),
    (&[0xab], None, Tail::None),
    (&[0xac], None, Tail::None),
    (&[0x66, 0x0f, 0x6e], ANY, Tail::None),
    (&[0x66, 0x0f, 0x7e], ANY, Tail::None),
    (&[0x66, 0x0f, 0xd7], ANY, Tail::None),
    (&[0x0f, 0x11], ANY, Tail::None),
    (&[0x66, 0x0f, 0x2f], ANY, Tail::None),
    (&[0xf2, 0x0f, 0x2c], ANY, Tail::None),
    (&[0xf0, 0x0f, 0xb1], ANY, Tail::None),
];

/// Map, prefix, opcode, digits, and whether a byte follows.
type Vex = (u8, u8, u8, Option<&'static [u8]>, bool);
pub(crate) const VEX: &[Vex] = &[
    (2, 0, 0xf2, ANY, false),              // andn
    (2, 0, 0xf3, Some(&[1, 2, 3]), false), // blsr blsmsk blsi
    (2, 0, 0xf5, ANY, false),              // bzhi
    (2, 1, 0xf7, ANY, false),              // shlx
    (2, 2, 0xf7, ANY, false),              // sarx
    (2, 3, 0xf7, ANY, false),              // shrx
    (3, 3, 0xf0, ANY, true),               // rorx
    (2, 3, 0xf6, ANY, false),              // mulx
    (2, 0, 0xf7, ANY, false),              // bextr
];

/// A ModRM byte and what follows it: a register, or memory near rbx, rbp or rsp.
pub(crate) fn operand(dice: &mut Dice, digits: &[u8], out: &mut Vec<u8>) {
    let digit = dice.pick(digits) << 3;
    if dice.below(3) != 0 {
        out.push(0xc0 | digit | dice.below(8) as u8);
        return;
    }
    let disp = (dice.below(8) * 4 + dice.below(3)) as u8;
    match dice.below(4) {
        0 => out.extend([0x40 | digit | 3, disp]),
        1 => out.extend([0x40 | digit | 5, disp]),
        2 => out.extend([0x44 | digit, 0x24, disp]),
        // (rbx, rcx, 1 to 8)
        _ => out.extend([0x44 | digit, 0x0b | (dice.below(4) as u8) << 6, disp]),
    }
}

/// One instruction; it may be invalid, or fault.
pub(crate) fn instruction(dice: &mut Dice) -> Vec<u8> {
    let mut out = Vec::new();
    if dice.below(10) == 0 {
        let (map, prefix, opcode, digits, byte) = dice.pick(VEX);
        let wide = dice.below(2) as u8;
        out.extend([0xc4, 0xe0 | map, wide << 7 | (dice.below(16) as u8) << 3 | prefix, opcode]);
        operand(dice, digits.unwrap(), &mut out);
        if byte {
            out.push(dice.word() as u8);
        }
        return out;
    }
    let (opcode, digits, tail) = dice.pick(FORMS);
    let (legacy, opcode) = match opcode[0] {
        0x66 | 0xf0 | 0xf2 | 0xf3 => opcode.split_at(1),
        _ => opcode.split_at(0),
    };
    let short = dice.below(4) == 0 && legacy.is_empty();
    if short {
        out.push(0x66);
    }
    out.extend(legacy);
    let mut operands = Vec::new();
    if let Some(digits) = digits {
        operand(dice, digits, &mut operands);
    }
    let memory = operands.first().is_some_and(|m| m >> 6 != 3);
    let wide = dice.below(2) == 0 && !short;
    if wide || dice.below(3) == 0 {
        // Base and index of memory operands stay below r8.
        let extended =
            if memory { dice.below(2) as u8 * 4 } else { (dice.below(8) as u8) & if digits.is_some() { 5 } else { 1 } };
        out.push(0x40 | extended | if wide { 8 } else { 0 });
    }
    let (last, first) = opcode.split_last().unwrap();
    out.extend(first);
    let spread = match (opcode, *last) {
        ([0..=3], op) => op + dice.below(8) as u8 * 8,
        ([0x0f, _], op @ (0x40 | 0x90)) => op + dice.below(16) as u8,
        ([0xb3 | 0xb8 | 0x50 | 0x58] | [0x0f, 0xc8], op) => (op & !7) + dice.below(8) as u8,
        (_, op) => op,
    };
    out.push(spread);
    out.extend(operands);
    let more = match tail {
        Tail::None => 0,
        Tail::Byte => 1,
        Tail::Word | Tail::Wide if short => 2,
        Tail::Wide if wide => 8,
        Tail::Word | Tail::Wide => 4,
    };
    out.extend(&dice.value().to_le_bytes()[..more]);
    out
}
