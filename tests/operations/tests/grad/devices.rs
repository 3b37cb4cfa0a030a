//! Gradients through copies to other devices.

use cachescope::grad::{stop_gradient, value_and_grad};
use cachescope::{Array, Device, DeviceConfig, Result};
use ndarray::s;

use crate::grad::differences::{check, numbers};

fn other() -> Device {
    Device::host_with(DeviceConfig::default()).unwrap()
}

#[test]
fn gradients_return_to_the_device_of_their_parameter() -> Result<()> {
    let (own, other) = (Device::current(), other());
    let (x, y) = (numbers(&[4], 1.0), numbers(&[4], 0.7).to_device(&other)?);
    let (value, (gx, gy)) = value_and_grad(&(x.clone(), y.clone()), |(x, y)| {
        (x.to_device(&other)?.exp() * y).sum()
    })?;
    assert_eq!(
        (value.device(), gx.device(), gy.device()),
        (&other, &own, &other)
    );
    let expected = (x.exp() * y.to_device(&own)?).eval()?;
    assert_eq!(gx.to_vec()?, expected.to_vec()?);
    assert_eq!(gy.to_vec()?, x.exp().eval()?.to_vec()?);
    Ok(())
}

#[test]
fn copies_of_views_and_there_and_back() {
    let other = other();
    let own = Device::current();
    check(&numbers(&[3, 4], 1.0), |x| {
        let part = x.slice(s![1.., ..;-2])?.to_device(&other)?;
        let square = part.square().eval()?.to_device(&own)?;
        let wide = x
            .slice(s![0, ..2])?
            .broadcast_to([2, 2])?
            .to_device(&other)?;
        let wide = wide.sin().eval()?.to_device(&own)?;
        (square * wide * x.slice(s![..2, ..2])?).sum()
    });
}

#[test]
fn a_copy_on_the_own_device_is_the_array() {
    check(&numbers(&[3], 1.0), |x| {
        x.to_device(&Device::current())?.exp().sum()
    });
}

#[test]
fn values_are_copied_without_their_gradients() -> Result<()> {
    let x = numbers(&[3], 1.0);
    let (_, gradient) = value_and_grad(&x, |x| (stop_gradient(x).to_uncached()? * x).sum())?;
    assert_eq!(gradient, x);
    let (_, gradient): (_, Array<f64>) = value_and_grad(&x, |x| {
        let constant = stop_gradient(x)
            .to_device(&other())?
            .to_device(x.device())?;
        (constant * x).sum()
    })?;
    assert_eq!(gradient, x);
    Ok(())
}
