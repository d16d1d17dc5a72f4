//! `muster completions SHELL`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::Failure;
use crate::output::Out;

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    pub shell: Shell,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    // Into memory first: the generator panics when its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "muster", &mut script);
    let mut out = Out::stdout();
    out.text(&String::from_utf8_lossy(&script))?;
    out.flush()
}
