//! Values that the kernel side can compute at the interrupt: sums of sampled registers and of earlier steps, and fields
//! of such sums; and the recipe in the making, out of which the wanted steps are taken. Not here: which instruction
//! makes which value. Constraint: what does not fit a step is split over two, and absent if that is not enough.

use super::{Field, MOST_LOADS, MOST_STEPS, MOST_TERMS, RecipeStep, Source, Term};

/// Steps considered per slice; those wanted are fewer.
const MOST_CANDIDATES: usize = 48;

/// Set of candidate steps, by number.
pub(super) type Steps = u64;

/// A term, and the loads that its value depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Addend {
    term: Term,
    needs: Steps,
}

/// Terms in the order of their sources, and a constant; modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    addends: [Option<Addend>; MOST_TERMS],
    disp: i64,
    image: bool,
}

impl Sum {
    pub(super) const fn constant(disp: i64) -> Self {
        Self { addends: [None; MOST_TERMS], disp, image: false }
    }

    /// A stated address, if it is of the image.
    pub(super) const fn address(disp: i64, image: bool) -> Self {
        Self { image, ..Self::constant(disp) }
    }

    fn of(source: Source, needs: Steps) -> Self {
        let only = Addend { term: Term { source, scale: 1 }, needs };
        Self { addends: [Some(only), None, None], ..Self::constant(0) }
    }

    pub(super) fn register(number: u8) -> Self {
        Self::of(Source::Gpr(number), 0)
    }

    /// Its value, if it has no terms; a stated one if it is of the image.
    pub(super) fn fixed(&self) -> Option<i64> {
        self.addends.iter().all(Option::is_none).then_some(self.disp)
    }

    /// The loads it depends on.
    pub(super) fn needs(&self) -> Steps {
        self.addends.iter().flatten().fold(0, |all, a| all | a.needs)
    }

    /// The steps it is made of.
    fn steps(&self) -> impl Iterator<Item = u8> {
        self.addends.iter().flatten().filter_map(|a| match a.term.source {
            Source::Step(n) => Some(n),
            Source::Gpr(_) => None,
        })
    }

    fn len(&self) -> usize {
        self.addends.iter().flatten().count()
    }

    pub(super) fn plus(self, disp: i64) -> Self {
        Self { disp: self.disp.wrapping_add(disp), ..self }
    }

    /// How much more the other is, if that is all the difference.
    pub(super) fn distance(&self, other: &Self) -> Option<i64> {
        let same = self.addends == other.addends && self.image == other.image;
        same.then(|| other.disp.wrapping_sub(self.disp))
    }

    fn with(mut self, more: Addend) -> Option<Self> {
        let same = |a: &&mut Option<Addend>| a.is_some_and(|a| a.term.source == more.term.source);
        if let Some(found) = self.addends.iter_mut().find(same) {
            let scale = found.map_or(0, |a| a.term.scale).checked_add(more.term.scale)?;
            *found = (scale != 0).then_some(Addend { term: Term { scale, ..more.term }, ..more });
        } else {
            *self.addends.iter_mut().find(|a| a.is_none())? = Some(more);
        }
        self.addends.sort_by_key(|a| (a.is_none(), a.map(|a| a.term.source)));
        Some(self)
    }

    fn add(self, other: Self) -> Option<Self> {
        if self.image && other.image {
            return None;
        }
        let start = Self { image: self.image | other.image, ..self.plus(other.disp) };
        other.addends.into_iter().flatten().try_fold(start, Self::with)
    }

    fn times(self, by: i64) -> Option<Self> {
        if self.image && by != 1 {
            return None;
        }
        let mut out = Self { image: self.image, ..Self::constant(self.disp.wrapping_mul(by)) };
        for Addend { term, needs } in self.addends.into_iter().flatten() {
            let scale = i16::try_from(i64::from(term.scale).checked_mul(by)?).ok()?;
            if scale != 0 {
                out = out.with(Addend { term: Term { scale, ..term }, needs })?;
            }
        }
        Some(out)
    }
}

/// A field of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expr {
    pub(super) sum: Sum,
    field: Field,
}

impl Expr {
    pub(super) const fn whole(sum: Sum) -> Self {
        Self { sum, field: Field::WHOLE }
    }

    pub(super) const fn constant(value: i64) -> Self {
        Self::whole(Sum::constant(value))
    }

    /// Its value, if that is the same everywhere.
    pub(super) fn known(&self) -> Option<i64> {
        self.sum.fixed().filter(|_| !self.sum.image && self.field == Field::WHOLE)
    }
}

