//! Whether the control group of a process keeps it from running: such a thread cannot be stopped, called into or ended, and no
//! signal tells why. Sources: Documentation/admin-guide/cgroup-v2.rst (`cgroup.events`), cgroup-v1/freezer-subsystem.rst.

use crate::proc::read_text;
use std::path::{Path, PathBuf};

/// The file that thaws a process, and what to write into it; `None` when nothing has frozen it.
#[must_use]
pub fn frozen_by(pid: u32) -> Option<(PathBuf, &'static str)> {
    groups(&read_text(format!("/proc/{pid}/cgroup")).ok()?).into_iter().find_map(|group| group.frozen())
}

/// Where the state of a group stands.
#[derive(Debug, PartialEq, Eq)]
enum Group {
    Unified(PathBuf),
    Freezer(PathBuf),
}

impl Group {
    fn frozen(&self) -> Option<(PathBuf, &'static str)> {
        match self {
            Self::Unified(dir) => {
                let frozen = read_text(dir.join("cgroup.events")).ok()?.lines().any(|line| line == "frozen 1");
                frozen.then(|| (dir.join("cgroup.freeze"), "0"))
            }
            Self::Freezer(dir) => {
                let file = dir.join("freezer.state");
                let frozen = read_text(&file).ok()?.starts_with("FR");
                frozen.then_some((file, "THAWED"))
            }
        }
    }
}

/// Lines are `number:controllers:path`; the unified hierarchy has number 0 and may be mounted beside others.
fn groups(text: &str) -> Vec<Group> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let below = |mount: &str| Path::new(mount).join(path.trim_start_matches('/'));
        if number == "0" {
            found.push(Group::Unified(below("/sys/fs/cgroup")));
            found.push(Group::Unified(below("/sys/fs/cgroup/unified")));
        } else if controllers.split(',').any(|c| c == "freezer") {
            found.push(Group::Freezer(below("/sys/fs/cgroup/freezer")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hierarchies_are_known() {
        let found = groups("5:freezer:/job/a\n3:cpu,cpuacct:/\n0::/user.slice\nrubbish\n");
        assert_eq!(found[0], Group::Freezer("/sys/fs/cgroup/freezer/job/a".into()));
        assert_eq!(found[1], Group::Unified("/sys/fs/cgroup/user.slice".into()));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn the_state_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let unified = Group::Unified(dir.path().into());
        let freezer = Group::Freezer(dir.path().into());
        assert_eq!((unified.frozen(), freezer.frozen()), (None, None), "no such file");
        std::fs::write(dir.path().join("cgroup.events"), "populated 1\nfrozen 1\n").expect("is written");
        assert_eq!(unified.frozen(), Some((dir.path().join("cgroup.freeze"), "0")));
        std::fs::write(dir.path().join("freezer.state"), "FREEZING\n").expect("is written");
        assert_eq!(freezer.frozen(), Some((dir.path().join("freezer.state"), "THAWED")));
        std::fs::write(dir.path().join("freezer.state"), "THAWED\n").expect("is written");
        assert_eq!(freezer.frozen(), None);
    }

    #[test]
    fn we_are_not_frozen() {
        assert_eq!(frozen_by(std::process::id()), None);
    }
}
