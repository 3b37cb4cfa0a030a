//! Compiles the emulator's libraries, once for each version of their sources.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

macro_rules! sources {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../native/", $name)))),*]
    };
}

/// The sources of the libraries. They are embedded in the test binary, so the tests need only a
/// compiler.
const SOURCES: [(&str, &str); 27] = sources!(
    "abi.hpp" "emulator.hpp" "image.hpp" "kernel.hpp" "math.hpp" "reductions.hpp" "rendezvous.hpp"
    "clique.hpp" "communicator.hpp" "gemm.hpp"
    "clock.cpp" "contexts.cpp" "fibers.cpp" "graphs.cpp" "memory.cpp" "modules.cpp" "pools.cpp"
    "rendezvous.cpp" "report.cpp" "streams.cpp" "virtual.cpp" "nvrtc.cpp" "cublas.cpp" "cublasLt.cpp"
    "cusolver.cpp" "cufft.cpp" "nccl.cpp"
);

/// The cost table of the virtual clock, which the library's simulations also use.
const COSTS: &str = include_str!("../../../crates/memory/src/costs/h100.csv");

/// The libraries with a single source file. All other sources belong to the driver.
const ALONE: [&str; 6] = ["nvrtc", "cublasLt", "cublas", "cusolver", "cufft", "nccl"];

/// The file of cublasLt.
pub(crate) const CUBLAS_LT: &str = "libcublasLt.so";

/// The subfolder with a library cublasLt that has no functions.
pub(crate) const EMPTY: &str = "empty";

/// Returns the folder of the libraries, below `target`. If the folder does not exist, compiles the
/// libraries.
///
/// # Errors
///
/// Returns the reason as text if g++ is missing or fails, or if the folder cannot be written.
pub fn build(target: &Path) -> Result<PathBuf, String> {
    let version = Command::new("g++").arg("-dumpfullversion").output();
    let version = version.map_err(|error| format!("g++ cannot be run: {error}"))?;
    let mut hasher = DefaultHasher::new();
    (SOURCES, COSTS, version.stdout).hash(&mut hasher);
    let folder = target.join(format!("cuda-emulator-{:016x}", hasher.finish()));
    let in_folder = |error: io::Error| format!("{}: {error}", target.display());
    if folder.is_dir() {
        return Ok(folder);
    }
    fs::create_dir_all(target).map_err(in_folder)?;
    // If several test binaries start together, the first one compiles, and the others wait.
    let lock = File::create(target.join("cuda-emulator.lock")).map_err(in_folder)?;
    lock.lock().map_err(in_folder)?;
    if folder.is_dir() {
        return Ok(folder);
    }
    let draft = folder.with_extension("draft");
    let _ = fs::remove_dir_all(&draft);
    fs::create_dir_all(&draft).map_err(in_folder)?;
    for (name, text) in SOURCES {
        fs::write(draft.join(name), text).map_err(in_folder)?;
    }
    let costs = format!("R\"costs({COSTS})costs\"\n");
    fs::write(draft.join("costs.inc"), costs).map_err(in_folder)?;
    compile(&draft)?;
    // The draft is renamed last, so `folder` is complete as soon as it exists.
    fs::rename(&draft, &folder).map_err(in_folder)?;
    Ok(folder)
}

fn compile(folder: &Path) -> Result<(), String> {
    let stems = SOURCES
        .iter()
        .filter_map(|(name, _)| name.strip_suffix(".cpp"));
    let mut running: Vec<(String, Child)> = Vec::new();
    let mut driver = Vec::new();
    for stem in stems {
        let object = format!("{stem}.o");
        let source = format!("{stem}.cpp");
        // The math libraries have long loops, so they are compiled with more optimisation.
        let level = if matches!(stem, "cublas" | "cublasLt" | "cusolver" | "cufft" | "nccl") {
            "-O2"
        } else {
            "-O1"
        };
        let arguments = [
            "-std=c++17",
            level,
            "-fPIC",
            "-fvisibility=hidden",
            "-c",
            &source,
            "-o",
            &object,
        ];
        running.push((source.clone(), spawn(folder, &arguments)?));
        if !ALONE.contains(&stem) {
            driver.push(object);
        }
        if running.len() == 2 {
            finish(running.remove(0))?;
        }
    }
    running.into_iter().try_for_each(finish)?;
    let mut arguments: Vec<&str> = driver.iter().map(String::as_str).collect();
    arguments.extend([
        "-shared",
        "-o",
        "libcuda.so",
        "-Wl,-soname,libcuda.so",
        "-lm",
    ]);
    finish(("libcuda.so".to_owned(), spawn(folder, &arguments)?))?;
    for stem in ALONE {
        let (object, library) = (format!("{stem}.o"), format!("lib{stem}.so"));
        let name = format!("-Wl,-soname,{library}");
        let mut arguments = vec![&object, "-shared", "-o", &library, &name, "-L.", "-lcuda"];
        if stem == "cublas" {
            // The library finds the functions of cublasLt in this dependency.
            arguments.extend(["-Wl,--no-as-needed", "-lcublasLt"]);
        }
        finish((library.clone(), spawn(folder, &arguments)?))?;
    }
    fs::create_dir_all(folder.join(EMPTY)).map_err(|error| error.to_string())?;
    let library = format!("{EMPTY}/{CUBLAS_LT}");
    let name = format!("-Wl,-soname,{CUBLAS_LT}");
    let arguments = ["-shared", "-o", &library, &name];
    finish((library.clone(), spawn(folder, &arguments)?))
}

fn spawn(folder: &Path, arguments: &[&str]) -> Result<Child, String> {
    let mut command = Command::new("g++");
    command
        .args(arguments)
        .current_dir(folder)
        .stderr(Stdio::piped());
    command.env_remove("LD_PRELOAD");
    let child = command.spawn();
    child.map_err(|error| format!("g++ cannot be run: {error}"))
}

fn finish((name, child): (String, Child)) -> Result<(), String> {
    let output = child
        .wait_with_output()
        .map_err(|error| format!("g++: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("g++ cannot compile the emulator's {name}:\n{said}"))
}
