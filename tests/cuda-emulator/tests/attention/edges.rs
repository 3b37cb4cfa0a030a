//! Layouts, rows that see nothing or one key, and numbers at the limits of their types.

use cachescope::grad::{hvp, value_and_grad};
use cachescope::ndarray::s;
use cachescope::{Array, Device, Float, Result, attention};
use half::{bf16, f16};

use super::{Operands, case, own_device};

/// Returns a contiguous copy.
fn copied<T: Float>(array: &Array<T>) -> Result<Array<T>> {
    Array::from_slice(&array.to_vec()?, array.shape())
}

/// Operands whose heads lie inside of rows, with odd steps, with columns apart, and reversed. The
/// results equal the results of contiguous copies.
#[test]
fn strided_operands_are_contiguous_ones() -> Result<()> {
    let device = Device::cuda(0)?;
    let _guard = device.enter();
    fn check<T: Float>(q: &Array<T>, k: &Array<T>, v: &Array<T>) -> Result<()> {
        let weights = Array::<T>::randn([2, 3, 37, 24])?;
        let (q, k, v) = (q.clone(), k.clone(), v.clone());
        // The gradient that reaches attention is transposed.
        let weighted = |y: Array<T>| {
            let turned = y.swap_axes(-1, -2)?;
            (turned * weights.swap_axes(-1, -2)?).sum()
        };
        let strided = (q, k, v);
        let whole = (
            copied(&strided.0)?,
            copied(&strided.1)?,
            copied(&strided.2)?,
        );
        let of = |operands: &(Array<T>, Array<T>, Array<T>)| {
            value_and_grad(operands, |(q, k, v)| weighted(attention(q, k, v, true)?))
        };
        let (own, expected) = (of(&strided)?, of(&whole)?);
        assert_eq!(own.0.item()?, expected.0.item()?);
        assert_eq!(own.1.0, expected.1.0);
        assert_eq!(own.1.1, expected.1.1);
        assert_eq!(own.1.2, expected.1.2);
        Ok(())
    }
    fn all<T: Float>() -> Result<()> {
        let joint = Array::<T>::randn([2, 37, 3, 3, 24])?;
        let part = |at: usize| joint.slice(s![.., .., at, .., ..])?.swap_axes(1, 2);
        check(&part(0)?, &part(1)?, &part(2)?)?;
        let odd = Array::<T>::randn([2, 3, 37, 25])?;
        let odd = odd.slice(s![.., .., .., 1..])?;
        check(&odd, &odd.flip(2)?, &odd)?;
        let apart = Array::<T>::randn([2, 3, 37, 48])?;
        let apart = apart.slice(s![.., .., .., ..;2])?;
        check(&apart, &part(1)?, &apart.flip(3)?)
    }
    all::<f32>()?;
    all::<bf16>()?;
    all::<f16>()
}

/// If the heads of q lie inside of its rows, a layer joins the heads of the result without a copy.
#[test]
fn results_are_laid_out_like_queries() -> Result<()> {
    let device = own_device()?;
    let _guard = device.enter();
    let joint = Array::<bf16>::randn([2, 9, 4, 32])?;
    let heads = joint.swap_axes(1, 2)?;
    let result = attention(&heads, &heads, &heads, false)?;
    assert_eq!(result.shape(), [2, 4, 9, 32]);
    let before = device.memory_stats().live_bytes;
    let joined = result.swap_axes(1, 2)?.reshape([2, 9, 128])?;
    assert_eq!(device.memory_stats().live_bytes, before);
    let copies = copied(&heads)?;
    let expected = attention(&copies, &copies, &copies, false)?;
    assert_eq!(joined, expected.swap_axes(1, 2)?.reshape([2, 9, 128])?);
    Ok(())
}

