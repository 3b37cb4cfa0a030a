//! Sums of many gradients of `f16` and `bf16`. The sums are held in `f32` and rounded once.

use cachescope::grad::optim::Sgd;
use cachescope::grad::{checkpoint, hvp, value_and_grad, value_and_step};
use cachescope::{Array, ConvOptions, Float, Result};
use half::{bf16, f16};
use ndarray::s;

use super::narrow::number;

/// The number of uses of a weight. `bf16` cannot count to this number in steps of 1.
const USES: usize = 1000;

fn ones<T: Float>(count: usize) -> Array<T> {
    Array::ones(count).unwrap()
}

/// Returns the sum of all elements.
pub(super) fn total<T: Float>(x: &Array<T>) -> Result<Array<T>> {
    x.sum()?.cast::<T>().eval()
}

/// The expressions that use a weight of two elements once. Each expression adds `factor` to the
/// gradient of each element.
const WAYS: &[&str] = &[
    "product of elements",
    "matrix product",
    "broadcast product",
    "shared broadcast",
    "both halves",
    "a half at a time",
    "whole and half",
    "transposed",
    "picked",
    "sum",
    "copied",
    "checkpoint",
];

fn used<T: Float>(way: &str, w: &Array<T>, factor: &Array<T>) -> Result<Array<T>> {
    match way {
        "product of elements" => total(&(w * factor).eval()?),
        "matrix product" => w.matmul(&(ones::<T>(2) * factor).eval()?),
        "broadcast product" => {
            let share = Array::<T>::full([2, 1], number(0.5))?;
            total(&(w * (share * factor)).eval()?)
        }
        "shared broadcast" => {
            let twice = w.unsqueeze(0)?.broadcast_to([2, 2])?;
            let share = Array::<T>::full([2, 2], number(0.5))?;
            total(&(twice * share * factor).eval()?)
        }
        "both halves" => {
            let halves = [w.slice(s![..1])?, w.slice(s![1..])?];
            let [one, other] = halves.each_ref().map(|own| (own * factor).eval());
            total(&(one? + other?).eval()?)
        }
        "a half at a time" => {
            let other = (w.slice(s![1..])? * factor).eval()?;
            total(&((w.slice(s![..1])? * factor).eval()? + other).eval()?)
        }
        "whole and half" => {
            let half = total(&(w.slice(s![..1])? * factor).eval()?)?;
            let whole = (w * factor).eval()?;
            (total(&whole.slice(s![1..])?)? + half).eval()
        }
        "transposed" => {
            let turned = w.unsqueeze(0)?.transpose()?;
            total(&(turned * factor).eval()?)
        }
        "picked" => {
            let taken = w.take(&Array::from_slice(&[1_i64, 0], 2)?, 0)?;
            total(&(taken * factor).eval()?)
        }
        "sum" => (total(w)? * factor).eval(),
        "copied" => total(&(w.flip(0)?.lazy().eval()? * factor).eval()?),
        _ => {
            let factor = factor.clone();
            checkpoint(w, move |w| total(&(w * &factor).eval()?))
        }
    }
}

/// Returns the sum of [`USES`] uses of the weight.
fn uses<T: Float>(way: &str, w: &Array<T>, factor: f64) -> Result<Array<T>> {
    let factor = Array::from_slice(&[factor], [])?.cast::<T>().eval()?;
    let mut sum = used(way, w, &factor)?;
    for _ in 1..USES {
        sum = (sum + used(way, w, &factor)?).eval()?;
    }
    Ok(sum)
}

fn read<T: Float>(array: &Array<T>) -> Vec<f64> {
    array.cast::<f64>().eval().unwrap().to_vec().unwrap()
}

/// Calls `check` for both narrow types.
macro_rules! narrow {
    ($check:ident) => {
        $check::<f16>();
        $check::<bf16>();
    };
}

fn of_narrow_weights<T: Float>() {
    for way in WAYS {
        let w = ones::<T>(2);
        let (_, gradient) = value_and_grad(&w, |w| uses(way, w, 1.0)).unwrap();
        assert_eq!(read(&gradient), [1000.0; 2], "{way} of {}", T::NAME);
        let mut moved = ones::<T>(2);
        value_and_step(&mut moved, &mut Sgd::new(1.0), |w| uses(way, w, 1.0)).unwrap();
        assert!(
            read(&moved).iter().all(|own| (own + 1000.0).abs() <= 4.0),
            "{way}: {moved:?}"
        );
    }
}

