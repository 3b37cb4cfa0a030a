//! Elementwise operations, by name: the rows of the library's table, the operators, `cast` and
//! `select`.

use std::collections::BTreeSet;

use cachescope::{Bitwise, Element, Float, Integer, Numeric, select};
use half::{bf16, f16};

use crate::reference::book::Book;
use crate::reference::stored::Stored;
use crate::reference::trial::Trial;

/// The callback of `functions!`: tests every row by its name, for the element types of its kind.
macro_rules! rows {
    ($lane:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        /// The name and the kind of each row.
        const ROWS: &[(&str, &str)] = &[$((stringify!($name), stringify!($kind))),+];

        fn floats<T: Stored + Float>(trial: &mut Trial<'_>) {
            $(rows! { @float $kind trial $name $arguments })+
        }

        fn numbers<T: Stored + Numeric>(trial: &mut Trial<'_>) {
            $(rows! { @number $kind trial $name $arguments })+
        }

        fn elements<T: Stored + Element>(trial: &mut Trial<'_>) {
            $(rows! { @element $kind trial $name $arguments })+
        }

        fn powers<T: Stored + Numeric>(trial: &mut Trial<'_>) {
            $(rows! { @power $kind trial $name $arguments })+
        }

        fn integers<T: Stored + Integer>(trial: &mut Trial<'_>) {
            $(rows! { @integer $kind trial $name $arguments })+
        }

        fn bits<T: Stored + Bitwise>(trial: &mut Trial<'_>) {
            $(rows! { @bits $kind trial $name $arguments })+
        }
    };
    (@float float $($row:tt)+) => { rows! { @try $($row)+ } };
    (@float test $($row:tt)+) => { rows! { @try $($row)+ } };
    (@number number $($row:tt)+) => { rows! { @try $($row)+ } };
    (@number part $($row:tt)+) => { rows! { @try $($row)+ } };
    (@number real $($row:tt)+) => { rows! { @try $($row)+ } };
    (@element ordered $($row:tt)+) => { rows! { @try $($row)+ } };
    (@element equality $($row:tt)+) => { rows! { @try $($row)+ } };
    (@element compare $($row:tt)+) => { rows! { @try $($row)+ } };
    (@power power $($row:tt)+) => { rows! { @try $($row)+ } };
    (@integer integer $($row:tt)+) => { rows! { @try $($row)+ } };
    (@bits bits $($row:tt)+) => { rows! { @try $($row)+ } };
    (@try $trial:ident $name:ident ($x:ident)) => {
        if $trial.op() == stringify!($name) {
            return $trial.gives($trial.input::<T>(0).lazy().$name().eval());
        }
    };
    // The further operands are arrays or plain numbers.
    (@try $trial:ident $name:ident ($x:ident $(, $more:ident $(: $type:ident)?)+)) => {
        if $trial.op() == stringify!($name) {
            let ($x, mut next) = ($trial.input::<T>(0).lazy(), 0);
            if $trial.count_of_inputs() > 1 {
                $(let $more = rows!(@input $trial next $($type)?);)+
                return $trial.gives($x.$name($($more),+).eval());
            }
            $(let $more = rows!(@arg $trial next $($type)?);)+
            return $trial.gives($x.$name($($more),+).eval());
        }
    };
    (@input $trial:ident $next:ident) => { rows!(@input $trial $next T) };
    (@input $trial:ident $next:ident $type:ident) => {{
        $next += 1;
        $trial.input::<$type>($next)
    }};
    (@arg $trial:ident $next:ident) => { rows!(@arg $trial $next T) };
    (@arg $trial:ident $next:ident $type:ident) => {{
        $next += 1;
        $trial.arg::<$type>($next - 1)
    }};
    (@$of:ident $kind:ident $($row:tt)+) => {};
}

cachescope::functions! { rows }

pub(crate) fn run(trial: &mut Trial<'_>) {
    // The first input of `select` is a mask, so the second input determines the type.
    let typed = usize::from(trial.op() == "select");
    let element = trial.element(typed).to_owned();
    let row = ROWS.iter().find(|(name, _)| *name == trial.op());
    match (trial.op(), row.map_or("", |(_, kind)| kind)) {
        ("cast", _) => by_type!(trial, &element[..], casts: all),
        ("select", _) => by_type!(trial, &element[..], choices: some),
        ("add" | "sub" | "mul" | "div" | "rem", _) => {
            by_type!(trial, &element[..], operators: numbers);
        }
        (_, "power") => by_type!(trial, &element[..], powers: f32 f64 i8 i32 u8 u64),
        (_, "integer") => by_type!(trial, &element[..], integers: i8 i64 u16 u32),
        (_, "bits") => by_type!(trial, &element[..], bits: i8 i64 u16 bool),
        (_, "ordered" | "compare" | "equality") => by_type!(trial, &element[..], elements: some),
        (_, "number" | "part" | "real") => by_type!(trial, &element[..], numbers: numbers),
        (_, "float" | "test") => by_type!(trial, &element[..], floats: floats),
        _ => {}
    }
}

fn operators<T: Stored + Numeric>(trial: &mut Trial<'_>) {
    let (x, y) = (trial.input::<T>(0), trial.input::<T>(1));
    match trial.op() {
        "add" => trial.gives((x + y).eval()),
        "sub" => trial.gives((x - y).eval()),
        "mul" => trial.gives((x * y).eval()),
        "div" => trial.gives((x / y).eval()),
        "rem" => trial.gives((x % y).eval()),
        _ => {}
    }
}

fn choices<T: Stored>(trial: &mut Trial<'_>) {
    let mask = trial.input::<bool>(0);
    trial.gives(select(mask, trial.input::<T>(1), trial.input::<T>(2)).eval());
}

fn casts<T: Stored>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    macro_rules! to {
        ($($type:ident)+) => {
            match trial.output_element() {
                $(stringify!($type) => trial.gives(x.cast::<$type>().eval()),)+
                other => panic!("no type {other}"),
            }
        };
    }
    to!(bf16 u8);
}

#[test]
fn every_row_has_a_case() {
    let books = ["elementwise", "selection", "complex"].map(Book::read);
    let cases = books.iter().flat_map(|book| &book.cases);
    let cases: BTreeSet<&str> = cases.map(|case| &*case.op).collect();
    let names = ROWS.iter().map(|(name, _)| *name);
    let missing: Vec<&str> = names.filter(|name| !cases.contains(name)).collect();
    assert!(
        missing.is_empty(),
        "no file of tests/reference/cases has a case for {missing:?}"
    );
}
