//! The allocations of a backward pass. If nothing else holds a value, the gradient that is computed
//! from it reuses the value's memory.

use cachescope::grad::{stop_gradient, value_and_grad, value_and_grad_aux};
use cachescope::testing::peak_of;
use cachescope::{Array, CacheConfig, Device, DeviceConfig, Result, cache_scope, concat, stack};

use crate::grad::differences::{check, numbers};

const LENGTH: usize = 1 << 12;
const BYTES: u64 = (LENGTH * size_of::<f64>()) as u64;

/// Returns the number of requests of at least [`BYTES`] in one entry.
fn large_requests(work: impl FnOnce() -> Result<()>) -> Result<usize> {
    let device = Device::host_with(DeviceConfig::default())?;
    let config = CacheConfig {
        record: true,
        ..CacheConfig::default()
    };
    device.configure_cache("entry", config);
    cache_scope!("entry", device = &device, { work()? });
    let record = device.cache_record("entry");
    Ok(record.iter().filter(|own| own.bytes >= BYTES).count())
}

#[test]
fn a_gradient_takes_the_place_of_the_one_before() -> Result<()> {
    let count = large_requests(|| {
        let x = Array::<f64>::ones(LENGTH)?;
        let (_, gradient) = value_and_grad(&x, |x| {
            let y = (x * 2.0).eval()?;
            let y = y.sin().eval()?;
            y.tanh().eval()?.sum()
        })?;
        let slope = |x: f64| 2.0 * (2.0 * x).cos() * (1.0 - (2.0 * x).sin().tanh().powi(2));
        assert!((gradient.to_vec()?[7] - slope(1.0)).abs() < 1e-12);
        Ok(())
    })?;
    // The requests are for the parameter, three saved values, and one gradient.
    assert_eq!(count, 5);
    Ok(())
}

#[test]
fn a_bias_is_summed_from_the_gradient_of_what_it_was_added_to() -> Result<()> {
    let (x, w) = (numbers(&[5, 4], 1.0), numbers(&[4, 3], 0.7));
    check(&numbers(&[3], 0.3), |b| {
        let y = (x.matmul(&w)? + b).relu().eval()?;
        (y * numbers(&[5, 3], 1.0)).sum()
    });
    // Two addends of the whole shape and two biases all get the gradient of the sum.
    let u = numbers(&[4, 3], 0.4);
    check(&numbers(&[3], 0.3), |b| {
        let (p, q) = ((x.matmul(&w)? * b).eval()?, (x.matmul(&u)? * b).eval()?);
        let y = (&p + &q + b + b.square().eval()?).tanh().eval()?;
        (y * numbers(&[5, 3], 1.0)).sum()
    });
    // `b` gets one gradient from a product and one from a sum. The expression of the sum reads
    // `inner` twice.
    check(&numbers(&[3], 0.3), |b| {
        let inner = (x.matmul(&w)? * b).eval()?;
        let y = ((&inner + b).tanh() + &inner).eval()?;
        (y * numbers(&[5, 3], 1.0)).sum()
    });
    Ok(())
}

#[test]
fn logits_make_way_for_their_gradient() -> Result<()> {
    let (rows, columns) = (64, 256);
    let bytes = (rows * columns * size_of::<f32>()) as u64;
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let classes = Array::from_vec((0..rows as i64).collect(), rows)?;
    let x = Array::<f32>::ones([rows, 4])?;
    let w = Array::<f32>::ones([4, columns])?;
    let (_, peak) = peak_of(&device, || {
        value_and_grad(&w, |w| x.matmul(w)?.cross_entropy(&classes))
    })?;
    // The peak includes the logits, a few numbers for each row, and the gradient of `w`.
    assert!(
        (bytes..bytes + bytes / 2).contains(&peak),
        "{peak} for logits of {bytes} bytes"
    );
    Ok(())
}

