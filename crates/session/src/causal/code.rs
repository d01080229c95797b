//! From addresses to source: which function, line and inlined chain an address belongs to, and which code
//! belongs to a line or function. Debug information is read by a thread of its own, and only for functions
//! that were sampled; until it has answered, a function is known by its symbol alone.
//! Constraint: the first experiment must not wait for 200 MB of debug information.

use super::program::CodeFile;
use super::scope::Scope;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use whither_image::{
    Form, FrameRun, FunctionTable, ImageOffset, NameKind, NameSource, Svma, demangle, to_offset, to_svma,
};
use whither_store::SymbolService;
use whither_store::model::Image;
use whither_store::symbols::Symbols as _;

/// Longer functions are known by symbol only: asking for every byte of a generated megabyte takes a second.
const LONGEST: u64 = 1 << 20;

/// A text that is used often, by number.
pub(super) type Word = u32;

/// One level of the chain at an address, in scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Name of the function, demangled.
    pub(super) function: Word,
    /// Source file; the empty text when not known.
    pub(super) file: Word,
    /// 0 when not known.
    pub(super) line: u32,
}

/// A piece of code with one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Stated addresses.
    pub(super) range: Range<u64>,
    /// What is in scope, innermost first; empty for code of others.
    pub(super) places: Vec<Place>,
}

/// A function that was sampled.
#[derive(Debug)]
pub(super) struct Known {
    /// Stated addresses.
    pub(super) range: Range<u64>,
    /// Its own name, demangled.
    pub(super) name: Word,
    /// Its code, in order. A single piece until debug information has come.
    pub(super) runs: Vec<Run>,
    /// Where it begins in the source.
    pub(super) begins: Option<Place>,
    asked: bool,
    answered: bool,
}

/// Question for the reading thread: file, function's start, image, range.
type Question = (usize, u64, Image, Range<u64>);
/// Its answer: file, function's start, chains; `None` when the file has no lines at all.
type Answer = (usize, u64, Option<Vec<FrameRun>>);

/// Code of all files, as far as it was asked for.
pub(super) struct Code {
    service: Arc<SymbolService>,
    scope: Scope,
    words: Words,
    tables: FxHashMap<usize, Arc<FunctionTable>>,
    known: FxHashMap<usize, BTreeMap<u64, Known>>,
    /// Functions that were met, by file and start, in which code of a function (by its name) was, their own included.
    with_function: FxHashMap<Word, BTreeSet<(usize, u64)>>,
    /// The same for code of a source file.
    with_source: FxHashMap<Word, BTreeSet<(usize, u64)>>,
    /// Files whose debug information was found missing or present.
    has_lines: FxHashMap<usize, bool>,
    ask: Option<Sender<Question>>,
    answers: Receiver<Answer>,
    waiting: usize,
    /// Raised whenever code is known better.
    pub(super) generation: u64,
}

impl Code {
    pub(super) fn new(service: Arc<SymbolService>, scope: Scope) -> Self {
        let (ask, questions) = channel::<Question>();
        let (answer, answers) = channel();
        let reader = Arc::clone(&service);
        let spawned = std::thread::Builder::new().name("debug info".into()).spawn(move || {
            for (file, start, image, range) in questions {
                let runs = reader.has_lines(&image).then(|| reader.runs(&image, Svma(range.start)..Svma(range.end)));
                if answer.send((file, start, runs)).is_err() {
                    break;
                }
            }
        });
        Self {
            service,
            scope,
            words: Words::with_nothing(),
            tables: FxHashMap::default(),
            known: FxHashMap::default(),
            with_function: FxHashMap::default(),
            with_source: FxHashMap::default(),
            has_lines: FxHashMap::default(),
            ask: spawned.ok().map(|_| ask),
            answers,
            waiting: 0,
            generation: 0,
        }
    }

    pub(super) fn service(&self) -> &SymbolService {
        &self.service
    }

