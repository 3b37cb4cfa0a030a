//! Tests of programs and of kernel sources. The tests need no device.

use half::{bf16, f16};
use ndarray::s;

use super::prelude::source;
use super::program::{Program, inverse};
use num_complex::Complex;

use crate::array::{
    AnyElement, Array, Bitwise, Element, Float, Integer, MAX_RANK, Number, Numeric, bits_of,
};
use crate::device::cuda::{Arguments, KernelSource, compile_for_all};
use crate::error::Result;
use crate::ops::Expr;
use crate::ops::IntoExpr;
use crate::ops::Lazy;
use crate::ops::complex;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::select;

/// Calls a function for each ordered element type, and returns an array of the results.
macro_rules! of_every_ordered {
    ($function:ident) => {
        [
            $function::<f32>(),
            $function::<f64>(),
            $function::<half::f16>(),
            $function::<half::bf16>(),
            $function::<i8>(),
            $function::<i16>(),
            $function::<i32>(),
            $function::<i64>(),
            $function::<u8>(),
            $function::<u16>(),
            $function::<u32>(),
            $function::<u64>(),
            $function::<bool>(),
        ]
    };
}

/// Calls a function for each complex type, and returns an array of the results.
#[cfg(feature = "cuda")]
macro_rules! of_every_complex {
    ($function:ident) => {
        [
            $function::<num_complex::Complex<f32>>(),
            $function::<num_complex::Complex<f64>>(),
        ]
    };
}

/// Calls a function for each float type, and returns an array of the results.
#[cfg(feature = "cuda")]
macro_rules! of_every_float {
    ($function:ident) => {
        [
            $function::<f32>(),
            $function::<f64>(),
            $function::<half::f16>(),
            $function::<half::bf16>(),
        ]
    };
}

pub(super) use of_every_ordered;
#[cfg(feature = "cuda")]
pub(super) use {of_every_complex, of_every_float};

fn with_program<E: Expr, R>(lazy: &Lazy<E>, see: impl FnOnce(&Program<'_>) -> R) -> R {
    let graph = ExpressionGraph::of(&lazy.expr).unwrap();
    see(&Program::row_major(&graph, graph.shape()))
}

fn text_of<E: Expr>(lazy: &Lazy<E>) -> String {
    let mut text = String::new();
    with_program(lazy, |program| program.text(&mut text));
    text
}

/// Returns the members of the program's form: `rank`, `is_wide`, `is_packed` and `repeated`.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method is of one lifetime, the closure of any"
)]
fn form<E: Expr>(lazy: &Lazy<E>) -> (u32, bool, bool, u32) {
    parts(with_program(lazy, |program| program.form()))
}

fn parts(form: u32) -> (u32, bool, bool, u32) {
    (form & 15, form & 16 != 0, form & 32 != 0, form >> 8)
}

#[test]
fn operands_that_agree_are_read_by_the_element_number() -> Result<()> {
    let x = Array::<f32>::zeros([4, 6, 8])?;
    assert_eq!(form(&(&x * 2.0 + &x)), (0, false, true, 0));
    assert_eq!(form(&(1.0f32.into_lazy() + 2.0)), (0, false, true, 0));
    assert_eq!(
        form(&x.slice(s![1..3, .., ..])?.lazy()),
        (0, false, true, 0)
    );
    let odd = x.flatten()?.slice(s![1..])?;
    assert_eq!(form(&odd.lazy()), (0, false, false, 0), "between two words");
    let text = text_of(&(&x + &x));
    assert!(
        !text.contains("cs_quotient") && text.contains("CS_WIDTH 4"),
        "{text}"
    );
    Ok(())
}

