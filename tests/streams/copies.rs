//! The waits of operations that copy elements, by index or in order, on several streams.

use cachescope::{Array, Result, concat, stack};

use crate::streams::device;

type Operation = fn(&Array<i32>, &Array<i64>) -> Result<Array<i32>>;

fn vector(matrix: &Array<i32>) -> Result<Array<i32>> {
    matrix.slice(cachescope::ndarray::s![.., 1])
}

/// Operations on a matrix and on indices of its rows.
const OPERATIONS: &[(&str, Operation)] = &[
    ("take", |a, indices| a.take(indices, 0)),
    ("gather", |a, indices| a.gather(&indices.unsqueeze(1)?, 0)),
    ("add to", |a, indices| {
        let mut sums = a.clone();
        sums.scatter_add(&indices.unsqueeze(1)?, &Array::ones([3, 4])?, 0)?;
        Ok(sums)
    }),
    ("add of", |a, indices| {
        let mut sums = Array::zeros([3, 4])?;
        sums.scatter_add(&indices.unsqueeze(1)?, a, 0)?;
        Ok(sums)
    }),
    ("concat before", |a, _| {
        concat(&[a, &Array::ones([1, 4])?], 0)
    }),
    ("concat after", |a, _| {
        concat(&[&Array::ones([1, 4])?, a], 0)
    }),
    ("stack", |a, _| stack(&[&vector(a)?, &vector(a)?], 1)),
    ("repeat", |a, _| a.repeat(2, 1)),
    ("pad", |a, _| a.pad(&[(1, 0), (0, 2)], 7)),
    ("tril", |a, _| a.tril(1)),
    ("diag of a vector", |a, _| vector(a)?.diag(-1)),
    ("diag of a matrix", |a, _| a.diag(1)),
    ("one_hot", |_, indices| indices.one_hot(3)),
    ("sort", |a, _| a.sort(0)),
    ("argsort", |a, _| a.argsort(1)?.cast().eval()),
    ("topk", |a, _| Ok(a.topk(2, 1)?.0)),
    ("reshape", |a, _| a.transpose()?.reshape([2, 6])),
    ("sort of many", |a, _| a.repeat(100, 1)?.sort(1)),
];

fn operands() -> Result<(Array<i32>, Array<i64>)> {
    let a = Array::from_vec((0..12).map(|at| at * 7 % 12).collect(), [3, 4])?;
    Ok((a, Array::from_slice(&[2, 0, 2], 3)?))
}

/// Returns the operation's result on a device that does not delay work.
fn expected(operation: Operation) -> Result<Vec<i32>> {
    let (a, indices) = operands()?;
    operation(&a, &indices)?.to_vec()
}

#[test]
fn each_waits_for_the_streams_that_wrote_its_operands() -> Result<()> {
    for (name, operation) in OPERATIONS {
        let expected = expected(*operation)?;
        let device = device();
        let _guard = device.enter();
        let (first, second) = (device.new_stream()?, device.new_stream()?);
        let (a, indices) = operands()?;
        let doubled = {
            let _guard = first.enter();
            (&a + &a).eval()?
        };
        let (a, indices) = {
            let _guard = second.enter();
            ((&doubled - &a).eval()?, (&indices * 1).eval()?)
        };
        assert_eq!(operation(&a, &indices)?.to_vec()?, expected, "{name}");
    }
    Ok(())
}

/// Overwrites one of the operands. The overwrite must wait for the operation on the other stream.
#[track_caller]
fn overwritten(operation: Operation, name: &str, which: fn(&mut Array<i32>, &mut Array<i64>)) {
    let outcome = || -> Result<()> {
        let expected = expected(operation)?;
        let device = device();
        let _guard = device.enter();
        let stream = device.new_stream()?;
        let (mut a, mut indices) = operands()?;
        device.synchronize()?;
        let result = {
            let _guard = stream.enter();
            operation(&a, &indices)?
        };
        which(&mut a, &mut indices);
        // If the overwrite did not wait, it would run before the operation.
        device.default_stream().synchronize()?;
        assert_eq!(result.to_vec()?, expected, "{name}");
        Ok(())
    };
    outcome().unwrap();
}

#[test]
fn an_overwrite_of_an_operand_waits_for_each_reader() {
    for (name, operation) in OPERATIONS {
        overwritten(*operation, name, |a, _| a.fill(100).unwrap());
        overwritten(*operation, name, |_, indices| indices.fill(-1).unwrap());
    }
}

#[test]
fn the_operands_memory_is_not_reused_before_each_reader_is_done() -> Result<()> {
    for (name, operation) in OPERATIONS {
        let expected = expected(*operation)?;
        let device = device();
        let _guard = device.enter();
        let stream = device.new_stream()?;
        let _scope = device.scope("copies").enter();
        let (a, indices) = operands()?;
        device.synchronize()?;
        let result = {
            let _guard = stream.enter();
            operation(&a, &indices)?
        };
        drop((a, indices));
        let mut others = Vec::new();
        for bytes in [24, 48, 4800, 19_200].repeat(4) {
            others.push(Array::full(bytes, 0xeeu8)?);
        }
        for other in &others {
            assert_eq!(other.to_vec()?, vec![0xee; other.len()]);
        }
        assert_eq!(result.to_vec()?, expected, "{name}");
    }
    Ok(())
}

#[test]
fn adding_waits_for_readers_of_the_target() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let mut sums = Array::full(3, 1)?;
    device.synchronize()?;
    let read = {
        let _guard = stream.enter();
        (&sums * 2).eval()?
    };
    sums.scatter_add(&Array::from_slice(&[0, 0, 2], 3)?, &Array::full(3, 5)?, 0)?;
    assert_eq!(sums.to_vec()?, [11, 1, 6]);
    assert_eq!(read.to_vec()?, [2, 2, 2]);
    Ok(())
}