/// Keys and values that are broadcast views have the gradients of keys and values that heads share.
#[test]
fn broadcast_views_share_their_gradient() -> Result<()> {
    let device = Device::cuda(0)?;
    let _guard = device.enter();
    let q = Array::<f32>::randn([2, 3, 20, 16])?;
    let k = Array::<f32>::randn([2, 1, 30, 16])?;
    let of = |is_view: bool| {
        let (_, gradient) = value_and_grad(&k, |k| {
            let k = match is_view {
                true => k.broadcast_to([2, 3, 30, 16])?,
                false => k.clone(),
            };
            attention(&q, &k, &k, true)?.square().sum()
        })?;
        gradient.to_vec()
    };
    assert_eq!(of(true)?, of(false)?);
    Ok(())
}

#[test]
fn two_runs_have_equal_bits() -> Result<()> {
    let device = Device::cuda(0)?;
    let operands = case(&[2, 2], [100, 90], [64, 64], true).operands::<bf16>(2.0)?;
    let _guard = device.enter();
    let operands = operands.on(&device)?;
    let first = operands.attended(true)?.bits();
    for _ in 0..3 {
        assert_eq!(operands.attended(true)?.bits(), first);
    }
    Ok(())
}

#[test]
fn empty_axes_are_empty_or_zero() -> Result<()> {
    let device = Device::cuda(0)?;
    let _guard = device.enter();
    let of = |shape: [usize; 3]| Array::<bf16>::ones(shape);
    assert_eq!(
        attention(&of([2, 0, 8])?, &of([2, 3, 8])?, &of([2, 3, 8])?, false)?.shape(),
        [2, 0, 8]
    );
    let nothing = attention(&of([2, 3, 8])?, &of([2, 0, 8])?, &of([2, 0, 8])?, true)?;
    assert_eq!(nothing, Array::zeros([2, 3, 8])?);
    assert_eq!(
        attention(&of([0, 3, 8])?, &of([0, 3, 8])?, &of([0, 3, 8])?, false)?.shape(),
        [0, 3, 8]
    );
    Ok(())
}

/// Garbage beyond the operands' ends would be NaN. Infinite and NaN scores are NaN in the rows that
/// see them, and in no other row.
#[test]
fn numbers_that_are_no_numbers_stay_in_their_rows() -> Result<()> {
    let device = Device::cuda(0)?;
    let _guard = device.enter();
    for bad in [f32::NAN, f32::INFINITY] {
        let mut values = vec![1.0f32; 70 * 8];
        values[30 * 8] = bad;
        let k = Array::from_slice(&values, [70, 8])?.cast::<bf16>().eval()?;
        let ones = Array::<bf16>::ones([70, 8])?;
        let result = attention(&ones, &k, &ones, true)?
            .cast::<f32>()
            .eval()?
            .to_vec()?;
        for (at, number) in result.iter().enumerate() {
            assert_eq!(number.is_nan(), at / 8 >= 30, "{at}: {number}");
        }
    }
    Ok(())
}

/// A key of infinite numbers whose scores are −∞ has no weight. The rows of the last tile beyond
/// the last query have no weight, either.
#[test]
fn a_key_without_weight_gets_no_gradient_of_its_value() -> Result<()> {
    let device = Device::cuda(0)?;
    let _guard = device.enter();
    let mut keys = vec![1.0f32; 40 * 8];
    keys[7 * 8..8 * 8].fill(f32::NEG_INFINITY);
    let k = Array::from_slice(&keys, [40, 8])?.cast::<bf16>().eval()?;
    let q = Array::<bf16>::ones([70, 8])?;
    let v = Array::<bf16>::ones([40, 8])?;
    let (_, of_v) = value_and_grad(&v, |v| attention(&q, &k, v, false)?.sum())?;
    for (at, number) in of_v.to_vec()?.iter().enumerate() {
        let is_expected = if at / 8 == 7 {
            number.to_f32() == 0.0
        } else {
            (number.to_f32() - 70.0 / 39.0).abs() < 0.01
        };
        assert!(is_expected, "{at}: {number}");
    }
    Ok(())
}

