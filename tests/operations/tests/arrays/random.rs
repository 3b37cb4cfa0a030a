use cachescope::{
    Array, Device, DeviceConfig, Element, ErrorKind, Float, Generator, Integer, Result, concat,
    manual_seed,
};
use half::{bf16, f16};
use under_test::device_with;

use crate::arrays::fails;

#[test]
fn a_seed_gives_the_same_numbers_everywhere() -> Result<()> {
    manual_seed(42);
    let (first, second) = (Array::<f32>::rand(100)?, Array::<f32>::randn(100)?);
    assert_ne!(first, Array::<f32>::rand(100)?);
    manual_seed(42);
    assert_eq!(Array::<f32>::rand(100)?, first);
    assert_eq!(Array::<f32>::randn(100)?, second);
    let mut generator = Generator::new(42);
    assert_eq!(Array::<f32>::rand_with(&mut generator, 100)?, first);
    assert_eq!(Array::<f32>::randn_with(&mut generator, 100)?, second);
    let device = device_with(DeviceConfig::default())?;
    let _guard = device.enter();
    manual_seed(42);
    assert_eq!(Array::<f32>::rand([10, 10])?.to_vec()?, first.to_vec()?);
    Ok(())
}

#[test]
fn threads_have_generators_of_their_own() -> Result<()> {
    manual_seed(1);
    let here = Array::<f32>::rand(4)?.to_vec()?;
    let seeded = || {
        manual_seed(1);
        Array::<f32>::rand(4)?.to_vec()
    };
    assert_eq!(std::thread::spawn(seeded).join().unwrap()?, here);
    let unseeded = || Array::<f64>::rand(4)?.to_vec();
    let draws = [(); 2].map(|()| std::thread::spawn(unseeded).join().unwrap());
    let [first, second] = draws;
    assert_ne!(first?, second?);
    Ok(())
}

type Draw<T> = fn(&mut Generator, usize) -> Result<Array<T>>;

#[test]
fn numbers_do_not_depend_on_how_many_are_drawn_at_once() -> Result<()> {
    fn same<T: Element>(draw: Draw<T>) -> Result<()> {
        let whole = draw(&mut Generator::new(9), 20_000)?;
        let mut generator = Generator::new(9);
        let parts = [1, 2, 0, 3, 250, 4097, 15_647].map(|count| draw(&mut generator, count));
        let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
        let parts: Vec<&Array<T>> = parts.iter().collect();
        assert_eq!(concat(&parts, 0)?, whole, "{}", T::NAME);
        Ok(())
    }
    fn parts<T: Float>() -> Result<()> {
        let draws: [Draw<T>; 3] = [Array::rand_with, Array::randn_with, |generator, count| {
            Array::dropout_mask_with(generator, 0.25, count)
        }];
        draws.into_iter().try_for_each(same)?;
        Ok(())
    }
    parts::<f32>()?;
    parts::<f64>()?;
    parts::<f16>()?;
    parts::<bf16>()?;
    same(|generator, count| Array::randint_with(generator, -3i64, 1 << 62, count))?;
    same(|generator, count| Array::randint_with(generator, 0u8, 200, count))?;
    same(|generator, count| Array::bernoulli_with(generator, 0.3, count))
}

#[test]
fn numbers_do_not_depend_on_how_many_threads_compute_them() -> Result<()> {
    fn same<T: Element>(draw: Draw<T>) -> Result<()> {
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            // The draws begin after the generator's first random words. The threads' parts begin
            // inside of blocks and pairs of random words.
            let mut generator = Generator::new(4);
            Array::<f32>::rand_with(&mut generator, 3).unwrap();
            let device = Device::current();
            pool.unwrap().install(|| {
                let _guard = device.enter();
                draw(&mut generator, 300_001)
            })
        };
        let alone = on(1)?;
        assert_eq!(on(2)?, alone);
        assert_eq!(on(3)?, alone);
        Ok(())
    }
    same::<f32>(Array::rand_with)?;
    same::<f64>(Array::rand_with)?;
    same::<f32>(Array::randn_with)?;
    same::<f64>(Array::randn_with)?;
    same(|generator, count| Array::randint_with(generator, 0, 1000, count))?;
    same(|generator, count| Array::bernoulli_with(generator, 0.5, count))?;
    same::<f32>(|generator, count| Array::dropout_mask_with(generator, 0.5, count))
}

