//! Samples of discrete distributions, and shuffled rows.

use cachescope::grad::{checkpoint, value_and_grad};
use cachescope::{Array, ErrorKind, Generator, Result, manual_seed};

use ndarray::s;

use crate::arrays::fails;

/// Checks counts of draws by Pearson's test, with a level of some 10⁻⁵ at four degrees of freedom.
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
    // The first of two draws without replacement has the probabilities of one draw, and the second
    // has the rest.
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
    assert_eq!(
        Array::<f32>::zeros(2)?.multinomial(2, true)?.to_vec()?,
        [1, 1]
    );
    assert_eq!(Array::<f32>::zeros([0, 2])?.categorical()?.shape(), [0]);
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
