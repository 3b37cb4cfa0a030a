//! Convolutions and their gradients, compared with loops over every product.

use cachescope::grad::nn::ConvTranspose2d;
use cachescope::grad::value_and_grad;
use cachescope::ndarray::s;
use cachescope::{Array, ConvOptions, Float, Result};
use proptest::prelude::*;

use super::threads::same_bits;

/// The lengths and options of a convolution.
#[derive(Clone, Copy, Debug)]
struct Case {
    input: [usize; 4],
    /// The number of output channels per group, and the kernel's rows and columns.
    kernel: [usize; 3],
    options: ConvOptions,
}

impl Case {
    /// Returns the shape of the result, if the kernel fits.
    fn result(&self) -> Option<[usize; 4]> {
        let mut result = [self.input[0], self.kernel[0] * self.options.groups, 0, 0];
        for at in 0..2 {
            let length = self.input[2 + at] + 2 * self.options.padding[at];
            let extent = self.options.dilation[at] * (self.kernel[1 + at] - 1) + 1;
            result[2 + at] = length.checked_sub(extent)? / self.options.stride[at] + 1;
        }
        Some(result)
    }

    fn kernel_shape(&self) -> [usize; 4] {
        let [outputs, height, width] = self.kernel;
        let groups = self.options.groups;
        [outputs * groups, self.input[1] / groups, height, width]
    }

    /// Calls `product` for each product, with its indices in the input, in the kernel and in the
    /// result.
    fn each_product(&self, mut product: impl FnMut(usize, usize, usize)) {
        let (result, kernel) = (self.result().unwrap(), self.kernel_shape());
        let ConvOptions {
            stride,
            padding,
            dilation,
            ..
        } = self.options;
        for image in 0..result[0] {
            for output in 0..result[1] {
                let group = output / self.kernel[0];
                for (y, x) in pairs([result[2], result[3]]) {
                    let to = at(result, [image, output, y, x]);
                    for channel in 0..kernel[1] {
                        for (h, w) in pairs([kernel[2], kernel[3]]) {
                            let row = (y * stride[0] + h * dilation[0]).checked_sub(padding[0]);
                            let column = (x * stride[1] + w * dilation[1]).checked_sub(padding[1]);
                            let (Some(row), Some(column)) = (row, column) else {
                                continue;
                            };
                            if row < self.input[2] && column < self.input[3] {
                                let from = [image, group * kernel[1] + channel, row, column];
                                let factor = at(kernel, [output, channel, h, w]);
                                product(at(self.input, from), factor, to);
                            }
                        }
                    }
                }
            }
        }
    }
}

fn pairs(lengths: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
    (0..lengths[0]).flat_map(move |row| (0..lengths[1]).map(move |column| (row, column)))
}

fn at(shape: [usize; 4], index: [usize; 4]) -> usize {
    shape
        .iter()
        .zip(index)
        .fold(0, |at, (length, index)| at * length + index)
}

/// Returns values between −1 and 1. No two neighbours are equal.
fn values<T: Float>(shape: [usize; 4], seed: usize) -> Result<Array<T>> {
    let value = |at: usize| ((at * 37 + seed * 11) % 61) as f64 / 30.0 - 1.0;
    let count = shape.iter().product();
    Array::from_vec((0..count).map(|at| T::from_f64(value(at))).collect(), shape)
}

/// Returns the array in the layout with the number `strides`. Layout 0 is contiguous, and layout 1
/// is transposed. Layout 2 has every second column of a longer array, in reverse order.
fn strided<T: Float>(array: &Array<T>, strides: usize) -> Result<Array<T>> {
    match strides {
        0 => Ok(array.clone()),
        1 => array.swap_axes(2, 3)?.to_uncached()?.swap_axes(2, 3),
        _ => {
            let mut wide = Array::zeros([
                array.shape()[0],
                array.shape()[1],
                array.shape()[2],
                2 * array.shape()[3],
            ])?;
            wide.slice_mut(s![.., .., .., ..;2])?
                .assign(&array.flip(3)?)?;
            wide.slice(s![.., .., .., ..;2])?.flip(3)
        }
    }
}

/// Asserts that the values differ from the loops' values at most by rounding errors.
#[track_caller]
fn close<T: Float>(name: &str, found: &Array<T>, expected: &[f64], terms: usize, case: &Case) {
    let most = 4.0 * T::epsilon().to_f64() * (terms as f64).sqrt().max(4.0) * 2.0;
    let found = found.to_vec().unwrap();
    assert_eq!(found.len(), expected.len(), "{name} of {case:?}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let apart = (found.to_f64() - expected).abs();
        let scale = expected.abs().max((terms as f64).sqrt());
        assert!(
            apart <= most * scale,
            "{name} {at}: {found:?}, expected {expected}, of {case:?}"
        );
    }
}

