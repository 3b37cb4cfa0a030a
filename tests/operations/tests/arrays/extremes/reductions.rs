//! Reductions, cumulative sums and sorting.

use cachescope::Result;

use super::{ARGUMENT, COUNTS, Expected, each_array, wide, with, without};
use Expected::Shape;

#[test]
fn reductions_of_all() -> Result<()> {
    each_array::<f32>(|failures, array| {
        let shape = array.shape();
        let one = || Shape(vec![]);
        failures.expect(("sum", shape), one(), || array.sum());
        failures.expect(("mean", shape), one(), || array.mean());
        failures.expect(("prod", shape), one(), || array.prod());
        failures.expect(("var", shape), one(), || array.var());
        failures.expect(("norm", shape), one(), || array.norm());
        failures.expect(("logsumexp", shape), one(), || array.logsumexp());
        let chosen = || match array.is_empty() {
            true => ARGUMENT,
            false => one(),
        };
        failures.expect(("max", shape), chosen(), || array.max());
        failures.expect(("argmin", shape), chosen(), || array.argmin());
        Ok(())
    })
}

#[test]
fn reductions_along_an_axis() -> Result<()> {
    each_array::<f32>(|failures, array| {
        let shape = array.shape();
        for axis in 0..shape.len() {
            let call = |name| (name, shape.to_vec(), axis);
            let (axis, length) = (axis as isize, shape[axis]);
            let outputs = || Shape(without(shape, axis as usize));
            failures.expect(call("sum"), outputs(), || array.sum_axis(axis));
            failures.expect(call("mean"), outputs(), || array.mean_axis(axis));
            failures.expect(call("std"), outputs(), || array.std_axis(axis));
            failures.expect(call("norm"), outputs(), || array.norm_axis(axis));
            failures.expect(call("logsumexp"), outputs(), || array.logsumexp_axis(axis));
            let exponentials = || array.lazy().exp().sum_axis(axis);
            failures.expect(call("sum of exp"), outputs(), exponentials);
            let chosen = || match length {
                0 => ARGUMENT,
                _ => outputs(),
            };
            failures.expect(call("min"), chosen(), || array.min_axis(axis));
            failures.expect(call("argmax"), chosen(), || array.argmax_axis(axis));
        }
        Ok(())
    })?;
    // The size of the output's elements differs from the input's.
    each_array::<u8>(|failures, array| {
        let shape = array.shape();
        for axis in 0..shape.len() {
            let call = |name| (name, shape.to_vec(), axis);
            let outputs = || Shape(without(shape, axis));
            let axis = axis as isize;
            failures.expect(call("sum"), outputs(), || array.sum_axis(axis));
            failures.expect(call("mean"), outputs(), || array.mean_axis(axis));
            failures.expect(call("all"), outputs(), || array.gt(0).all_axis(axis));
            failures.expect(call("cumsum"), Shape(wide(shape)), || array.cumsum(axis));
        }
        Ok(())
    })
}

#[test]
fn what_keeps_an_axis() -> Result<()> {
    each_array::<f32>(|failures, array| {
        let shape = array.shape();
        for at in 0..shape.len() {
            let call = |name| (name, shape.to_vec(), at);
            let same = || Shape(wide(shape));
            let axis = at as isize;
            failures.expect(call("cumsum"), same(), || array.cumsum(axis));
            failures.expect(call("softmax"), same(), || array.softmax(axis));
            failures.expect(call("log_softmax"), same(), || array.log_softmax(axis));
            failures.expect(call("sort"), same(), || array.sort(axis));
            failures.expect(call("argsort"), same(), || array.argsort(axis));
            for &count in COUNTS {
                let expected = || match count <= shape[at] {
                    true => Shape(with(shape, at, count as u128)),
                    false => ARGUMENT,
                };
                let call = ("topk", shape, at, count);
                failures.expect(call, expected(), || Ok(array.topk(count, axis)?.0));
                failures.expect(call, expected(), || Ok(array.topk(count, axis)?.1));
            }
        }
        Ok(())
    })
}
