//! Budgets under memory limits and failures, and the values that a budget does not save.

use super::*;

#[test]
fn an_allocation_that_fails_while_computing_again_is_an_error() -> Result<()> {
    let expected = gradients(Some(60_000))?.0;
    for failing in (1..).step_by(7) {
        let config = DeviceConfig {
            fault: Some(FaultPlan::From(failing)),
            pool: PoolKind::Direct,
            ..Default::default()
        };
        let device = Device::host_with(config)?;
        let current = device.enter();
        match gradients(Some(60_000)) {
            Ok((numbers, _)) => {
                assert_eq!(numbers, expected);
                assert!(failing > 1);
                break;
            }
            Err(error) => assert!(error.is_out_of_memory(), "{error}"),
        }
        assert_eq!(device.memory_stats().live_bytes, 0);
        drop(current);
        assert_eq!(gradients(Some(60_000))?.0, expected);
    }
    Ok(())
}

#[test]
fn a_step_beyond_a_memory_limit_releases_what_it_can_compute_again() -> Result<()> {
    let x = Array::<f32>::full([1000, 100], 0.5)?;
    let chain = |x: &Array<f32>| {
        let mut y = x.clone();
        for _ in 0..24 {
            y = y.sin().eval()?;
        }
        y.sum()
    };
    let (_, expected) = value_and_grad(&x, chain)?;
    for expandable_segments in [true, false] {
        let config = DeviceConfig {
            memory_limit: Some(5 << 20),
            expandable_segments,
            ..Default::default()
        };
        let device = Device::host_with(config)?;
        let _current = device.enter();
        let x = x.to_device(&device)?;
        for _ in 0..3 {
            let (_, gradient) = cache_scope!("step", { value_and_grad(&x, chain)? });
            assert_eq!(gradient.to_vec()?, expected.to_vec()?);
        }
        let stats = device.memory_stats();
        assert!(stats.recomputed_bytes > 0);
        assert!(stats.peak_reserved_bytes <= 5 << 20);
        // Constants cannot be recomputed, and do not fit into the limit.
        let masks = |x: &Array<f32>| {
            let mut y = x.clone();
            for _ in 0..16 {
                let mask = Array::<f32>::rand([1000, 100])?
                    .gt(0.5)
                    .cast::<f32>()
                    .eval()?;
                y = (y * mask).eval()?;
            }
            y.sum()
        };
        let error = value_and_grad(&x, masks).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        value_and_grad(&x, chain)?;
    }
    Ok(())
}

/// The range of the middle operand in a concatenation of three.
const MIDDLE: std::ops::Range<usize> = 100_000..200_000;

#[test]
fn a_budget_keeps_nothing_that_no_step_saves() -> Result<()> {
    let device = Device::host_with(DeviceConfig {
        memory_limit: Some(4 << 20),
        ..Default::default()
    })?;
    let _current = device.enter();
    let x = Array::<f32>::ones(100_000)?;
    let mut running = Array::<f32>::zeros(100_000)?;
    let address = running.address();
    let mut loss = |x: &Array<f32>| {
        let mut y = x.clone();
        for number in 0..30 {
            let constant = Array::full(100_000, number as f32)?;
            y = (&y + &constant).eval()?;
            y = concat(&[&constant, &y, &constant], 0)?.slice(cachescope::ndarray::s![MIDDLE])?;
        }
        let y = (y - &running).eval()?;
        running.update(|running| running * 0.9 + 1.0)?;
        y.sum()
    };
    value_and_grad(&x, &mut loss)?; // The tape is limited by memory, not by a budget.
    let budget = activation_budget(0);
    value_and_grad(&x, &mut loss)?;
    assert_eq!(budget.report().saved_bytes, 0);
    assert_eq!(running.address(), address);
    Ok(())
}

