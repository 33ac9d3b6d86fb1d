//! The `voluble` program: hands the command line to the composition root.

use std::process::ExitCode;

fn main() -> ExitCode {
    voluble::app::run(std::env::args_os())
}
