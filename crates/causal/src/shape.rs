//! Shapes of a curve and their least squares: constant, a line through the target's own zero, and a line with
//! a knee. In numbers: value = c - a min(s, k) - b max(s - k, 0), effect y(s) = (a min(s, k) + b max(s - k, 0)) / c.
//! A line may bend: s is then replaced by s (1 + d) / (1 + d s), which rises fast at first, as what queues gain does.
//! Windows of one amount enter as one group, so that trying all knees costs next to nothing: bootstraps fit
//! thousands of times.

use crate::results::FitKind;

/// Windows of one amount.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Group {
    /// Amount, 0 to 1.
    pub(crate) s: f64,
    /// Sum of weights.
    pub(crate) weight: f64,
    /// Weighted mean of the values.
    pub(crate) mean: f64,
}

/// A fitted shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(crate) kind: FitKind,
    /// Value without speed-up.
    pub(crate) c: f64,
    pub(crate) a: f64,
    pub(crate) b: f64,
    /// 1 where there is none.
    pub(crate) knee: f64,
    /// How much a line bends; 0: not at all, as those with a knee.
    pub(crate) bend: f64,
}

/// Amount that a straight line would have to have to be as high as one that bends.
pub(crate) fn straightened(s: f64, bend: f64) -> f64 {
    s * (1.0 + bend) / (1.0 + bend * s)
}

impl Shape {
    /// Effect of an amount.
    pub(crate) fn y(&self, s: f64) -> f64 {
        let s = straightened(s, self.bend);
        (self.a * s.min(self.knee) + self.b * (s - self.knee).max(0.0)) / self.c
    }

    /// Expected value at an amount.
    pub(crate) fn value(&self, s: f64) -> f64 {
        let s = straightened(s, self.bend);
        self.c - self.a * s.min(self.knee) - self.b * (s - self.knee).max(0.0)
    }

    /// Parameters fitted, the place of the knee among them.
    pub(crate) fn parameters(&self) -> usize {
        match self.kind {
            FitKind::Nothing => 1,
            FitKind::Line => 2,
            FitKind::Knee => 4,
        }
    }

    /// Regressors of an amount.
    fn row(&self, s: f64) -> [f64; 3] {
        let s = straightened(s, self.bend);
        [1.0, -s.min(self.knee), -(s - self.knee).max(0.0)]
    }

    /// How much the effect at `s0` changes with the value of one window of weight 1, for each group; the
    /// place of the knee counts as known.
    pub(crate) fn influence(&self, groups: &[Group], s0: f64) -> Vec<f64> {
        let row = self.row(s0);
        let gradient = [-self.y(s0) / self.c, -row[1] / self.c, -row[2] / self.c];
        match solve(self.matrix(groups), gradient, self.rows()) {
            Some(solved) => groups.iter().map(|g| self.dot(solved, g.s)).collect(),
            None => vec![f64::INFINITY; groups.len()],
        }
    }

    /// The same for the value without speed-up.
    pub(crate) fn influence_of_zero(&self, groups: &[Group]) -> Vec<f64> {
        match solve(self.matrix(groups), [1.0, 0.0, 0.0], self.rows()) {
            Some(solved) => groups.iter().map(|g| self.dot(solved, g.s)).collect(),
            None => vec![f64::INFINITY; groups.len()],
        }
    }

    /// How much a window of weight 1 draws the shape towards itself, for each group: 0 to 1.
    pub(crate) fn leverage(&self, groups: &[Group]) -> Vec<f64> {
        let matrix = self.matrix(groups);
        let of = |s: f64| solve(matrix, self.row(s), self.rows()).map_or(1.0, |v| self.dot(v, s));
        groups.iter().map(|g| of(g.s).clamp(0.0, 1.0)).collect()
    }

    fn rows(&self) -> usize {
        match self.kind {
            FitKind::Nothing => 1,
            FitKind::Line => 2,
            FitKind::Knee => 3,
        }
    }

    fn dot(&self, v: [f64; 3], s: f64) -> f64 {
        self.row(s).iter().zip(v).take(self.rows()).map(|(x, v)| x * v).sum()
    }

    fn matrix(&self, groups: &[Group]) -> [[f64; 3]; 3] {
        let mut matrix = [[0.0; 3]; 3];
        for group in groups {
            let x = self.row(group.s);
            for (i, line) in matrix.iter_mut().enumerate() {
                line.iter_mut().zip(x).for_each(|(m, other)| *m += group.weight * x[i] * other);
            }
        }
        matrix
    }
}

/// The group of an amount, where that lies beyond `upto`.
pub(crate) fn beyond(groups: &[Group], upto: f64, s: f64) -> Option<usize> {
    let at = || groups.iter().position(|g| (g.s - s).abs() < 1e-9);
    (s > upto + 1e-9).then(at).flatten()
}

