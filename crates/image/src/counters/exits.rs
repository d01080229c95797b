//! Exits by count: branches that leave a stretch of code once a register, stepped by a constant, has got to a bound that
//! nothing in the stretch changes. Wherever a thread is in such a loop, its registers tell how many rounds are still to go, and
//! what is to go at moments drawn by chance tells how many rounds there are. Here is only code and arithmetic.

use super::{Code, Step, components, step, steps_between, written_by};
use crate::disasm::Flow;
use crate::effects::RegSet;
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind};
use rustc_hash::FxHashMap;

/// Instructions between what sets the flags and its branch.
const NEAR: usize = 8;

/// A branch that leaves a stretch by count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The branch, as an index.
    pub branch: usize,
    /// Whether it leaves when it is taken.
    pub when_taken: bool,
    /// The register that counts, as instructions number it.
    pub register: u8,
    /// What is added each time, never 0.
    pub step: i64,
    /// What it is compared with.
    pub bound: Bound,
    /// How: the stretch is left when this holds.
    pub leaves: Relation,
    /// Bits of the register that step and comparison use: 32 or 64.
    pub bits: u32,
    /// Instructions of the stretch, in ascending order.
    pub stretch: Vec<usize>,
    /// Those of them from which the next comparison is reached without a step before it, in ascending order.
    pub settled: Vec<usize>,
}

/// What a register is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A constant, sign-extended.
    Value(u64),
    /// Another register, by its number.
    Register(u8),
}

/// How a register stands to its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They are equal.
    Equal,
    /// They are not.
    Unequal,
    /// It is at least the bound.
    AtLeast(Sign),
    /// It is above the bound.
    Above(Sign),
    /// It is at most the bound.
    AtMost(Sign),
    /// It is below the bound.
    Below(Sign),
}

impl Relation {
    /// What holds where it does not.
    #[must_use]
    pub fn negated(self) -> Self {
        match self {
            Self::Equal => Self::Unequal,
            Self::Unequal => Self::Equal,
            Self::AtLeast(sign) => Self::Below(sign),
            Self::Above(sign) => Self::AtMost(sign),
            Self::AtMost(sign) => Self::Above(sign),
            Self::Below(sign) => Self::AtLeast(sign),
        }
    }

    /// How the bound stands to the register.
    #[must_use]
    pub fn turned(self) -> Self {
        match self {
            Self::Equal | Self::Unequal => self,
            Self::AtLeast(sign) => Self::AtMost(sign),
            Self::Above(sign) => Self::Below(sign),
            Self::AtMost(sign) => Self::AtLeast(sign),
            Self::Below(sign) => Self::Above(sign),
        }
    }

    fn is_unsigned(self) -> bool {
        use Relation::{Above, AtLeast, AtMost, Below};
        matches!(self, AtLeast(s) | Above(s) | AtMost(s) | Below(s) if s == Sign::Unsigned)
    }
}

/// What a comparison says where its branch is taken.
fn relation(condition: ConditionCode) -> Option<Relation> {
    use Sign::{Signed, Unsigned};
    Some(match condition {
        ConditionCode::e => Relation::Equal,
        ConditionCode::ne => Relation::Unequal,
        ConditionCode::ae => Relation::AtLeast(Unsigned),
        ConditionCode::a => Relation::Above(Unsigned),
        ConditionCode::be => Relation::AtMost(Unsigned),
        ConditionCode::b => Relation::Below(Unsigned),
        ConditionCode::ge => Relation::AtLeast(Signed),
        ConditionCode::g => Relation::Above(Signed),
        ConditionCode::le => Relation::AtMost(Signed),
        ConditionCode::l => Relation::Below(Signed),
        _ => return None,
    })
}

/// The same of a number that is compared with 0: its sign tells too.
fn relation_to_0(condition: ConditionCode) -> Option<Relation> {
    match condition {
        ConditionCode::s => Some(Relation::Below(Sign::Signed)),
        ConditionCode::ns => Some(Relation::AtLeast(Sign::Signed)),
        other => relation(other),
    }
}

/// As which numbers they are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// With a sign.
    Signed,
    /// Without one.
    Unsigned,
}

impl Exit {
    /// How often the branch will have been executed until it leaves, 1 when it leaves the next time, from an instruction of the stretch
    /// with these registers. `None` where it never does.
    #[must_use]
    pub fn to_go(&self, settled: bool, registers: &[u64; 16]) -> Option<u64> {
        let now = registers[usize::from(self.register)];
        let value = if settled { now } else { now.wrapping_add_signed(self.step) };
        let bound = match self.bound {
            Bound::Value(value) => value,
            Bound::Register(r) => registers[usize::from(r)],
        };
        let more = match self.leaves {
            Relation::Equal => steps_between(value, bound, self.step, self.bits)?,
            Relation::Unequal => return None,
            Relation::AtLeast(sign) => self.rises(self.number(bound, sign) - self.number(value, sign))?,
            Relation::Above(sign) => self.rises(self.number(bound, sign) + 1 - self.number(value, sign))?,
            Relation::AtMost(sign) => self.falls(self.number(value, sign) - self.number(bound, sign))?,
            Relation::Below(sign) => self.falls(self.number(value, sign) + 1 - self.number(bound, sign))?,
        };
        more.checked_add(1)
    }

