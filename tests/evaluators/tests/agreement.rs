//! The two evaluators of the host, and boxed expressions, must agree bit by bit. A build with debug
//! assertions has only the blocked evaluator. An optimised build compares the blocked evaluator
//! with the fused evaluator.

use cachescope::{
    AnyElement, Array, Bitwise, BoxedLazy, Complex, Element, Expr, Float, Integer, IntoExpr, Lazy,
    Number, Numeric, complex, select,
};
use half::{bf16, f16};
use ndarray::s;
use proptest::prelude::*;

/// Returns the text of each element, with all digits. All NaN have equal texts, because it is
/// unspecified which of two NaN an operation returns.
fn digits<T: AnyElement>(array: &Array<T>) -> Vec<String> {
    let values = array.to_vec().unwrap().into_iter();
    values.map(|value| format!("{value:?}")).collect()
}

/// Compares the results of the expression's own loop, if it has one, of its boxed form, and of an
/// assignment.
fn agree<E: Expr>(name: &str, lazy: &Lazy<E>) {
    let fused = lazy.eval().unwrap();
    let blocked = lazy.boxed().eval().unwrap();
    assert_eq!(
        digits(&fused),
        digits(&blocked),
        "{name} of {}",
        E::Item::NAME
    );
    let mut assigned = Array::<E::Item>::zeros(fused.shape()).unwrap();
    assigned.assign(lazy).unwrap();
    assert_eq!(digits(&fused), digits(&assigned), "{name}, assigned");
}

macro_rules! each {
    ($x:ident: $($name:ident $(::<$of:ty>)? ($($more:expr),*))+) => {
        $(agree(stringify!($name), &$x.lazy().$name$(::<$of>)?($($more),*));)+
    };
}

/// Lengths near the lengths of blocks, runs and vectors.
const LENGTHS: [usize; 8] = [1, 7, 255, 256, 1023, 1024, 1025, 3001];

fn elements<T: Element>(length: usize) -> Array<T> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e30,
        -3e7,
        0.5,
    ];
    let value = |index: usize| match index % 13 {
        0 => T::from_f64(special[index / 13 % special.len()]),
        _ => T::from_f64((index as f64 * 0.37).sin() * 90.0),
    };
    Array::from_vec((0..length).map(value).collect(), length).unwrap()
}

/// The callback of `functions!`. It tests every row for the element types of the row's kind.
macro_rules! rows {
    ($lane:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        fn rows_of_floats<T: Float>(x: &Array<T>, y: &Array<T>) {
            $(rows! { @float $kind x y $name $arguments })+
        }

        fn rows_of_numbers<T: Numeric>(x: &Array<T>, y: &Array<T>) {
            $(rows! { @number $kind x y $name $arguments })+
        }

        fn rows_of_complex<T: Number>(x: &Array<T>, y: &Array<T>) {
            $(rows! { @complex $kind x y $name $arguments })+
        }

        fn rows_of_elements<T: Element>(x: &Array<T>, y: &Array<T>) {
            $(rows! { @element $kind x y $name $arguments })+
        }

        fn rows_of_integers<T: Integer>(x: &Array<T>, y: &Array<T>) {
            $(rows! { @integer $kind x y $name $arguments })+
        }

        fn rows_of_bits<T: Bitwise>(x: &Array<T>, y: &Array<T>) {
            $(rows! { @bits $kind x y $name $arguments })+
        }
    };
    (@float float $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@float test $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@number number $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@number part $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@number real $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@complex number $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@complex part $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@complex equality $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@number power $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@integer integer $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@element ordered $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@element equality $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@element compare $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@bits bits $($row:tt)+) => { rows! { @agree $($row)+ } };
    (@agree $x:ident $y:ident $name:ident ($a:ident)) => {
        agree(stringify!($name), &$x.lazy().$name());
    };
    (@agree $x:ident $y:ident $name:ident ($a:ident, $b:ident)) => {
        agree(stringify!($name), &$x.lazy().$name($y));
    };
    (@agree $x:ident $y:ident $name:ident ($a:ident, $b:ident: i32)) => {
        agree(stringify!($name), &$x.lazy().$name(3));
    };
    (@agree $x:ident $y:ident $name:ident ($a:ident, $b:ident, $c:ident)) => {
        agree(stringify!($name), &$x.lazy().$name($y, $x));
    };
    (@$of:ident $kind:ident $($row:tt)+) => {};
}

cachescope::functions! { rows }

