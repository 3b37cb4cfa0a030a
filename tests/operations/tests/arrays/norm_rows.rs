//! Norms of rows of each length, and their gradients, against plain loops over `f64`.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Device, Float, Generator, Result};
use half::{bf16, f16};
use ndarray::s;

/// The lengths of rows around the sizes of a warp, a block and its registers.
const WIDTHS: [usize; 17] = [
    1, 2, 3, 7, 8, 16, 31, 33, 64, 100, 257, 512, 1000, 1024, 1601, 4104, 8193,
];

/// A norm of three operands, and the gradients of the sum of the result times weights.
#[derive(Debug)]
struct Outcome {
    result: Vec<f64>,
    gradients: [Vec<f64>; 3],
    /// The largest terms of the result and of the gradient of x. Terms may cancel.
    largest_terms: [f64; 2],
}

/// The operands of a norm, and the weights of a loss that sums the weighted result.
struct Case<T: Float> {
    x: Array<T>,
    weight: Array<T>,
    bias: Array<T>,
    weights: Array<T>,
    epsilon: f64,
    is_centred: bool,
}

/// Returns normal numbers with a mean, rounded to `T`.
fn numbers<T: Float>(generator: &mut Generator, shape: &[usize], mean: f64) -> Result<Array<T>> {
    let wide = Array::<f64>::randn_with(generator, shape)?;
    (wide + mean).cast::<T>().eval()
}

impl<T: Float> Case<T> {
    fn new(shape: &[usize], is_centred: bool) -> Result<Self> {
        let generator = &mut Generator::new(11);
        let width = shape[shape.len() - 1];
        Ok(Self {
            x: numbers(generator, shape, 0.5)?,
            weight: numbers(generator, &[width], 1.0)?,
            bias: numbers(generator, &[width], 0.0)?,
            weights: numbers(generator, shape, 0.25)?,
            epsilon: 1e-5,
            is_centred,
        })
    }

    fn computed(&self) -> Result<Outcome> {
        let parameters = (self.x.clone(), self.weight.clone(), self.bias.clone());
        let mut result = None;
        let epsilon = T::from_f64(self.epsilon);
        let (_, (x, weight, bias)) = value_and_grad(&parameters, |(x, weight, bias)| {
            let y = match self.is_centred {
                true => x.layer_norm(weight, bias, epsilon)?,
                false => x.rms_norm(weight, epsilon)?,
            };
            result = Some(cachescope::grad::stop_gradient(&y));
            (y * &self.weights).sum()
        })?;
        let result = result.expect("the loss was computed");
        Ok(Outcome {
            result: doubles(&result)?,
            gradients: [doubles(&x)?, doubles(&weight)?, doubles(&bias)?],
            largest_terms: [0.0; 2],
        })
    }

    /// Computes the norm and its gradients by loops over rows.
    fn expected(&self) -> Result<Outcome> {
        let [x, weight, bias, slope] =
            [&self.x, &self.weight, &self.bias, &self.weights].map(doubles);
        let (x, weight, bias, slope) = (x?, weight?, bias?, slope?);
        let epsilon = T::from_f64(self.epsilon).to_f64();
        let width = weight.len();
        let mut outcome = Outcome {
            result: Vec::new(),
            gradients: [Vec::new(), vec![0.0; width], vec![0.0; width]],
            largest_terms: [0.0; 2],
        };
        let mean_of = |values: &[f64]| sum_of(values) / width as f64;
        for (x, slope) in x.chunks(width).zip(slope.chunks(width)) {
            let mean = if self.is_centred { mean_of(x) } else { 0.0 };
            let centred: Vec<f64> = x.iter().map(|x| x - mean).collect();
            let squares: Vec<f64> = centred.iter().map(|x| x * x).collect();
            let factor = 1.0 / (mean_of(&squares) + epsilon).sqrt();
            let normal: Vec<f64> = centred.iter().map(|x| x * factor).collect();
            let scaled: Vec<f64> = slope.iter().zip(&weight).map(|(g, w)| g * w).collect();
            let products: Vec<f64> = scaled.iter().zip(&normal).map(|(a, n)| a * n).collect();
            let along = mean_of(&products);
            let shift = if self.is_centred {
                mean_of(&scaled)
            } else {
                0.0
            };
            for at in 0..width {
                let added = if self.is_centred { bias[at] } else { 0.0 };
                outcome.result.push(normal[at] * weight[at] + added);
                let of_x = factor * (scaled[at] - shift - normal[at] * along);
                let terms = [factor * x[at] * weight[at], factor * scaled[at]];
                for (largest, term) in outcome.largest_terms.iter_mut().zip(terms) {
                    *largest = largest.max(term.abs());
                }
                outcome.gradients[0].push(of_x);
                outcome.gradients[1][at] += slope[at] * normal[at];
                outcome.gradients[2][at] += if self.is_centred { slope[at] } else { 0.0 };
            }
        }
        Ok(outcome)
    }

