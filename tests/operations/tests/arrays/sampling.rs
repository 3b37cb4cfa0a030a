//! Samples of discrete distributions, and shuffled rows.

use cachescope::grad::{checkpoint, value_and_grad};
use cachescope::{Array, Device, DeviceConfig, ErrorKind, Float, Generator, Result, manual_seed};
use half::{bf16, f16};
use ndarray::s;
use under_test::device_with;

use crate::arrays::fails;

/// Checks counts of draws with Pearson's test, at a level of about 10⁻⁵ for four degrees of
/// freedom.
#[track_caller]
fn assert_drawn(drawn: &[i64], weights: &[f64]) {
    let whole: f64 = weights.iter().sum();
    let mut statistic = 0.0;
    for (index, weight) in weights.iter().enumerate() {
        let count = drawn.iter().filter(|&&own| own == index as i64).count() as f64;
        let expected = weight / whole * drawn.len() as f64;
        if *weight == 0.0 {
            assert_eq!(count, 0.0, "index {index} has no weight");
        } else {
            statistic += (count - expected).powi(2) / expected;
        }
    }
    assert!(statistic < 28.0, "{statistic}");
}

const WEIGHTS: [f64; 5] = [0.0, 1.0, 4.0, 0.5, 0.0];

#[test]
fn draws_have_their_probabilities() -> Result<()> {
    let mut generator = Generator::new(11);
    let weights = Array::from_slice(&WEIGHTS, 5)?;
    let drawn = weights.multinomial_with(&mut generator, 20_000, true)?;
    assert_drawn(&drawn.to_vec()?, &WEIGHTS);
    let logits = (weights.ln() + 300.0)
        .eval()?
        .broadcast_to([20_000, 5])?
        .cast::<f32>()
        .eval()?;
    assert_drawn(
        &logits.categorical_with(&mut generator)?.to_vec()?,
        &WEIGHTS,
    );
    // The first of two draws without replacement has the probabilities of a single draw. The second
    // draw has the remaining probabilities.
    let pairs = weights
        .broadcast_to([20_000, 5])?
        .multinomial_with(&mut generator, 2, false)?;
    let pairs = pairs.to_vec()?;
    let (pairs, _) = pairs.as_chunks::<2>();
    assert!(pairs.iter().all(|[first, second]| first != second));
    assert_drawn(
        &pairs.iter().map(|pair| pair[0]).collect::<Vec<_>>(),
        &WEIGHTS,
    );
    let mut of_second = [0.0; 5];
    for (first, own) in WEIGHTS.iter().enumerate() {
        for (second, other) in WEIGHTS.iter().enumerate().filter(|(at, _)| *at != first) {
            of_second[second] += own / 5.5 * other / (5.5 - own);
        }
    }
    assert_drawn(
        &pairs.iter().map(|pair| pair[1]).collect::<Vec<_>>(),
        &of_second,
    );
    Ok(())
}

#[test]
fn a_draw_is_a_position_in_the_running_sums() -> Result<()> {
    let weights = Array::from_slice(&[1.0_f32, 0.0, 2.0, 5.0, 0.5, 0.5], [2, 3])?;
    let drawn = weights.multinomial_with(&mut Generator::new(5), 4, true)?;
    let uniform = Array::<f64>::rand_with(&mut Generator::new(5), [2, 4])?.to_vec()?;
    let sums = [[1.0, 1.0, 3.0], [5.0, 5.5, 6.0]];
    let expected = uniform.iter().enumerate().map(|(at, u)| {
        let sums = &sums[at / 4];
        sums.iter().filter(|&&sum| sum <= u * sums[2]).count() as i64
    });
    assert_eq!(drawn.to_vec()?, expected.collect::<Vec<_>>());
    assert_eq!(drawn.shape(), [2, 4]);
    Ok(())
}

#[test]
fn extreme_logits() -> Result<()> {
    let hidden = f64::NEG_INFINITY;
    let logits = Array::from_slice(&[hidden, 1e300, hidden, -1e300, 1e300, hidden], [2, 3])?;
    for seed in 0..50 {
        let drawn = logits.categorical_with(&mut Generator::new(seed))?;
        assert_eq!(drawn.to_vec()?, [1, 1]);
    }
    assert_eq!(Array::<f32>::zeros([0, 2])?.categorical()?.shape(), [0]);
    assert_eq!(
        Array::<f32>::zeros([0, 2])?.multinomial(1, true)?.shape(),
        [0, 1]
    );
    Ok(())
}

