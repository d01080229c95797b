//! A controller to be killed: attaches to a process, probes one function, says so, and waits for its end.

#![allow(clippy::print_stdout)]

use std::time::Duration;
use whither_probe::{Engine, Options, Order, PointAction, PointSpec, ProbeError, Select};

fn main() -> Result<(), ProbeError> {
    let mut words = std::env::args().skip(1);
    let (Some(pid), Some(function)) = (words.next().and_then(|w| w.parse().ok()), words.next()) else {
        println!("usage: controller PID FUNCTION");
        return Ok(());
    };
    let mut engine = Engine::attach(pid, Options::default())?;
    let found = engine.resolve(&[Order::Include(Select::Name { function, module: None })])?;
    let actions = vec![PointAction::Path, PointAction::Wall];
    let specs: Vec<_> = found.into_iter().map(|c| PointSpec { candidate: c, actions: actions.clone() }).collect();
    println!("{}", engine.add(&specs)?.ids.len());
    while engine.poll(Duration::from_millis(100)).is_ok() {}
    Ok(())
}
