//! Errors, and the lines of the program that caused the errors.

use std::panic::Location;
use std::str::FromStr;

use cachescope::grad::optim::Sgd;
use cachescope::grad::{Parameters, ZipArrays, value_and_grad, value_and_step};
use cachescope::ndarray::s;
use cachescope::{
    Array, Buffer, Device, DeviceConfig, Float, PoolKind, Result, cache_scope, elementwise, eval,
    update,
};

/// Checks that the location of an error is the line of this call.
#[track_caller]
fn assert_location<T>(result: Result<T>) {
    let error = result.err().expect("it fails");
    let here = Location::caller();
    let location = error
        .location()
        .map(|location| (location.file(), location.line()));
    assert_eq!(location, Some((here.file(), here.line())), "{error}");
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
fn errors_have_the_line_of_the_caller() -> Result<()> {
    let config = DeviceConfig { memory_limit: Some(1 << 20), ..DeviceConfig::default() };
    let device = Device::host_with(config)?;
    let _guard = device.enter();
    let mut x = Array::<f32>::ones([400, 400])?;
    // The device's memory is exhausted, so each call that allocates fails.
    assert_location(Array::<f32>::zeros(1 << 20));
    assert_location(Buffer::new(&device, 1 << 30));
    assert_location((&x + 1.0).eval());
    assert_location(x.lazy().boxed().sqrt().eval());
    assert_location(x.matmul(&x));
    assert_location(x.sort(0));
    assert_location(x.softmax(-1));
    assert_location(x.cumsum(0));
    assert_location(x.to_uncached());
    assert_location(Array::<f32>::randn([400, 400]));
    assert_location(eval((&x + 1.0, &x * 2.0)));
    cache_scope!("here", { assert_location(x.exp().eval()); });
    let kept = x.clone();
    assert_location(x.assign(1.0));
    assert_location(x.slice_mut(s![0, ..])?.fill(1.0));
    assert_location(x.update(|x| x + 1.0));
    assert_location(update((&mut x,), |(x,)| (x + 1.0,)));
    drop(kept);
    // Errors of shapes and axes pass through any number of internal calls.
    let y = Array::<f32>::ones(3)?;
    assert_location((&x + &y).eval());
    assert_location((&x + &y).sum());
    assert_location((&x + &y).mean_axis(0));
    assert_location((&x + &y).boxed().log_softmax(-1));
    assert_location(x.assign(&y));
    assert_location(x.add_assign(&y));
    assert_location(x.slice_mut(s![0, ..])?.assign(&y));
    assert_location(update((&mut x,), |(x,)| (x + &y,)));
    assert_location(x.slice(s![500, ..]));
    assert_location(x.reshape([3, 3]));
    assert_location(y.sum_axis(1));
    assert_location(y.topk(4, 0));
    assert_location(y.item());
    let pool = DeviceConfig { pool: PoolKind::StreamOrdered, ..DeviceConfig::default() };
    assert_location(Device::host_with(pool));
    assert_location(Device::cuda(9999));
    assert_location(<Device as FromStr>::from_str("nowhere"));
    // `parse` calls `from_str` outside of this program, so the error has no location.
    assert!("nowhere".parse::<Device>().is_err_and(|error| error.location().is_none()));
    Ok(())
}

#[derive(Parameters)]
struct Layers {
    first: Array<f32>,
    rest: Vec<Option<Array<f32>>>,
}

fn layers(rest: usize) -> Result<Layers> {
    Ok(Layers {
        first: Array::ones(3)?,
        rest: vec![Some(Array::ones(2)?); rest],
    })
}

struct Nothing;

impl ZipArrays for Nothing {
    fn zip<T: Float>(&mut self, _own: &mut Array<T>, _other: &Array<T>) -> Result<()> {
        Ok(())
    }
}

elementwise! {
    fn product(x: f32, y: f32) -> f32 {
        x * y
    }
}

#[test]
#[rustfmt::skip]
fn errors_of_closures_and_derives_have_the_line_that_called() -> Result<()> {
    let config = DeviceConfig { memory_limit: Some(1 << 20), ..DeviceConfig::default() };
    let device = Device::host_with(config)?;
    let _guard = device.enter();
    assert_location(Array::from_fn([usize::MAX, 2], |_| 0.0));
    assert_location(Array::from_fn(1 << 20, |_| 0.0));
    // The structures differ at the top level, and inside of a list.
    let (mut own, other) = (layers(1)?, layers(2)?);
    let empty = Layers { rest: vec![None], ..layers(0)? };
    assert_location(own.zip_arrays(&other, &mut Nothing));
    assert_location(own.zip_arrays(&empty, &mut Nothing));
    assert_location(Sgd::new(0.1).step(&mut own, &other));
    assert_location(Sgd::new(0.1).step(&mut own, &empty));
    // Functions of `elementwise!` cause these errors.
    let (x, y) = (Array::<f32>::ones(3)?, Array::<f32>::ones(2)?);
    assert_location(product(&x, &y).eval());
    assert_location(product(&x, &y).sum());
    assert_location(product(product(&x, 2.0), &y).boxed().max_axis(0));
    assert_location(own.first.update(|x| product(x, &y)));
    // Functions of parameters cause these errors.
    assert_location(value_and_grad(&own, |own| own.first.exp().eval()));
    assert_location(value_and_grad(&own, |_| x.sum()));
    assert_location(value_and_grad(&own, |own| own.first.to_uncached()?.sum()));
    assert_location(value_and_grad(&own, |own| product(&own.first, &y).sum()));
    assert_location(value_and_step(&mut own, &mut Sgd::new(0.1), |_| x.sum()));
    Ok(())
}

#[test]
fn errors_inside_of_a_body_have_its_own_line() -> Result<()> {
    #[track_caller]
    fn told_at<T>(line: u32, result: Result<T>) {
        let error = result.err().expect("it fails");
        let location = error
            .location()
            .map(|location| (location.file(), location.line()));
        assert_eq!(location, Some((file!(), line)), "{error}");
    }

    let (own, y) = (layers(1)?, Array::<f32>::ones(2)?);
    let scoped = || -> Result<()> {
        cache_scope!("locations", {
            own.first.reshape([2, 2])?;
        });
        Ok(())
    };
    told_at(line!() - 4, scoped());
    let graded = value_and_grad(&own, |own| {
        let sums = (&own.first + &y).eval()?;
        sums.sum()
    });
    told_at(line!() - 3, graded);
    let nested = value_and_grad(&own, |own| {
        cache_scope!("locations", {
            let sums = own.first.exp().eval()?;
            product(sums, &y).sum()
        })
    });
    told_at(line!() - 3, nested);
    Ok(())
}