/// Rows of weights that are not distributions, each with a part of the expected error.
const BAD_WEIGHTS: [(&[f64], &str); 9] = [
    (&[f64::INFINITY, 1.0, 1.0], "infinite"),
    (&[1.0, f64::INFINITY, f64::INFINITY], "infinite"),
    (&[f64::NEG_INFINITY, 1.0, 1.0], "negative"),
    (&[1.0, -1.0, 2.0], "negative"),
    (&[1.0, 2.0, -1e-3], "negative"),
    (&[1.0, f64::NAN, 2.0], "NaN"),
    (&[f64::NAN, f64::NAN, f64::NAN], "NaN"),
    (&[0.0, 0.0, 0.0], "no weight above 0"),
    (&[0.0, -0.0, -0.0], "no weight above 0"),
];

/// Rows of logits that are not distributions, each with a part of the expected error.
const BAD_LOGITS: [(&[f64], &str); 6] = [
    (&[0.0, f64::NAN, 1.0], "NaN"),
    (&[f64::NAN, f64::NAN, f64::NAN], "NaN"),
    (&[f64::INFINITY, f64::NAN, 0.0], "NaN"),
    (&[f64::INFINITY, 0.0, f64::INFINITY], "several infinite"),
    (
        &[f64::INFINITY, f64::INFINITY, f64::INFINITY],
        "several infinite",
    ),
    (
        &[f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY],
        "no logit above -inf",
    ),
];

/// The number of ways to draw from the rows of an array.
const WAYS: usize = 4;

fn draw<T: Float>(rows: &Array<T>, of_weights: bool, way: usize) -> Result<Vec<i64>> {
    let generator = &mut Generator::new(3);
    let drawn = match (of_weights, way) {
        (true, 0) => rows.multinomial(2, true),
        (true, 1) => rows.multinomial(2, false),
        (true, 2) => rows.multinomial_with(generator, 1, true),
        (true, _) => rows.multinomial_with(generator, 3, false),
        (false, 0) => rows.categorical(),
        (false, 1) => rows.categorical_with(generator),
        (false, 2) => rows.transpose()?.transpose()?.categorical(),
        (false, _) => rows.flip(-1)?.categorical(),
    };
    // On a CUDA device, this read returns the error.
    drawn?.to_vec()
}

fn refuses<T: Float>(bad: &[(&[f64], &str)], of_weights: bool) -> Result<()> {
    let good = [1.0, 0.0, 2.0];
    for (row, (values, part)) in bad.iter().enumerate().map(|(at, bad)| (at % 4, bad)) {
        let mut all = [good; 4];
        all[row].copy_from_slice(values);
        let all: Vec<T> = all.as_flattened().iter().map(|&x| T::from_f64(x)).collect();
        let matrix = Array::from_vec(all.clone(), [4, 3])?;
        let stack = Array::from_vec(all, [2, 2, 3])?;
        let alone = values.iter().map(|&x| T::from_f64(x)).collect();
        let alone = Array::from_vec(alone, 3)?;
        let name = ["categorical", "multinomial"][usize::from(of_weights)];
        for (rows, row) in [(&matrix, row), (&stack, row), (&alone, 0)] {
            for way in 0..WAYS {
                let error = draw(rows, of_weights, way).unwrap_err();
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
                let names = [name, &format!("row {row} "), part];
                let is_named = names.iter().all(|name| text.contains(name));
                assert!(is_named, "{values:?}: {text}");
                draw(&Array::<T>::ones([4, 3])?, of_weights, way)?;
            }
        }
    }
    Ok(())
}

#[test]
fn refuses_rows_that_are_no_distribution() -> Result<()> {
    // On a CUDA device, the next call that waits reports bad rows, so this test uses a separate
    // device.
    let device = device_with(DeviceConfig::default())?;
    let _guard = device.enter();
    for (bad, of_weights) in [(&BAD_WEIGHTS[..], true), (&BAD_LOGITS[..], false)] {
        refuses::<f32>(bad, of_weights)?;
        refuses::<f64>(bad, of_weights)?;
        refuses::<f16>(bad, of_weights)?;
        refuses::<bf16>(bad, of_weights)?;
    }
    Ok(())
}

#[test]
fn a_refused_draw_leaves_the_generator() -> Result<()> {
    if Device::current() != Device::host() {
        return Ok(());
    }
    let (mut generator, bad) = (Generator::new(2), Array::<f32>::zeros(3)?);
    assert!(bad.multinomial_with(&mut generator, 1, true).is_err());
    let nan = Array::full(3, f32::NAN)?;
    assert!(nan.categorical_with(&mut generator).is_err());
    let next = Array::<f32>::rand_with(&mut generator, 2)?;
    assert_eq!(next, Array::rand_with(&mut Generator::new(2), 2)?);
    Ok(())
}

