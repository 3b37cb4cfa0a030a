//! Views, which compute nothing.

use cachescope::ndarray::SliceInfoElem;
use cachescope::{Array, Element, ErrorKind, Result, concat, stack};

use super::{
    ARGUMENT, COUNTS, Expected, Failures, MAX, NUMBERS, SHAPES, each_array, on_small_device,
    stepping, wide, with, without,
};
use Expected::{Anything, Refused, Shape, View};

#[test]
fn views_of_axes() -> Result<()> {
    each_array::<f32>(|failures, array| {
        let shape = array.shape();
        let rank = shape.len();
        let reversed: Vec<usize> = (0..rank).rev().collect();
        let turned: Vec<u128> = wide(shape).into_iter().rev().collect();
        failures.expect(("transpose", shape), View(turned.clone()), || {
            array.transpose()
        });
        failures.expect(("permute", shape), View(turned), || {
            array.permute(&reversed)
        });
        for axis in 0..rank {
            let signed = axis as isize;
            failures.expect(("flip", shape, axis), View(wide(shape)), || {
                array.flip(signed - rank as isize)
            });
            let mut swapped = wide(shape);
            swapped.swap(0, axis);
            failures.expect(("swap_axes", shape, axis), View(swapped), || {
                array.swap_axes(0, signed)
            });
            let squeezed = match shape[axis] {
                1 => View(without(shape, axis)),
                _ => ARGUMENT,
            };
            failures.expect(("squeeze", shape, axis), squeezed, || array.squeeze(signed));
        }
        for axis in 0..=rank {
            let mut longer = wide(shape);
            longer.insert(axis, 1);
            failures.expect(("unsqueeze", shape, axis), View(longer), || {
                array.unsqueeze(axis as isize)
            });
        }
        let lowest = -(rank as isize);
        for &axis in NUMBERS
            .iter()
            .filter(|&&axis| !(lowest..rank as isize).contains(&axis))
        {
            failures.expect(("flip", shape, axis), ARGUMENT, || array.flip(axis));
            failures.expect(("squeeze", shape, axis), ARGUMENT, || array.squeeze(axis));
            failures.expect(("swap_axes", shape, axis), ARGUMENT, || {
                array.swap_axes(axis, axis)
            });
        }
        for &count in COUNTS {
            let target: Vec<usize> = std::iter::once(count).chain(shape.to_vec()).collect();
            failures.expect(("broadcast_to", &target), View(wide(&target)), || {
                array.broadcast_to(&target)
            });
        }
        Ok(())
    })
}

/// Returns the non-negative form of an index or a bound, if the index is within the axis.
fn counted(index: isize, length: usize) -> Option<i128> {
    let length = length as i128;
    let index = index as i128;
    let index = if index < 0 { index + length } else { index };
    (0..=length).contains(&index).then_some(index)
}

/// Returns the length of an axis after ndarray's `start..end;step`.
fn sliced(length: usize, start: isize, end: Option<isize>, step: isize) -> Option<u128> {
    let first = counted(start, length)?;
    let last = end.map_or(Some(length as i128), |end| counted(end, length))?;
    let step = (step as i128).unsigned_abs();
    (step > 0).then(|| ((last - first).max(0) as u128).div_ceil(step))
}

/// Checks selections of `axis` by an index and by a range.
fn select<T: Element>(failures: &mut Failures, array: &Array<T>, axis: usize) {
    let shape = array.shape();
    let select = |part: SliceInfoElem| {
        let mut parts = vec![SliceInfoElem::from(..); shape.len()];
        parts[axis] = part;
        array.slice(parts)
    };
    for &index in NUMBERS {
        let place = counted(index, shape[axis]);
        let expected = match place.is_some_and(|place| place < shape[axis] as i128) {
            true => View(without(shape, axis)),
            false => ARGUMENT,
        };
        failures.expect(("index", shape, axis, index), expected, || {
            select(SliceInfoElem::Index(index))
        });
    }
    for &step in NUMBERS {
        for start in [0, 1, -1, isize::MAX, isize::MIN] {
            for end in [None, Some(0), Some(-1), Some(isize::MAX), Some(isize::MIN)] {
                let expected = match sliced(shape[axis], start, end, step) {
                    Some(length) => View(with(shape, axis, length)),
                    None => ARGUMENT,
                };
                let call = ("slice", shape, axis, (start, end, step));
                failures.expect(call, expected, || {
                    select(SliceInfoElem::Slice { start, end, step })
                });
            }
        }
    }
}

