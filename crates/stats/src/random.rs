//! Random numbers from a seed: equal seeds give equal numbers on every machine and in every version, because
//! recorded choices are replayed from them. Not for secrets.

/// A generator (xoshiro256**, started by splitmix64).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// From a seed; every seed is good, 0 too.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        Self { state: std::array::from_fn(|_| splitmix(&mut x)) }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        crate::interval::as_f64(self.bits() >> 11) / 9_007_199_254_740_992.0
    }

    /// Uniform in `0..n`; 0 for an empty range.
    pub fn below(&mut self, n: usize) -> usize {
        let wide = u128::from(self.bits()) * (n as u128);
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// Whether something of this probability happens.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Standard normal (sum-free polar method).
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let r = x * x + y * y;
            if r > 0.0 && r < 1.0 {
                return x * (-2.0 * r.ln() / r).sqrt();
            }
        }
    }

    /// Puts values into random order.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i + 1));
        }
    }
}

fn splitmix(x: &mut u64) -> u64 {
    *x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *x;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence() {
        // splitmix64 with seed 1234567, as published with it.
        let mut x = 1_234_567;
        let found: Vec<u64> = (0..3).map(|_| splitmix(&mut x)).collect();
        assert_eq!(found, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn uniform_and_normal_have_their_moments() {
        let mut r = Random::new(1);
        let n = 100_000;
        let mean = (0..n).map(|_| r.unit()).sum::<f64>() / f64::from(n);
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        let squares = (0..n).map(|_| r.normal().powi(2)).sum::<f64>() / f64::from(n);
        assert!((squares - 1.0).abs() < 0.02, "{squares}");
        let mut seen = [0_u32; 7];
        (0..n).for_each(|_| seen[r.below(7)] += 1);
        assert!(seen.iter().all(|&s| s.abs_diff(14_286) < 600), "{seen:?}");
        assert_eq!(r.below(0), 0);
    }

    #[test]
    fn shuffling_keeps_the_values_and_replays() {
        let (mut a, mut b): (Vec<u32>, Vec<u32>) = ((0..50).collect(), (0..50).collect());
        Random::new(9).shuffle(&mut a);
        Random::new(9).shuffle(&mut b);
        assert_eq!(a, b);
        assert_ne!(a, (0..50).collect::<Vec<_>>());
        a.sort_unstable();
        assert_eq!(a, (0..50).collect::<Vec<_>>());
    }
}