#[test]
fn integers_are_equally_likely_from_low_to_below_high() -> Result<()> {
    let mut generator = Generator::new(11);
    // The expected integer is the high half of the bound times the first two published random
    // words.
    let first = Array::randint_with(&mut Generator::new(0), 0u64, 100, 1)?.item()?;
    assert_eq!(first, ((0xe169_c58d_6627_e8d5u128 * 100) >> 64) as u64);
    let mut counts = [0i32; 7];
    for value in Array::randint_with(&mut generator, -3i8, 4, 70_000)?.to_vec()? {
        counts[(value + 3) as usize] += 1;
    }
    // The tolerance is six standard errors.
    assert!(
        counts.iter().all(|count| (count - 10_000).abs() < 600),
        "{counts:?}"
    );
    // For this bound, a plain remainder would draw a third of the numbers with double probability.
    let values = Array::randint_with(&mut generator, 0u64, 3 << 62, 30_000)?.to_vec()?;
    let low = values.iter().filter(|&&value| value < 1 << 62).count() as i32;
    assert!((low - 10_000).abs() < 600, "{low}");
    fn whole<T: Integer>(generator: &mut Generator) -> Result<()> {
        let (low, high) = (T::min_value(), T::max_value());
        let values = Array::randint_with(generator, low, high, [100, 100])?.to_vec()?;
        assert!(values.iter().all(|&value| value < high), "{}", T::NAME);
        let mean = values.iter().map(|value| value.to_f64()).sum::<f64>() / 1e4;
        let (low, high) = (low.to_f64(), high.to_f64());
        let middle = (low + high) / 2.0;
        assert!(
            (mean - middle).abs() < 0.02 * (high - low),
            "{} {mean}",
            T::NAME
        );
        let one = Array::randint_with(generator, T::one(), T::one() + T::one(), 2)?;
        assert_eq!(one.to_vec()?, [T::one(); 2]);
        Ok(())
    }
    whole::<i8>(&mut generator)?;
    whole::<i16>(&mut generator)?;
    whole::<i32>(&mut generator)?;
    whole::<i64>(&mut generator)?;
    whole::<u8>(&mut generator)?;
    whole::<u16>(&mut generator)?;
    whole::<u32>(&mut generator)?;
    whole::<u64>(&mut generator)?;
    manual_seed(3);
    let seeded = Array::randint(0, 1 << 30, 5)?;
    let mut generator = Generator::new(3);
    assert_eq!(Array::randint_with(&mut generator, 0, 1 << 30, 5)?, seeded);
    Ok(())
}

#[test]
fn truths_and_masks_keep_their_probability() -> Result<()> {
    let mut generator = Generator::new(12);
    for p in [0.0, 0.1, 0.5, 0.999, 1.0] {
        let truths = Array::bernoulli_with(&mut generator, p, [100, 500])?;
        let share = truths.to_vec()?.iter().filter(|&&truth| truth).count() as f64 / 50_000.0;
        let slack = 6.0 * (p * (1.0 - p) / 50_000.0).sqrt();
        assert!((share - p).abs() <= slack, "{p}: {share}");
        let mask = Array::<f32>::dropout_mask_with(&mut generator, p, 50_000)?.to_vec()?;
        let kept = (1.0 / (1.0 - p)) as f32;
        let dropped = mask.iter().filter(|&&value| value == 0.0).count() as f64 / 50_000.0;
        assert!(
            mask.iter().all(|&value| value == 0.0 || value == kept),
            "{p}"
        );
        assert!((dropped - p).abs() <= slack, "{p}: {dropped}");
    }
    manual_seed(3);
    let (truths, mask) = (
        Array::bernoulli(0.5, 9)?,
        Array::<f16>::dropout_mask(0.5, 9)?,
    );
    let mut generator = Generator::new(3);
    assert_eq!(Array::bernoulli_with(&mut generator, 0.5, 9)?, truths);
    assert_eq!(Array::dropout_mask_with(&mut generator, 0.5, 9)?, mask);
    Ok(())
}

