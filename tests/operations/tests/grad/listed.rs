//! Checks that each operation of the public API has a row in `operations`. This file lists the
//! operations that have no derivative.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::grad::operations::{LOSSES, LOSSES_OF_OPERANDS};

/// Operations on several arrays whose results are not floats.
const SEVERAL_WITHOUT_GRADIENTS: &[&str] = &["searchsorted", "shl", "shr"];

/// Operations that refuse an array with tracked gradients. `refusals` tests them.
const REFUSED: &[&str] = &["histogram"];

/// Operations whose results are constant, or are not floats.
const CONSTANT: &[&str] = &[
    "arange",
    "argsort",
    "bernoulli",
    "bernoulli_with",
    "bincount",
    "categorical",
    "categorical_with",
    "dropout_mask",
    "dropout_mask_with",
    "eye",
    "fftfreq",
    "fill",
    "full",
    "linspace",
    "manual_seed",
    "meshgrid",
    "multinomial",
    "multinomial_with",
    "new",
    "nonzero",
    "one_hot",
    "ones",
    "permutation",
    "permutation_with",
    "rand",
    "rand_with",
    "randint",
    "randint_with",
    "randn",
    "randn_with",
    "rfftfreq",
    "searchsorted",
    "zeros",
];

/// Operations that compute nothing themselves, or that other files test: expressions
/// (`elementwise`) and reductions (`reductions`).
const ELSEWHERE: &[&str] = &[
    "add",
    "binary",
    "boxed",
    "div",
    "eval",
    "lazy",
    "mul",
    "neg",
    "quaternary",
    "rem",
    "shape",
    "shl",
    "shr",
    "slice_mut",
    "sub",
    "ternary",
    "unary",
];

#[test]
fn every_operation_is_here() {
    let mut known: BTreeSet<&str> = LOSSES.iter().map(|row| row.0).collect();
    known.extend([CONSTANT, ELSEWHERE, REFUSED].into_iter().flatten());
    let mut unknown = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/ops");
    for file in files(&root) {
        // In rows of tables, `$name` is a function of each row. Other tests check every row.
        for line in fs::read_to_string(&file).unwrap().lines() {
            let Some(rest) = line.trim_start().strip_prefix("pub fn ") else {
                continue;
            };
            let end = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            if end > 0 && !known.contains(&rest[..end]) {
                unknown.insert(rest[..end].to_owned());
            }
        }
    }
    assert!(
        unknown.is_empty(),
        "neither has a test, nor is listed: {unknown:?}"
    );
}

#[test]
fn every_operation_of_several_arrays_is_here() {
    let mut known: BTreeSet<&str> = LOSSES_OF_OPERANDS.iter().map(|row| row.0).collect();
    known.extend([SEVERAL_WITHOUT_GRADIENTS, ELSEWHERE].into_iter().flatten());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src");
    let mut sources = files(&root.join("ops"));
    sources.push(root.join("array/meshgrid.rs"));
    let (mut unknown, mut found) = (BTreeSet::new(), 0);
    for file in sources {
        let text = fs::read_to_string(&file).unwrap();
        for signature in text.split("pub fn ").skip(1) {
            let end = signature.find(['{', ';']).unwrap_or(signature.len());
            let signature = &signature[..end];
            let count = |text: &str| signature.matches(text).count();
            let is_list = count("&[&Array<") + count("EinsumOperands") > 0;
            let arrays = ["&self", "&mut self", "&Self", "&Array<T>", "IntoExpr<T>"];
            let is_several = arrays.map(count).iter().sum::<usize>() > 1;
            let name = signature.split(|c: char| !c.is_alphanumeric() && c != '_');
            let name = name.take(1).next().unwrap_or_default();
            if is_list || is_several {
                found += 1;
                if !name.is_empty() && !known.contains(name) {
                    unknown.insert(name.to_owned());
                }
            }
        }
    }
    assert!(found > 20, "only {found} were found");
    assert!(
        unknown.is_empty(),
        "no test of each operand, and not listed: {unknown:?}"
    );
}

/// Folders of `src/ops` without operations, and folders of features that this build does not have.
const LEFT_OUT: &[&str] = &[
    "host",
    "cuda",
    "derivatives",
    "written",
    #[cfg(not(feature = "fft"))]
    "fft",
    #[cfg(not(feature = "linalg"))]
    "linalg",
];

/// Returns the source files outside of the folders in [`LEFT_OUT`].
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && !LEFT_OUT.contains(&name.as_str()) {
            all.extend(files(&path));
        } else if name.ends_with(".rs") {
            all.push(path);
        }
    }
    all
}
