//! The rules of virtual clocks, as the kernel side has them: a reference that can be read. Each rule can be
//! switched off, to show that it is needed.

/// Which rules hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// R3: a thread that another one wakes has been delayed as much as that one.
    pub(crate) inherit: bool,
    /// R3: and is not earlier than when it blocked.
    pub(crate) own_clock: bool,
    /// R5: the world does not wait for us.
    pub(crate) world: bool,
    /// R6: a core is handed over like a lock.
    pub(crate) hand_over: bool,
    /// Entries of queues from outside carry their time.
    pub(crate) arrivals: bool,
}

impl Rules {
    pub(crate) const ALL: Self = Self { inherit: true, own_clock: true, world: true, hand_over: true, arrivals: false };
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// Delay paid or earned.
    d: i64,
    /// Virtual time when it blocked or was queued.
    marked: i64,
    /// Real time then.
    marked_at: i64,
    /// Debt then.
    owed: i64,
}

pub(crate) struct Clocks {
    pub(crate) rules: Rules,
    /// G: delay that everybody owes.
    pub(crate) group: i64,
    pub(crate) clocks: Vec<Clock>,
    /// Delay per sample.
    pub(crate) quantum: i64,
}

impl Clocks {
    pub(crate) fn reset(&mut self, now: i64, quantum: i64) {
        self.group = 0;
        self.clocks.iter_mut().for_each(|c| *c = Clock { d: 0, marked: now, marked_at: now, owed: 0 });
        self.quantum = quantum;
    }

    /// R1, for a part of a period.
    pub(crate) fn credit(&mut self, i: usize, periods: f64) {
        self.clocks[i].d += (self.quantum as f64 * periods) as i64;
        self.group = self.group.max(self.clocks[i].d);
    }

    pub(crate) fn debt(&self, i: usize) -> i64 {
        self.group - self.clocks[i].d
    }

    /// R2.
    pub(crate) fn pay(&mut self, i: usize, ns: i64) -> i64 {
        self.clocks[i].d += ns;
        ns
    }

    pub(crate) fn virtual_time(&self, i: usize, now: i64) -> i64 {
        now - self.clocks[i].d
    }

    /// It blocks, or waits for a core.
    pub(crate) fn mark(&mut self, i: usize, now: i64) {
        let owed = self.debt(i);
        let clock = &mut self.clocks[i];
        (clock.marked, clock.marked_at, clock.owed) = (now - clock.d, now, owed);
    }

    /// R3.
    pub(crate) fn woken(&mut self, i: usize, by: usize, now: i64) {
        if !self.rules.inherit {
            return;
        }
        let waker = self.virtual_time(by, now);
        let clock = self.clocks[i];
        let v = if self.rules.own_clock {
            waker.max(clock.marked).max(now - self.group)
        } else {
            // The older rule, of debts: what the waker owes, or what remains of one's own.
            let own = (clock.owed - (now - clock.marked_at)).max(self.debt(by)).max(0);
            now - self.group + own
        };
        self.clocks[i].d = now - v;
    }

    /// R5; `alone`: nobody of the group can run.
    pub(crate) fn woken_by_the_world(&mut self, i: usize, alone: bool) {
        if !self.rules.world {
            return;
        }
        self.clocks[i].d = self.clocks[i].d.min(0);
        if alone {
            self.group = self.clocks[i].d.max(0);
        }
    }

    /// R6: it gets the core from a thread that left at this virtual time.
    pub(crate) fn handed_over(&mut self, i: usize, v: i64, now: i64) {
        if self.rules.hand_over {
            let v = v.max(self.clocks[i].marked).max(now - self.group);
            self.clocks[i].d = now - v;
        }
    }

    /// It takes an entry that was made at this virtual time by an arrival from outside.
    pub(crate) fn took(&mut self, i: usize, pushed: i64, now: i64) {
        if self.rules.arrivals {
            let v = self.virtual_time(i, now).max(pushed);
            self.clocks[i].d = now - v;
        }
    }
}
