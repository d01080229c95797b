//! Exact execution counts from what `valgrind --tool=callgrind --dump-instr=yes --collect-jumps=yes --skip-plt=no` wrote (format:
//! Callgrind Format Specification, valgrind manual). Only self costs of the first event and jumps are read.

use rustc_hash::FxHashMap;

/// What ran in one object file, at the addresses valgrind had loaded it to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExactObject {
    /// Path.
    pub path: String,
    /// Executions of each instruction.
    pub counts: FxHashMap<u64, u64>,
    /// Jumps by (from, to), conditional ones as often as they were taken.
    pub jumps: FxHashMap<(u64, u64), u64>,
    /// Lowest executed address of each function, by name.
    pub functions: FxHashMap<String, u64>,
}

/// The whole of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exact {
    /// What ran, per object file.
    pub objects: Vec<ExactObject>,
    /// The command line counted, where the file tells it.
    pub command: Option<String>,
}

impl Exact {
    /// Reads a profile.
    ///
    /// # Errors
    /// See [`CallgrindError`].
    pub fn parse(text: &str) -> Result<Self, CallgrindError> {
        let told = text.lines().find_map(|l| l.strip_prefix("cmd:"));
        let command = told.map(|c| c.trim().to_owned()).filter(|c| !c.is_empty());
        Ok(Self { objects: parse_callgrind(text)?, command })
    }
}

/// Why a file is no such profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallgrindError {
    /// It does not begin like one, or has no cost lines.
    #[error("this is no callgrind profile: there is no `events:` line; run `valgrind --tool=callgrind`")]
    NotOne,
    /// Made without addresses.
    #[error(
        "this callgrind profile counts source lines, not instructions; run valgrind with --dump-instr=yes \
         --collect-jumps=yes --skip-plt=no"
    )]
    NoInstructions,
    /// A line that cannot be understood.
    #[error("line {line} of the callgrind profile cannot be read: `{text}`")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// Its text, cut.
        text: String,
    },
}

/// The counts of a profile alone.
///
/// # Errors
/// See [`CallgrindError`].
pub fn parse_callgrind(text: &str) -> Result<Vec<ExactObject>, CallgrindError> {
    let mut reader = Reader::default();
    for (i, line) in text.lines().enumerate() {
        let broken = || CallgrindError::Line { line: i + 1, text: line.chars().take(80).collect() };
        reader.line(line).ok_or_else(broken)?;
        if reader.positions == Some(Positions::WithoutAddress) {
            return Err(CallgrindError::NoInstructions);
        }
    }
    if !reader.events {
        return Err(CallgrindError::NotOne);
    }
    if reader.positions.is_none() {
        return Err(CallgrindError::NoInstructions);
    }
    Ok(reader.objects)
}

/// What the next position line belongs to.
#[derive(Default)]
enum Pending {
    #[default]
    Cost,
    /// The source of a call: its cost is the callee's.
    Call,
    Jump {
        count: u64,
        to: u64,
    },
}

/// What stands before the counts of a cost line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Positions {
    /// An address and what else: so many in all.
    WithAddress(usize),
    WithoutAddress,
}

impl Positions {
    /// `instr line`, or `instr` alone after --dump-line=no.
    fn of(value: &str) -> Self {
        match value.split_whitespace().next() {
            Some("instr") => Self::WithAddress(value.split_whitespace().count()),
            _ => Self::WithoutAddress,
        }
    }
}

#[derive(Default)]
struct Reader {
    objects: Vec<ExactObject>,
    by_id: FxHashMap<String, usize>,
    names: FxHashMap<String, String>,
    current: Option<usize>,
    function: String,
    positions: Option<Positions>,
    events: bool,
    address: u64,
    pending: Pending,
}