    /// Names of a file's functions by the stated address at which they begin; demangled, in order, where there are several.
    pub(super) fn names_of(&self, of: &CodeFile) -> FxHashMap<u64, Vec<String>> {
        let mut all: FxHashMap<u64, Vec<String>> = FxHashMap::default();
        for name in self.service.names(&of.image).iter().filter(|n| n.kind == NameKind::Function) {
            all.entry(name.address.0).or_default().push(name.name.to_string());
        }
        all.retain(|_, names| {
            if names.len() < 2 {
                return false;
            }
            names.iter_mut().for_each(|name| *name = readable(name));
            names.sort();
            names.dedup();
            names.len() > 1
        });
        all
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn text(&self, word: Word) -> &str {
        self.words.text(word)
    }

    /// Whether a file that was asked about has source lines; `None` while nobody knows.
    pub(super) fn lines_known(&self, file: usize) -> Option<bool> {
        self.has_lines.get(&file).copied()
    }

    /// Questions without answer.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes in what the reading thread has found.
    pub(super) fn poll(&mut self) {
        while let Ok((file, start, runs)) = self.answers.try_recv() {
            self.waiting = self.waiting.saturating_sub(1);
            self.has_lines.insert(file, runs.is_some());
            let scope = &self.scope;
            let words = &mut self.words;
            let Some(known) = self.known.get_mut(&file).and_then(|k| k.get_mut(&start)) else { continue };
            known.answered = true;
            self.generation += 1;
            if let Some(runs) = runs {
                known.learn(&runs, scope, words);
                self.index(file, start);
            }
        }
    }

    /// Makes a function found by what its code belongs to: programs of thousands of functions are searched each time one is executed.
    fn index(&mut self, file: usize, start: u64) {
        let Some(known) = self.known.get(&file).and_then(|k| k.get(&start)) else { return };
        self.with_function.entry(known.name).or_default().insert((file, start));
        for place in known.runs.iter().flat_map(|r| &r.places) {
            self.with_function.entry(place.function).or_default().insert((file, start));
            self.with_source.entry(place.file).or_default().insert((file, start));
        }
    }

    /// Functions that were met in which code of a function may be, with their files.
    pub(super) fn with_function(&self, function: Word) -> impl Iterator<Item = (usize, &Known)> {
        self.at(self.with_function.get(&function))
    }

    /// The same for code of a source file.
    pub(super) fn with_source(&self, source: Word) -> impl Iterator<Item = (usize, &Known)> {
        self.at(self.with_source.get(&source))
    }

    fn at<'a>(&'a self, places: Option<&'a BTreeSet<(usize, u64)>>) -> impl Iterator<Item = (usize, &'a Known)> {
        places.into_iter().flatten().filter_map(|(file, start)| Some((*file, self.known.get(file)?.get(start)?)))
    }

    /// What is in scope at an address, innermost first; `None` for code that nothing is known of.
    pub(super) fn places(&mut self, file: usize, of: &CodeFile, at: Svma) -> Option<Vec<Place>> {
        let start = self.meet(file, of, at)?;
        let known = self.known.get(&file)?.get(&start)?;
        let index = known.runs.partition_point(|r| r.range.end <= at.0);
        let run = known.runs.get(index).filter(|r| r.range.contains(&at.0));
        Some(run.map(|r| r.places.clone()).unwrap_or_default())
    }

    /// The function at an address: its range, its own name, and whether none of its code is in scope.
    pub(super) fn function(&self, file: usize, at: Svma) -> Option<&Known> {
        let (_, known) = self.known.get(&file)?.range(..=at.0).next_back()?;
        known.range.contains(&at.0).then_some(known)
    }

    /// Whether debug information has told all it will about the function at an address.
    pub(super) fn is_settled(&self, file: usize, at: Svma) -> bool {
        self.function(file, at).is_some_and(|k| k.answered || !k.asked)
    }

    /// All functions of a file that were met.
    pub(super) fn met(&self, file: usize) -> impl Iterator<Item = &Known> {
        self.known.get(&file).into_iter().flat_map(BTreeMap::values)
    }

    /// Makes a function known; returns where it starts.
    pub(super) fn meet(&mut self, file: usize, of: &CodeFile, at: Svma) -> Option<u64> {
        if let Some(known) = self.function(file, at) {
            return Some(known.range.start);
        }
        let table = self.tables.entry(file).or_insert_with(|| self.service.functions(&of.image)).clone();
        let function = table.find(to_offset(&of.image.segments, at)?)?;
        let start = to_svma(&of.image.segments, function.start)?.0;
        let range = start..start.checked_add(function.size)?;
        let name = match function.source {
            NameSource::Symbol | NameSource::Plt => readable(&function.name),
            // Nobody has named it: file and address do.
            _ => format!("{}+{start:#x}", of.image.short_name()),
        };
        let name = self.words.add(&name);
        let none = self.words.add("");
        let visible = function.source != NameSource::Plt
            && self.scope.has_unknown_source()
            && self.scope.has_function(self.words.text(name));
        let places = if visible { vec![Place { function: name, file: none, line: 0 }] } else { Vec::new() };
        let runs = vec![Run { range: range.clone(), places }];
        let known = Known { range: range.clone(), name, runs, begins: None, asked: false, answered: false };
        self.known.entry(file).or_default().insert(start, known);
        self.index(file, start);
        self.generation += 1;
        self.ask_for(file, start, &of.image);
        Some(start)
    }

