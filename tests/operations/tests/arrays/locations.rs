//! Errors and the lines of the program that caused them.

use std::panic::Location;
use std::str::FromStr;

use cachescope::ndarray::s;
use cachescope::{
    Array, Buffer, Device, DeviceConfig, PoolKind, Result, cache_scope, eval, update,
};

/// Checks that an error has the line of this call.
#[track_caller]
fn told_here<T>(result: Result<T>) {
    let error = result.err().expect("it fails");
    let here = Location::caller();
    let told = error.location().map(|told| (told.file(), told.line()));
    assert_eq!(told, Some((here.file(), here.line())), "{error}");
    assert_eq!(
        error
            .to_string()
            .matches(&format!(" at {}", here.file()))
            .count(),
        1,
        "{error}"
    );
}

#[test]
#[rustfmt::skip]
fn errors_tell_the_line_that_called() -> Result<()> {
    let config = DeviceConfig { memory_limit: Some(1 << 20), ..DeviceConfig::default() };
    let device = Device::host_with(config)?;
    let _guard = device.enter();
    let mut x = Array::<f32>::ones([400, 400])?;
    // The device is exhausted: each call allocates.
    told_here(Array::<f32>::zeros(1 << 20));
    told_here(Buffer::new(&device, 1 << 30));
    told_here((&x + 1.0).eval());
    told_here(x.lazy().boxed().sqrt().eval());
    told_here(x.matmul(&x));
    told_here(x.sort(0));
    told_here(x.softmax(-1));
    told_here(x.cumsum(0));
    told_here(x.detach());
    told_here(Array::<f32>::randn([400, 400]));
    told_here(eval((&x + 1.0, &x * 2.0)));
    cache_scope!("here", { told_here(x.exp().eval()); });
    let kept = x.clone();
    told_here(x.assign(1.0));
    told_here(x.slice_mut(s![0, ..])?.fill(1.0));
    told_here(x.update(|x| x + 1.0));
    told_here(update((&mut x,), |(x,)| (x + 1.0,)));
    drop(kept);
    // Shapes and axes, through any number of internal calls.
    let y = Array::<f32>::ones(3)?;
    told_here((&x + &y).eval());
    told_here((&x + &y).sum());
    told_here((&x + &y).mean_axis(0));
    told_here((&x + &y).boxed().log_softmax(-1));
    told_here(x.assign(&y));
    told_here(x.add_assign(&y));
    told_here(x.slice_mut(s![0, ..])?.assign(&y));
    told_here(update((&mut x,), |(x,)| (x + &y,)));
    told_here(x.slice(s![500, ..]));
    told_here(x.reshape([3, 3]));
    told_here(y.sum_axis(1));
    told_here(y.topk(4, 0));
    told_here(y.item());
    let pool = DeviceConfig { pool: PoolKind::StreamOrdered, ..DeviceConfig::default() };
    told_here(Device::host_with(pool));
    told_here(Device::cuda(9999));
    told_here(<Device as FromStr>::from_str("nowhere"));
    // No line of this program called `from_str`.
    assert!("nowhere".parse::<Device>().is_err_and(|error| error.location().is_none()));
    Ok(())
}
