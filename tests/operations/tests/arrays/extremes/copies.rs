//! Copies by index, and transfers of arrays.

use cachescope::{Array, DeviceConfig, Result, concat, stack};
use under_test::device_with;

use super::{ARGUMENT, COUNTS, Expected, MAX, NUMBERS, each_array, size_bytes, wide, with};
use Expected::Shape;

#[test]
fn more_of_an_axis() -> Result<()> {
    each_array::<f32>(|failures, array| {
        let shape = array.shape();
        for axis in 0..shape.len() {
            let (length, signed) = (shape[axis] as u128, axis as isize);
            let call = ("concat", shape, axis);
            failures.expect(call, Shape(with(shape, axis, 2 * length)), || {
                concat(&[array, array], signed)
            });
            for &count in COUNTS {
                let longer = length * count as u128;
                let call = ("repeat", shape, axis, count);
                failures.expect(call, Shape(with(shape, axis, longer)), || {
                    array.repeat(count, signed)
                });
                for (before, after) in [(count, 0), (0, count), (count, count)] {
                    let mut margins = vec![(0, 0); shape.len()];
                    margins[axis] = (before, after);
                    let longer = length + before as u128 + after as u128;
                    let call = ("pad", shape, axis, (before, after));
                    failures.expect(call, Shape(with(shape, axis, longer)), || {
                        array.pad(&margins, 0.0)
                    });
                }
            }
        }
        for axis in 0..=shape.len() {
            let mut stacked = wide(shape);
            stacked.insert(axis, 2);
            failures.expect(("stack", shape, axis), Shape(stacked), || {
                stack(&[array, array], axis as isize)
            });
        }
        Ok(())
    })
}

#[test]
fn picked_and_added() -> Result<()> {
    each_array::<f32>(|failures, array| {
        let shape = array.shape();
        for axis in 0..shape.len() {
            let signed = axis as isize;
            let first = Array::<i64>::zeros(1)?;
            let one = with(shape, axis, 1);
            let taken = match shape[axis] {
                0 if size_bytes(&one, size_of::<f32>()).is_some() => ARGUMENT,
                _ => Shape(one),
            };
            failures.expect(("take", shape, axis), taken, || array.take(&first, signed));
            for none in [&[0][..], &[0, MAX], &[MAX, 0], &[1 << 40, 0]] {
                let indices = Array::<i64>::zeros(none)?;
                let mut taken = wide(shape);
                taken.splice(axis..=axis, wide(none));
                failures.expect(("take", shape, axis, none), Shape(taken), || {
                    array.take(&indices, signed)
                });
            }
            let mut none = shape.to_vec();
            none[axis] = 0;
            let indices = Array::<i64>::zeros(&none)?;
            failures.expect(("gather", shape, axis), Shape(wide(&none)), || {
                array.gather(&indices, signed)
            });
            failures.expect(("scatter_add", shape, axis), Shape(wide(shape)), || {
                let mut target = array.clone();
                target.scatter_add(&indices, &Array::ones(&none)?, signed)?;
                Ok(target)
            });
        }
        Ok(())
    })
}

#[test]
fn diagonals_and_triangles() -> Result<()> {
    each_array::<f32>(|failures, array| {
        let shape = array.shape();
        for &k in NUMBERS {
            let same = || match shape.len() {
                0 | 1 => ARGUMENT,
                _ => Shape(wide(shape)),
            };
            failures.expect(("tril", shape, k), same(), || array.tril(k));
            failures.expect(("triu", shape, k), same(), || array.triu(k));
            let left = |length: usize, is_passed: bool| {
                let passed = if is_passed { k.unsigned_abs() } else { 0 };
                length.saturating_sub(passed) as u128
            };
            let expected = match *shape {
                [length] => Shape(vec![length as u128 + k.unsigned_abs() as u128; 2]),
                [rows, columns] => Shape(vec![left(rows, k < 0).min(left(columns, k > 0))]),
                _ => ARGUMENT,
            };
            failures.expect(("diag", shape, k), expected, || array.diag(k));
        }
        Ok(())
    })
}

#[test]
fn classes() -> Result<()> {
    each_array::<u8>(|failures, array| {
        // All elements are the class 1. If there is only one class, this class does not exist. On
        // CUDA, a later call would return this error.
        let are_there = |classes: usize| classes != 1 || array.is_empty();
        for classes in COUNTS.iter().copied().filter(|&classes| are_there(classes)) {
            let mut longer = wide(array.shape());
            longer.push(classes as u128);
            let call = ("one_hot", array.shape(), classes);
            let expected = match classes {
                0 if !array.is_empty() && longer.len() <= 8 => ARGUMENT,
                _ => Shape(longer),
            };
            failures.expect(call, expected, || array.one_hot::<f64>(classes));
        }
        Ok(())
    })
}

#[test]
fn transfers_prints_and_writes() -> Result<()> {
    each_array::<f32>(|failures, array| {
        let shape = array.shape();
        let same = || Shape(wide(shape));
        failures.expect(("ndarray", shape), same(), || {
            Array::from_ndarray(&array.to_ndarray()?)
        });
        failures.expect(("from_vec", shape), same(), || {
            Array::from_vec(array.to_vec()?, shape)
        });
        failures.expect(("to_uncached", shape), same(), || array.to_uncached());
        failures.expect(("to_device", shape), same(), || {
            array.to_device(&device_with(DeviceConfig::default())?)
        });
        failures.expect(("cast", shape), same(), || array.cast::<f64>().eval());
        failures.expect(("assign", shape), same(), || {
            let mut target = array.clone();
            target.assign(array + 1.0)?;
            target.update(|target| target * 2.0)?;
            target.fill(3.0)?;
            Ok(target)
        });
        failures.survives(("prints", shape), || {
            assert!(!format!("{array}{array:?}").is_empty());
        });
        failures.survives(("is equal", shape), || assert!(*array == array.clone()));
        failures.survives(("item", shape), || {
            assert_eq!(array.item().is_ok(), array.len() == 1);
        });
        Ok(())
    })
}
