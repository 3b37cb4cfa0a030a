//! Every operation, compared with NumPy by the cases that `make.py` wrote to files in this folder.
//! Each case runs alone, and under every policy in memory with arbitrary contents.

/// Calls `$function::<T>($trial)` for the type `T` that `$element` names. The lists are equal to
/// the lists in `values.py`. They omit some types, because each pair of an operation and a type is
/// a kernel to compile.
macro_rules! by_type {
    ($trial:ident, $element:expr, $function:ident: floats) => {
        by_type!($trial, $element, $function: f32 f64 f16 bf16)
    };
    ($trial:ident, $element:expr, $function:ident: numbers) => {
        by_type!($trial, $element, $function: f32 f64 f16 bf16 i8 i32 u8 u64)
    };
    ($trial:ident, $element:expr, $function:ident: some) => {
        by_type!($trial, $element, $function: f32 f64 f16 bf16 i16 i64 u16 u32 bool)
    };
    ($trial:ident, $element:expr, $function:ident: all) => {
        by_type!($trial, $element, $function: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool)
    };
    ($trial:ident, $element:expr, $function:ident: $($type:ident)+) => {
        match $element {
            $(stringify!($type) => $function::<$type>($trial),)+
            other => panic!("no type {other}"),
        }
    };
}

mod book;
mod complex;
#[cfg(feature = "linalg")]
mod decompositions;
mod derivatives;
mod elementwise;
mod linear;
mod networks;
mod policies;
mod reductions;
mod selection;
mod shapes;
mod stored;
#[cfg(feature = "fft")]
mod transforms;
mod trial;
mod windows;

use book::Book;
use trial::{Outcome, Trial};

/// A file, and the table of its operations.
type Table = (&'static str, fn(&mut Trial<'_>));

const TABLES: &[Table] = &[
    ("elementwise", elementwise::run),
    ("reductions", reductions::run),
    ("linear", linear::run),
    ("shapes", shapes::run),
    ("windows", windows::run),
    ("networks", networks::run),
    ("selection", selection::run),
    #[cfg(feature = "linalg")]
    ("decompositions", decompositions::run),
    ("complex", complex::run),
    #[cfg(feature = "fft")]
    ("transforms", transforms::run),
];

/// Fails if results differ, or if no table has the operation of a case.
fn assert_agreement(book: &Book, outcome: &Outcome) {
    let (name, unknown) = (&book.name, &outcome.unknown);
    assert!(unknown.is_empty(), "{name}: no row for {unknown:?}");
    assert!(
        outcome.failures.is_empty(),
        "{}, by {}: {} of {} cases differ\n{}",
        book.name,
        book.numpy,
        outcome.failures.len(),
        book.cases.len(),
        outcome.shown()
    );
}

fn check(name: &str) {
    let book = Book::read(name);
    let (_, table) = TABLES.iter().find(|(table, _)| *table == name).unwrap();
    let mut outcome = Outcome::default();
    for case in &book.cases {
        outcome.try_case(&book, case, *table);
    }
    assert_agreement(&book, &outcome);
}

#[test]
fn elementwise_operations_agree() {
    check("elementwise");
}

#[test]
fn reductions_agree() {
    check("reductions");
}

#[test]
fn linear_algebra_agrees() {
    check("linear");
}

#[test]
fn windows_and_convolutions_agree() {
    check("windows");
}

#[test]
fn shapes_and_indices_agree() {
    check("shapes");
}

#[test]
fn networks_agree() {
    check("networks");
}

#[test]
fn masks_counts_and_order_statistics_agree() {
    check("selection");
}

#[test]
fn complex_numbers_agree() {
    check("complex");
}

#[cfg(feature = "linalg")]
#[test]
fn factorizations_agree() {
    check("decompositions");
}

#[cfg(feature = "fft")]
#[test]
fn transforms_agree() {
    check("transforms");
}