/// Best shape of a kind, and the sum of squares that remains between groups; `None` where the groups do not
/// determine it. Groups ascend by amount, 0 first.
pub(crate) fn fit(groups: &[Group], kind: FitKind) -> Option<(Shape, f64)> {
    let total = Sums::of(groups);
    if groups.first().is_none_or(|g| g.s > 0.0) || total.w <= 0.0 {
        return None;
    }
    let shape = match kind {
        FitKind::Nothing => Shape { kind, c: total.q / total.w, a: 0.0, b: 0.0, knee: 1.0, bend: 0.0 },
        FitKind::Line => line(&total)?,
        FitKind::Knee => return knee(groups, &total),
    };
    if shape.c <= 0.0 || !shape.c.is_finite() {
        return None;
    }
    Some((shape, groups.iter().map(|g| g.weight * (g.mean - shape.value(g.s)).powi(2)).sum()))
}

/// As [`fit`] for a line that bends.
pub(crate) fn fit_bent(groups: &[Group], bend: f64) -> Option<(Shape, f64)> {
    let moved: Vec<Group> = groups.iter().map(|g| Group { s: straightened(g.s, bend), ..*g }).collect();
    fit(&moved, FitKind::Line).map(|(line, rest)| (Shape { bend, ..line }, rest))
}

/// The places of a knee that describe the groups hardly worse than the best one: whose sum of squares, with `within` of the
/// groups themselves, is at most `times` the least. Where an amount has one window, draws from residuals know nothing of it:
/// the fit goes right through.
pub(crate) fn knees_alike(groups: &[Group], within: f64, times: f64) -> Option<(f64, f64)> {
    let tried = knees(groups, &Sums::of(groups));
    let least = tried.iter().map(|(_, rest)| *rest).reduce(f64::min)?;
    let alike = |rest: f64| rest + within <= times * (least + within);
    let alike = || tried.iter().filter(|(_, rest)| alike(*rest)).map(|(shape, _)| shape.knee);
    Some((alike().next()?, alike().next_back()?))
}

/// Sums over groups.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    w: f64,
    s: f64,
    ss: f64,
    q: f64,
    sq: f64,
    qq: f64,
}

impl Sums {
    fn of(groups: &[Group]) -> Self {
        let mut sums = Self::default();
        groups.iter().for_each(|g| sums.add(g));
        sums
    }

    fn add(&mut self, g: &Group) {
        self.w += g.weight;
        self.s += g.weight * g.s;
        self.ss += g.weight * g.s * g.s;
        self.q += g.weight * g.mean;
        self.sq += g.weight * g.s * g.mean;
        self.qq += g.weight * g.mean * g.mean;
    }
}

fn line(sums: &Sums) -> Option<Shape> {
    let determinant = sums.w * sums.ss - sums.s * sums.s;
    if determinant <= 1e-12 * sums.w * sums.w {
        return None;
    }
    let slope = (sums.w * sums.sq - sums.s * sums.q) / determinant;
    Some(Shape { kind: FitKind::Line, c: (sums.q - slope * sums.s) / sums.w, a: -slope, b: 0.0, knee: 1.0, bend: 0.0 })
}

/// Distance between the knees that are tried.
pub(crate) const STEP: f64 = 0.025;

fn knee(groups: &[Group], total: &Sums) -> Option<(Shape, f64)> {
    let mut best: Option<(Shape, f64)> = None;
    each_knee(groups, total, |shape, rest| {
        if best.is_none_or(|(_, least)| rest < least) {
            best = Some((shape, rest));
        }
    });
    best
}

/// All knees that the groups determine, ascending.
fn knees(groups: &[Group], total: &Sums) -> Vec<(Shape, f64)> {
    let mut all = Vec::new();
    each_knee(groups, total, |shape, rest| all.push((shape, rest)));
    all
}

fn each_knee(groups: &[Group], total: &Sums, mut found: impl FnMut(Shape, f64)) {
    let mut below = Sums::default();
    let mut next = 0;
    for i in 2..=38 {
        let knee = f64::from(i) * STEP;
        while groups.get(next).is_some_and(|g| g.s <= knee + 1e-9) {
            below.add(&groups[next]);
            next += 1;
        }
        // 0 and one more amount on this side, two on the other.
        if next < 2 || groups.len() < next + 2 {
            continue;
        }
        if let Some((shape, rest)) = knee_at(knee, &below, total) {
            found(shape, rest);
        }
    }
}

fn knee_at(knee: f64, below: &Sums, total: &Sums) -> Option<(Shape, f64)> {
    let (wa, sa, ssa) = (total.w - below.w, total.s - below.s, total.ss - below.ss);
    let (qa, sqa) = (total.q - below.q, total.sq - below.sq);
    let (x1, x2) = (below.s + knee * wa, sa - knee * wa);
    let x12 = knee * x2;
    let matrix = [
        [total.w, -x1, -x2],
        [-x1, below.ss + knee * knee * wa, x12],
        [-x2, x12, ssa - 2.0 * knee * sa + knee * knee * wa],
    ];
    let right = [total.q, -(below.sq + knee * qa), -(sqa - knee * qa)];
    let [c, a, b] = solve(matrix, right, 3)?;
    let rest = total.qq - c * right[0] - a * right[1] - b * right[2];
    (c > 0.0 && c.is_finite()).then_some((Shape { kind: FitKind::Knee, c, a, b, knee, bend: 0.0 }, rest.max(0.0)))
}

