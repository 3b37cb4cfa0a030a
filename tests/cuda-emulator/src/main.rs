//! Runs a program on the emulated CUDA device: `cuda-emulator target/debug/deps/arrays-… --list`.
//!
//! Without a program, prints the required environment variables.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let folder = match cuda_emulator::build(&cuda_emulator::default_target()) {
        Ok(folder) => folder,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::FAILURE;
        }
    };
    let preload = cuda_emulator::preload(&folder);
    let kernels = folder.join("kernels");
    let mut arguments = env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        let kernels = kernels.display();
        println!("CACHESCOPE_DEVICE=cuda:0 CACHESCOPE_KERNEL_CACHE={kernels} LD_PRELOAD={preload}");
        return ExitCode::SUCCESS;
    };
    let mut command = Command::new(&program);
    command.args(arguments).env("LD_PRELOAD", preload);
    for (name, value) in [
        ("CACHESCOPE_DEVICE", "cuda:0".as_ref()),
        ("CACHESCOPE_KERNEL_CACHE", kernels.as_os_str()),
    ] {
        if env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    let error = command.exec();
    eprintln!("{}: {error}", program.display());
    ExitCode::FAILURE
}