/// A field of a field, if it is one of the whole.
fn within(inner: Field, outer: Field) -> Option<Field> {
    let from = inner.from.checked_add(outer.from)?;
    if outer.from + outer.bits <= inner.bits {
        return Some(Field { from, ..outer });
    }
    // It reaches into what the inner one was extended by.
    let bits = inner.bits.checked_sub(outer.from).filter(|b| *b > 0)?;
    match (inner.signed, outer.signed) {
        (false, _) => Some(Field { from, bits, signed: false }),
        (true, true) => Some(Field { from, bits, signed: true }),
        (true, false) => None,
    }
}

/// A step that could be taken at the interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    of: Expr,
    /// Bytes to load from there.
    load: Option<u8>,
}

impl Candidate {
    /// Its value as a field of something.
    fn field(&self) -> Field {
        self.load.map_or(self.of.field, |width| Field::low(width.saturating_mul(8)))
    }
}

/// Steps found so far, and those wanted.
#[derive(Debug, Default)]
pub(super) struct Recipe {
    candidates: Vec<Candidate>,
    wanted: Steps,
}

impl Recipe {
    fn step(&mut self, of: Expr, load: Option<u8>) -> Option<Sum> {
        let candidate = Candidate { of, load };
        let n = match self.candidates.iter().position(|c| *c == candidate) {
            Some(found) => found,
            None if self.candidates.len() < MOST_CANDIDATES => {
                self.candidates.push(candidate);
                self.candidates.len() - 1
            }
            None => return None,
        };
        let needs = if load.is_some() { 1 << n } else { of.sum.needs() };
        Some(Sum::of(Source::Step(n as u8), needs))
    }

    /// What is loaded from there.
    pub(super) fn load(&mut self, at: Sum, width: u8) -> Option<Expr> {
        self.step(Expr::whole(at), Some(width)).map(Expr::whole)
    }

    /// A sum of which the low bits are those of a value.
    pub(super) fn low(&mut self, value: Expr, bits: u8) -> Option<Sum> {
        if value.field.from == 0 && value.field.bits >= bits {
            return Some(value.sum);
        }
        self.step(value, None)
    }

    /// The terms of a sum as a step of their own.
    fn apart(&mut self, sum: Sum) -> Option<Sum> {
        let terms = Sum { disp: if sum.image { sum.disp } else { 0 }, ..sum };
        Some(self.step(Expr::whole(terms), None)?.plus(sum.disp.wrapping_sub(terms.disp)))
    }

    pub(super) fn add(&mut self, a: Sum, b: Sum) -> Option<Sum> {
        if let Some(sum) = a.add(b) {
            return Some(sum);
        }
        let (long, short) = if b.image || b.len() > a.len() && !a.image { (b, a) } else { (a, b) };
        let long = self.apart(long)?;
        long.add(short).or_else(|| long.add(self.apart(short)?))
    }

    pub(super) fn times(&mut self, sum: Sum, by: i64) -> Option<Sum> {
        sum.times(by).or_else(|| self.apart(sum)?.times(by))
    }

    /// A field of a value.
    pub(super) fn field(&mut self, value: Expr, field: Field) -> Option<Expr> {
        let (sum, field) = match within(value.field, field) {
            Some(field) => (value.sum, field),
            None => (self.step(value, None)?, field),
        };
        if field == Field::WHOLE {
            return Some(Expr::whole(sum));
        }
        let sum = self.flattened(sum, field.from.saturating_add(field.bits));
        if let (Some(fixed), false) = (sum.fixed(), sum.image) {
            return Some(Expr::constant(field.of(fixed.cast_unsigned()).cast_signed()));
        }
        // A step that is no wider anyway.
        let only = (sum == Sum { disp: 0, ..sum }).then_some(sum.addends).and_then(|a| match a {
            [Some(Addend { term: Term { source: Source::Step(n), scale: 1 }, .. }), None, None] => Some(n),
            _ => None,
        });
        let held = only.filter(|_| !sum.image).and_then(|n| self.candidates.get(usize::from(n))).map(Candidate::field);
        let same = held.is_some_and(|held| {
            let held = Field { from: 0, ..held };
            within(held, field) == Some(held)
        });
        Some(if same { Expr::whole(sum) } else { Expr { sum, field } })
    }

    /// The same modulo 2^bits, with sums in place of steps that extend them from there.
    fn flattened(&self, sum: Sum, bits: u8) -> Sum {
        let mut out = Some(Sum { addends: [None; MOST_TERMS], ..sum });
        for addend in sum.addends.into_iter().flatten() {
            let whole = Sum { addends: [Some(addend), None, None], ..Sum::constant(0) };
            let inner = match addend.term.source {
                Source::Step(n) => self
                    .candidates
                    .get(usize::from(n))
                    .filter(|c| c.load.is_none() && c.of.field.from == 0 && c.of.field.bits >= bits),
                Source::Gpr(_) => None,
            };
            let part = inner.and_then(|c| c.of.sum.times(addend.term.scale.into())).unwrap_or(whole);
            out = out.and_then(|o| o.add(part));
        }
        out.unwrap_or(sum)
    }

