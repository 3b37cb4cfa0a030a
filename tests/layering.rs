//! The architecture as a machine reads it: no module names one above its own layer, and `unsafe`
//! stands only where it may.

use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up; a module may name itself and whatever stands before it.
const LAYERS: [&[&str]; 18] = [
    &["naming", "functions", "error", "size", "sync"],
    &["device"],
    &["source"],
    &["pool"],
    &["plan"],
    &["trace"],
    &["recorder"],
    &["memory"],
    &["simulation"],
    &["cache"],
    &["context"],
    &["testing"],
    &["array"],
    &["graph"],
    &["ops"],
    &["interop"],
    &["grad"],
    &["collective"],
];

/// Not layers: the crate's root, and the `macro_rules!` doors, which only their callers expand.
const OUTSIDE: [&str; 2] = ["lib", "macros"];

/// Where `unsafe` may stand.
const UNSAFE: [&str; 20] = [
    "device/",
    "source/",
    "memory/header.rs",
    "simulation/device.rs",
    "recorder/mod.rs",
    "recorder/ring.rs",
    "sync/at_exit.rs",
    "cache/scope/current.rs",
    "cache/shard/",
    "array/storage/",
    "ops/host",
    "ops/cuda",
    "interop/",
    "collective/engine.rs",
    "collective/fold.rs",
    "collective/memory.rs",
    "collective/mpi/enabled/",
    "collective/nccl/",
    "collective/worker.rs",
    "collective/threads/",
];

fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut files: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let relative = |path: &Path| {
        path.strip_prefix(&root)
            .unwrap()
            .display()
            .to_string()
            .replace('\\', "/")
    };
    let mut sources: Vec<_> = files
        .iter()
        .map(|path| (relative(path), fs::read_to_string(path).unwrap()))
        .collect();
    sources.sort();
    assert!(sources.len() > 30, "the sources were not found");
    sources
}

/// A file's code: without comments, which may speak of anything.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    lines.map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default()))
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn module_of(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

/// The modules that a line names by `crate::…`, braced lists included.
fn named_modules(line: &str) -> Vec<&str> {
    let after = line.split("crate::").skip(1);
    let mut named = Vec::new();
    for path in after {
        let end = |text: &str| {
            text.find(|c: char| !(c.is_alphanumeric() || c == '_'))
                .unwrap_or(text.len())
        };
        match path.strip_prefix('{') {
            Some(list) => named.extend(list.split(',').map(|item| {
                let item = item.trim();
                &item[..end(item)]
            })),
            None => named.push(&path[..end(path)]),
        }
    }
    named
}

/// What the crate's root exports, and the layer it comes from: naming it so is naming that layer.
fn exports(lib: &str) -> Vec<(String, usize)> {
    let mut exports = Vec::new();
    for statement in lib.split(';') {
        let Some(path) = statement.trim().strip_prefix("pub use ") else {
            continue;
        };
        let Some((module, items)) = path.split_once("::") else {
            continue;
        };
        let Some(layer) = layer(module) else {
            continue;
        };
        let items = items.rsplit("::").next().unwrap_or(items);
        for item in items.trim_matches(|c| c == '{' || c == '}').split(',') {
            exports.push((item.trim().to_owned(), layer));
        }
    }
    exports
}

#[test]
fn no_module_names_one_above_it() {
    let sources = sources();
    let lib = &sources.iter().find(|(file, _)| file == "lib.rs").unwrap().1;
    let exports = exports(lib);
    assert!(
        exports.iter().any(|(name, _)| name == "Device"),
        "the root's exports were not found"
    );
    let mut upward = Vec::new();
    for (file, text) in &sources {
        let module = module_of(file);
        if OUTSIDE.contains(&module) {
            continue;
        }
        let own = layer(module).unwrap_or_else(|| panic!("{file} belongs to no layer"));
        for (number, line) in code(text) {
            for name in named_modules(line) {
                let target = layer(name).or_else(|| {
                    exports
                        .iter()
                        .find(|(export, _)| export == name)
                        .map(|(_, layer)| *layer)
                });
                if target.is_some_and(|target| target > own) {
                    upward.push(format!("{file}:{number}: {module} names {name}"));
                }
            }
        }
    }
    assert!(upward.is_empty(), "{}", upward.join("\n"));
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let mut elsewhere = Vec::new();
    for (file, text) in sources() {
        if UNSAFE.iter().any(|allowed| file.starts_with(allowed)) {
            continue;
        }
        for (number, line) in code(&text) {
            let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            if words.into_iter().any(|word| word == "unsafe") {
                elsewhere.push(format!("{file}:{number}"));
            }
        }
    }
    assert!(elsewhere.is_empty(), "{}", elsewhere.join("\n"));
}

#[test]
fn the_reader_of_paths_reads_them() {
    assert_eq!(named_modules("use crate::cache::{A, B};"), ["cache"]);
    assert_eq!(
        named_modules("use crate::{Device, error::Result};"),
        ["Device", "error"]
    );
    assert_eq!(
        named_modules("fn f(x: crate::Error) -> $crate::Result<u8>"),
        ["Error", "Result"]
    );
    assert_eq!(named_modules("use super::x;"), Vec::<&str>::new());
}