#[test]
fn parts_of_axes() -> Result<()> {
    each_array::<u8>(|failures, array| {
        let shape = array.shape();
        for axis in 0..shape.len() {
            select(failures, array, axis);
            for &count in COUNTS {
                let divides = count > 0 && shape[axis].is_multiple_of(count);
                if divides && count > 1 << 20 {
                    continue; // A list of that many empty views would fill the memory.
                }
                let expected = match divides {
                    true => View(with(shape, axis, (shape[axis] / count) as u128)),
                    false => ARGUMENT,
                };
                failures.expect(("split", shape, axis, count), expected, || {
                    Ok(array.split(count, axis as isize)?.swap_remove(0))
                });
            }
        }
        Ok(())
    })
}

#[test]
fn other_shapes() -> Result<()> {
    each_array::<u16>(|failures, array| {
        let shape = array.shape();
        for &target in SHAPES {
            let expected = match target.iter().product::<usize>() == array.len() {
                true => Shape(wide(target)),
                false => Refused(ErrorKind::InvalidShape),
            };
            failures.expect(("reshape", shape, target), expected, || {
                array.reshape(target)
            });
        }
        let flat = Shape(vec![array.len() as u128]);
        failures.expect(("flatten", shape), flat, || array.flatten());
        for target in [[MAX, 0, 2], [1 << 40, 1 << 40, 0], [usize::MAX, 0, 1]] {
            let expected = Refused(ErrorKind::InvalidShape);
            failures.expect(("reshape", shape, target), expected, || {
                array.reshape(target)
            });
        }
        Ok(())
    })
}

/// Views of one element may have more elements than any memory. The test computes nothing.
#[test]
fn one_element_as_many() -> Result<()> {
    let mut failures = Failures::default();
    on_small_device(|| {
        let one = Array::<u8>::ones(1)?;
        for shape in [&[MAX][..], &[1, MAX], &[1 << 31, 1 << 31], &[7, MAX / 7]] {
            let many = one.broadcast_to(shape)?;
            let (last, length) = (shape.len() - 1, shape[shape.len() - 1]);
            let axis = last as isize;
            let same = || Shape(wide(shape));
            failures.expect(("flip", shape), View(wide(shape)), || many.flip(axis));
            for step in [2, -2, 1 << 40, isize::MAX, isize::MIN] {
                let count = (length as u128).div_ceil(step.unsigned_abs() as u128);
                failures.expect(
                    ("slice", shape, step),
                    View(with(shape, last, count)),
                    || stepping(&many, last, step),
                );
            }
            failures.expect(("reshape", shape), Anything, || many.reshape(many.len()));
            failures.expect(("eval", shape), same(), || many.lazy().eval());
            failures.expect(("to_uncached", shape), same(), || many.to_uncached());
            failures.expect(("sort", shape), same(), || many.sort(0));
            failures.expect(("tril", shape), Anything, || many.tril(-1));
            let overflow = || Refused(ErrorKind::InvalidShape);
            failures.expect(("cumsum", shape), overflow(), || many.cumsum(axis));
            failures.expect(("repeat", shape), overflow(), || many.repeat(2, 0));
            failures.expect(("concat", shape), overflow(), || {
                concat(&[&many, &many], axis)
            });
            failures.expect(("stack", shape), overflow(), || {
                stack(&[&many, &many, &many], 0)
            });
            failures.expect(("cast", shape), overflow(), || many.cast::<i64>().eval());
            failures.expect(("argsort", shape), overflow(), || many.argsort(axis));
            failures.expect(("topk", shape), overflow(), || {
                Ok(many.topk(length, axis)?.1)
            });
        }
        Ok(())
    })?;
    failures.none();
    Ok(())
}