    /// Takes these loads, and the steps that their addresses need, into the recipe, if there is room for all.
    pub(super) fn want(&mut self, loads: Steps) -> bool {
        let mut all = loads;
        // Steps are made of those with lower numbers.
        for (n, candidate) in self.candidates.iter().enumerate().rev() {
            if all >> n & 1 == 1 {
                all |= candidate.of.sum.steps().fold(0, |set, s| set | 1 << s);
            }
        }
        all |= self.wanted;
        let is_load = |n: &usize| all >> n & 1 == 1 && self.candidates[*n].load.is_some();
        let loads = (0..self.candidates.len()).filter(is_load).count();
        let fits = all.count_ones() as usize <= MOST_STEPS && loads <= MOST_LOADS;
        if fits {
            self.wanted = all;
        }
        fits
    }

    /// The wanted steps, each after those it needs.
    pub(super) fn finish(&self) -> Vec<RecipeStep> {
        let place = |source: Source| match source {
            Source::Step(n) => Source::Step((self.wanted & ((1 << n) - 1)).count_ones() as u8),
            register => register,
        };
        let told = |a: Addend| Term { source: place(a.term.source), ..a.term };
        let wanted = self.candidates.iter().enumerate().filter(|(n, _)| self.wanted >> n & 1 == 1);
        wanted
            .map(|(_, &Candidate { of: Expr { sum, field }, load })| RecipeStep {
                terms: sum.addends.map(|a| a.map(told)),
                disp: sum.disp,
                field,
                load,
                image_relative: sum.image,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields() -> impl Strategy<Value = Field> {
        (0_u8..64, 1_u8..=64, any::<bool>()).prop_map(|(from, bits, signed)| {
            let bits = bits.min(64 - from);
            Field { from, bits, signed: signed && bits < 64 }
        })
    }

    /// What a recipe being made says of a value, with all steps taken.
    fn value(recipe: &Recipe, of: Expr, gpr: &[u64; 16]) -> u64 {
        let source = |s: Source| match s {
            Source::Gpr(n) => gpr[usize::from(n)],
            Source::Step(n) => value(recipe, recipe.candidates[usize::from(n)].of, gpr),
        };
        let terms = of.sum.addends.iter().flatten();
        let sum = terms.map(|a| source(a.term.source).wrapping_mul(i64::from(a.term.scale).cast_unsigned()));
        of.field.of(sum.fold(of.sum.disp.cast_unsigned(), u64::wrapping_add))
    }

    proptest! {
        #[test]
        fn a_field_of_a_field_is_what_it_says(inner in fields(), outer in fields(), value: u64) {
            if let Some(both) = within(inner, outer) {
                prop_assert_eq!(both.of(value), outer.of(inner.of(value)));
            }
        }

        #[test]
        fn values_are_the_same_however_they_are_made(
            work in prop::collection::vec((0_usize..4, any::<[prop::sample::Index; 2]>(), fields(), -9_i64..300), 1..14),
            gpr: [u64; 16],
        ) {
            let mut recipe = Recipe::default();
            let mut all: Vec<(Expr, u64)> =
                (0..4).map(|n| (Expr::whole(Sum::register(n)), gpr[usize::from(n)])).collect();
            for (what, [a, b], field, by) in work {
                let ((a, x), (b, y)) = (*a.get(&all), *b.get(&all));
                let made = match what {
                    0 => recipe.field(a, field).map(|e| (e, field.of(x))),
                    1 => {
                        let low = Field { from: 0, signed: false, ..field };
                        let sum = (|| {
                            let (a, b) = (recipe.low(a, low.bits)?, recipe.low(b, low.bits)?);
                            let sum = recipe.add(a, b)?;
                            recipe.field(Expr::whole(sum), low)
                        })();
                        sum.map(|e| (e, low.of(x.wrapping_add(y))))
                    }
                    2 => {
                        let product = recipe.low(a, 64).and_then(|a| recipe.times(a, by));
                        product.map(|s| (Expr::whole(s), x.wrapping_mul(by.cast_unsigned())))
                    }
                    _ => recipe.low(a, 64).map(|a| (Expr::whole(a.plus(by)), x.wrapping_add_signed(by))),
                };
                all.extend(made);
            }
            for (expr, truth) in all {
                prop_assert_eq!(value(&recipe, expr, &gpr), truth);
            }
        }
    }
}