/// Under a memory limit, a tape may set a budget itself. If the tape exceeds this budget, no error
/// is returned.
#[test]
fn pressure_without_a_budget_is_no_error_of_a_budget() -> Result<()> {
    let device = Device::host_with(DeviceConfig {
        memory_limit: Some(8 << 20),
        ..Default::default()
    })?;
    let _current = device.enter();
    let x = Array::<f32>::full(100_000, 0.5)?;
    let (_, gradient) = value_and_grad(&x, |x| {
        let mut y = x.clone();
        for _ in 0..14 {
            y = y.sin().eval()?;
        }
        drop(Array::<u8>::zeros(2_600_000)?);
        for number in 0..8 {
            // The mask cannot be recomputed.
            let mask = Array::full(100_000, number as f32)?;
            y = (y * mask).sin().eval()?;
        }
        drop(Array::<u8>::zeros(4_000_000)?);
        y.sum()
    })?;
    assert_eq!(gradient.len(), 100_000);
    assert!(device.memory_stats().recomputed_bytes > 0);
    Ok(())
}

/// The update computes a value in the memory of `part`, which begins inside of a block.
#[test]
fn values_in_the_memory_of_others_have_second_derivatives() -> Result<()> {
    let x = Array::<f64>::rand(100)?;
    let v = Array::<f64>::rand(100)?;
    let loss = |x: &Array<f64>| {
        let whole = x.sin().eval()?;
        let mut part = whole.slice(cachescope::ndarray::s![50..])?;
        drop(whole);
        part.update(|part| part + 1.0)?;
        part.sin().eval()?.square().sum()
    };
    let expected = hvp(&x, &v, loss)?;
    // The two passes of `hvp` may need different budgets. Each error names a larger least budget
    // than the error before.
    let mut least = 0;
    let product = loop {
        let _budget = activation_budget(least);
        match hvp(&x, &v, loss) {
            Ok(product) => break product,
            Err(error) => {
                let larger = least_bytes(error);
                assert!(larger > least);
                least = larger;
            }
        }
    };
    assert_eq!(product, expected);
    Ok(())
}

/// Pressure on one device releases only values of this device, even if other values cost less to
/// recompute.
#[test]
fn pressure_releases_values_of_its_device() -> Result<()> {
    let limited = Device::host_with(DeviceConfig {
        memory_limit: Some(6 << 20),
        ..Default::default()
    })?;
    let (x, other) = {
        let _current = limited.enter();
        (
            Array::<f32>::rand([512, 512])?,
            Array::<f32>::rand([16, 512])?,
        )
    };
    let _budget = activation_budget(u64::MAX);
    let (_, gradient) = value_and_grad(&x, |x| {
        let far = x.to_device(&Device::host())?;
        let mut cheap = far.clone();
        for _ in 0..8 {
            cheap = cheap.sin().eval()?;
        }
        let mut y = x.clone();
        for _ in 0..8 {
            y = (y.matmul(x)? * 0.01).eval()?;
        }
        other
            .matmul(&y)?
            .sum()?
            .to_device(&Device::host())?
            .lazy()
            .eval()
            .and_then(|y| (y + cheap.sum()?).eval())
    })?;
    assert!(gradient.sum()?.item()?.is_finite());
    Ok(())
}

#[test]
fn a_view_of_any_length_is_counted_without_overflow() -> Result<()> {
    let x = Array::<f32>::ones([])?;
    let _budget = activation_budget(1 << 20);
    let (_, gradient) = value_and_grad(&x, |x| {
        let long = (x * 2.0).eval()?.broadcast_to([1 << 30, 1 << 30])?;
        let part = long.slice(cachescope::ndarray::s![0..2, 0..3])?;
        part.square().sum()
    })?;
    assert_eq!(gradient.item()?, 48.0);
    let (_, gradient) = value_and_grad(&x, |x| {
        let long = x.broadcast_to([1 << 40, 0])?;
        (x + (long * 2.0).eval()?.sum()?).eval()
    })?;
    assert_eq!(gradient.item()?, 1.0);
    Ok(())
}

#[test]
fn sgd_with_a_budget_writes_parameters_in_place() -> Result<()> {
    let mut w = Array::<f32>::rand([32, 32])?;
    let address = w.address();
    let _budget = activation_budget(2 * 32 * 32 * 4);
    for _ in 0..3 {
        value_and_step(&mut w, &mut Sgd::new(0.1), |w| {
            let y = w.sin().eval()?.matmul(w)?.tanh().eval()?;
            y.matmul(w)?.exp().eval()?.mean()
        })?;
    }
    assert_eq!(w.address(), address);
    Ok(())
}
