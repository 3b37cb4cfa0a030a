//! Products with a program's factors, and sums over several passes, in `f16` and `bf16` at all
//! magnitudes. The results are compared with `f64`. [`each_operation`] has a row for each
//! operation.

use cachescope::collective::{DataParallel, Group, Sharded};
use cachescope::grad::arithmetic::{axpy, dot, norm, scale};
use cachescope::grad::nn::{alpha_dropout, drop_path, dropout, dropout_channels};
use cachescope::grad::optim::{Accumulated, Average, Clipped, LossScaled, Sgd, clip_norm};
use cachescope::grad::{Optimizer, value_and_grad};
use cachescope::{Array, Float, Result, manual_seed};
use half::{bf16, f16};

/// Magnitudes from below the smallest normal `f16` up to almost the largest `f16`.
const SIZES: [f64; 11] = [1e-7, 1e-6, 1e-5, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e4, 3e4, 6e4];
const PARTS: usize = 1000;

fn of<T: Float>(value: f64) -> T {
    T::from_f64(value)
}

/// Checks a result that was rounded to `T` once, from a value computed in `f32`.
#[track_caller]
fn assert_rounded<T: Float>(what: &str, own: T, expected: f64) {
    let own = own.to_f64();
    let rounded = of::<T>(expected).to_f64();
    // `expected` and the value in `f32` may differ. Therefore the tolerance is one unit of the
    // narrow type instead of half a unit.
    let least = match T::MANTISSA_DIGITS == f16::MANTISSA_DIGITS {
        true => 6e-8,
        false => 1e-40,
    };
    let bound = T::epsilon().to_f64() * expected.abs() + least;
    let is_near = own == rounded || (own - expected).abs() <= bound;
    assert!(is_near, "{what}: {own} is not {expected}");
}

/// Returns the slope of a part, which is within the range of `f16`.
fn slope<T: Float>(size: f64, part: usize) -> T {
    of(size * (1.0 - 0.125 * (part % 8) as f64))
}

fn sum_of_slopes<T: Float>(size: f64) -> f64 {
    (0..PARTS).map(|part| slope::<T>(size, part).to_f64()).sum()
}

fn accumulated<T: Float>(size: f64) -> Result<()> {
    let x = Array::<T>::ones(3)?;
    let mut gradients = Accumulated::new();
    for is_mean in [true, false] {
        for part in 0..PARTS {
            let loss = |x: &Array<T>| (x * slope::<T>(size, part)).sum();
            gradients.add(&x, loss)?;
        }
        let sum = sum_of_slopes::<T>(size);
        let (taken, expected) = match is_mean {
            true => (gradients.take_mean()?, sum / PARTS as f64),
            false => (gradients.take_sum()?, sum),
        };
        for own in taken.to_vec()? {
            assert_rounded(&format!("Accumulated at {size}"), own, expected);
        }
    }
    Ok(())
}

fn average<T: Float>(size: f64) -> Result<()> {
    for decay in [0.9, 0.999, 0.99999] {
        let target: T = of(size);
        let mut average = Average::new(&Array::<T>::zeros(2)?, decay)?;
        let parameters = Array::full(2, target)?;
        for _ in 0..PARTS {
            average.update(&parameters)?;
        }
        let expected = target.to_f64() * (1.0 - f64::powi(decay, PARTS as i32));
        let what = format!("Average of {size} with {decay}");
        for own in average.parameters().to_vec()? {
            assert_rounded(&what, own, expected);
        }
    }
    Ok(())
}

fn ranks<T: Float>(size: f64) -> Result<()> {
    const EACH: usize = 50;
    let found = Group::threads(2, |group| {
        let x = Array::<T>::ones(3)?;
        let mut parallel = DataParallel::new(&group);
        let slope = |part: usize| slope::<T>(size / 8.0, 2 * part + group.rank());
        for part in 1..EACH {
            parallel.accumulate(&x, |x| (x * slope(part)).sum())?;
        }
        let (_, gradient) = parallel.value_and_grad(&x, |x| (x * slope(0)).sum())?;
        let mut own = Array::<T>::zeros(3)?;
        let mut optimizer = Sharded::new(&group, Sgd::new(1.0))?;
        for part in 1..EACH {
            parallel.accumulate(&own, |x| (x * slope(part)).sum())?;
        }
        parallel.value_and_step(&mut own, &mut optimizer, |x| (x * slope(0)).sum())?;
        Ok((gradient.to_vec()?, own.to_vec()?))
    })?;
    let slopes = (0..2 * EACH).map(|part| slope::<T>(size / 8.0, part).to_f64());
    let expected = slopes.sum::<f64>() / 2.0;
    for (gradient, moved) in found {
        for (gradient, moved) in gradient.into_iter().zip(moved) {
            assert_rounded(&format!("accumulate at {size}"), gradient, expected);
            assert_rounded(&format!("Sharded at {size}"), moved, -expected);
        }
    }
    Ok(())
}