    /// Asserts that all values are near the expected values. `digit` is the rounding error of
    /// `T`, and `digit_of_sums` the rounding error of the type of the computation.
    fn check(&self, digits: [f64; 2]) -> Result<()> {
        self.check_outcome(&self.computed()?, &self.expected()?, digits);
        Ok(())
    }

    fn check_outcome(&self, own: &Outcome, expected: &Outcome, [digit, digit_of_sums]: [f64; 2]) {
        let what = format!("{} of {:?}", T::DTYPE.name(), self.x.shape());
        let tolerance = digit + 8.0 * digit_of_sums;
        let [of_result, of_x] = expected.largest_terms;
        assert_near(&own.result, &expected.result, (tolerance, of_result), &what);
        let tolerance = digit + 32.0 * digit_of_sums;
        let sizes = [of_x.max(of_result), 1.0, 1.0];
        for (at, name) in ["x", "weight", "bias"].into_iter().enumerate() {
            let what = format!("gradient of {name}: {what}");
            let (own, expected) = (&own.gradients[at], &expected.gradients[at]);
            assert_near(own, expected, (tolerance, sizes[at]), &what);
        }
    }
}

/// Returns a compensated sum (Neumaier, 1974).
fn sum_of(values: &[f64]) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0);
    for &value in values {
        let next = sum + value;
        lost += match sum.abs() >= value.abs() {
            true => (sum - next) + value,
            false => (value - next) + sum,
        };
        sum = next;
    }
    sum + lost
}

fn doubles<T: Float>(array: &Array<T>) -> Result<Vec<f64>> {
    array.cast::<f64>().eval()?.to_vec()
}

