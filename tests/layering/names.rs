//! Checks the names of types, and the files of modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::cycles::CRATES;

/// The maximum number of files that define a type of one name. The types may differ by feature or
/// by platform.
const MOST_FILES: usize = 2;

/// The maximum number of lines of a file.
const MOST_LINES: usize = 500;

/// Returns the source files of all crates, except unit tests.
fn sources() -> Vec<PathBuf> {
    let folders = CRATES.iter().map(|folder| root().join(folder));
    let is_test = |path: &Path| path.ends_with("tests") || path.ends_with("tests.rs");
    files(folders.collect(), &is_test)
}

/// Returns the files of all packages, including tests, benchmarks and examples.
fn all_files() -> Vec<PathBuf> {
    let is_skipped = |path: &Path| path.ends_with("target") || path.ends_with(".git");
    let files = files(vec![root().to_owned()], &is_skipped);
    assert!(files.len() > 500, "the files were not found");
    files
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Returns the Rust files in `folders`, without files that are `skipped`.
fn files(mut folders: Vec<PathBuf>, is_skipped: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if is_skipped(&path) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// Returns the name of the type that a line defines at the top level of a file.
fn defined_type(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let (kind, rest) = line.split_once(' ')?;
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    let name = &rest[..end.unwrap_or(rest.len())];
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&kind);
    (is_type && !name.is_empty()).then_some(name)
}

#[test]
fn no_type_name_is_defined_in_more_than_two_files() {
    let mut places: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        for name in text.lines().filter_map(defined_type) {
            places
                .entry(name.to_owned())
                .or_default()
                .insert(file.clone());
        }
    }
    assert!(places.len() > 500, "the types were not found");
    places.retain(|name, files| name != "Sealed" && files.len() > MOST_FILES);
    assert!(places.is_empty(), "{places:#?}");
}

#[test]
fn no_module_has_a_file_beside_its_folder() {
    let sources = sources();
    let is_folder = |file: &PathBuf| {
        let folder = file.with_extension("");
        sources.iter().any(|other| other.parent() == Some(&folder))
    };
    let twofold: Vec<&PathBuf> = sources.iter().filter(|file| is_folder(file)).collect();
    assert!(twofold.is_empty(), "{twofold:#?}");
}

#[test]
fn no_file_has_more_than_500_lines() {
    let length = |file: &PathBuf| fs::read_to_string(file).unwrap().lines().count();
    let mut long = all_files();
    long.retain(|file| length(file) > MOST_LINES);
    assert!(long.is_empty(), "{long:#?}");
}

/// A `#[path]` attribute would separate the module tree from the folders.
#[test]
fn no_module_has_a_path_of_its_own() {
    let mut places = Vec::new();
    for file in all_files() {
        let text = fs::read_to_string(&file).unwrap();
        let sets_path = |line: &str| line.contains("path = \"") && line.contains(".rs\"");
        let lines = text.lines().zip(1..).filter(|(line, _)| sets_path(line));
        places.extend(lines.map(|(_, number)| format!("{}:{number}", file.display())));
    }
    assert!(places.is_empty(), "{places:#?}");
}