fn clipped<T: Float>(size: f64) -> Result<()> {
    for (count, most) in [
        (1 << 20, 1.0),
        (1000, 1e-2),
        (1000, 1e4),
        (4, 1e-30),
        (1, 0.0),
    ] {
        let value: T = of(size);
        let gradients = Array::full(count, value)?;
        let norm_before = value.to_f64() * (count as f64).sqrt();
        let factor = (most / norm_before).min(1.0);
        let expected = value.to_f64() * factor;
        let what = format!("{count} gradients of {size} clipped to {most}");
        let (by_function, found) = clip_norm(gradients.clone(), most)?;
        assert!((found - norm_before).abs() <= 1e-9 * norm_before, "{what}");
        assert_rounded(&what, by_function.slice(ndarray::s![0])?.item()?, expected);
        for scale in [1.0, 2.0] {
            let mut x = Array::<T>::zeros(count)?;
            let mut optimizer = Clipped::new(LossScaled::new(Sgd::new(1.0)).first_scale(scale)?);
            optimizer = optimizer.norm(most).value(1e5);
            let scaled = value.to_f64() * scale;
            if scaled > 65504.0 {
                continue;
            }
            optimizer.step(&mut x, &Array::full(count, of::<T>(scaled))?)?;
            assert_rounded(&what, x.slice(ndarray::s![0])?.item()?, -expected);
        }
    }
    for most in [1e-8, 1e-3, 7e4] {
        let mut x = Array::<T>::zeros(2)?;
        let gradient = Array::full(2, of::<T>(size))?;
        Clipped::new(Sgd::new(1.0))
            .value(most)
            .step(&mut x, &gradient)?;
        let expected = -of::<T>(size).to_f64().min(most);
        assert_rounded("Clipped::value", x.to_vec()?[0], expected);
    }
    Ok(())
}

fn arithmetic<T: Float>(size: f64) -> Result<()> {
    let value: T = of(size);
    let x = Array::full(3, value)?;
    for to in [1e-7, 1e-3, 1.0, 1000.0, 6e4] {
        let factor = to / size;
        let expected = value.to_f64() * factor;
        let what = format!("{size} times {factor}");
        assert_rounded(&what, scale(factor, &x)?.to_vec()?[0], expected);
        let mut y = Array::full(3, of::<T>(2.0 * to))?;
        let expected = of::<T>(2.0 * to).to_f64() - expected;
        axpy(-factor, &x, &mut y)?;
        assert_rounded(&format!("minus {what}"), y.to_vec()?[0], expected);
    }
    let squares = 3.0 * value.to_f64() * value.to_f64();
    assert!((dot(&x, &x)? - squares).abs() <= 1e-12 * squares);
    assert!((norm(&x)? - squares.sqrt()).abs() <= 1e-12 * squares.sqrt());
    Ok(())
}

fn loss_scaled<T: Float>(size: f64) -> Result<()> {
    for scale in [1.0, 1024.0, f64::powi(2.0, 127), f64::powi(2.0, -126)] {
        let scaled: T = of(size * scale);
        if !scaled.to_f64().is_finite() || scaled.to_f64() == 0.0 {
            continue;
        }
        let mut x = Array::<T>::zeros(2)?;
        let mut optimizer = LossScaled::new(Sgd::new(1.0)).first_scale(scale)?;
        optimizer.step(&mut x, &Array::full(2, scaled)?)?;
        let expected = -scaled.to_f64() / scale;
        assert_rounded("LossScaled", x.to_vec()?[0], expected);
    }
    Ok(())
}

type Drop<T> = fn(&Array<T>, f64) -> Result<Array<T>>;

fn dropped<T: Float>(size: f64) -> Result<()> {
    let value: T = of(size);
    let x = Array::full([64, 4], value)?;
    let functions: [(&str, Drop<T>); 3] = [
        ("dropout", dropout),
        ("dropout_channels", dropout_channels),
        ("drop_path", drop_path),
    ];
    for (name, function) in functions {
        for probability in [0.1, 0.3, 0.999, 0.99999, 1.0] {
            let kept = value.to_f64() / (1.0 - probability);
            for _ in 0..20 {
                let dropped = function(&x, probability)?.to_vec()?;
                for own in dropped.into_iter().filter(|own| own.to_f64() != 0.0) {
                    assert_rounded(&format!("{name} of {size}, {probability}"), own, kept);
                }
            }
        }
    }
    manual_seed(3);
    let narrow = alpha_dropout(&x, 0.3)?.cast::<f64>().eval()?.to_vec()?;
    manual_seed(3);
    let wide = alpha_dropout(&x.cast::<f64>().eval()?, 0.3)?.to_vec()?;
    for (own, expected) in narrow.into_iter().zip(wide) {
        assert_rounded::<T>("alpha_dropout", of(own), expected);
    }
    Ok(())
}