#[test]
fn operands_that_repeat_are_read_beside_whole_words() -> Result<()> {
    let x = Array::<f32>::zeros([4, 6, 8])?;
    let (row, column) = (Array::<f32>::zeros(8)?, Array::<f32>::zeros([6, 1])?);
    let one = Array::<f32>::zeros([])?;
    assert_eq!(form(&(&x + &row)), (2, false, true, 0));
    assert_eq!(form(&(&x + &column)), (3, false, true, 0b10));
    assert_eq!(form(&(&one - &x)), (1, false, true, 0b01));
    assert_eq!(form(&(&x + &row + &one)), (2, false, true, 0b100));
    let text = text_of(&(&x + &row));
    assert!(text.contains("cs_quotient(rest, o.n1"), "{text}");
    assert!(
        !text.contains("o.t0_1"),
        "the words stand side by side: {text}"
    );
    let narrow = Array::<f32>::zeros([4, 6])?;
    let short = Array::<f32>::zeros(6)?;
    assert_eq!(form(&(&narrow + &short)), (2, false, false, 0), "rows of 6");
    assert_eq!(
        form(&x.slice(s![.., .., 1..5])?.lazy()),
        (2, false, false, 0)
    );
    assert_eq!(form(&x.slice(s![.., .., 4..])?.lazy()), (2, false, true, 0));
    Ok(())
}

#[test]
fn other_operands_are_read_by_strides_over_the_fewest_axes() -> Result<()> {
    let x = Array::<f32>::zeros([4, 6, 8])?;
    let turned = x.permute(&[2, 0, 1])?;
    assert_eq!(
        form(&turned.lazy()),
        (2, false, false, 0),
        "two axes stay together"
    );
    assert_eq!(
        form(&(&turned + &turned.to_uncached()?)),
        (2, false, false, 0)
    );
    assert_eq!(form(&x.flip(0)?.lazy()), (2, false, true, 0));
    assert_eq!(form(&x.flip(2)?.lazy()), (2, false, false, 0));
    assert_eq!(form(&x.transpose()?.lazy()), (3, false, false, 0));
    // In the axis order 1, 2, 0, the elements are contiguous.
    let axes: [usize; MAX_RANK] = [1, 2, 0, 3, 4, 5, 6, 7];
    let lazy = turned.lazy();
    let graph = ExpressionGraph::of(&lazy.expr)?;
    let program = Program::new(&graph, graph.shape(), axes);
    assert_eq!(parts(program.form()), (0, false, true, 0));
    Ok(())
}

#[test]
fn indices_take_64_bits_where_they_must() -> Result<()> {
    let few = Array::<u8>::zeros([1])?;
    assert!(!form(&few.broadcast_to([(1 << 31) - 1])?.lazy()).1);
    assert!(form(&few.broadcast_to([1 << 31])?.lazy()).1);
    let text = text_of(&few.broadcast_to([1 << 31])?.lazy());
    assert!(text.contains("typedef u64 index_t") && text.contains("typedef i64 offset_t"));
    Ok(())
}

#[test]
fn arguments_are_the_members_of_the_structure() -> Result<()> {
    let x = Array::<f32>::zeros([4, 6])?;
    let row = Array::<f32>::zeros(6)?.slice(s![..;-1])?;
    let lazy = (&x * 3.0 + &row) - f32::NEG_INFINITY;
    let mut arguments = Arguments::default();
    with_program(&lazy, |program| program.arguments(&mut arguments));
    let members = [
        x.address(),
        row.address(),
        bits_of(3.0f32).low(),
        bits_of(f32::NEG_INFINITY).low(),
        6, // the strides along axis 0
        0,
        6, // the length of axis 1, and the constants of the division by it
        u64::from(inverse(6).0),
        u64::from(inverse(6).1),
        1,
        -1i64 as u64,
    ];
    let mut expected = Arguments::default();
    expected.push_all(members);
    assert_eq!(format!("{arguments:?}"), format!("{expected:?}"));
    let text = text_of(&lazy);
    let (_, after) = text.split_once("struct Operands {").unwrap();
    let (structure, _) = after.split_once("};").unwrap();
    assert_eq!(structure.matches(';').count(), members.len());
    Ok(())
}