/// Scores of 10^30 and weights of exactly one key. A fused multiplication and subtraction in the
/// exponent would be infinite.
#[test]
fn large_scores_select_one_key() -> Result<()> {
    fn check<T: Float>(large: f64) -> Result<()> {
        let q = Array::full([40, 8], T::from_f64(large))?;
        let k = Array::<f32>::arange(0.0, 40.0, 1.0)?.reshape([40, 1])?;
        let k = k.broadcast_to([40, 8])?.cast::<T>().eval()?;
        let v = Array::<f32>::rand([40, 8])?.cast::<T>().eval()?;
        let operands = Operands {
            weights: v.clone(),
            q,
            k,
            v,
        };
        let outcome = operands.attended(true)?;
        let expected = operands.v.cast::<f64>().eval()?.to_vec()?;
        assert_eq!(outcome.0[0], expected);
        // Each query sees itself alone, so that the gradient of the values is the result's.
        assert_eq!(outcome.0[3], expected);
        assert!(
            outcome.0[1]
                .iter()
                .chain(&outcome.0[2])
                .all(|&number| number == 0.0)
        );
        Ok(())
    }
    let device = Device::cuda(0)?;
    let _guard = device.enter();
    check::<bf16>(1e30)?;
    check::<f32>(1e30)?;
    check::<f16>(6e4)
}

/// Scores that differ by 17 have weights of 1 - 4e-8 and 4e-8. The gradients are differences of
/// nearly equal numbers.
#[test]
fn gradients_near_one_weight_keep_their_digits() -> Result<()> {
    fn check<T: Float>(apart: f64, tolerance: f64) -> Result<()> {
        let number = |value: f64| T::from_f64(value);
        let q = Array::from_slice(&[number(apart)], [1, 1])?;
        let keys = Array::from_slice(&[number(1.0), number(0.0)], [2, 1])?;
        let small = 1.0 / (1.0 + apart.exp());
        let product = small * (1.0 - small);
        let (_, (of_q, of_k)) = value_and_grad(&(q, keys.clone()), |(q, k)| {
            attention(q, k, &keys, false)?.sum()
        })?;
        let near = |array: Array<T>, expected: &[f64]| {
            let numbers = array.cast::<f64>().eval().unwrap().to_vec().unwrap();
            for (own, expected) in numbers.iter().zip(expected) {
                let error = (own - expected).abs() / expected.abs();
                assert!(error < tolerance, "{own:e}, expected {expected:e}");
            }
        };
        near(of_q, &[product]);
        near(of_k, &[apart * product, -apart * product]);
        Ok(())
    }
    let device = Device::cuda(0)?;
    let _guard = device.enter();
    check::<f32>(17.0, 1e-2)?;
    check::<bf16>(17.0, 2e-2)?;
    check::<bf16>(3.0, 2e-2)
}

/// Derivatives of gradients are computed from blocks of products, because their steps are tracked.
#[test]
fn second_derivatives_are_those_of_the_host() -> Result<()> {
    let x = Array::<f32>::randn([2, 9, 8])?;
    let along = Array::<f32>::randn([2, 9, 8])?;
    let product = |x: &Array<f32>, along: &Array<f32>| {
        hvp(x, along, |x| {
            attention(x, &x.sin().eval()?, x, true)?.square().sum()
        })
    };
    let expected = product(&x, &along)?.1.to_vec()?;
    let device = Device::cuda(0)?;
    let _guard = device.enter();
    let own = product(&x.to_device(&device)?, &along.to_device(&device)?)?
        .1
        .to_vec()?;
    for (own, expected) in own.iter().zip(&expected) {
        assert!(
            (own - expected).abs() < 1e-4 * expected.abs().max(1.0),
            "{own}, {expected}"
        );
    }
    Ok(())
}