fn of_weights_that_are_converted_once<T: Float>() {
    for way in WAYS {
        // With the factor 96, the sums exceed the range of `f16`.
        for factor in [1.0, 96.0] {
            let w = ones::<f32>(2);
            let loss = |w: &Array<f32>| {
                uses(way, &w.cast::<T>().eval()?, factor)?
                    .cast::<f32>()
                    .eval()
            };
            let (_, gradient) = value_and_grad(&w, loss).unwrap();
            assert_eq!(
                read(&gradient),
                [1000.0 * factor; 2],
                "{way} of {}",
                T::NAME
            );
        }
    }
}

fn in_second_derivatives<T: Float>() {
    let direction = ones::<f32>(2);
    for way in WAYS {
        let square = |w: &Array<f32>| {
            let sum = uses(way, &w.cast::<T>().eval()?, 1.0)?
                .cast::<f32>()
                .eval()?;
            // The sum is rounded. The Hessian-vector product of its half square is 2000 · 1000 for
            // each element.
            (&sum * &sum * 0.5).eval()
        };
        let (_, product) = hvp(&ones::<f32>(2), &direction, square).unwrap();
        let [one, other] = read(&product).try_into().unwrap();
        let expected = 2000.0 * 1000.0;
        for own in [one, other] {
            assert!(
                (own / expected - 1.0_f64).abs() < 0.01,
                "{way} of {}: {own}",
                T::NAME
            );
        }
    }
}

#[test]
fn a_weight_that_is_used_often() {
    narrow!(of_narrow_weights);
}

#[test]
fn a_weight_that_is_converted_once_and_used_often() {
    narrow!(of_weights_that_are_converted_once);
}

#[test]
fn second_derivatives_of_a_weight_that_is_used_often() {
    narrow!(in_second_derivatives);
}

fn parts_stay_narrow<T: Float>() {
    // Each element has only one contribution, so its rounding does not depend on the order of the
    // parts.
    let x = Array::<T>::ones([6, 4, 5]).unwrap();
    for axis in 0..3 {
        for backwards in [false, true] {
            let (_, gradient) = value_and_grad(&x, |x| {
                let length = x.shape()[axis];
                let mut sum = Array::<T>::zeros([])?;
                for at in 0..length {
                    let at = if backwards { length - 1 - at } else { at };
                    let part = x
                        .swap_axes(0, axis as isize)?
                        .slice(s![at..at + 1, .., ..])?;
                    let factor = number::<T>((at + 1) as f64);
                    sum = (sum + total(&(part * factor).eval()?)?).eval()?;
                }
                Ok(sum)
            })
            .unwrap();
            let turned = gradient.swap_axes(0, axis as isize).unwrap();
            for at in 0..x.shape()[axis] {
                let part = turned.slice(s![at, .., ..]).unwrap();
                assert!(
                    read(&part.lazy().eval().unwrap())
                        .iter()
                        .all(|own| *own == (at + 1) as f64)
                );
            }
        }
    }
}

#[test]
fn parts_of_a_value() {
    narrow!(parts_stay_narrow);
}

/// A convolution's columns are multiplied in blocks of about 1 MiB, here 29 images. The numbers of
/// images are chosen so that the sum would differ if each block's product was rounded.
#[test]
fn kernel_gradients_are_rounded_once_for_all_blocks() -> Result<()> {
    fn check<T: Float>(images: usize, factor: f64) -> Result<()> {
        let x = Array::<T>::ones([images, 1, 68, 68])?;
        let kernel = Array::<T>::ones([1, 1, 2, 2])?;
        let factor_array = Array::full([], number::<T>(factor))?;
        let (_, gradient) = value_and_grad(&kernel, |kernel| {
            let sums = x.conv2d(kernel, ConvOptions::default())?;
            total(&(sums * &factor_array).eval()?)
        })?;
        let expected = number::<T>((images * 67 * 67) as f64 * factor);
        assert_eq!(
            gradient.to_vec()?,
            [expected; 4],
            "{images} images of {}",
            T::NAME
        );
        Ok(())
    }
    for images in [60, 66, 76, 86] {
        check::<bf16>(images, 1.0)?;
    }
    for images in [72, 83, 102, 113] {
        check::<f16>(images, 1.0 / 1024.0)?;
    }
    Ok(())
}