impl Reader {
    fn line(&mut self, line: &str) -> Option<()> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Some(());
        }
        if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            return self.position(line);
        }
        if let Some((key, value)) = line.split_once('=') {
            return self.assignment(key.trim(), value.trim());
        }
        if let Some((key, value)) = line.split_once(':') {
            match key {
                "positions" => self.positions = Some(Positions::of(value)),
                "events" => self.events = true,
                _ => {}
            }
        }
        Some(())
    }

    fn assignment(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "ob" => {
                let path = self.name("ob", value)?;
                self.current = Some(self.object(path));
            }
            "cob" => drop(self.name("ob", value)?),
            "fn" => self.function = self.name("fn", value)?,
            "cfn" => drop(self.name("fn", value)?),
            "calls" => self.pending = Pending::Call,
            "jump" => {
                let (count, to) = value.split_once(' ')?;
                self.pending = Pending::Jump { count: count.trim().parse().ok()?, to: self.place(to)? };
            }
            "jcnd" => {
                let (counts, to) = value.split_once(' ')?;
                let taken = counts.split('/').next()?;
                self.pending = Pending::Jump { count: taken.trim().parse().ok()?, to: self.place(to)? };
            }
            _ => {}
        }
        Some(())
    }

    /// `(id) name` defines, `(id)` repeats, anything else is the name itself.
    fn name(&mut self, kind: &str, value: &str) -> Option<String> {
        let Some(rest) = value.strip_prefix('(') else { return Some(value.to_owned()) };
        let (id, name) = rest.split_once(')')?;
        let key = format!("{kind}{id}");
        let name = name.trim();
        if name.is_empty() {
            return Some(self.names.get(&key).cloned().unwrap_or_default());
        }
        self.names.insert(key, name.to_owned());
        Some(name.to_owned())
    }

    fn object(&mut self, path: String) -> usize {
        let objects = &mut self.objects;
        *self.by_id.entry(path).or_insert_with_key(|path| {
            objects.push(ExactObject { path: path.clone(), ..ExactObject::default() });
            objects.len() - 1
        })
    }

    /// The address that a position begins with.
    fn place(&self, text: &str) -> Option<u64> {
        let word = text.split_whitespace().next()?;
        let number = |t: &str| match t.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => t.parse().ok(),
        };
        match word.as_bytes().first()? {
            b'+' => self.address.checked_add(number(&word[1..])?),
            b'-' => self.address.checked_sub(number(&word[1..])?),
            b'*' => Some(self.address),
            _ => number(word),
        }
    }

    fn position(&mut self, line: &str) -> Option<()> {
        let at = self.place(line)?;
        self.address = at;
        let pending = std::mem::take(&mut self.pending);
        let current = match self.current {
            Some(o) => o,
            None => self.object(String::new()),
        };
        let object = &mut self.objects[current];
        match pending {
            Pending::Call => {}
            Pending::Jump { count, to } => {
                let sum = object.jumps.entry((at, to)).or_default();
                *sum = sum.saturating_add(count);
            }
            Pending::Cost => {
                // Positions, then the events; instructions read is the first.
                let first = match self.positions {
                    Some(Positions::WithAddress(n)) => n,
                    _ => return None,
                };
                let count: u64 = line.split_whitespace().nth(first).unwrap_or("0").parse().ok()?;
                let sum = object.counts.entry(at).or_default();
                *sum = sum.saturating_add(count);
                let first = object.functions.entry(self.function.clone()).or_insert(at);
                *first = at.min(*first);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "# callgrind format\nversion: 1\npositions: instr line\nevents: Ir\n\nob=(1) /bin/x\nfl=(1) a.c\n\
        fn=(1) main\n0x1000 3 1\n+4 3 10\njcnd=9/10 0x1000 3\n* *\n+2 4 1\ncfn=(2) f\ncalls=1 0x2000 0\n0x100a 4 500\n\
        fn=(2)\n0x2000 0 7\njump=7 0x2008\n0x2000 0\n\ntotals: 19\n";

    #[test]
    fn costs_jumps_and_calls_are_told_apart() {
        let objects = parse_callgrind(SMALL).expect("readable");
        assert_eq!(objects.len(), 1);
        let o = &objects[0];
        assert_eq!(o.path, "/bin/x");
        assert_eq!((o.counts[&0x1000], o.counts[&0x1004], o.counts[&0x1006], o.counts[&0x2000]), (1, 10, 1, 7));
        assert!(!o.counts.contains_key(&0x100a), "the callee's cost is not the call's");
        assert_eq!((o.jumps[&(0x1004, 0x1000)], o.jumps[&(0x2000, 0x2008)]), (9, 7));
        assert_eq!((o.functions["main"], o.functions["f"]), (0x1000, 0x2000));
    }

    #[test]
    fn counts_stand_behind_as_many_positions_as_are_told() {
        let text =
            "version: 1\ncmd: ./x -n 3\npositions: instr\nevents: Ir Dr\n\nob=/bin/x\nfn=main\n0x1000 7 2\n+4 10 1\n";
        let exact = Exact::parse(text).expect("readable");
        assert_eq!((exact.objects[0].counts[&0x1000], exact.objects[0].counts[&0x1004]), (7, 10));
        assert_eq!(exact.command.as_deref(), Some("./x -n 3"));
        assert_eq!(Exact::parse(SMALL).expect("readable").command, None);
    }

    #[test]
    fn other_files_are_refused_by_name() {
        assert_eq!(parse_callgrind("hello\n"), Err(CallgrindError::NotOne));
        let lines = "positions: line\nevents: Ir\nfn=main\n3 1\n";
        assert_eq!(parse_callgrind(lines), Err(CallgrindError::NoInstructions));
        let broken = "positions: instr line\nevents: Ir\nfn=main\n0xzz 3 1\n";
        assert!(matches!(parse_callgrind(broken), Err(CallgrindError::Line { line: 4, .. })));
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_an_answer(text in "[ -~\n]{0,300}") {
            let _ = parse_callgrind(&format!("positions: instr\nevents: Ir\n{text}"));
        }
    }
}
