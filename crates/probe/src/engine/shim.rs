//! Stand-in for pattern resolution.

use crate::api::{Candidate, CostClass, Order, Refusal, Select};
use std::cell::OnceCell;
use whither_image::{Bytes, CodeMap, CodeName, EntryRefusal, Plan, PlanKind, Svma, code_names};
use whither_store::calls::PatchKind;

#[derive(Debug, thiserror::Error)]
#[error("pattern")]
pub struct SelectError;

pub struct ModuleImage {
    file: Bytes,
    names: Vec<CodeName>,
    map: OnceCell<Option<CodeMap>>,
}

impl std::fmt::Debug for ModuleImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ModuleImage")
    }
}

impl ModuleImage {
    pub fn new(file: Bytes, debug: Option<Bytes>) -> Self {
        let names = code_names(&file, debug.as_deref());
        Self { file, names, map: OnceCell::new() }
    }

    fn map(&self) -> Option<&CodeMap> {
        self.map.get_or_init(|| CodeMap::from_elf(&self.file, &self.names).ok()).as_ref()
    }
}

pub trait ModuleView {
    fn path(&self) -> &str;
    fn bias(&self) -> u64;
    fn is_main(&self) -> bool;
    fn image(&self) -> Option<&ModuleImage>;
}

pub struct Resolved {
    pub candidates: Vec<Candidate>,
    pub notes: Vec<String>,
}

pub fn candidates<M: ModuleView>(
    modules: &[M],
    orders: &[Order],
    _read: &dyn Fn(u64) -> Option<u64>,
) -> Result<Resolved, SelectError> {
    let mut all = Vec::new();
    for order in orders {
        let Order::Include(Select::Name { function, module: only }) = order else { continue };
        let pattern = regex::Regex::new(&format!("^(?:{function})$")).map_err(|_| SelectError)?;
        for (index, module) in modules.iter().enumerate() {
            if only.as_ref().is_some_and(|o| !module.path().contains(o.as_str())) {
                continue;
            }
            let Some(image) = module.image() else { continue };
            for name in image.names.iter().filter(|n| pattern.is_match(&n.name)) {
                all.push(one(module, index, image, name.address.0, &name.name));
            }
        }
    }
    Ok(Resolved { candidates: all, notes: Vec::new() })
}

fn one<M: ModuleView>(module: &M, index: usize, image: &ModuleImage, at: u64, name: &str) -> Candidate {
    let entry = image.map().map(|m| m.entry(Svma(at)));
    let patch = match entry.as_ref().map(|e| &e.plan) {
        Some(Ok(plan)) => Ok(match plan.kind {
            PlanKind::Jump => PatchKind::Jump,
            PlanKind::Padded => PatchKind::PaddedJump,
            PlanKind::Short => PatchKind::ShortJump,
        }),
        Some(Err(EntryRefusal::TooShort { bytes })) => Err(Refusal::TooShort { bytes: *bytes }),
        _ => Err(Refusal::Undecodable),
    };
    Candidate {
        address: at.wrapping_add(module.bias()),
        module: index,
        offset: at,
        size: entry.as_ref().map_or(0, |e| e.extent.end - e.extent.start),
        names: vec![name.to_string()],
        patch,
        cost: CostClass::Nanoseconds,
        entry_only: entry.and_then(|e| e.no_exit).map(|n| format!("{n:?}")),
    }
}

pub fn candidate_at<M: ModuleView>(_modules: &[M], _address: u64) -> Option<Candidate> {
    None
}

pub fn callees<M: ModuleView>(_modules: &[M], _at: u64, _read: &dyn Fn(u64) -> Option<u64>) -> Vec<Candidate> {
    Vec::new()
}

pub fn suggest<M: ModuleView>(_modules: &[M], _pattern: &str) -> Vec<String> {
    Vec::new()
}

pub fn plan<M: ModuleView>(module: &M, candidate: &Candidate) -> Option<Plan> {
    module.image()?.map()?.entry(Svma(candidate.offset)).plan.ok()
}
