//! The record of the last finished entry, from `cache_record`.

use cachescope::ndarray::{Array2, s};
use cachescope::{Array, Buffer, CacheConfig, Generator, IntoExpr, Result, concat, stack};

use crate::scopes::device;

/// The operands of the operations.
struct Operands {
    device: cachescope::Device,
    x: Array<f32>,
    y: Array<f32>,
    /// A view that cannot be reshaped in place.
    columns: Array<f32>,
    /// An array on another device.
    elsewhere: Array<f32>,
    rows: Array<i64>,
    host: Array2<f32>,
}

/// A function that calls an operation with one allocation. It returns the line of the call.
type Operation = fn(&Operands) -> (u32, Result<()>);

macro_rules! at {
    (|$operands:pat_param| $operation:expr) => {
        |$operands: &Operands| (line!(), $operation.map(drop))
    };
}

const OPERATIONS: &[Operation] = &[
    at!(|o| Buffer::new(&o.device, 100)),
    at!(|_| Array::<f32>::zeros(3)),
    at!(|_| Array::<f32>::ones([2, 2])),
    at!(|_| Array::full(3, 1.5)),
    at!(|_| Array::from_vec(vec![1, 2], 2)),
    at!(|_| Array::from_slice(&[1, 2], 2)),
    at!(|_| Array::arange(0, 5, 1)),
    at!(|_| Array::linspace(0.0, 1.0, 5)),
    at!(|_| Array::<f32>::eye(3)),
    at!(|o| Array::from_ndarray(&o.host)),
    at!(|o| Array::try_from(&o.host)),
    at!(|o| Array::try_from(o.host.clone())),
    at!(|_| Array::<f32>::rand(3)),
    at!(|_| Array::<f32>::randn(3)),
    at!(|_| Array::permutation(3)),
    at!(|_| Array::<f32>::rand_with(&mut Generator::new(1), 3)),
    at!(|_| Array::<f32>::randn_with(&mut Generator::new(1), 3)),
    at!(|_| Array::permutation_with(&mut Generator::new(1), 3)),
    at!(|o| o.x.lazy().eval()),
    at!(|o| (&o.x * 2.0 + &o.y).tanh().eval()),
    at!(|_| IntoExpr::<f32>::into_lazy(1.0).eval()),
    at!(|_| IntoExpr::<f32>::into_lazy(1.0).sum()),
    at!(|o| o.x.sum()),
    at!(|o| o.x.mean()),
    at!(|o| o.x.max()),
    at!(|o| o.x.min()),
    at!(|o| o.x.argmax()),
    at!(|o| o.x.argmin()),
    at!(|o| o.x.sum_axis(0)),
    at!(|o| o.x.mean_axis(0)),
    at!(|o| o.x.max_axis(-1)),
    at!(|o| o.x.min_axis(-1)),
    at!(|o| o.x.argmax_axis(1)),
    at!(|o| o.x.argmin_axis(1)),
    at!(|o| (&o.x * &o.y).sum()),
    at!(|o| (&o.x * &o.y).mean_axis(1)),
    at!(|o| o.x.matmul(&o.y)),
    at!(|o| o.x.take(&o.rows, 0)),
    at!(|o| o.x.gather(&o.rows.unsqueeze(1).unwrap(), 0)),
    at!(|o| o.x.clone().scatter_add(
        &o.rows.unsqueeze(1).unwrap(),
        &o.y.slice(s![..2, ..]).unwrap(),
        0
    )),
    at!(|o| concat(&[&o.x, &o.y], 0)),
    at!(|o| stack(&[&o.x, &o.y], 0)),
    at!(|o| o.x.repeat(2, 1)),
    at!(|o| o.x.pad(&[(1, 0), (0, 1)], 0.0)),
    at!(|o| o.rows.one_hot::<f32>(2)),
    at!(|o| o.x.tril(0)),
    at!(|o| o.x.triu(0)),
    at!(|o| o.x.diag(0)),
    at!(|o| o.columns.slice(s![0, ..]).unwrap().diag(1)),
    at!(|o| o.x.sort(0)),
    at!(|o| o.x.argsort(1)),
    at!(|o| o.columns.flatten()),
    at!(|o| o.columns.reshape([1, 9])),
    at!(|o| o.elsewhere.to_device(&o.device)),
    at!(|o| o.x.clone().assign(&o.y)),
    at!(|o| o.x.clone().update(|x| x + 1.0)),
    at!(|o| o.x.clone().fill(1.0)),
];

#[test]
fn the_call_site_is_the_line_that_calls_the_operation() -> Result<()> {
    let device = device();
    let _device = device.enter();
    let operands = Operands {
        device: device.clone(),
        x: Array::ones([3, 3])?,
        y: Array::ones([3, 3])?,
        columns: Array::<f32>::ones([3, 3])?.transpose()?,
        elsewhere: {
            let other = crate::scopes::device();
            let _other = other.enter();
            Array::ones(3)?
        },
        rows: Array::from_slice(&[1, 0], 2)?,
        host: Array2::zeros((3, 3)),
    };
    device.configure_cache(
        "record",
        CacheConfig {
            record: true,
            ..Default::default()
        },
    );
    for operation in OPERATIONS {
        let guard = device.scope("record").enter();
        let (line, outcome) = operation(&operands);
        drop(guard);
        let record = device.cache_record("record");
        outcome?;
        assert_eq!(record.len(), 1, "line {line}");
        for allocation in record {
            let place = allocation.call_site;
            assert_eq!((place.file(), place.line()), (file!(), line));
        }
    }
    Ok(())
}

#[test]
fn what_takes_several_allocations_names_one_line_for_all() -> Result<()> {
    let device = device();
    let _device = device.enter();
    let long = Array::<f32>::ones([300, 2])?;
    device.configure_cache(
        "several",
        CacheConfig {
            record: true,
            ..Default::default()
        },
    );
    let scope = device.scope("several").enter();
    let line = line!() + 1;
    drop((long.topk(2, 0)?, long.sort(0)?, long.argsort(0)?));
    drop(scope);
    let record = device.cache_record("several");
    assert!(record.len() > 3, "room to sort in was asked for as well");
    for allocation in record {
        let place = allocation.call_site;
        assert_eq!((place.file(), place.line()), (file!(), line));
    }
    Ok(())
}
