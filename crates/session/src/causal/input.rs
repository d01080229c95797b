//! The standard input of a command that is run again and again: every run has to read the same.

use rustix::fs::{FileType, SeekFrom, fstat, seek, tell};
use std::os::fd::AsFd;

/// What the command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A file, from this position.
    File(u64),
    /// A pipe or a socket: what one run has read, no other finds.
    Once,
    /// A terminal, /dev/null, or none.
    Any,
}

impl Input {
    pub(super) fn of(input: impl AsFd) -> Self {
        let Ok(stat) = fstat(&input) else { return Self::Any };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => tell(&input).map_or(Self::Once, Self::File),
            FileType::Fifo | FileType::Socket => Self::Once,
            _ => Self::Any,
        }
    }

    /// Puts a file back to where the first run began; whether the next run reads the same.
    pub(super) fn again(self, input: impl AsFd) -> bool {
        match self {
            Self::File(at) => seek(&input, SeekFrom::Start(at)).is_ok(),
            Self::Once => false,
            Self::Any => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn files_are_read_again_from_where_they_stood_and_pipes_are_not() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"skipped, read").expect("written");
        file.seek(std::io::SeekFrom::Start(9)).expect("sought");
        let input = Input::of(&file);
        for _ in 0..2 {
            let mut text = String::new();
            file.read_to_string(&mut text).expect("read");
            assert_eq!(text, "read");
            assert!(input.again(&file));
        }
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert!(!Input::of(&reader).again(&reader));
        let nothing = std::fs::File::open("/dev/null").expect("opens");
        assert!(Input::of(&nothing).again(&nothing));
    }
}