/// A write to a tracked array makes a new value. If nothing needs the old value, its memory is
/// reused.
#[test]
fn what_is_added_in_place_is_in_place() -> Result<()> {
    let (x, bias) = (numbers(&[5, 4], 1.0), numbers(&[3], 1.0));
    let device = Device::host_with(DeviceConfig::default())?;
    cache_scope!("entry", device = &device, {
        let (x, bias, w) = (
            x.to_device(&device)?,
            bias.to_device(&device)?,
            numbers(&[4, 3], 1.0).to_device(&device)?,
        );
        value_and_grad(&w, |w| {
            let mut y = x.matmul(w)?;
            let address = y.address();
            y.add_assign(&bias)?;
            assert_eq!(y.address(), address);
            // The gradient of a square needs the argument of the square, so the argument is not
            // overwritten.
            y.update(|y| y.square())?;
            assert_ne!(y.address(), address);
            // A value that the program holds is not overwritten.
            let (held, address) = (y.clone(), y.address());
            y.mul_assign(2.0)?;
            assert_eq!(held.address(), address);
            assert_ne!(y.address(), address);
            y.sum()
        })?;
    });
    assert_eq!(device.cache_stats("entry").unwrap().copies_on_write, 2);
    check(&numbers(&[4, 3], 1.0), |w| {
        let mut y = x.matmul(w)?;
        y.add_assign(&bias)?;
        y.update(|y| y.square() + w.sum().unwrap())?;
        y.mul_assign(&bias)?;
        let mut z = y.transpose()?;
        z.sub_assign(1.0)?;
        y.add_assign(&z.transpose()?)?;
        y.square().sum()
    });
    // A function without a derivative returns a constant.
    check(&numbers(&[4], 1.0), |x| {
        let mut y = (x * 3.0).eval()?;
        y.update(|y| y.sign())?;
        (y * x).sum()
    });
    let c = numbers(&[4], 1.0);
    let (_, gradient) = value_and_grad(&c, |c| {
        let mut y = (c * 3.0).eval()?;
        y.update(|y| y.round())?;
        (y * 2.0).sum()
    })?;
    assert_eq!(gradient.to_vec()?, [0.0; 4]);
    Ok(())
}

#[test]
fn what_somebody_holds_keeps_its_values() -> Result<()> {
    let (w, classes) = (
        numbers(&[4, 3], 1.0),
        Array::from_slice(&[2_i64, 0, 1, 2], 4)?,
    );
    let x = numbers(&[4, 4], 1.0);
    let (_, kept, _) = value_and_grad_aux(&w, |w| {
        let logits = x.matmul(w)?;
        let kept = stop_gradient(&logits);
        Ok((logits.cross_entropy(&classes)?, kept))
    })?;
    assert_eq!(kept, x.matmul(&w)?);
    // Two operands get the gradient of the sum unchanged. The gradient of the third operand is
    // computed from the gradient of the sum.
    check(&numbers(&[4], 1.0), |x| {
        let [a, b, c] = [(x * 2.0).eval()?, (x * 3.0).eval()?, (x * x).eval()?];
        let y = (&a + &b + c.sin()).eval()?;
        let z = (&y + &a).eval()?;
        (z * (y + b)).sum()
    });
    Ok(())
}

#[test]
fn an_activation_makes_way_for_its_gradient() -> Result<()> {
    let (rows, width) = (256, 64);
    let bytes = (rows * width * size_of::<f32>()) as u64;
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let x = Array::<f32>::ones([rows, 4])?;
    let parameters = (
        Array::<f32>::ones([4, width])?,
        Array::<f32>::ones([width, 2])?,
    );
    let (_, peak) = peak_of(&device, || {
        value_and_grad(&parameters, |(first, second)| {
            let inner = x.matmul(first)?.exp().eval()?;
            inner.matmul(second)?.sum()
        })
    })?;
    // At most two arrays are live: the product and its exponential, then the exponential and its
    // gradient.
    assert!(
        (2 * bytes..2 * bytes + bytes / 2).contains(&peak),
        "{peak} for activations of {bytes} bytes"
    );
    Ok(())
}

#[test]
fn a_small_gradient_does_not_keep_a_large_one_allocated() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let large = Array::<f32>::ones(1 << 20)?;
    let small = Array::<f32>::ones(1)?;
    let before = device.memory_stats().live_bytes;
    let kept = |gradient: &Array<f32>| {
        assert_eq!(gradient.to_vec().unwrap(), [2.0]);
        device.memory_stats().live_bytes - before
    };
    let parameters = (small.clone(), large.clone());
    let (_, (gradient, _)) = value_and_grad(&parameters, |(small, large)| {
        concat(&[small, large], 0)?.square().sum()
    })?;
    assert!(kept(&gradient) < 1 << 12, "{} bytes", kept(&gradient));
    let (_, gradient) = value_and_grad(&small, |small| {
        small.pad(&[(9, 1 << 20)], 0.0)?.square().sum()
    })?;
    assert!(kept(&gradient) < 1 << 12, "{} bytes", kept(&gradient));
    let others: Vec<Array<f32>> = (0..1000).map(|_| small.clone()).collect();
    let (_, gradient) = value_and_grad(&small, |small| {
        let all: Vec<&Array<f32>> = others.iter().chain([small]).collect();
        stack(&all, 0)?.square().sum()
    })?;
    assert!(kept(&gradient) < 1 << 10, "{} bytes", kept(&gradient));
    // A gradient that is half of a block is not copied: both gradients are views of one block.
    let parameters = (large.clone(), large.clone());
    let (_, (left, right)) = value_and_grad(&parameters, |(left, right)| {
        concat(&[left, right], 0)?.square().sum()
    })?;
    let with_both = device.memory_stats().live_bytes;
    drop((left, right));
    assert_eq!(with_both - device.memory_stats().live_bytes, 8 << 20);
    Ok(())
}
