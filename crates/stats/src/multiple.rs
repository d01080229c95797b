//! Many tests at once: q-values that keep the share of false discoveries in hand.

use crate::describe::count;

/// [`benjamini_hochberg`] where some hypotheses matter more: each p-value is divided by its weight (taken over the mean weight) before it is
/// adjusted, which keeps the promise as long as weights do not depend on p-values (Genovese, Roeder and Wasserman 2006).
#[must_use]
pub fn weighted(p: &[f64], weights: &[f64]) -> Vec<f64> {
    let mean = weights.iter().sum::<f64>() / count(weights.len().max(1));
    let heavier = |(&p, &weight): (&f64, &f64)| if weight > 0.0 { (p * mean / weight).min(1.0) } else { 1.0 };
    benjamini_hochberg(&p.iter().zip(weights).map(heavier).collect::<Vec<_>>())
}

/// Benjamini and Hochberg's adjusted p-values, in the order given: reporting everything with
/// q <= 0.05 lets on average at most 5 % of what is reported be chance. NaN counts as 1.
#[must_use]
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let clean = |v: f64| if v.is_nan() { 1.0 } else { v.clamp(0.0, 1.0) };
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| clean(p[b]).total_cmp(&clean(p[a])));
    let mut q = vec![1.0; p.len()];
    let mut smallest: f64 = 1.0;
    for (i, &at) in order.iter().enumerate() {
        let rank = count(p.len() - i);
        smallest = smallest.min(clean(p[at]) * (count(p.len()) / rank));
        q[at] = smallest;
    }
    q
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn textbook_example() {
        let q = benjamini_hochberg(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expect) in q.iter().zip([0.02, 0.04, 0.04, 0.02]) {
            assert!((found - expect).abs() < 1e-12, "{q:?}");
        }
        assert_eq!(benjamini_hochberg(&[]), [] as [f64; 0]);
        assert_eq!(benjamini_hochberg(&[f64::NAN, 0.5]), [1.0, 1.0]);
    }

    #[test]
    fn weight_moves_trust_to_what_matters() {
        let even = weighted(&[0.01, 0.04, 0.03, 0.005], &[2.0; 4]);
        assert!((even[0] - 0.02).abs() < 1e-12, "{even:?}");
        let q = weighted(&[0.04, 0.04], &[3.0, 1.0]);
        assert!((q[0] - 0.08 * 2.0 / 3.0).abs() < 1e-12 && (q[1] - 0.08).abs() < 1e-12, "{q:?}");
        assert_eq!(weighted(&[0.001], &[0.0]), [1.0]);
    }

    proptest! {
        #[test]
        fn q_is_never_below_p_and_keeps_the_order(p in prop::collection::vec(0.0..=1.0_f64, 0..60)) {
            let q = benjamini_hochberg(&p);
            for i in 0..p.len() {
                prop_assert!(q[i] >= p[i] && q[i] <= 1.0);
                for j in 0..p.len() {
                    prop_assert!(p[i] >= p[j] || q[i] <= q[j]);
                }
            }
        }
    }
}
