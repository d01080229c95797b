//! `completions` and `man`: what is generated from the one clap definition.

use crate::answer;
use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Ending;
use anyhow::Context;
use clap::{Command, CommandFactory};
use std::fs;
use std::path::Path;

/// `whither completions SHELL`.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "whither", &mut script);
    answer::write(&script)?;
    Ok(Ending::Done)
}

/// `whither man DIR`: one page per verb.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<Ending> {
    fs::create_dir_all(&args.dir).with_context(|| format!("cannot create {}", args.dir.display()))?;
    let mut command = Cli::command();
    command.build();
    write_pages(&command, "whither", &args.dir)?;
    Ok(Ending::Done)
}

fn write_pages(command: &Command, name: &str, dir: &Path) -> anyhow::Result<()> {
    let page = dir.join(format!("{name}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut text)?;
    fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
    let verbs = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    verbs.into_iter().try_for_each(|verb| write_pages(verb, &format!("{name}-{}", verb.get_name()), dir))
}