/// Checks a convolution and its gradients, with operands of different strides.
fn check<T: Float>(case: &Case, strides: [usize; 2]) -> Result<()> {
    let result = case.result().unwrap();
    let x = values::<T>(case.input, 1)?;
    let kernel = values::<T>(case.kernel_shape(), 2)?;
    let weights = values::<T>(result, 3)?;
    let floats = |array: &Array<T>| -> Result<Vec<f64>> {
        Ok(array.to_vec()?.into_iter().map(T::to_f64).collect())
    };
    let (xs, kernels, gs) = (floats(&x)?, floats(&kernel)?, floats(&weights)?);
    let mut expected = [
        vec![0.0; gs.len()],
        vec![0.0; xs.len()],
        vec![0.0; kernels.len()],
    ];
    case.each_product(|from, factor, to| {
        expected[0][to] += xs[from] * kernels[factor];
        expected[1][from] += kernels[factor] * gs[to];
        expected[2][factor] += xs[from] * gs[to];
    });
    let (x, kernel) = (strided(&x, strides[0])?, strided(&kernel, strides[1])?);
    let weights = strided(&weights, strides[0])?;
    let [outputs, height, width] = case.kernel;
    let inner = case.kernel_shape()[1] * height * width;
    close(
        "the result",
        &x.conv2d(&kernel, case.options)?,
        &expected[0],
        inner,
        case,
    );
    let (_, (of_x, of_kernel)) = value_and_grad(&(x, kernel), |(x, kernel)| {
        (x.conv2d(kernel, case.options)? * &weights).sum()
    })?;
    close(
        "the gradient of the input",
        &of_x,
        &expected[1],
        outputs * height * width,
        case,
    );
    let results = result[0] * result[2] * result[3];
    close(
        "the gradient of the kernel",
        &of_kernel,
        &expected[2],
        results,
        case,
    );
    Ok(())
}