#[test]
fn division_by_multiplication_is_exact() {
    let quotient = |number: u32, length: usize| {
        let (multiplier, shift) = inverse(length);
        let high = ((u64::from(number) * u64::from(multiplier)) >> 32) as u32;
        (high + number) >> shift
    };
    let near = |number: usize| number.saturating_sub(2)..(number + 3).min(1 << 31);
    let last = (1 << 31) - 1;
    let lengths = (0..31).flat_map(|power| near(1 << power));
    let lengths = lengths.chain(1..2000).chain([last - 1, last]);
    for length in lengths.filter(|&length| length > 0) {
        let multiples = [0, 1, 2, 3, 1000, (1 << 31) / length].map(|count| count * length);
        for number in multiples.into_iter().flat_map(near) {
            let number = number.min(last) as u32;
            assert_eq!(
                quotient(number, length),
                number / length as u32,
                "by {length}"
            );
        }
    }
}

#[test]
fn values_are_passed_by_their_bits() {
    assert_eq!(bits_of(-1i8).low(), 0xff);
    assert_eq!(bits_of(f16::ONE).low(), 0x3c00);
    assert_eq!(bits_of(-0.0f64).low(), 1 << 63);
    assert_eq!(bits_of(true).low(), 1);
}

/// A kernel that computes many expressions.
#[derive(Default)]
struct All {
    text: String,
    uses: String,
    count: usize,
}

impl All {
    fn add<E: Expr>(&mut self, lazy: &Lazy<E>) {
        let (text, number) = (text_of(lazy), self.count);
        self.count += 1;
        self.text += &format!("#undef CS_WIDTH\nnamespace n{number} {{ {text} }}\n");
        self.uses += &format!(
            "{{ using namespace n{number}; n{number}::T out[CS_WIDTH];\n\
             n{number}::elements(*(const n{number}::Operands*)o, i, out);\n\
             for (auto& value : out) cs_store((n{number}::I*)to++, value); }}\n"
        );
    }

    fn source(self, name: &str) -> KernelSource {
        let Self { text, uses, .. } = self;
        // Each expression reads packs of its own size. The largest pack has 16 elements.
        let uses = uses.replace("CS_WIDTH", "16");
        let text = text.replace("T (&out)[CS_WIDTH]", "T (&out)[16]");
        let kernel = "extern \"C\" __global__ void kernel(const void* o, u64* to, u32 i)";
        source(name.into(), &format!("{text}{kernel} {{\n{uses}}}\n"))
    }
}

/// The callback of `functions!`.
macro_rules! rows {
    ($lane:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        /// Adds the functions of elements of any type to `all`.
        fn rows_of_elements<T: Element>(all: &mut All, x: &Array<T>) {
            $(rows! { @element $kind all x $name $arguments })+
        }

        fn rows_of_numbers<T: Numeric>(all: &mut All, x: &Array<T>) {
            $(rows! { @number $kind all x $name $arguments })+
        }

        fn rows_of_complex<T: Number>(all: &mut All, x: &Array<T>) {
            $(rows! { @complex $kind all x $name $arguments })+
        }

        fn rows_of_floats<T: Float>(all: &mut All, x: &Array<T>) {
            $(rows! { @float $kind all x $name $arguments })+
        }

        fn rows_of_integers<T: Integer>(all: &mut All, x: &Array<T>) {
            $(rows! { @integer $kind all x $name $arguments })+
        }

        fn rows_of_bits<T: Bitwise>(all: &mut All, x: &Array<T>) {
            $(rows! { @bits $kind all x $name $arguments })+
        }
    };
    (@element ordered $($row:tt)+) => { rows! { @add $($row)+ } };
    (@element equality $($row:tt)+) => { rows! { @add $($row)+ } };
    (@element compare $($row:tt)+) => { rows! { @add $($row)+ } };
    (@number number $($row:tt)+) => { rows! { @add $($row)+ } };
    (@number part $($row:tt)+) => { rows! { @add $($row)+ } };
    (@number real $($row:tt)+) => { rows! { @add $($row)+ } };
    (@complex number $($row:tt)+) => { rows! { @add $($row)+ } };
    (@complex part $($row:tt)+) => { rows! { @add $($row)+ } };
    (@complex equality $($row:tt)+) => { rows! { @add $($row)+ } };
    (@number power $($row:tt)+) => { rows! { @add $($row)+ } };
    (@integer integer $($row:tt)+) => { rows! { @add $($row)+ } };
    (@float float $($row:tt)+) => { rows! { @add $($row)+ } };
    (@float test $($row:tt)+) => { rows! { @add $($row)+ } };
    (@bits bits $($row:tt)+) => { rows! { @add $($row)+ } };
    (@add $all:ident $x:ident $name:ident ($first:ident $(, $more:ident $(: $type:ident)?)*)) => {
        $all.add(&$x.lazy().$name($(rows!(@operand $x $more $($type)?)),*));
    };
    (@operand $x:ident $name:ident) => { $x };
    (@operand $x:ident $name:ident i32) => { 3 };
    (@$of:ident $kind:ident $($row:tt)+) => {};
}

