//! The `muster-next` binary: what the next release would be. It is the same program with one level more, the rehearsal
//! level. Tests of upgrades run it beside `muster`; it is not released.

use std::process::ExitCode;

use muster_controller::server::Build;
use muster_lifecycle::level::{Level, LevelRange};
use muster_lifecycle::rehearsal;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let levels = LevelRange::new(Level::FIRST, rehearsal::LEVEL);
    muster_cli::program::run(Build { version: "0.2.0-rehearsal", levels })
}
