//! Linux capabilities of this process, from the `CapEff` line of `/proc/self/status`.

/// A capability that matters to a profiler, with its bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Read files regardless of their mode: other users' binaries.
    DacReadSearch = 2,
    /// Map perf rings beyond `perf_event_mlock_kb`.
    IpcLock = 14,
    /// Trace and inspect any process: `/proc/PID/maps`, `/proc/PID/root`.
    SysPtrace = 19,
    /// Everything; stands in for the two below on every kernel.
    SysAdmin = 21,
    /// Read kernel addresses in /proc/kallsyms.
    Syslog = 34,
    /// perf events beyond the paranoid level (Linux 5.8).
    Perfmon = 38,
    /// BPF programs (Linux 5.8).
    Bpf = 39,
}

impl Capability {
    /// Name as `capsh` and `setcap` write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Syslog => "CAP_SYSLOG",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }
}

/// Effective rights of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    bits: u64,
    uid: u32,
}

impl Rights {
    /// From `/proc/self/status`; a missing or odd line counts as no rights.
    #[must_use]
    pub fn from_status(status: &str) -> Self {
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or("");
        Self {
            bits: u64::from_str_radix(field("CapEff:").trim(), 16).unwrap_or(0),
            // Real, effective, saved, file system.
            uid: field("Uid:").split_whitespace().nth(1).and_then(|t| t.parse().ok()).unwrap_or(u32::MAX),
        }
    }

    /// Effective user id.
    #[must_use]
    pub fn uid(self) -> u32 {
        self.uid
    }

    /// Whether the capability is held, by itself or by CAP_SYS_ADMIN where that stands in for it.
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        let held = |c: Capability| self.bits & (1 << c as u8) != 0;
        match capability {
            Capability::Perfmon | Capability::Bpf | Capability::Syslog => {
                held(capability) || held(Capability::SysAdmin)
            }
            other => held(other),
        }
    }
}
