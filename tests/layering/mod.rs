//! Checks the architecture. No module names a module of a higher layer, and `unsafe` is only in
//! files that may contain it.

mod cycles;
mod names;

use std::fs;
use std::path::{Path, PathBuf};

/// The architecture of a crate of the workspace: its layers, and its files with `unsafe`.
struct Layers {
    folder: &'static str,
    /// The layers from the bottom up. A module may name modules of its own layer and of lower
    /// layers.
    layers: &'static [&'static [&'static str]],
    /// The files and folders that may contain `unsafe`.
    with_unsafe: &'static [&'static str],
    /// An item that the crate's root re-exports, if there is one. The check must find this item.
    exported: Option<&'static str>,
}

const CRATES: [Layers; 4] = [
    Layers {
        folder: "crates/kernels/src",
        layers: &[
            &["functions"],
            &["dtype", "element"],
            &["blocks", "compiled", "output", "pointers", "vector", "walk"],
            &["elementwise", "lanes", "moves", "random", "registers"],
            &["compare", "counts", "reduce", "search", "sort"],
            &["convolution", "products", "scan", "softmax"],
        ],
        with_unsafe: &[
            "compare.rs",
            "convolution",
            "counts.rs",
            "element/plain.rs",
            "elementwise/loops.rs",
            "elementwise/run.rs",
            "elementwise/widened.rs",
            "lanes.rs",
            "moves/",
            "output.rs",
            "pointers.rs",
            "products",
            "random/mod.rs",
            "reduce/leaves.rs",
            "reduce/loops.rs",
            "registers.rs",
            "scan.rs",
            "search.rs",
            "softmax.rs",
            "sort",
            "vector.rs",
        ],
        exported: Some("AnyElement"),
    },
    Layers {
        folder: "crates/memory/src",
        layers: &[
            &["text", "sync"],
            &["error"],
            &["naming", "size"],
            &["costs"],
            &["device"],
            &["source"],
            &["pool"],
            &["plan"],
            &["recorder"],
            &["memory"],
            &["simulation"],
            &["cache"],
            &["context"],
            &["buffer"],
        ],
        with_unsafe: &[
            "device/",
            "source/",
            "memory/header/",
            "simulation/device.rs",
            "recorder/mod.rs",
            "recorder/ring.rs",
            "recorder/signals.rs",
            "sync/at_exit.rs",
            "sync/barrier/linux.rs",
            "cache/scope/entrance.rs",
            "cache/shard/",
            "cache/shared.rs",
            "cache/tests/shared.rs",
            "cache/tests/shared_model.rs",
            "context/cudarc.rs",
            "buffer/",
        ],
        exported: Some("Device"),
    },
    Layers {
        folder: "crates/tools/src",
        layers: &[&["plan"], &["trace"], &["simulation"], &["models"]],
        with_unsafe: &[],
        exported: None,
    },
    Layers {
        folder: "src",
        layers: &[
            &["sorting"],
            &["testing"],
            &["array"],
            &["graph"],
            &["ops"],
            &["dry_run"],
            &["interop"],
            &["grad"],
            &["collective"],
        ],
        with_unsafe: &[
            "array/access.rs",
            "ops/host",
            "ops/random/drawn.rs",
            "ops/cuda",
            "interop/",
            "collective/engine.rs",
            "collective/reduce_rows.rs",
            "collective/memory.rs",
            "collective/mpi/enabled/",
            "collective/nccl/",
            "collective/worker.rs",
            "collective/threads/",
        ],
        exported: Some("Array"),
    },
];

/// Names that are not layers: a crate's root, and the entry points of `macro_rules!`, which only
/// their callers expand.
const OUTSIDE: [&str; 2] = ["lib", "macros"];

impl Layers {
    fn layer(&self, module: &str) -> Option<usize> {
        self.layers.iter().position(|layer| layer.contains(&module))
    }

    /// Returns the path of each source file below the crate's folder, and the file's text.
    fn sources(&self) -> Vec<(String, String)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(self.folder);
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
        assert!(sources.len() > 20, "the sources were not found");
        sources
    }

    /// Returns the items that the crate's root exports, each with its layer. A module that names an
    /// item depends on the item's layer.
    fn exports(&self, lib: &str) -> Vec<(String, usize)> {
        let mut exports = Vec::new();
        for statement in lib.split(';') {
            let Some(path) = statement.trim().strip_prefix("pub use ") else {
                continue;
            };
            let Some((module, items)) = path.split_once("::") else {
                continue;
            };
            let Some(layer) = self.layer(module) else {
                continue;
            };
            let items = items.rsplit("::").next().unwrap_or(items);
            for item in items.trim_matches(|c| c == '{' || c == '}').split(',') {
                exports.push((item.trim().to_owned(), layer));
            }
        }
        exports
    }
}

/// Returns a file's code without comments, because comments may name any module.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    lines.map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default()))
}

fn module_of(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

/// Returns the modules that a line names with `crate::…`, including braced lists.
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

#[test]
fn no_module_names_one_above_it() {
    let mut upward = Vec::new();
    for own in &CRATES {
        let sources = own.sources();
        let lib = &sources.iter().find(|(file, _)| file == "lib.rs").unwrap().1;
        let exports = own.exports(lib);
        assert!(
            own.exported
                .is_none_or(|exported| exports.iter().any(|(name, _)| name == exported)),
            "the root's exports were not found in {}",
            own.folder
        );
        for (file, text) in &sources {
            let module = module_of(file);
            if OUTSIDE.contains(&module) {
                continue;
            }
            let folder = own.folder;
            let of_file = own
                .layer(module)
                .unwrap_or_else(|| panic!("{folder}/{file} belongs to no layer"));
            for (number, line) in code(text) {
                for name in named_modules(line) {
                    let exported = || exports.iter().find(|(export, _)| export == name);
                    let target = own.layer(name).or_else(|| Some(exported()?.1));
                    if target.is_some_and(|target| target > of_file) {
                        upward.push(format!("{folder}/{file}:{number}: {module} names {name}"));
                    }
                }
            }
        }
    }
    assert!(upward.is_empty(), "{}", upward.join("\n"));
}

#[test]
fn unsafe_is_only_in_the_allowed_files() {
    let mut elsewhere = Vec::new();
    for own in &CRATES {
        for (file, text) in own.sources() {
            if own
                .with_unsafe
                .iter()
                .any(|allowed| file.starts_with(allowed))
            {
                continue;
            }
            for (number, line) in code(&text) {
                let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
                if words.into_iter().any(|word| word == "unsafe") {
                    elsewhere.push(format!("{}/{file}:{number}", own.folder));
                }
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