    fn number(&self, value: u64, sign: Sign) -> i128 {
        let unused = 64 - self.bits;
        match sign {
            Sign::Unsigned => i128::from(value << unused >> unused),
            Sign::Signed => i128::from((value << unused).cast_signed() >> unused),
        }
    }

    /// Steps until the register is higher by so much.
    fn rises(&self, by: i128) -> Option<u64> {
        steps_over(by, self.step.into())
    }

    fn falls(&self, by: i128) -> Option<u64> {
        steps_over(by, -i128::from(self.step))
    }
}

/// Steps of a size that get over a distance.
fn steps_over(distance: i128, step: i128) -> Option<u64> {
    match (distance, step) {
        (..=0, _) => Some(0),
        (_, ..=0) => None,
        _ => u64::try_from((distance + step - 1) / step).ok(),
    }
}

/// What was found out of code to look for its exits.
#[derive(Debug)]
pub struct Exits<'c> {
    code: &'c Code,
    writes: Vec<RegSet>,
    steps: Vec<Option<Step>>,
    before: Vec<Vec<usize>>,
    /// Stretches without writes of a bound and other writes of a register than its steps.
    stretches: FxHashMap<(u8, Option<u8>), Vec<Vec<usize>>>,
}

/// A comparison that decides a branch.
struct Check {
    /// The instruction that sets the flags.
    at: usize,
    register: u8,
    bound: Bound,
    bits: u32,
    /// What holds where the branch is taken.
    taken: Relation,
}

impl<'c> Exits<'c> {
    /// Of this code.
    #[must_use]
    pub fn of(code: &'c Code) -> Self {
        Self {
            code,
            writes: written_by(&code.insns),
            steps: code.insns.iter().map(step).collect(),
            before: code.before(),
            stretches: FxHashMap::default(),
        }
    }

    /// That of one branch, where it leaves by count. Either side of the comparison may be the one that counts.
    #[must_use]
    pub fn at(&mut self, branch: usize) -> Option<Exit> {
        let insn = self.code.insns.get(branch).filter(|i| matches!(i.flow, Flow::Branch(_)))?;
        let checks = self.checks(self.flags_of(branch)?, insn.raw.condition_code())?;
        checks.iter().flatten().find_map(|check| self.exit_of(branch, check))
    }

    /// Whether each round of the loop that an exit ends is much like the others: nothing in its stretch is a loop of its own or a call.
    #[must_use]
    pub fn is_simple(&self, exit: &Exit) -> bool {
        let within = |i: usize| exit.stretch.binary_search(&i).is_ok();
        let calls = |&i: &usize| matches!(self.code.insns[i].flow, Flow::Call(_) | Flow::IndirectCall);
        let rest = components(&self.code.next, |i| i == exit.branch || !within(i));
        rest.is_empty() && !exit.stretch.iter().any(calls)
    }

    fn checks(&self, at: usize, condition: ConditionCode) -> Option<[Option<Check>; 2]> {
        let insn = &self.code.insns[at].raw;
        let (register, bits) = operand(insn, 0)?;
        let check = |register, bound, taken| Some(Check { at, register, bound, bits, taken });
        Some(match (insn.mnemonic(), operand(insn, 1)) {
            (Mnemonic::Cmp, Some((other, _))) => {
                let taken = relation(condition)?;
                let turned = check(other, Bound::Register(register), taken.turned());
                [check(register, Bound::Register(other), taken), turned]
            }
            (Mnemonic::Cmp, None) => [check(register, Bound::Value(immediate(insn)?), relation(condition)?), None],
            (Mnemonic::Test, other) if other == Some((register, bits)) => {
                [check(register, Bound::Value(0), relation_to_0(condition)?), None]
            }
            // What a step leaves is compared with 0; its carry tells of something else.
            (Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec, None) => {
                let taken = relation_to_0(condition).filter(|r| !r.is_unsigned())?;
                [check(register, Bound::Value(0), taken), None]
            }
            _ => return None,
        })
    }

