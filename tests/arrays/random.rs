use cachescope::{Array, Device, DeviceConfig, Float, Generator, Result, concat, manual_seed};
use half::{bf16, f16};

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
    let device = Device::host_with(DeviceConfig::default())?;
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

#[test]
fn numbers_do_not_depend_on_how_many_are_drawn_at_once() -> Result<()> {
    fn parts<T: Float>() -> Result<()> {
        type Draw<T> = fn(&mut Generator, usize) -> Result<Array<T>>;
        let draws: [Draw<T>; 2] = [Array::rand_with, Array::randn_with];
        for draw in draws {
            let whole = draw(&mut Generator::new(9), 20_000)?;
            let mut generator = Generator::new(9);
            let parts = [1, 2, 0, 3, 250, 4097, 15_647].map(|count| draw(&mut generator, count));
            let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
            let parts: Vec<&Array<T>> = parts.iter().collect();
            assert_eq!(concat(&parts, 0)?, whole, "{}", T::NAME);
        }
        Ok(())
    }
    parts::<f32>()?;
    parts::<f64>()?;
    parts::<f16>()?;
    parts::<bf16>()
}

/// Mean and variance.
fn moments<T: Float>(array: &Array<T>) -> Result<(f64, f64)> {
    let values: Vec<f64> = array.to_vec()?.into_iter().map(T::to_f64).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    Ok((mean, squares.sum::<f64>() / values.len() as f64))
}

#[test]
fn the_numbers_are_distributed_as_they_should_be() -> Result<()> {
    fn distributed<T: Float>() -> Result<()> {
        // Eight standard errors of a hundred thousand draws, and the rounding of 8-bit digits.
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
        // Both numbers of a pair come from the same draws and must not move together.
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
    // Each of the six orders of three as often as the others.
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
    let device = Device::host_with(DeviceConfig {
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