#[test]
fn what_cannot_be_drawn_is_an_error() {
    let kind = ErrorKind::InvalidArgument;
    let mut generator = Generator::new(1);
    for p in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let message = format!("bernoulli: the probability is {p}, expected 0 to 1");
        fails(Array::bernoulli_with(&mut generator, p, 3), kind, &message);
        let message = format!("dropout_mask: the probability is {p}, expected 0 to 1");
        fails(
            Array::<f32>::dropout_mask_with(&mut generator, p, 3),
            kind,
            &message,
        );
    }
    fails(
        Array::randint_with(&mut generator, 5, 5, 3),
        kind,
        "no number from 5 to below 5",
    );
    fails(
        Array::randint(5u8, 4, 0),
        kind,
        "no number from 5 to below 4",
    );
    fails(
        Array::randint(0, 4, [1; 9]),
        ErrorKind::InvalidShape,
        "rank 9",
    );
    assert_eq!(generator, Generator::new(1), "nothing was drawn");
}

/// Returns the mean and the variance.
fn moments<T: Float>(array: &Array<T>) -> Result<(f64, f64)> {
    let values: Vec<f64> = array.to_vec()?.into_iter().map(T::to_f64).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    Ok((mean, squares.sum::<f64>() / values.len() as f64))
}

#[test]
fn the_numbers_are_distributed_as_they_should_be() -> Result<()> {
    fn distributed<T: Float>() -> Result<()> {
        // The tolerance is eight standard errors of a hundred thousand draws, plus the rounding of
        // 8-bit digits.
        let slack = 0.025;
        let mut generator = Generator::new(5);
        let uniform = Array::<T>::rand_with(&mut generator, 100_000)?;
        let (mean, variance) = moments(&uniform)?;
        assert!((mean - 0.5).abs() < slack && (variance - 1.0 / 12.0).abs() < slack);
        let inside = |value: T| T::zero() <= value && value < T::one();
        assert!(uniform.to_vec()?.into_iter().all(inside), "{}", T::NAME);
        let normal = Array::<T>::randn_with(&mut generator, 100_000)?;
        let (mean, variance) = moments(&normal)?;
        assert!(
            mean.abs() < slack && (variance - 1.0).abs() < 2.0 * slack,
            "{mean} {variance}"
        );
        let values: Vec<f64> = normal.to_vec()?.into_iter().map(T::to_f64).collect();
        let share = |bound: f64| {
            values.iter().filter(|value| value.abs() < bound).count() as f64 / values.len() as f64
        };
        assert!((share(1.0) - 0.6827).abs() < slack);
        assert!((share(2.0) - 0.9545).abs() < slack);
        assert!(values.iter().any(|value| value.abs() > 3.5));
        // Both numbers of a pair are computed from the same random words, and must not be
        // correlated.
        let products = values.chunks_exact(2).map(|pair| pair[0] * pair[1]);
        assert!((products.sum::<f64>() / 50_000.0).abs() < slack);
        Ok(())
    }
    distributed::<f32>()?;
    distributed::<f64>()?;
    distributed::<f16>()?;
    distributed::<bf16>()
}

#[test]
fn a_permutation_holds_every_number_once() -> Result<()> {
    let mut generator = Generator::new(3);
    for n in [0, 1, 2, 3, 1000] {
        let mut order = Array::permutation_with(&mut generator, n)?.to_vec()?;
        order.sort_unstable();
        assert!(order.into_iter().eq(0..n as i64));
    }
    // The six orders of three elements are equally frequent.
    let mut counts = std::collections::HashMap::new();
    for _ in 0..6000 {
        let order = Array::permutation_with(&mut generator, 3)?.to_vec()?;
        *counts.entry(order).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 6);
    assert!(
        counts
            .values()
            .all(|&count: &i32| (count - 1000).abs() < 200),
        "{counts:?}"
    );
    manual_seed(8);
    let order = Array::permutation(50)?;
    manual_seed(8);
    assert_eq!(Array::permutation(50)?, order);
    assert_ne!(Array::permutation(50)?, order);
    Ok(())
}

#[test]
fn a_failed_draw_draws_nothing() -> Result<()> {
    let device = device_with(DeviceConfig {
        memory_limit: Some(1 << 16),
        ..Default::default()
    })?;
    let _guard = device.enter();
    let mut generator = Generator::new(1);
    assert!(
        Array::<f64>::rand_with(&mut generator, 1 << 20)
            .unwrap_err()
            .is_out_of_memory()
    );
    assert!(
        Array::permutation_with(&mut generator, 1 << 20)
            .unwrap_err()
            .is_out_of_memory()
    );
    assert_eq!(generator, Generator::new(1));
    Ok(())
}