fn arithmetic<T: Number>(x: &Array<T>, y: &Array<T>) {
    agree("add", &(x + y));
    agree("sub", &(x - y));
    agree("mul", &(x * y));
    agree("div", &(x / y));
    agree("neg", &-x);
}

fn numbers<T: Numeric>(x: &Array<T>, y: &Array<T>) {
    arithmetic(x, y);
    agree("rem", &(x % y));
    rows_of_numbers(x, y);
}

fn any<T: Element>(x: &Array<T>, y: &Array<T>) {
    rows_of_elements(x, y);
    agree("select", &select(x.lt(y), x, y));
    casts(x);
}

fn complex_numbers<T: Float>()
where
    Complex<T>: Number,
{
    let of = |length| {
        complex(
            &elements::<T>(length),
            &elements::<T>(length).flip(0).unwrap(),
        )
    };
    for length in LENGTHS {
        agree("complex", &of(length));
        let x = of(length).eval().unwrap();
        let y = of(length + 5).eval().unwrap().slice(s![5..]).unwrap();
        rows_of_complex(&x, &y);
        arithmetic(&x, &y);
        agree("select", &select(x.eq(&y), &x, &y));
        agree(
            "a chain",
            &((&x * &y + Complex::<T>::one()).conj() - &x / &y),
        );
        casts(&x);
    }
}

fn casts<T: AnyElement>(x: &Array<T>) {
    each!(x: cast::<f32>() cast::<f64>() cast::<f16>() cast::<bf16>() cast::<i8>() cast::<i16>() cast::<i32>()
        cast::<i64>() cast::<u8>() cast::<u16>() cast::<u32>() cast::<u64>() cast::<bool>() cast::<Complex<f32>>() cast::<Complex<f64>>());
}

fn floats<T: Float>() {
    for length in LENGTHS {
        let (x, y) = (
            elements::<T>(length),
            elements::<T>(length + 5).slice(s![5..]).unwrap(),
        );
        numbers(&x, &y);
        any(&x, &y);
        rows_of_floats(&x, &y);
        agree(
            "a chain",
            &((&x * &y + 1.0f64.into_t::<T>()).sin() - x.exp() / &y),
        );
    }
}

/// The conversion of a literal to any element type.
trait IntoT {
    fn into_t<T: AnyElement>(self) -> T;
}

impl IntoT for f64 {
    fn into_t<T: AnyElement>(self) -> T {
        T::from_f64(self)
    }
}

fn integers<T: Bitwise + Integer>() {
    let (x, y) = (
        elements::<T>(1500),
        elements::<T>(1507).slice(s![7..]).unwrap(),
    );
    numbers(&x, &y);
    any(&x, &y);
    rows_of_bits(&x, &y);
    rows_of_integers(&x, &y);
}

#[test]
fn complex_numbers_have_the_same_bits() {
    complex_numbers::<f32>();
    complex_numbers::<f64>();
}

#[test]
fn floats_have_the_same_bits() {
    floats::<f32>();
    floats::<f64>();
    floats::<f16>();
    floats::<bf16>();
}

#[test]
fn integers_have_the_same_bits() {
    integers::<i8>();
    integers::<i16>();
    integers::<i32>();
    integers::<i64>();
    integers::<u8>();
    integers::<u16>();
    integers::<u32>();
    integers::<u64>();
    let (x, y) = (
        elements::<bool>(1500),
        elements::<bool>(1501).slice(s![1..]).unwrap(),
    );
    any(&x, &y);
    rows_of_bits(&x, &y);
}

/// An operand or an operation of a random expression.
#[derive(Clone, Debug)]
enum Step {
    /// Pushes one of the arrays.
    Array(usize),
    /// Pushes a value.
    Value(f32),
    /// Pops one value and pushes a function of the value.
    Unary(usize),
    Binary(usize),
    Ternary(usize),
    /// Pushes a copy of the value at this distance from the top.
    Again(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..8_usize).prop_map(Step::Array),
        1 => (-3.0..3.0_f32).prop_map(Step::Value),
        3 => (0..6_usize).prop_map(Step::Unary),
        5 => (0..6_usize).prop_map(Step::Binary),
        2 => (0..3_usize).prop_map(Step::Ternary),
        1 => (0..4_usize).prop_map(Step::Again),
    ];
    prop::collection::vec(step, 1..40)
}

type Pair = (BoxedLazy<f32>, Array<f32>);

