//! How long attaching takes: `big_attach PID FUNCTION [REPEAT]`, in milliseconds, with the pauses.

#![allow(clippy::print_stdout)]

use std::time::Instant;
use whither_probe::{Engine, Options, Order, PointAction, PointSpec, ProbeError, Select};

fn main() -> Result<(), ProbeError> {
    let mut words = std::env::args().skip(1);
    let (Some(pid), Some(function)) = (words.next().and_then(|w| w.parse().ok()), words.next()) else {
        println!("usage: big_attach PID FUNCTION [REPEAT]");
        return Ok(());
    };
    let repeat: u32 = words.next().and_then(|w| w.parse().ok()).unwrap_or(1);
    for _ in 0..repeat {
        let began = Instant::now();
        let mut engine = Engine::attach(pid, Options::default())?;
        let ready = began.elapsed();
        let order = Order::Include(Select::Name { function: function.clone(), module: None });
        let found = engine.resolve(&[order])?;
        let resolved = began.elapsed();
        let count = found.len();
        let specs: Vec<_> =
            found.into_iter().map(|c| PointSpec { candidate: c, actions: vec![PointAction::Path] }).collect();
        let added = engine.add(&specs)?;
        println!(
            "ready {ready:.1?}, resolved {count} {:.1?}, added {} at {:.1?}, pause {:.1?}, refused {}",
            resolved - ready,
            added.ids.len(),
            began.elapsed(),
            added.pause,
            added.refused.len()
        );
        let began = Instant::now();
        let detached = engine.detach()?;
        println!("detached in {:.1?}, pause {:.1?}, left {:?}", began.elapsed(), detached.pause, detached.left);
    }
    Ok(())
}
