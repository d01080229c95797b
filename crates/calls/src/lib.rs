//! Call-path analysis: from snapshots of counters to what the user reads — shares of the whole
//! execution, self times, percentiles, function totals, call sites that stand out, differences of two
//! moments, and the drill policy that narrows a bottleneck. Pure: a snapshot and names come in, values go
//! out; nothing here knows a process, a file or a terminal.

#![forbid(unsafe_code)]
