//! Tests that the code for processors with AVX2, and the code for processors without AVX2, compute
//! nearly equal results.

use half::{bf16, f16};
use ndarray::s;

use super::value_and_grad;
use crate::{
    AnyElement, Array, Bitwise, Complex, ConvOptions, Element, Float, Integer, Number, Numeric,
    Result, select,
};
use cachescope_kernels::vector::IS_BASELINE;

/// A shape with too few elements for several threads. The length of a row is not a multiple of a
/// vector register's length.
const SHAPE: [usize; 2] = [37, 83];

/// The results of operations, each with its name.
#[derive(Default)]
struct Outcomes(Vec<(String, Vec<f64>)>);

impl Outcomes {
    fn push<T: AnyElement, U: AnyElement>(&mut self, name: &str, result: Result<Array<U>>) {
        let values = result.and_then(|array| array.to_vec()).unwrap();
        let values = values.into_iter().map(AnyElement::to_f64).collect();
        self.0.push((format!("{name} of {}", T::NAME), values));
    }

    fn push_any<T: AnyElement>(&mut self, x: &Array<T>, y: &Array<T>) {
        self.push::<T, _>("select", select(x.eq(y), x, y).boxed().eval());
        self.push::<T, _>("cast to f32", x.cast::<f32>().boxed().eval());
        self.push::<T, _>("cast to f16", x.cast::<f16>().boxed().eval());
        self.push::<T, _>("cast to i16", x.cast::<i16>().boxed().eval());
        self.push::<T, _>("sum", x.sum());
        self.push::<T, _>("sum of rows", x.sum_axis(1));
        self.push::<T, _>("sum of columns", x.sum_axis(0));
        self.push::<T, _>("running sum", x.cumsum(1));
    }

    fn push_numbers<T: Number>(&mut self, x: &Array<T>, y: &Array<T>) {
        self.push::<T, _>("product and sum", (x * y + T::one()).boxed().eval());
        self.push::<T, _>("product", x.matmul(&y.t().unwrap()));
        self.push::<T, _>(
            "product with a vector",
            x.matmul(&y.slice(s![3, ..]).unwrap()),
        );
        let columns = x.t().unwrap();
        self.push::<T, _>(
            "product of columns",
            columns.matmul(&y.slice(s![.., 4]).unwrap()),
        );
        let few = x.slice(s![..12, ..6]).unwrap().reshape([8, 3, 3]).unwrap();
        self.push::<T, _>("small products", few.matmul(&few));
    }

    fn push_ordered<T: Element>(&mut self, x: &Array<T>, y: &Array<T>) {
        self.push::<T, _>("less", x.le(y).boxed().eval());
        self.push::<T, _>("any", x.any());
        self.push::<T, _>("largest", x.max_axis(0));
        self.push::<T, _>("place of the smallest", x.argmin_axis(1));
        self.push::<T, _>("variance", x.var_axis(0));
        self.push::<T, _>("norm", x.norm_axis(1));
        self.push::<T, _>("sorted", x.sort(1));
        self.push::<T, _>("order", x.argsort(0));
    }

    fn push_real<T: Numeric>(&mut self, x: &Array<T>, y: &Array<T>) {
        self.push::<T, _>("maximum", x.maximum(y).boxed().eval());
        self.push::<T, _>("absolute", x.abs().boxed().eval());
    }
}

fn array_of<T: AnyElement>(scale: f64) -> [Array<T>; 2] {
    let numbers = 0..SHAPE[0] * SHAPE[1];
    let numbers = numbers.map(|at| T::from_f64(((at * 7919 % 1009) as f64 - 500.0) * scale));
    let x = Array::from_vec(numbers.collect(), SHAPE).unwrap();
    let y = x.flip(1).unwrap().flip(0).unwrap();
    [x, y]
}