/// Asserts that the differences are at most `tolerance` times the largest value, or times `size` if
/// that is larger.
#[track_caller]
fn assert_near(own: &[f64], expected: &[f64], (tolerance, size): (f64, f64), what: &str) {
    assert_eq!(own.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(size, |most, own| most.max(own.abs()));
    for (at, (own, expected)) in own.iter().zip(expected).enumerate() {
        let error = (own - expected).abs();
        assert!(
            error <= tolerance * largest,
            "{what}: {own:e} is not {expected:e} at {at}"
        );
    }
}

fn check_all<T: Float>(digits: [f64; 2]) -> Result<()> {
    for is_centred in [true, false] {
        for width in WIDTHS {
            let rows = if width > 1000 { 3 } else { 37 };
            Case::<T>::new(&[rows, width], is_centred)?.check(digits)?;
        }
        Case::<T>::new(&[2, 3, 5, 24], is_centred)?.check(digits)?;
        Case::<T>::new(&[24], is_centred)?.check(digits)?;
    }
    Ok(())
}

const F32_DIGIT: f64 = 6e-8;

#[test]
fn norms_of_rows_are_right_in_f32() -> Result<()> {
    check_all::<f32>([F32_DIGIT; 2])
}

#[test]
fn norms_of_rows_are_right_in_f64() -> Result<()> {
    check_all::<f64>([1.2e-16; 2])
}

#[test]
fn norms_of_rows_are_right_in_bf16() -> Result<()> {
    check_all::<bf16>([4e-3, F32_DIGIT])
}

#[test]
fn norms_of_rows_are_right_in_f16() -> Result<()> {
    check_all::<f16>([5e-4, F32_DIGIT])
}

#[test]
fn gradients_of_a_norm_add_thousands_of_rows() -> Result<()> {
    Case::<f32>::new(&[5000, 24], true)?.check([F32_DIGIT; 2])?;
    Case::<bf16>::new(&[5000, 24], true)?.check([4e-3, F32_DIGIT])
}

#[test]
fn norms_read_views_that_are_strided_or_not_aligned() -> Result<()> {
    let whole = Case::<f32>::new(&[7, 65], true)?;
    let part = |array: &Array<f32>| array.slice(s![.., 1..]);
    let last = |array: &Array<f32>| array.slice(s![1..]);
    let shifted = Case {
        x: part(&whole.x)?,
        weight: last(&whole.weight)?,
        bias: last(&whole.bias)?,
        weights: part(&whole.weights)?,
        ..whole
    };
    shifted.check([F32_DIGIT; 2])?;
    let whole = Case::<f32>::new(&[64, 64], true)?;
    let turned = Case {
        x: whole.x.transpose()?,
        weight: whole.x.slice(s![.., 3])?,
        weights: whole.weights.transpose()?,
        ..whole
    };
    turned.check([F32_DIGIT; 2])?;
    let whole = Case::<f32>::new(&[40], true)?;
    let broadcast = Case {
        x: whole.x.broadcast_to([5, 40])?,
        weights: whole.weights.broadcast_to([5, 40])?,
        ..whole
    };
    broadcast.check([F32_DIGIT; 2])
}

#[test]
fn rows_far_from_0_keep_the_digits_of_their_differences() -> Result<()> {
    for mean in [1e3, 1e6] {
        let generator = &mut Generator::new(3);
        let mut case = Case::<f32>::new(&[5, 768], true)?;
        case.x = numbers(generator, &[5, 768], mean)?;
        // The differences have the rounding errors of the mean.
        let digit = F32_DIGIT * mean;
        case.check([digit, F32_DIGIT])?;
    }
    Ok(())
}

/// Checks rows of other sizes. If epsilon is 0, the norm of a row does not depend on the size of
/// its elements. The gradient is inversely proportional to the size.
fn check_sizes<T: Float>(exponents: &[i32], digits: [f64; 2]) -> Result<()> {
    for is_centred in [true, false] {
        let mut plain = Case::<T>::new(&[5, 100], is_centred)?;
        plain.epsilon = 0.0;
        for &exponent in exponents {
            // A power of `f64` may be out of range where the product is not.
            let half = 2.0f64.powi(exponent / 2);
            let scaled = |values: &Array<T>| -> Result<Array<T>> {
                let wide = (values.cast::<f64>() * half * half).eval()?;
                wide.cast::<T>().eval()
            };
            let case = Case {
                x: scaled(&plain.x)?,
                weight: plain.weight.clone(),
                bias: plain.bias.clone(),
                weights: plain.weights.clone(),
                ..plain
            };
            let mut own = case.computed()?;
            for value in &mut own.gradients[0] {
                *value *= half * half;
            }
            case.check_outcome(&own, &plain.expected()?, digits);
        }
    }
    Ok(())
}

#[test]
fn norms_of_rows_do_not_depend_on_the_size_of_elements() -> Result<()> {
    check_sizes::<f32>(&[120, 64, -64, -100], [F32_DIGIT; 2])?;
    check_sizes::<bf16>(&[120, -100], [4e-3, F32_DIGIT])?;
    check_sizes::<f64>(&[1000, 512, -512, -900], [1.2e-16; 2])
}

#[test]
fn an_epsilon_of_any_size_is_added_to_the_variance() -> Result<()> {
    for epsilon in [1e-30, 1e-3, 1e3, 1e20, 1e36] {
        for is_centred in [true, false] {
            let mut case = Case::<f32>::new(&[5, 100], is_centred)?;
            case.epsilon = epsilon;
            case.check([F32_DIGIT; 2])?;
        }
    }
    Ok(())
}

#[test]
fn a_constant_row_is_normalized_to_the_bias() -> Result<()> {
    let exact = [0.0, -100.0, 100.0].map(|exponent: f32| (exponent.exp2(), 1e-6));
    // The mean of other numbers may be rounded, and the factor of a row is 316.
    for (size, tolerance) in exact.into_iter().chain([(0.0, 1e-6), (3.3, 3e-4)]) {
        let mut case = Case::<f32>::new(&[3, 768], true)?;
        case.x = Array::full([3, 768], size)?;
        let bias = case.bias.broadcast_to([3, 768])?;
        let y = case.x.layer_norm(&case.weight, &case.bias, 1e-5)?;
        let what = format!("rows of {size}");
        assert_near(&doubles(&y)?, &doubles(&bias)?, (tolerance, 1.0), &what);
    }
    Ok(())
}

#[test]
fn the_largest_elements_do_not_overflow() -> Result<()> {
    for width in [10, 100, 1000, 8192] {
        let mut case = Case::<f32>::new(&[2, width], true)?;
        case.x = Array::full([2, width], f32::MAX)?;
        let bias = case.bias.broadcast_to([2, width])?;
        let y = case.x.layer_norm(&case.weight, &case.bias, 1e-5)?;
        let what = format!("{width} largest elements");
        // On the host, the mean is rounded, and the factor of a row is 316.
        let size = match Device::current().to_string().starts_with("cuda") {
            true => 1.0,
            false => 4.0 * 316.0 * f64::from(f32::MAX),
        };
        assert_near(&doubles(&y)?, &doubles(&bias)?, (1e-6, size), &what);
        let signs: Vec<f32> = (0..2 * width)
            .map(|at| if at % 2 == 0 { f32::MAX } else { f32::MIN })
            .collect();
        case.x = Array::from_slice(&signs, [2, width])?;
        let y = case.x.layer_norm(&case.weight, &case.bias, 1e-5)?;
        let expected = case.expected()?.result;
        assert_near(&doubles(&y)?, &expected, (1e-6, 1.0), &what);
    }
    Ok(())
}

#[test]
fn an_infinite_element_makes_its_own_row_nan() -> Result<()> {
    let case = Case::<f32>::new(&[3, 40], true)?;
    let mut values = case.x.to_vec()?;
    values[47] = f32::INFINITY;
    let x = Array::from_slice(&values, [3, 40])?;
    let y = x.layer_norm(&case.weight, &case.bias, 1e-5)?.to_vec()?;
    for (at, value) in y.into_iter().enumerate() {
        assert_eq!(value.is_nan(), (40..80).contains(&at), "{at}: {value}");
    }
    Ok(())
}