    fn ask_for(&mut self, file: usize, start: u64, image: &Image) {
        let Some(known) = self.known.get_mut(&file).and_then(|k| k.get_mut(&start)) else { return };
        if known.asked || known.range.end - known.range.start > LONGEST {
            return;
        }
        known.asked = true;
        let question = (file, start, image.clone(), known.range.clone());
        if self.ask.as_ref().is_some_and(|ask| ask.send(question).is_ok()) {
            self.waiting += 1;
        }
    }

    /// Functions of a file by what their names must satisfy, with the names: from the symbol tables.
    pub(super) fn named(&self, of: &CodeFile, wanted: impl Fn(&str) -> bool) -> Vec<(Svma, u64, String)> {
        let names = self.service.names(&of.image);
        let mut found: Vec<(Svma, u64, String)> = Vec::new();
        for name in names {
            let readable = readable(&name.name);
            // The cold part of a function is not where it is entered.
            let entered = name.kind != NameKind::Mark && !name.name.contains(".cold");
            let fits = wanted(&readable) || wanted(&name.name);
            if fits && entered && found.last().is_none_or(|(at, ..)| *at != name.address) {
                found.push((name.address, name.size, readable));
            }
        }
        found
    }

    /// Extent of the function at an address, from the symbol table.
    pub(super) fn extent(&mut self, file: usize, of: &CodeFile, at: Svma) -> Option<Range<u64>> {
        let table = self.tables.entry(file).or_insert_with(|| self.service.functions(&of.image)).clone();
        let function = table.find(to_offset(&of.image.segments, at)?)?;
        let start = to_svma(&of.image.segments, ImageOffset(function.start.0))?.0;
        Some(start..start.checked_add(function.size)?)
    }
}

impl Known {
    /// Whether nothing of it is in scope, for certain.
    pub(super) fn is_foreign(&self) -> bool {
        self.answered && self.runs.iter().all(|r| r.places.is_empty())
    }

    fn learn(&mut self, runs: &[FrameRun], scope: &Scope, words: &mut Words) {
        let first = runs.first().and_then(|r| r.frames.last());
        self.begins = first.map(|frame| Place {
            function: self.name,
            file: words.add(frame.file.as_deref().unwrap_or_default()),
            line: frame.line,
        });
        let own = self.name;
        let mut learnt: Vec<Run> = Vec::with_capacity(runs.len());
        for run in runs {
            let mut places = Vec::new();
            for (depth, frame) in run.frames.iter().enumerate() {
                let file = frame.file.as_deref().unwrap_or_default();
                let outermost = depth + 1 == run.frames.len();
                let function = match &frame.function {
                    // The symbol's name, so that a function has one name however it is met.
                    _ if outermost => own,
                    Some(name) => words.add(&readable(name)),
                    None => own,
                };
                let in_scope = if file.is_empty() { scope.has_unknown_source() } else { scope.has_source(file) };
                if in_scope && scope.has_function(words.text(function)) {
                    places.push(Place { function, file: words.add(file), line: frame.line });
                }
            }
            let range = run.range.start.0..run.range.end.0;
            match learnt.last_mut() {
                Some(last) if last.places == places && last.range.end == range.start => last.range.end = range.end,
                _ => learnt.push(Run { range, places }),
            }
        }
        settle_lines(&mut learnt);
        self.runs = learnt;
    }
}

/// Code that compilers give line 0 belongs to the line before it of the same function.
fn settle_lines(runs: &mut [Run]) {
    for i in 0..runs.len() {
        let Some(place) = runs[i].places.first().copied().filter(|p| p.line == 0) else { continue };
        let same = |r: &Run| r.places.first().copied().filter(|p| p.function == place.function && p.line > 0);
        let line = runs[..i].iter().rev().find_map(same).or_else(|| runs[i + 1..].iter().find_map(same));
        if let (Some(line), Some(first)) = (line, runs[i].places.first_mut()) {
            *first = line;
        }
    }
}

/// A function's name as people write it: demangled, and without what compilers append to parts and copies.
pub(super) fn readable(name: &str) -> String {
    const APPENDED: [&str; 6] = [".cold", ".part", ".isra", ".constprop", ".llvm", ".lto_priv"];
    let end = APPENDED.iter().filter_map(|a| name.find(a)).filter(|at| *at > 0).min().unwrap_or(name.len());
    demangle(name.get(..end).unwrap_or(name), Form::Short).into_owned()
}