fn each_operation<T: Float>() -> Result<()> {
    for size in SIZES {
        accumulated::<T>(size)?;
        average::<T>(size)?;
        ranks::<T>(size)?;
        clipped::<T>(size)?;
        arithmetic::<T>(size)?;
        loss_scaled::<T>(size)?;
        dropped::<T>(size)?;
    }
    Ok(())
}

#[test]
fn operations_in_f16_round_once() -> Result<()> {
    each_operation::<f16>()
}

#[test]
fn operations_in_bf16_round_once() -> Result<()> {
    each_operation::<bf16>()
}

/// The factors are out of the range of `f32`, but their products with the elements are in the
/// range.
#[test]
fn factors_beyond_f32() -> Result<()> {
    for (x, factor) in [
        (1e-30_f32, 1e60),
        (1e30, 1e-60),
        (1e-38, 1e39),
        (1e38, 1e-43),
        (3e-38, 1e75),
        (1e-38, 1e300 * 1e-262),
    ] {
        let own = Array::full(2, x)?;
        let expected = f64::from(x) * factor;
        let near = |found: f32, expected: f64| {
            let difference = (f64::from(found) - expected).abs();
            assert!(
                difference <= 2e-7 * expected.abs(),
                "{x} times {factor}: {found}"
            );
        };
        near(scale(factor, &own)?.to_vec()?[0], expected);
        let mut y = Array::<f32>::zeros(2)?;
        axpy(factor, &own, &mut y)?;
        near(y.to_vec()?[0], expected);
        let wide = scale(factor, &Array::full(1, bf16::from_f32(x))?)?.item()?;
        assert_rounded("bf16", wide, bf16::from_f32(x).to_f64() * factor);
    }
    // Norms from 1e-29 to 1e39 are scaled to much smaller norms.
    for size in [1e-30_f32, 1.0, 1e30, 1e38] {
        for most in [1e-37, 1e-20, 1.0] {
            let gradients = Array::full(100, size)?;
            let norm = f64::from(size) * 10.0;
            let expected = f64::from(size) * (most / norm).min(1.0);
            let near = |own: f32| {
                let difference = (f64::from(own) - expected).abs();
                assert!(difference <= 3e-7 * expected, "{size} to {most}: {own}");
            };
            near(clip_norm(gradients.clone(), most)?.0.to_vec()?[0]);
            let mut x = Array::<f32>::zeros(100)?;
            let mut optimizer = Clipped::new(Sgd::new(1.0)).norm(most);
            optimizer.step(&mut x, &gradients)?;
            near(-x.to_vec()?[0]);
        }
    }
    Ok(())
}

#[test]
fn a_sum_of_several_types_is_taken_out_in_them() -> Result<()> {
    let ones = (
        Array::<f16>::ones([2, 3])?,
        vec![Array::<f64>::ones(2)?],
        Array::<bf16>::ones([0, 2])?,
    );
    let mut gradients = Accumulated::new();
    let loss = |own: &(Array<f16>, Vec<Array<f64>>, Array<bf16>)| {
        let narrow = own.0.cast::<f64>().sum()? + own.2.cast::<f64>().sum()?;
        (narrow * 2.0 + (&own.1[0] * 3.0).sum()?).eval()
    };
    for _ in 0..3 {
        gradients.add(&ones, loss)?;
    }
    let other = (
        Array::<f16>::ones([3, 2])?,
        vec![Array::<f64>::ones(2)?],
        Array::<bf16>::ones([0, 2])?,
    );
    let error = gradients.add(&other, loss).unwrap_err();
    assert!(error.to_string().contains("`0`"), "{error}");
    let (_, once) = value_and_grad(&ones, loss)?;
    let mean = gradients.take_mean()?;
    assert_eq!((&mean.0, &mean.1[0]), (&once.0, &once.1[0]));
    assert!(gradients.take_sum().is_err());
    gradients.add(&ones, loss)?;
    let sum = gradients.take_sum()?;
    assert_eq!(
        (&sum.0, &sum.1[0], sum.2.shape()),
        (&once.0, &once.1[0], &[0, 2][..])
    );
    Ok(())
}
