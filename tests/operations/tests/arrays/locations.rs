//! Errors and the lines of the program that caused them.

use std::panic::Location;
use std::str::FromStr;

use cachescope::grad::optim::Sgd;
use cachescope::grad::{Parameters, ZipArrays, value_and_grad, value_and_step};
use cachescope::ndarray::s;
use cachescope::{
    Array, Buffer, Device, DeviceConfig, Float, PoolKind, Result, cache_scope, elementwise, eval,
    update,
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
    told_here(Array::from_fn([usize::MAX, 2], |_| 0.0));
    told_here(Array::from_fn(1 << 20, |_| 0.0));
    // Structures that differ, at the top and inside of a list.
    let (mut own, other) = (layers(1)?, layers(2)?);
    let empty = Layers { rest: vec![None], ..layers(0)? };
    told_here(own.zip_arrays(&other, &mut Nothing));
    told_here(own.zip_arrays(&empty, &mut Nothing));
    told_here(Sgd::new(0.1).step(&mut own, &other));
    told_here(Sgd::new(0.1).step(&mut own, &empty));
    // Written functions.
    let (x, y) = (Array::<f32>::ones(3)?, Array::<f32>::ones(2)?);
    told_here(product(&x, &y).eval());
    told_here(product(&x, &y).sum());
    told_here(product(product(&x, 2.0), &y).boxed().max_axis(0));
    told_here(own.first.update(|x| product(x, &y)));
    // Functions of parameters.
    told_here(value_and_grad(&own, |own| own.first.exp().eval()));
    told_here(value_and_grad(&own, |_| x.sum()));
    told_here(value_and_grad(&own, |own| own.first.detach()?.sum()));
    told_here(value_and_grad(&own, |own| product(&own.first, &y).sum()));
    told_here(value_and_step(&mut own, &mut Sgd::new(0.1), |_| x.sum()));
    Ok(())
}

#[test]
fn errors_inside_of_a_body_have_its_own_line() -> Result<()> {
    #[track_caller]
    fn told_at<T>(line: u32, result: Result<T>) {
        let error = result.err().expect("it fails");
        let told = error.location().map(|told| (told.file(), told.line()));
        assert_eq!(told, Some((file!(), line)), "{error}");
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