/// Texts by number.
#[derive(Debug, Default)]
struct Words {
    texts: Vec<Arc<str>>,
    numbers: FxHashMap<Arc<str>, Word>,
}

impl Words {
    /// Word 0 is the empty text: what is not known.
    fn with_nothing() -> Self {
        let mut words = Self::default();
        words.add("");
        words
    }

    fn add(&mut self, text: &str) -> Word {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let shared: Arc<str> = text.into();
        let number = self.texts.len() as Word;
        self.texts.push(Arc::clone(&shared));
        self.numbers.insert(shared, number);
        number
    }

    fn text(&self, word: Word) -> &str {
        self.texts.get(word as usize).map_or("", |t| t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    #[inline(never)]
    fn a_function_with_lines(x: u64) -> u64 {
        std::hint::black_box(x.wrapping_mul(3)) + 1
    }

    #[test]
    fn a_function_is_known_by_symbol_first_and_by_lines_later() {
        let me = std::process::id();
        let mut program = super::super::program::Program::default();
        program.refresh(me);
        let (file, at) = program.place(me, a_function_with_lines as fn(u64) -> u64 as usize as u64).expect("our code");
        let mut code = Code::new(service(), Scope::default());
        let of = program.files[file].clone();
        let first = code.places(file, &of, at).expect("a function");
        assert!(code.text(first[0].function).ends_with("a_function_with_lines"), "{}", code.text(first[0].function));
        assert_eq!((first.len(), first[0].line), (1, 0));
        let deadline = Instant::now() + Duration::from_secs(120);
        while code.waiting() > 0 && Instant::now() < deadline {
            code.poll();
            std::thread::sleep(Duration::from_millis(5));
        }
        let later = code.places(file, &of, at).expect("a function");
        let place = later.last().expect("in scope");
        assert!(code.text(place.file).ends_with("code.rs") && place.line > 0, "{place:?}");
        assert_eq!(code.lines_known(file), Some(true));
        let known = code.function(file, at).expect("met");
        assert!(!known.is_foreign() && known.begins.is_some());
        // By its name, by that of what is inlined into it, by the source of either.
        let start = known.range.start;
        let is_it = |(f, k): (usize, &Known)| f == file && k.range.start == start;
        assert!(code.with_function(known.name).any(is_it));
        for place in known.runs.iter().flat_map(|r| &r.places) {
            assert!(code.with_function(place.function).any(is_it) && code.with_source(place.file).any(is_it));
        }
        assert_eq!(code.with_source(Word::MAX).count(), 0);
    }

    fn service() -> Arc<SymbolService> {
        Arc::new(SymbolService::new(whither_store::SymbolOptions::default(), whither_store::StoredSymbols::default()))
    }

    #[test]
    fn functions_that_are_one_have_all_their_names() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (source, path) = (dir.path().join("s.c"), dir.path().join("s"));
        let text = "int leaf(int x) { return x * 3; }\nint pack(int x) __attribute__((alias(\"leaf\")));\n\
                    #include <unistd.h>\n\
                    int main(int c, char **v) { char b; return write(1, \"r\", 1) + pack(read(0, &b, 1)) - 1; }\n";
        std::fs::write(&source, text).expect("writable");
        let built = std::process::Command::new("cc").args(["-O1", "-o"]).arg(&path).arg(&source).status();
        assert!(built.expect("cc").success());
        let mut command = std::process::Command::new(&path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("just built");
        // While it is executed it maps nothing.
        child.stdout.take().expect("a pipe").read_exact(&mut [0]).expect("it says that it runs");
        let mut program = super::super::program::Program::default();
        program.refresh(child.id());
        let mappings = whither_kernel::proc::executable_mappings(child.id());
        let own = mappings.iter().find(|m| m.path.ends_with("/s")).expect("it is mapped");
        let (file, _) = program.place(child.id(), own.start).expect("its code");
        let names = Code::new(service(), Scope::default()).names_of(&program.files[file]);
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert!(names.values().any(|names| names == &["leaf", "pack"]), "{names:?}");
        assert!(names.values().flatten().all(|name| name != "main"), "{names:?}");
    }

    #[test]
    fn line_zero_joins_its_neighbour() {
        let place = |line| Place { function: 1, file: 2, line };
        let run = |start, line| Run { range: start..start + 4, places: vec![place(line)] };
        let mut runs = vec![run(0, 0), run(4, 7), run(8, 0), run(12, 9)];
        settle_lines(&mut runs);
        assert_eq!(runs.iter().map(|r| r.places[0].line).collect::<Vec<_>>(), [7, 7, 7, 9]);
    }
}
