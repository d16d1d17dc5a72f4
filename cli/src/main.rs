//! The `muster` binary: the released build of the program.

use std::process::ExitCode;

use muster_controller::server::Build;
use muster_lifecycle::level::LevelRange;

/// Measured: a million small actors start several times faster than with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    muster_cli::program::run(Build { version: env!("CARGO_PKG_VERSION"), levels: LevelRange::SHIPPED })
}