/// Solves the first `n` equations by elimination with pivots; `None` when they do not determine a solution.
fn solve(mut m: [[f64; 3]; 3], mut v: [f64; 3], n: usize) -> Option<[f64; 3]> {
    for i in 0..n {
        let pivot = (i..n).max_by(|&a, &b| m[a][i].abs().total_cmp(&m[b][i].abs()))?;
        // Weights are about 1 each and amounts at least 0.01.
        if !m[pivot][i].is_finite() || m[pivot][i].abs() < 1e-10 {
            return None;
        }
        m.swap(i, pivot);
        v.swap(i, pivot);
        for below in i + 1..n {
            let factor = m[below][i] / m[i][i];
            let (upper, lower) = m.split_at_mut(below);
            lower[0].iter_mut().zip(&upper[i]).for_each(|(x, y)| *x -= factor * y);
            v[below] -= factor * v[i];
        }
    }
    let mut solution = [0.0; 3];
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| m[i][j] * solution[j]).sum();
        solution[i] = (v[i] - known) / m[i][i];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn groups(y: impl Fn(f64) -> f64, c: f64) -> Vec<Group> {
        (0..=20).map(|i| f64::from(i) / 20.0).map(|s| Group { s, weight: 1.0 + s, mean: c * (1.0 - y(s)) }).collect()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn exact_curves_come_back() {
        let (line, rest) = fit(&groups(|s| 0.6 * s, 3.0), FitKind::Line).unwrap();
        assert!(close(line.y(0.3), 0.18) && close(line.c, 3.0) && rest < 1e-12, "{line:?}");
        let (knee, rest) = fit(&groups(|s| s.min(0.25), 2.0), FitKind::Knee).unwrap();
        assert!(
            close(knee.knee, 0.25) && close(knee.y(0.1), 0.1) && close(knee.y(0.9), 0.25) && rest < 1e-9,
            "{knee:?}"
        );
    }

    #[test]
    fn lines_that_bend_come_back() {
        let y = |s: f64| 0.5 * straightened(s, 2.0);
        let (bent, rest) = fit_bent(&groups(y, 3.0), 2.0).unwrap();
        assert!(close(bent.y(0.3), 0.28125) && close(bent.y(1.0), 0.5) && rest < 1e-12, "{bent:?}");
        assert!(fit(&groups(y, 3.0), FitKind::Line).unwrap().1 > 1e-3);
    }

    #[test]
    fn a_knee_with_amounts_close_by_is_known_and_one_without_is_not() {
        let y = |s: f64| 0.8 * s.min(0.5);
        let many = groups(y, 1.0);
        let few: Vec<Group> =
            many.iter().filter(|g| g.s < 0.35 || (0.6..0.7).contains(&g.s) || g.s > 0.9).copied().collect();
        let (low, high) = knees_alike(&many, 0.004, 1.2).unwrap();
        assert!(low > 0.42 && high < 0.58 && low <= 0.5 && high >= 0.5, "{low} {high}");
        let (fewer_low, fewer_high) = knees_alike(&few, 0.004, 1.2).unwrap();
        assert!(fewer_high - fewer_low > high - low, "{fewer_low} {fewer_high}");
    }

    #[test]
    fn too_few_amounts_have_no_shape() {
        let zero = Group { s: 0.0, weight: 3.0, mean: 1.0 };
        assert_eq!(fit(&[zero], FitKind::Line), None);
        assert_eq!(fit(&[zero, Group { s: 0.5, weight: 1.0, mean: 0.9 }], FitKind::Knee), None);
        assert_eq!(fit(&[Group { s: 0.5, weight: 1.0, mean: 0.9 }], FitKind::Line), None);
        assert_eq!(fit(&[], FitKind::Nothing), None);
    }

    proptest! {
        #[test]
        fn influence_is_the_derivative(at in 0_usize..21, s0 in 0.05..1.0_f64, top in 0.1..0.9_f64, kind in 0..2) {
            let kind = if kind == 0 { FitKind::Line } else { FitKind::Knee };
            let base = groups(|s| 0.8 * s.min(top), 1.0);
            let (shape, _) = fit(&base, kind).unwrap();
            let mut moved = base.clone();
            moved[at].mean += 1e-6 / moved[at].weight;
            let (after, _) = fit(&moved, kind).unwrap();
            prop_assume!(after.knee == shape.knee);
            let slope = (after.y(s0) - shape.y(s0)) / 1e-6;
            let told = shape.influence(&base, s0)[at];
            prop_assert!((slope - told).abs() < 1e-3 * (1.0 + told.abs()), "{slope} {told}");
        }

        #[test]
        fn a_knee_never_fits_worse_than_a_line(values in prop::collection::vec(0.1..2.0_f64, 5..21)) {
            let groups: Vec<Group> = values.iter().enumerate()
                .map(|(i, &mean)| Group { s: i as f64 / 20.0, weight: 1.0, mean }).collect();
            if let (Some((_, line)), Some((_, knee))) = (fit(&groups, FitKind::Line), fit(&groups, FitKind::Knee)) {
                prop_assert!(knee <= line + 1e-9);
            }
        }
    }
}