cachescope_kernels::functions! { rows }

fn casts<T: AnyElement>(all: &mut All, x: &Array<T>) {
    all.add(&x.cast::<f32>());
    all.add(&x.cast::<f64>());
    all.add(&x.cast::<f16>());
    all.add(&x.cast::<bf16>());
    all.add(&x.cast::<i8>());
    all.add(&x.cast::<i16>());
    all.add(&x.cast::<i32>());
    all.add(&x.cast::<i64>());
    all.add(&x.cast::<u8>());
    all.add(&x.cast::<u16>());
    all.add(&x.cast::<u32>());
    all.add(&x.cast::<u64>());
    all.add(&x.cast::<bool>());
    all.add(&x.cast::<Complex<f32>>());
    all.add(&x.cast::<Complex<f64>>());
}

fn of_elements<T: Element>(all: &mut All, x: &Array<T>) {
    casts(all, x);
    rows_of_elements(all, x);
    all.add(&select(x.eq(T::zero()), x, T::one()));
}

fn of_numbers<T: Numeric>(all: &mut All, x: &Array<T>) {
    of_elements(all, x);
    arithmetic(all, x);
    all.add(&(x % &x.clone()));
    rows_of_numbers(all, x);
}

fn arithmetic<T: Number>(all: &mut All, x: &Array<T>) {
    let y = &x.clone();
    all.add(&(x + y));
    all.add(&(x - y));
    all.add(&(x * y));
    all.add(&(x / y));
}

fn of_complex<T: Float>() -> Result<KernelSource>
where
    Complex<T>: Number,
{
    let (mut all, re) = (All::default(), Array::<T>::zeros(16)?);
    all.add(&complex(&re, &re));
    let x = Array::<Complex<T>>::zeros(16)?;
    casts(&mut all, &x);
    arithmetic(&mut all, &x);
    rows_of_complex(&mut all, &x);
    all.add(&select(x.eq(Complex::<T>::zero()), &x, Complex::<T>::one()));
    Ok(all.source(Complex::<T>::DTYPE.in_cuda()))
}

fn of_integers<T: Integer + Bitwise>() -> Result<KernelSource> {
    let (mut all, x) = (All::default(), Array::<T>::zeros(16)?);
    of_numbers(&mut all, &x);
    rows_of_bits(&mut all, &x);
    rows_of_integers(&mut all, &x);
    Ok(all.source(T::DTYPE.in_cuda()))
}

fn of_floats<T: Float>() -> Result<KernelSource> {
    let (mut all, x) = (All::default(), Array::<T>::zeros(16)?);
    of_numbers(&mut all, &x);
    rows_of_floats(&mut all, &x);
    Ok(all.source(T::DTYPE.in_cuda()))
}