    /// The instruction whose flags decide a branch, in the same straight run.
    fn flags_of(&self, branch: usize) -> Option<usize> {
        let mut at = branch;
        for _ in 0..NEAR {
            at = at.checked_sub(1).filter(|&b| self.before[at] == [b] && self.code.next[b] == [at])?;
            // What is called may leave any flags.
            (self.code.insns[at].flow == Flow::Next).then_some(())?;
            if self.code.insns[at].raw.rflags_modified() != 0 {
                return Some(at);
            }
        }
        None
    }

    fn exit_of(&mut self, branch: usize, check: &Check) -> Option<Exit> {
        let stretch = self.stretch_of(branch, check)?;
        let own = |i: usize| self.steps[i].filter(|s| s.register == check.register);
        let within = |i: usize| stretch.binary_search(&i).is_ok();
        // Two places that step one register cannot be told apart.
        let mut steppers = stretch.iter().copied().filter(|&i| own(i).is_some());
        let (at, None) = (steppers.next()?, steppers.next()) else { return None };
        let Step { by, narrow, .. } = own(at)?;
        let by = if check.bits == 32 { i64::from(by as i32) } else { by };
        let Flow::Branch(to) = self.code.insns[branch].flow else { return None };
        let target = self.code.insns.binary_search_by_key(&to, |i| i.address);
        let (taken_stays, fall_stays) = (target.is_ok_and(within), within(branch + 1));
        let leaves = if taken_stays { check.taken.negated() } else { check.taken };
        let wide_of_narrow = narrow && check.bits > 32;
        if taken_stays == fall_stays || !within(check.at) || leaves == Relation::Unequal || wide_of_narrow || by == 0 {
            return None;
        }
        // One step to each execution of the branch, not fewer or more.
        if self.comes_again(branch, at, &stretch) || self.comes_again(at, branch, &stretch) {
            return None;
        }
        // The flags may be older than the last step.
        let settled_to = if (check.at + 1..branch).contains(&at) { check.at } else { branch };
        Some(Exit {
            branch,
            when_taken: !taken_stays,
            register: check.register,
            step: by,
            bound: check.bound,
            leaves,
            bits: check.bits,
            settled: self.settled(settled_to, at, &stretch),
            stretch,
        })
    }

    /// The instructions around a branch that keep to what it compares.
    fn stretch_of(&mut self, branch: usize, check: &Check) -> Option<Vec<usize>> {
        let own = |i: usize| self.steps[i].is_some_and(|s| s.register == check.register);
        let bound = if let Bound::Register(r) = check.bound { Some(r) } else { None };
        let kept = bound.map_or(RegSet::NONE, |r| RegSet::gpr(r.into()));
        let counted = RegSet::gpr(check.register.into());
        let barred = |i: usize| self.writes[i].meets(if own(i) { kept } else { kept.with(counted) });
        let stretches = self.stretches.entry((check.register, bound)).or_insert_with(|| match self.steps.iter() {
            steps if steps.clone().flatten().all(|s| s.register != check.register) => Vec::new(),
            _ => components(&self.code.next, barred),
        });
        stretches.iter().find(|s| s.binary_search(&branch).is_ok()).cloned()
    }

    /// Whether an instruction of a stretch may be executed twice without another one in between.
    fn comes_again(&self, insn: usize, without: usize, stretch: &[usize]) -> bool {
        let barred = |i: usize| i == without || stretch.binary_search(&i).is_err();
        insn != without && components(&self.code.next, barred).iter().any(|c| c.binary_search(&insn).is_ok())
    }

    /// From where in the stretch `to` is reached without passing `step`.
    fn settled(&self, to: usize, step: usize, stretch: &[usize]) -> Vec<usize> {
        let place = |i: usize| stretch.binary_search(&i).ok().filter(|_| i != step);
        let mut seen = vec![false; stretch.len()];
        let mut todo = vec![to];
        while let Some(at) = todo.pop() {
            let new = place(at).filter(|&p| !std::mem::replace(&mut seen[p], true));
            todo.extend(new.iter().flat_map(|_| &self.before[at]));
        }
        stretch.iter().zip(seen).filter(|(_, seen)| *seen).map(|(&i, _)| i).collect()
    }
}

/// A general register of 32 or 64 bits as an operand: number, bits.
fn operand(insn: &Instruction, i: u32) -> Option<(u8, u32)> {
    let is = insn.op_count() > i && insn.op_kind(i) == OpKind::Register;
    let register = is.then(|| insn.op_register(i)).filter(|r| r.is_gpr32() || r.is_gpr64())?;
    Some((register.full_register().number() as u8, if register.is_gpr32() { 32 } else { 64 }))
}

fn immediate(insn: &Instruction) -> Option<u64> {
    use OpKind::{Immediate8to32, Immediate8to64, Immediate32, Immediate32to64};
    let kind = insn.op1_kind();
    matches!(kind, Immediate8to32 | Immediate8to64 | Immediate32 | Immediate32to64).then(|| insn.immediate(1))
}