fn unary(op: usize, (lazy, array): Pair) -> Pair {
    macro_rules! with {
        ($($number:literal => $name:ident,)+) => {
            match op {
                $($number => (lazy.$name().boxed(), array.$name().eval().unwrap()),)+
                _ => ((-lazy).boxed(), (-array).eval().unwrap()),
            }
        };
    }
    with!(0 => sin, 1 => exp, 2 => abs, 3 => tanh, 4 => square,)
}

fn binary(op: usize, (a, x): Pair, (b, y): Pair) -> Pair {
    match op {
        0 => ((a + b).boxed(), (x + y).eval().unwrap()),
        1 => ((a - b).boxed(), (x - y).eval().unwrap()),
        2 => ((a * b).boxed(), (x * y).eval().unwrap()),
        3 => ((a / b).boxed(), (x / y).eval().unwrap()),
        4 => (a.maximum(b).boxed(), x.maximum(y).eval().unwrap()),
        _ => (
            a.lt(b).cast::<f32>().boxed(),
            x.lt(y).cast::<f32>().eval().unwrap(),
        ),
    }
}

/// Returns the expression, built lazily, and its value, computed eagerly one operation after
/// another.
fn built(steps: &[Step], arrays: &[Array<f32>]) -> Pair {
    let mut stack: Vec<Pair> = vec![(arrays[0].lazy().boxed(), arrays[0].clone())];
    for step in steps {
        let top = stack.last().unwrap().clone();
        match *step {
            Step::Array(index) => {
                let array = &arrays[index % arrays.len()];
                stack.push((array.lazy().boxed(), array.clone()));
            }
            Step::Value(value) => {
                let array = Array::full([], value).unwrap();
                stack.push((IntoExpr::<f32>::into_lazy(value).boxed(), array));
            }
            Step::Unary(op) => *stack.last_mut().unwrap() = unary(op, top),
            Step::Binary(op) if stack.len() > 1 => {
                let left = stack.swap_remove(stack.len() - 2);
                *stack.last_mut().unwrap() = binary(op, left, top);
            }
            Step::Ternary(op) if stack.len() > 2 => {
                let (a, b) = (
                    stack.swap_remove(stack.len() - 2),
                    stack.swap_remove(stack.len() - 2),
                );
                let (lazy, array) = match op {
                    0 => (
                        top.0.mul_add(&a.0, &b.0).boxed(),
                        top.1.mul_add(&a.1, &b.1).eval(),
                    ),
                    1 => (
                        top.0.clamp(&a.0, &b.0).boxed(),
                        top.1.clamp(&a.1, &b.1).eval(),
                    ),
                    _ => (
                        select(top.0.gt(0.0), &a.0, &b.0).boxed(),
                        select(top.1.gt(0.0), &a.1, &b.1).eval(),
                    ),
                };
                *stack.last_mut().unwrap() = (lazy, array.unwrap());
            }
            Step::Again(back) => {
                let from = stack.len() - 1 - back % stack.len();
                let again = stack[from].clone();
                stack.push(again);
            }
            Step::Binary(_) | Step::Ternary(_) => {}
        }
    }
    // All values of the stack are combined, so that each value is used.
    let mut all = stack.pop().unwrap();
    while let Some(next) = stack.pop() {
        all = binary(0, next, all);
    }
    all
}

