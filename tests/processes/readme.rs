//! README.md as a test: its commands run as text, in order, in one shell, against the `muster dev` that it starts.
//!
//! `readme/walkthrough.rs` says what is run and how README's output is compared, `readme/shell.rs` runs it.

mod shell;
mod walkthrough;

use std::time::{Duration, Instant};

use shell::{Ran, Shell};
use walkthrough::Step;

/// How long a command may take to print what README shows.
const STEP_PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn the_commands_of_the_readme_print_what_it_shows() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let steps = walkthrough::steps(&readme);
    assert!(steps.len() > 20, "README has {} commands: is the walk-through still there?", steps.len());
    let mut shell = Shell::start();
    for step in &steps {
        let begun = Instant::now();
        follow(&mut shell, step);
        println!("{:5.1} s  {}", begun.elapsed().as_secs_f64(), step.command.lines().next().unwrap_or_default());
    }
}

/// Runs the command until it prints what README shows. One that changes something is run once.
fn follow(shell: &mut Shell, step: &Step) {
    let begun = Instant::now();
    loop {
        let ran = shell.run(&step.command, STEP_PATIENCE);
        let wrong = complaint(step, &ran);
        let Some(wrong) = wrong else { return };
        assert!(
            step.only_reads() && begun.elapsed() < STEP_PATIENCE,
            "README.md, line {}: {wrong}\n$ {}\nshown:\n{}\nprinted:\n{}",
            step.line,
            step.command,
            step.shown.join("\n"),
            ran.printed.join("\n"),
        );
    }
}

fn complaint(step: &Step, ran: &Ran) -> Option<String> {
    if ran.exit != 0 {
        return Some(format!("the command ended with {}", ran.exit));
    }
    let is_as_shown = step.shown.is_empty() || walkthrough::matches(&step.shown, &ran.printed);
    (!is_as_shown).then(|| "the output is not what README shows".to_owned())
}