#[test]
fn every_row_compiles_for_every_type() -> Result<()> {
    let (mut truths, x) = (All::default(), Array::<bool>::zeros(16)?);
    of_elements(&mut truths, &x);
    rows_of_bits(&mut truths, &x);
    compile_for_all(&[
        of_floats::<f32>()?,
        of_floats::<f64>()?,
        of_floats::<f16>()?,
        of_floats::<bf16>()?,
        of_complex::<f32>()?,
        of_complex::<f64>()?,
        of_integers::<i8>()?,
        of_integers::<i16>()?,
        of_integers::<i32>()?,
        of_integers::<i64>()?,
        of_integers::<u8>()?,
        of_integers::<u16>()?,
        of_integers::<u32>()?,
        of_integers::<u64>()?,
        truths.source("bool"),
    ]);
    Ok(())
}

// `elementwise!` expands to `$crate::__elementwise!`. Inside this crate, this path does not exist.
__elementwise! {
    fn real(x: f32, y: f32) -> f32 {
        let third = 1.0 / 3.0 + 0.1;
        let z = if x < 0.5 { x * third } else if 2.0 >= y { 9.0 } else { -third };
        z.max(0.0).min(2.5).powi(-2) + x.mul_add(2.0, y) - third.sqrt()
    }

    fn brain(x: bf16) -> bf16 {
        let one: bf16 = 1 as bf16;
        x * (one + x.exp()).ln().tanh().clamp(-x, x) % -x
    }

    fn narrow(x: f16, n: i32) -> f16 {
        let y = { let x = x + x; x };
        if x != y && !(x == y) || n > 3 { real(x as f32, 1.0) as f16 } else { y.powi(n) }
    }

    fn whole(n: u8, m: i64) -> i64 {
        let far = m & -9223372036854775808 | 3000000000 ^ 7 / 2;
        -(((n & 1 | 2) ^ 3) << 1 >> n % 0x10) as i64 + far.abs().max(3) * (7 as f32 as i64) << 2
    }

    fn truth(x: f64, n: u64, b: bool) -> bool {
        x.is_nan() ^ (n == 18446744073709551615) & !b | (x as bool) && (2.5 as i32) < 3
    }

    fn signs(x: f32) -> i8 {
        if x > 0.0 { 1 } else if x < 0.0 { -1 } else { 100 }
    }

    fn constants(x: f32, n: i8) -> f32 {
        let turn = 2.0 * std::f32::consts::PI + half::f16::EPSILON as f32 - half::bf16::MAX.ln() as f32;
        let all = std::f64::consts::E.max(1.0) as f32 + n.min(i8::MIN) as f32 + (-u64::MAX) as f32;
        if YES && n != i8::MAX { x.max(f32::NAN) % turn } else { -f32::EPSILON.powi(i32::MIN) + all }
    }

    fn named(n: u8, x: f32, b: bool) -> bool {
        b.and(n.not().or(3).eq(255)).or(x.lt(0.5).not()) && -x.cbrt() == x.exp2().neg()
    }
}

const YES: bool = true;

/// Functions that users write with `elementwise!` compile.
#[test]
fn written_functions_compile() -> Result<()> {
    let mut all = All::default();
    let x = Array::<f32>::zeros(16)?;
    all.add(&real(&x, &x + 1.0));
    all.add(&brain(&Array::zeros(16)?));
    all.add(&narrow(&Array::zeros(16)?, 3));
    all.add(&whole(&Array::zeros(16)?, 3));
    all.add(&truth(1.0, &Array::zeros(16)?, true));
    all.add(&signs(&x));
    all.add(&constants(&x, 3));
    all.add(&named(&Array::zeros(16)?, &Array::zeros(16)?, true));
    compile_for_all(&[all.source("written")]);
    Ok(())
}