/// Returns arrays that broadcast to `[rows, columns]`, contiguous and in other layouts.
fn operands(rows: usize, columns: usize) -> Vec<Array<f32>> {
    let grid = |rows: usize, columns: usize| {
        let flat = elements::<f32>(rows * columns);
        flat.reshape([rows, columns]).unwrap()
    };
    let column = grid(rows, 1);
    vec![
        grid(rows, columns),
        (grid(rows, columns) * 0.5).eval().unwrap(),
        grid(columns, rows).transpose().unwrap(),
        grid(1, columns),
        grid(1, 2 * columns).slice(s![.., ..;2]).unwrap(),
        column.clone(),
        grid(rows, columns).flip(1).unwrap(),
        Array::full([], 0.75).unwrap(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_expressions_are_what_their_operations_are_one_after_another(
        steps in steps(),
        (rows, columns) in prop_oneof![
            (1..40_usize, 1..40_usize),
            Just((3, 2000)),
            Just((70, 130)),
            Just((1, 5000)),
        ],
    ) {
        let arrays = operands(rows, columns);
        let (lazy, array) = built(&steps, &arrays);
        let shape = array.shape();
        prop_assert_eq!(digits(&lazy.eval().unwrap()), digits(&array));
        let mut target = Array::<f32>::zeros(shape).unwrap();
        target.assign(&lazy).unwrap();
        prop_assert_eq!(digits(&target), digits(&array));
        let (whole, folded) = (array.max().unwrap(), lazy.max().unwrap());
        prop_assert_eq!(digits(&folded), digits(&whole));
        if array.ndim() > 0 {
            let sums = array.cumsum(0).unwrap();
            prop_assert_eq!(digits(&lazy.cumsum(0).unwrap()), digits(&sums));
            prop_assert_eq!(digits(&lazy.argmax_axis(-1).unwrap()), digits(&array.argmax_axis(-1).unwrap()));
            prop_assert_eq!(digits(&lazy.softmax(-1).unwrap()), digits(&array.softmax(-1).unwrap()));
        }
    }
}

#[test]
fn operands_that_are_gathered_for_a_loop_have_the_same_bits() {
    for (rows, columns) in [(1, 1), (3, 5), (40, 33), (70, 130), (3, 2000), (1, 5000)] {
        let all = operands(rows, columns);
        let (whole, row, column) = (&all[0], &all[3], &all[5]);
        for (number, other) in all.iter().enumerate() {
            let name = format!("operand {number}, {rows} by {columns}");
            agree(&name, &(whole + other));
            agree(&name, &((whole - other) * 2.0 + row * column));
            // For `sin`, infinite and large elements are rare elements.
            agree(&name, &((whole * other + column).sin() - row));
            agree(&name, &(whole * row.exp() + other));
            let mut target = whole.lazy().eval().unwrap();
            let expected = (whole * other + row).boxed().eval().unwrap();
            target.update(|target| target * other + row).unwrap();
            assert_eq!(digits(&target), digits(&expected), "{name}, in place");
        }
    }
    let x = elements::<f32>(2 * 3 * 40 * 30)
        .reshape([2, 3, 40, 30])
        .unwrap();
    for shape in [[3, 1, 1], [1, 40, 30], [3, 40, 1], [1, 1, 30]] {
        let other = elements::<f32>(shape.iter().product())
            .reshape(shape)
            .unwrap();
        agree("four axes", &(&x * &other - &other));
    }
}

#[test]
fn a_sum_that_a_loop_builds_is_not_deep() {
    let x = Array::<f32>::ones(3000).unwrap();
    let mut sum = x.lazy().boxed();
    let mut parts = vec![];
    for index in 0..3000 {
        sum = (sum + &x * index as f32).boxed();
        if index % 1000 == 0 {
            parts.push(sum.clone());
        }
    }
    let sum = sum.eval().unwrap();
    assert_eq!(sum.to_vec().unwrap(), vec![1.0 + 2999.0 * 1500.0; 3000]);
    assert_eq!(
        parts[1].eval().unwrap().to_vec().unwrap()[7],
        1.0 + 1000.0 * 500.5
    );
    // The expression is nested to the right, so the last operand is needed before any subtraction.
    let mut nested = x.lazy().boxed();
    for _ in 0..500 {
        nested = (&x - nested).boxed();
    }
    assert_eq!(nested.eval().unwrap().to_vec().unwrap(), vec![1.0; 3000]);
}

/// For rare elements, the fused loop calls the blocked evaluator, with the target's shape.
#[test]
fn single_values_fill_a_target_whatever_they_are() {
    for value in [1e30_f32, f32::NAN, 0.5] {
        let sine = Array::from_slice(&[value], 1).unwrap().sin();
        let expected = sine.eval().unwrap().to_vec().unwrap()[0];
        for length in LENGTHS {
            let mut x = Array::<f32>::zeros(length).unwrap();
            x.assign(value.into_lazy().sin()).unwrap();
            assert_eq!(
                digits(&x),
                digits(&Array::full(length, expected).unwrap()),
                "{length} of sin({value})"
            );
        }
    }
}

#[test]
fn boxed_expressions_keep_the_values_that_arrays_had() {
    let mut x = Array::from_slice(&[1.0_f32, 2.0], 2).unwrap();
    let doubled = (&x * 2.0).boxed();
    let copy = doubled.clone();
    x.assign(&doubled + 1.0).unwrap();
    assert_eq!(x.to_vec().unwrap(), [3.0, 5.0]);
    assert_eq!(copy.eval().unwrap().to_vec().unwrap(), [2.0, 4.0]);
    drop((doubled, copy));
    let address = x.address();
    x.update(|x| (x + 1.0).boxed()).unwrap();
    assert_eq!(
        (x.to_vec().unwrap(), x.address()),
        (vec![4.0, 6.0], address),
        "in place"
    );
}