/// If one logit of a row is infinite, its index is drawn. An index with logit −∞ is never drawn.
#[test]
fn infinite_logits() -> Result<()> {
    let (inf, mut generator) = (f32::INFINITY, Generator::new(8));
    let rows = Array::from_slice(
        &[0.0, inf, f32::MAX, inf, -inf, -inf, -inf, 0.0, -inf],
        [3, 3],
    )?;
    for _ in 0..100 {
        let drawn = rows.categorical_with(&mut generator)?;
        assert_eq!(drawn.to_vec()?, [1, 0, 1]);
    }
    Ok(())
}

#[test]
fn weights_of_any_size_are_drawn_in_proportion() -> Result<()> {
    let mut generator = Generator::new(12);
    let mut check = |unit: f64| -> Result<()> {
        let weights: Vec<f64> = WEIGHTS.iter().map(|weight| weight * unit).collect();
        let weights = Array::from_vec(weights, 5)?;
        let drawn = weights.multinomial_with(&mut generator, 10_000, true)?;
        assert_drawn(&drawn.to_vec()?, &WEIGHTS);
        let rows = weights.broadcast_to([10_000, 5])?;
        let first = rows.multinomial_with(&mut generator, 1, false)?;
        assert_drawn(&first.to_vec()?, &WEIGHTS);
        let all = rows.multinomial_with(&mut generator, 3, false)?.to_vec()?;
        assert!(
            !all.contains(&0) && !all.contains(&4),
            "a weight of 0 before others"
        );
        Ok(())
    };
    // The largest weights have a sum that overflows, and the smallest weights are subnormal.
    for unit in [f64::MAX / 4.0, 1e300, 1.0, 1e-300, 2.0 * f64::from_bits(1)] {
        check(unit)?;
    }
    // The sum exceeds the largest number of the type.
    let many = Array::<f16>::full(1000, f16::from_f32(100.0))?;
    let drawn = many
        .multinomial_with(&mut generator, 10_000, true)?
        .to_vec()?;
    let upper = drawn.iter().filter(|&&index| index >= 500).count();
    assert!((4700..5300).contains(&upper), "{upper}");
    let beside = Array::from_slice(&[1e308, 0.0, 5e-324], 3)?;
    let drawn = beside.multinomial_with(&mut generator, 3, false)?;
    assert_eq!(drawn.to_vec()?, [0, 2, 1]);
    Ok(())
}

#[test]
fn rows_are_shuffled_as_a_whole() -> Result<()> {
    let rows = Array::arange(0, 20, 1)?.reshape([10, 2])?;
    let shuffled = rows.shuffle_with(&mut Generator::new(4))?;
    let order = Array::permutation_with(&mut Generator::new(4), 10)?;
    assert_eq!(shuffled, rows.take(&order, 0)?);
    manual_seed(4);
    assert_eq!(rows.shuffle()?, shuffled);
    assert_ne!(rows.shuffle()?, shuffled);
    Ok(())
}

#[test]
fn a_checkpoint_draws_the_same_again() -> Result<()> {
    let x = Array::<f64>::linspace(0.1, 2.4, 24)?.reshape([6, 4])?;
    let run = |x: &Array<f64>| {
        let drawn = x.categorical()?;
        let chosen = x.shuffle()?.square().eval()?.take(&drawn, 0)?;
        (chosen * x.shuffle()?.slice(s![0, ..])?).eval()
    };
    manual_seed(9);
    let (value, kept) = value_and_grad(&x, |x| run(x)?.sum())?;
    manual_seed(9);
    let (again, parts) = value_and_grad(&x, |x| checkpoint(x, run)?.sum())?;
    assert_eq!((value, kept), (again, parts));
    Ok(())
}

#[test]
fn refuses_shapes_without_an_axis_and_too_many_draws() -> Result<()> {
    let (none, empty) = (Array::<f32>::ones([])?, Array::<f32>::ones([2, 0])?);
    fails(none.categorical(), ErrorKind::InvalidShape, "categorical");
    fails(empty.categorical(), ErrorKind::InvalidShape, "[2, 0]");
    fails(
        empty.multinomial(1, true),
        ErrorKind::InvalidShape,
        "multinomial",
    );
    fails(none.shuffle(), ErrorKind::InvalidShape, "shuffle");
    let weights = Array::<f32>::ones(3)?;
    fails(
        weights.multinomial(4, false),
        ErrorKind::InvalidArgument,
        "at most 3",
    );
    fails(
        weights.multinomial(1 << 62, true),
        ErrorKind::InvalidShape,
        "",
    );
    Ok(())
}
