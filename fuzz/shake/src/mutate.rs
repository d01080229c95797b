//! Random damage of inputs, the same in every run: flipped bits, numbers that break things, cuts,
//! repeats, and pieces of other seeds.

/// Values at which lengths and offsets go wrong.
const NASTY: [u64; 9] =
    [0, 1, 0x7f, 0x80, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff];
/// Inputs do not grow beyond this.
const MOST: usize = 1 << 20;

/// Random numbers from a name (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(name: &str) -> Self {
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// One of the seeds with one to eight faults.
    pub(crate) fn damaged(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(8) {
            self.fault(&mut bytes, seeds);
        }
        bytes.truncate(MOST);
        bytes
    }

    fn fault(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(bytes.len() + 1);
        match self.below(7) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, self.next() as u8),
            2 => self.number(bytes, at),
            3 => self.repeat(bytes, at),
            4 => self.transplant(bytes, at, seeds),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
        }
    }

    /// A nasty number, in either byte order and any width.
    fn number(&mut self, bytes: &mut [u8], at: usize) {
        let value = NASTY[self.below(NASTY.len())];
        let width = 1 << self.below(4);
        let raw = if self.below(2) == 0 { value.to_le_bytes() } else { (value << (64 - 8 * width)).to_be_bytes() };
        for (to, from) in bytes.iter_mut().skip(at).zip(&raw[..width]) {
            *to = *from;
        }
    }

    fn repeat(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let end = at + self.below((bytes.len() - at).min(64) + 1);
        let piece = bytes[at..end].to_vec();
        bytes.splice(at..at, piece);
    }

    fn transplant(&mut self, bytes: &mut Vec<u8>, at: usize, seeds: &[Vec<u8>]) {
        let donor = &seeds[self.below(seeds.len())];
        let from = self.below(donor.len() + 1);
        let end = from + self.below((donor.len() - from).min(256) + 1);
        let over = (at + (end - from)).min(bytes.len());
        bytes.splice(at..over, donor[from..end].iter().copied());
    }
}