fn cases() -> impl Strategy<Value = Case> {
    let pair = |most: usize| prop::array::uniform2(1..=most);
    let channels = (1_usize..=3, 1_usize..=9, 1_usize..=11);
    let sides = (prop::array::uniform2(1_usize..=40), pair(4));
    let options = (pair(3), prop::array::uniform2(0_usize..=4), pair(3));
    (1_usize..=3, channels, sides, options).prop_filter_map(
        "the kernel fits",
        |(images, (groups, each, outputs), (side, size), (stride, padding, dilation))| {
            let case = Case {
                input: [images, groups * each, side[0], side[1]],
                kernel: [outputs, size[0], size[1]],
                options: ConvOptions {
                    stride,
                    padding,
                    dilation,
                    groups,
                },
            };
            case.result().map(|_| case)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn convolutions_are_the_sums_of_all_products(
        case in cases(),
        strides in prop::array::uniform2(0_usize..3),
    ) {
        check::<f32>(&case, strides).unwrap();
        check::<f64>(&case, strides).unwrap();
    }
}

/// Returns the result and the gradients of a convolution that several threads compute.
fn long<T: Float>(input: [usize; 4], options: ConvOptions) -> Result<[Array<T>; 3]> {
    let case = Case {
        input,
        kernel: [13, 3, 3],
        options,
    };
    let weights = values::<T>(case.result().unwrap(), 3)?;
    let operands = (values::<T>(input, 1)?, values::<T>(case.kernel_shape(), 2)?);
    let result = operands.0.conv2d(&operands.1, options)?;
    let (_, (of_x, of_kernel)) = value_and_grad(&operands, |(x, kernel)| {
        (x.conv2d(kernel, options)? * &weights).sum()
    })?;
    Ok([result, of_x, of_kernel])
}

#[test]
fn convolutions_have_the_bits_of_one_thread() {
    let options = ConvOptions {
        padding: [1, 1],
        ..ConvOptions::default()
    };
    let strided = ConvOptions {
        stride: [2, 2],
        groups: 2,
        ..options
    };
    for (input, options) in [([9, 24, 30, 34], options), ([1, 24, 70, 66], strided)] {
        same_bits(|| {
            let all = long::<f32>(input, options).unwrap();
            all.iter()
                .flat_map(|array| array.to_vec().unwrap())
                .collect()
        });
    }
}

#[test]
fn empty_and_pointless_convolutions() -> Result<()> {
    let kernel = values::<f32>([2, 3, 1, 1], 1)?;
    let wide = ConvOptions {
        padding: [2, 2],
        stride: [3, 5],
        ..ConvOptions::default()
    };
    // Some results depend only on padding, and some elements do not affect any result.
    let x = values::<f32>([1, 3, 5, 4], 2)?;
    let (_, of_x) = value_and_grad(&x, |x| x.conv2d(&kernel, wide)?.sum())?;
    let seen = of_x.ne(0.0).cast::<i32>().sum()?.item()?;
    assert_eq!(
        (x.conv2d(&kernel, wide)?.shape(), seen),
        ([1, 2, 3, 2].as_slice(), 6)
    );
    for shape in [[0, 3, 4, 4], [2, 0, 4, 4], [2, 3, 0, 4]] {
        let x = Array::<f32>::zeros(shape)?;
        let kernel = Array::<f32>::ones([2, shape[1], 1, 2])?;
        let operands = (x, kernel);
        let options = ConvOptions {
            padding: [1, 1],
            ..ConvOptions::default()
        };
        let (sum, (of_x, of_kernel)) =
            value_and_grad(&operands, |(x, kernel)| x.conv2d(kernel, options)?.sum())?;
        assert_eq!(sum.item()?, 0.0);
        assert_eq!(of_x.shape(), operands.0.shape());
        assert_eq!(of_kernel, Array::zeros_like(&operands.1)?);
    }
    Ok(())
}

#[test]
fn transposed_convolutions_pass_gradients_back_like_convolutions() -> Result<()> {
    // The output padding is longer than the stride, and the padding exceeds the reach of the
    // kernel.
    for (stride, padding, dilation, output_padding) in [
        ([2, 2], [1, 1], [1, 1], [1, 0]),
        ([1, 2], [0, 3], [3, 1], [2, 1]),
        ([3, 1], [2, 0], [1, 2], [2, 1]),
    ] {
        let options = ConvOptions {
            stride,
            padding,
            dilation,
            groups: 2,
        };
        let layer = ConvTranspose2d::<f64> {
            weight: values([4, 3, 2, 3], 1)?,
            bias: None,
            options,
            output_padding,
        };
        let x = values::<f64>([2, 4, 5, 6], 2)?;
        let result = layer.forward(&x)?;
        // A transposed convolution is the adjoint of a convolution. Therefore the inner products
        // ⟨result, other⟩ and ⟨back, x⟩ are equal.
        let other = values::<f64>(result.shape().try_into().unwrap(), 3)?;
        let back = other.conv2d(&layer.weight, options)?;
        let back = back.slice(s![.., .., ..5, ..6])?;
        let (one, two) = (
            (&result * &other).sum()?.item()?,
            (&back * &x).sum()?.item()?,
        );
        assert!((one - two).abs() < 1e-9, "{one} and {two} for {options:?}");
        let (_, of_x) = value_and_grad(&x, |x| (layer.forward(x)? * &other).sum())?;
        let apart = (of_x - back).abs().max()?.item()?;
        assert!(apart < 1e-12, "{apart} for {options:?}");
    }
    Ok(())
}

/// Rows that are too long or too far apart for the kernels of the host are multiplied as columns.
#[test]
fn long_rows_and_wide_kernels_are_computed_too() -> Result<()> {
    let options = ConvOptions {
        padding: [(1 << 29) - 1; 2],
        dilation: [(1 << 30) - 1; 2],
        ..ConvOptions::default()
    };
    let (x, kernel) = (
        Array::<f32>::ones([1, 16, 2, 2])?,
        Array::ones([1, 16, 2, 2])?,
    );
    assert!(x.conv2d(&kernel, options).is_err(), "no such padding fits");
    let signal = Array::<f32>::ones([1, 32, 40_000])?;
    let result = signal.conv1d(&Array::ones([1, 32, 3])?, ConvOptions::default())?;
    assert!(result.to_vec()?.iter().all(|&sum| sum == 96.0));
    let options = ConvOptions {
        stride: [64, 64],
        ..ConvOptions::default()
    };
    let (x, kernel) = (
        Array::<f64>::ones([1, 1, 130, 130])?,
        Array::ones([1, 1, 2, 2])?,
    );
    let (_, gradient) = value_and_grad(&x, |x| x.conv2d(&kernel, options)?.sum())?;
    assert_eq!(gradient.sum()?.item()?, 3.0 * 3.0 * 4.0);
    // The rows are so far apart that few pieces fit into a block.
    let options = ConvOptions {
        dilation: [2000, 1],
        ..ConvOptions::default()
    };
    let (x, kernel) = (
        Array::<f32>::ones([1, 1, 2300, 9])?,
        Array::ones([1, 1, 2, 2])?,
    );
    let (_, gradient) = value_and_grad(&kernel, |kernel| x.conv2d(kernel, options)?.sum())?;
    assert_eq!(gradient.to_vec()?, [300.0 * 8.0; 4]);
    Ok(())
}

/// A broadcast operand has stride 0, so one element is read for a whole axis.
#[test]
fn broadcast_operands_are_read() -> Result<()> {
    let row = Array::from_vec((0..20).map(f64::from).collect(), [1, 1, 1, 20])?;
    let x = row.broadcast_to([2, 3, 9, 20])?;
    let kernel = Array::<f64>::ones([1, 1, 1, 1])?.broadcast_to([4, 3, 3, 3])?;
    let options = ConvOptions::default();
    let copied = (x.to_uncached()?, kernel.to_uncached()?);
    let wanted = copied.0.conv2d(&copied.1, options)?;
    assert_eq!(x.conv2d(&kernel, options)?.to_vec()?, wanted.to_vec()?);
    Ok(())
}