fn of_floats<T: Float>() -> Outcomes {
    let [x, y] = &array_of::<T>(1.0 / 150.0);
    let mut results = Outcomes::default();
    results.push_any(x, y);
    results.push_numbers(x, y);
    results.push_ordered(x, y);
    results.push_real(x, y);
    let one = <T as AnyElement>::one();
    results.push::<T, _>("chain", ((x * y + one).sin() - x.exp()).boxed().eval());
    results.push::<T, _>("tanh", x.tanh().boxed().eval());
    results.push::<T, _>("logarithm", (x.abs() + one).ln().boxed().eval());
    results.push::<T, _>("quotient", (x / (y.abs() + one)).boxed().eval());
    results.push::<T, _>("logsumexp", x.logsumexp_axis(1));
    results.push::<T, _>("softmax", x.softmax(1));
    results.push::<T, _>("log_softmax", x.log_softmax(0));
    let images = x
        .slice(s![..36, ..80])
        .unwrap()
        .reshape([2, 4, 18, 20])
        .unwrap();
    let kernel = y
        .slice(s![..9, ..20])
        .unwrap()
        .reshape([5, 4, 3, 3])
        .unwrap();
    let padded = ConvOptions {
        padding: [1, 1],
        ..ConvOptions::default()
    };
    results.push::<T, _>("convolution", images.conv2d(&kernel, padded));
    let (_, [of_images, of_kernel]) = value_and_grad(&[images, kernel], |[images, kernel]| {
        images.conv2d(kernel, padded)?.square().mean()
    })
    .unwrap();
    results.push::<T, _>("convolution, back to images", Ok(of_images));
    results.push::<T, _>("convolution, back to the kernel", Ok(of_kernel));
    results
}

fn of_integers<T: Integer + Bitwise>() -> Outcomes {
    let [x, y] = &array_of::<T>(1.0);
    let mut results = Outcomes::default();
    results.push_any(x, y);
    results.push_numbers(x, y);
    results.push_ordered(x, y);
    results.push_real(x, y);
    let one = <T as AnyElement>::one();
    results.push::<T, _>("bits", ((x & y) ^ (x | one)).boxed().eval());
    results.push::<T, _>("remainder", (x.lazy() % (y | one)).boxed().eval());
    results
}

fn of_complex<T: Number>() -> Outcomes {
    let [x, y] = &array_of::<T>(1.0 / 150.0);
    let mut results = Outcomes::default();
    results.push_any(x, y);
    results.push_numbers(x, y);
    results
}

/// Checks that the code with AVX2 and the code without AVX2 compute nearly equal results. The two
/// versions of the code round sums at different steps. Results may differ by `epsilon` times the
/// largest absolute value, or by `epsilon` if this value is below 1.
fn check(epsilon: f64, results: fn() -> Outcomes) {
    let best = results();
    IS_BASELINE.set(true);
    let baseline = results();
    IS_BASELINE.set(false);
    for ((name, best), (_, baseline)) in best.0.iter().zip(&baseline.0) {
        let scale = best
            .iter()
            .fold(1.0, |scale: f64, value| scale.max(value.abs()));
        for (at, (one, other)) in best.iter().zip(baseline).enumerate() {
            let is_near = (one - other).abs() <= epsilon * scale;
            assert!(is_near, "{name}: {one} and {other} at {at}");
        }
        assert_eq!(best.len(), baseline.len(), "{name}");
    }
}

#[test]
fn processors_without_vectors_compute_the_same() {
    check(1e-6, of_floats::<f32>);
    check(1e-14, of_floats::<f64>);
    check(2e-3, of_floats::<f16>);
    check(2e-2, of_floats::<bf16>);
    check(0.0, of_integers::<i8>);
    check(0.0, of_integers::<i16>);
    check(0.0, of_integers::<i32>);
    check(0.0, of_integers::<i64>);
    check(0.0, of_integers::<u8>);
    check(0.0, of_integers::<u16>);
    check(0.0, of_integers::<u32>);
    check(0.0, of_integers::<u64>);
    check(1e-6, of_complex::<Complex<f32>>);
    check(1e-14, of_complex::<Complex<f64>>);
}
