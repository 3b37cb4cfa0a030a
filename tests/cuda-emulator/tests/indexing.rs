//! Tests of copies by index and of products, on the emulator or on a real device. The results must
//! equal the host's results bit by bit. The elements are small whole numbers, so that a sum in any
//! order is exact.

use cachescope::ndarray::s;
use cachescope::{AnyElement, Array, Device, Element, ErrorKind, Numeric, Result, concat, stack};
use half::{bf16, f16};

/// Compares the result of `operation` on the current device with the result on the host.
pub(crate) fn same<T: Element>(what: &str, operation: impl Fn() -> Result<Array<T>>) -> Result<()> {
    let device = Device::current();
    assert_ne!(device, Device::host(), "the tests run on a CUDA device");
    let wanted = {
        let _guard = Device::host().enter();
        let array = operation()?;
        (array.shape().to_vec(), array.to_vec()?)
    };
    let array = operation()?;
    assert_eq!(*array.device(), device);
    assert_eq!((array.shape().to_vec(), array.to_vec()?), wanted, "{what}");
    Ok(())
}

/// Returns whole numbers from -5 to 5, or from 0 to 5 for unsigned types.
pub(crate) fn numbers<T: Element>(shape: &[usize]) -> Result<Array<T>> {
    let count = shape.iter().product();
    let mut state = 12_345u64;
    let number = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        T::from_f64((state >> 33) as f64 % 11.0 - 5.0)
    };
    Array::from_vec((0..count).map(number).collect(), shape)
}

/// Returns `count` indices into an axis of `length` elements. Some indices are negative.
fn indices(count: usize, length: usize) -> Result<Array<i64>> {
    let index = |step: usize| (step * 7919 % (2 * length)) as i64 - length as i64;
    Array::from_vec((0..count).map(index).collect(), count)
}

fn copies<T: Element>() -> Result<()> {
    let name = T::NAME;
    same(&format!("{name}: a transpose"), || {
        numbers::<T>(&[70, 45])?.transpose()?.reshape(3150)
    })?;
    same(&format!("{name}: reversed axes"), || {
        numbers::<T>(&[9, 6, 20])?
            .permute(&[2, 1, 0])?
            .reshape(1080)
    })?;
    same(&format!("{name}: parts of rows"), || {
        numbers::<T>(&[6, 5, 64])?
            .slice(s![1.., ..3, 16..48])?
            .reshape(480)
    })?;
    same(&format!("{name}: parts that begin anywhere"), || {
        numbers::<T>(&[6, 33])?.slice(s![.., 1..32])?.reshape(186)
    })?;
    same(&format!("{name}: every other, backwards"), || {
        numbers::<T>(&[6, 33])?
            .slice(s![..;-1, ..;-2])?
            .reshape(102)
    })?;
    same(&format!("{name}: what is broadcast"), || {
        numbers::<T>(&[5, 1, 7])?
            .broadcast_to([5, 4, 7])?
            .reshape(140)
    })
}

#[test]
fn copies_are_the_host_s() -> Result<()> {
    copies::<i8>()?;
    copies::<f16>()?;
    copies::<f32>()?;
    copies::<u64>()
}

#[test]
fn arrays_are_joined_and_repeated() -> Result<()> {
    for axis in [0, 1, -1] {
        same(&format!("concat along {axis}"), || {
            let (a, b) = (numbers::<f32>(&[4, 4, 4])?, numbers(&[4, 4, 4])?);
            concat(&[&a, &b.transpose()?, &b.flip(2)?], axis)
        })?;
        same(&format!("repeat along {axis}"), || {
            numbers::<f32>(&[4, 4, 4])?.repeat(3, axis)
        })?;
    }
    same("stack", || {
        let (a, b) = (numbers::<i16>(&[4, 5])?, numbers(&[5, 4])?);
        stack(&[&a, &b.transpose()?], -1)
    })?;
    same("eight axes", || {
        let array = numbers::<f32>(&[2, 2, 2, 2, 2, 2, 2, 2])?;
        array.permute(&[7, 5, 3, 1, 0, 2, 4, 6])?.repeat(2, 3)
    })
}

#[test]
fn elements_are_picked() -> Result<()> {
    for axis in [0, 1, 2] {
        same(&format!("take along {axis}"), || {
            let array = numbers::<f32>(&[6, 7, 8])?;
            array.take(&indices(12, 6)?.reshape([3, 4])?, axis)
        })?;
        same(&format!("gather along {axis}"), || {
            let shape = [2, 3, 4];
            let array = numbers::<i8>(&[5, 5, 5])?.slice(s![..2, ..3, ..4])?;
            array.gather(&indices(24, shape[axis as usize])?.reshape(shape)?, axis)
        })?;
    }
    same("rows of whole words", || {
        numbers::<bf16>(&[9, 32])?.take(&indices(20, 9)?, 0)
    })?;
    same("rows of a transpose", || {
        numbers::<f64>(&[9, 10])?
            .transpose()?
            .take(&indices(20, 10)?, 0)
    })?;
    same("broadcast indices", || {
        numbers::<f32>(&[3, 5])?.gather(&indices(4, 5)?.unsqueeze(0)?, 1)
    })
}

#[test]
fn classes_are_marked() -> Result<()> {
    same("u8 as f32", || {
        Array::from_vec(vec![2u8, 0, 4, 1], [2, 2])?.one_hot::<f32>(5)
    })?;
    same("i64 as bool", || {
        let labels = Array::from_vec(vec![2i64, 0, 4, 1, 3, 3], [2, 3])?;
        labels.transpose()?.one_hot::<bool>(5)
    })?;
    same("i32 as f16", || {
        Array::from_vec(vec![2i32, 0, 4], 3)?.one_hot::<f16>(5)
    })
}

#[test]
fn regions_are_copied_or_filled() -> Result<()> {
    same("pad", || {
        numbers::<f32>(&[3, 4, 5])?.pad(&[(1, 2), (0, 0), (2, 1)], 9.5)
    })?;
    same("pad outer axes", || {
        numbers::<i8>(&[3, 4, 5])?.pad(&[(1, 0), (0, 3), (0, 0)], -7)
    })?;
    same("pad a view", || {
        numbers::<f64>(&[4, 6])?
            .transpose()?
            .pad(&[(1, 1), (1, 1)], -0.5)
    })?;
    for k in [-9, -1, 0, 2, isize::MAX, isize::MIN] {
        same(&format!("tril {k}"), || numbers::<f32>(&[2, 5, 7])?.tril(k))?;
        same(&format!("triu {k}"), || {
            numbers::<f32>(&[7, 5, 2])?.transpose()?.triu(k)
        })?;
    }
    for k in [-3, 0, 2] {
        same(&format!("diag {k} of a vector"), || {
            numbers::<i16>(&[10])?.slice(s![..;3])?.diag(k)
        })?;
        same(&format!("diag {k} of a matrix"), || {
            numbers::<f32>(&[7, 9])?.diag(k)
        })?;
    }
    Ok(())
}

fn adds<T: Numeric>() -> Result<()> {
    let name = T::NAME;
    same(&format!("{name}: rows"), || {
        let mut target = numbers::<T>(&[9, 40])?;
        let picked = indices(100, 9)?.unsqueeze(1)?;
        target.scatter_add(&picked, &numbers(&[100, 40])?, 0)?;
        Ok(target)
    })?;
    same(&format!("{name}: counts"), || {
        let mut target = numbers::<T>(&[300])?;
        target.scatter_add(&indices(1000, 300)?, &numbers(&[1000])?, 0)?;
        Ok(target)
    })?;
    same(&format!("{name}: few in each line"), || {
        let mut target = numbers::<T>(&[20, 6])?.transpose()?;
        let picked = indices(60, 6)?.reshape([3, 20])?;
        target.scatter_add(&picked, &numbers(&[3, 20])?, 0)?;
        Ok(target)
    })?;
    same(&format!("{name}: lines of their own indices"), || {
        let mut target = numbers::<T>(&[3, 50])?;
        let picked = indices(300, 50)?.reshape([3, 100])?;
        target.scatter_add(&picked, &numbers(&[3, 100])?, 1)?;
        Ok(target)
    })?;
    same(&format!("{name}: a target that is broadcast"), || {
        let mut target = numbers::<T>(&[1, 8])?;
        let picked = indices(120, 8)?.reshape([30, 4])?;
        target.scatter_add(&picked, &numbers(&[30, 4])?, 1)?;
        Ok(target)
    })
}

#[test]
fn values_are_added_at_indices() -> Result<()> {
    adds::<f32>()?;
    adds::<i8>()?;
    adds::<u16>()?;
    adds::<i64>()
}

/// Atomic operations add the integers in any order. There are few values for many targets, or many
/// values for few targets. A sum that overflows must not change its neighbours in the same word.
#[test]
fn integers_are_added_beside_their_neighbours() -> Result<()> {
    fn of<T: Numeric>() -> Result<()> {
        same(T::NAME, || {
            let many = |count: usize| {
                let values = Array::<i64>::arange(0, count as i64, 1)? * 37 % 251;
                values.cast::<T>().eval()
            };
            // The first element of the slice is in the middle of a word.
            let mut target = many(5004)?.slice(s![1..])?;
            for updates in [1, 2500, 20_000] {
                target.scatter_add(&indices(updates, 5003)?, &many(updates)?, 0)?;
            }
            target.scatter_add(&indices(20_000, 3)?, &many(20_000)?, 0)?;
            Ok(target)
        })
    }
    of::<i8>()?;
    of::<u8>()?;
    of::<i16>()?;
    of::<u16>()?;
    of::<i32>()?;
    of::<u32>()?;
    of::<i64>()?;
    of::<u64>()
}

/// Returns flags in an irregular order, of which about a third is true.
fn flags(count: usize) -> Result<Array<bool>> {
    let flag = |step: usize| step.wrapping_mul(2_654_435_761) % 1000 < 333;
    Array::from_vec((0..count).map(flag).collect(), count)
}

fn selections<T: Element>() -> Result<()> {
    let name = T::NAME;
    same(&format!("{name}: by a mask"), || {
        let mask = flags(5000)?.reshape([50, 100])?;
        numbers::<T>(&[100, 50])?.transpose()?.select_by(&mask)
    })?;
    same(&format!("{name}: rows by a mask"), || {
        numbers::<T>(&[40, 6, 5])?.select_by(&flags(40)?)
    })?;
    same(&format!("{name}: places"), || {
        numbers::<T>(&[7, 50, 3])?.nonzero()
    })?;
    same(&format!("{name}: written at indices"), || {
        let mut target = numbers::<T>(&[300])?;
        target.scatter(&indices(3000, 300)?, &numbers(&[3000])?, 0)?;
        Ok(target)
    })?;
    same(&format!("{name}: written at indices of lines"), || {
        let mut target = numbers::<T>(&[40, 30])?.transpose()?;
        let picked = indices(1200, 30)?.reshape([30, 40])?;
        target.scatter(&picked, &numbers(&[30, 40])?, 0)?;
        Ok(target)
    })?;
    same(&format!("{name}: different ones"), || {
        numbers::<T>(&[90, 70])?.unique()
    })?;
    same(&format!("{name}: places among sorted ones"), || {
        let sorted = numbers::<T>(&[3000])?.sort(0)?;
        sorted.searchsorted(&numbers::<T>(&[30, 20])?.transpose()?)
    })?;
    for k in [1, 5, 256] {
        same(&format!("{name}: the first {k} of many"), || {
            numbers::<T>(&[9000])?.topk(k, 0).map(|(_, places)| places)
        })?;
        same(&format!("{name}: the first {k} of many, apart"), || {
            let many = numbers::<T>(&[2, 5000, 2])?;
            many.topk(k, 1).map(|(values, _)| values)
        })?;
    }
    same(&format!("{name}: running products"), || {
        numbers::<T>(&[3, 9000])?.slice(s![.., ..20])?.cumprod(1)
    })
}

#[test]
fn elements_are_selected() -> Result<()> {
    selections::<f32>()?;
    selections::<f64>()?;
    selections::<bf16>()?;
    selections::<i8>()?;
    selections::<u64>()?;
    selections::<bool>()
}

#[test]
fn products_run_over_parts_of_lines() -> Result<()> {
    for shape in [&[70_000][..], &[3, 3000], &[3000, 3]] {
        same(&format!("products of {shape:?}"), || {
            (numbers::<i64>(shape)? * 2 + 1).cumprod(0)
        })?;
        same(&format!("products of {shape:?}, in floats"), || {
            // The factors are powers of two, so the products are exact.
            let signs = numbers::<f32>(shape)?.gt(0.0).cast::<f32>() + 1.0;
            let halves = (numbers::<f32>(shape)?.lt(-3.0).cast::<f32>() + 1.0).recip();
            (signs * halves * 0.5).cumprod(0)
        })?;
    }
    Ok(())
}

#[test]
fn order_statistics_are_those_of_the_host() -> Result<()> {
    for q in [0.0, 0.3, 0.5, 1.0] {
        same(&format!("quantile {q}"), || {
            numbers::<f32>(&[5, 3000])?.quantile(q, 1)
        })?;
        same(&format!("quantile {q} of columns"), || {
            numbers::<f64>(&[30, 7])?.quantile(q, 0)
        })?;
    }
    same("median", || numbers::<f16>(&[5, 30])?.median(1))?;
    same("counts", || {
        numbers::<i32>(&[5, 3000])?.abs().eval()?.bincount(9)
    })?;
    same("a histogram", || {
        numbers::<f32>(&[5, 3000])?
            .histogram(7)
            .map(|(counts, _)| counts)
    })?;
    same("edges", || {
        numbers::<f32>(&[5, 3000])?
            .histogram(7)
            .map(|(_, edges)| edges)
    })
}

#[test]
fn floats_are_added_in_the_order_of_their_indices() -> Result<()> {
    // The sum of these values depends on the order of the additions.
    let value = |step: usize| f32::from_f64(1.0 / (1 + step * step % 1009) as f64);
    let values: Vec<f32> = (0..3000).map(value).collect();
    for bins in [2, 700] {
        same(&format!("{bins} sums"), || {
            let mut target = Array::<f32>::zeros(bins)?;
            let values = Array::from_vec(values.clone(), 3000)?;
            target.scatter_add(&indices(3000, bins)?, &values, 0)?;
            Ok(target)
        })?;
        same(&format!("{bins} sums of f16"), || {
            let mut target = Array::<f16>::zeros([2, bins])?;
            let values = values.iter().map(|&value| f16::from_f32(value));
            let values = Array::from_vec(values.collect(), [2, 1500])?;
            target.scatter_add(&indices(3000, bins)?.reshape([2, 1500])?, &values, 1)?;
            Ok(target)
        })?;
    }
    Ok(())
}

#[test]
fn a_bad_index_is_returned_by_the_next_synchronisation_and_writes_nothing() -> Result<()> {
    let device = Device::cuda_with(0, Default::default())?;
    let _guard = device.enter();
    let array = numbers::<f32>(&[4, 4])?;
    let bad = Array::from_vec(vec![0i64, 4, -5, 3], 4)?;
    let told = |name: &str, says: &str| {
        let error = device.synchronize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let text = error.to_string();
        assert!(text.contains(name) && text.contains(says), "{text}");
        device.synchronize().unwrap();
    };
    let taken = array.take(&bad, 0)?;
    told("take", "length 4");
    let rows = taken.to_vec()?;
    assert!(rows[4..12].iter().all(|&value| value == 0.0));
    assert_eq!(rows[..4], array.to_vec()?[..4]);
    array.gather(&bad.unsqueeze(0)?, 1)?;
    told("gather", "length 4");
    array.gather(&bad.unsqueeze(0)?, 1)?;
    let error = array.to_vec().unwrap_err();
    assert!(error.to_string().contains("gather"), "{error}");
    assert_eq!(array.to_vec()?, numbers::<f32>(&[4, 4])?.to_vec()?);
    for length in [4, 200] {
        let mut target = Array::<f32>::zeros(length)?;
        let all: Vec<i64> = (0..100)
            .map(|step| step - 50)
            .chain([-1, length as i64])
            .collect();
        let inside = all
            .iter()
            .filter(|index| (-(length as i64)..length as i64).contains(index));
        let inside = inside.count() as f32;
        let all = Array::from_vec(all, 102)?;
        target.scatter_add(&all, &Array::ones(102)?, 0)?;
        told("scatter_add", "out of range");
        assert_eq!(target.to_vec()?.iter().sum::<f32>(), inside, "{length}");
    }
    // A negative class is invalid, and does not count from the end.
    for class in [4, -1] {
        array.cross_entropy(&Array::from_vec(vec![0, 1, class, 2], 4)?)?;
        told("cross_entropy", &format!("index {class} "));
    }
    let mut whole = Array::<i32>::zeros(4)?;
    whole.scatter_add(&bad, &Array::ones(4)?, 0)?;
    told("scatter_add", "length 4");
    assert_eq!(whole.to_vec()?, [1, 0, 0, 1]);
    for length in [4, 200] {
        let mut target = Array::<f32>::zeros(length)?;
        let all = Array::arange(-300_i64, 300, 1)?;
        target.scatter(&all, &Array::ones(600)?, 0)?;
        told("scatter", "out of range");
        assert_eq!(target.to_vec()?, vec![1.0; length]);
    }
    // A negative number is invalid, and does not count from the end of the axis.
    for numbers in [&[1, -1, 2][..], &[2, 4, 1]] {
        let counted = Array::from_slice(numbers, 3)?.bincount(4)?;
        told("bincount", "length 4");
        assert_eq!(counted.to_vec()?, [0, 1, 1, 0]);
    }
    let marked = Array::from_vec(vec![1i8, -1, 5], 3)?.one_hot::<f32>(3)?;
    told("one_hot", "length 3");
    assert_eq!(
        marked.to_vec()?,
        [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    );
    let empty = Array::<f32>::zeros([0, 4])?;
    let error = empty.take(&bad, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = bad.one_hot::<f32>(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    device.synchronize()
}

#[test]
fn a_row_that_is_no_distribution_is_returned_by_the_next_synchronisation() -> Result<()> {
    let device = Device::cuda_with(0, Default::default())?;
    let _guard = device.enter();
    let weights = Array::from_vec(vec![0.0f32, 2.0, -1.0, 3.0, 1.0, 0.0], [3, 2])?;
    let logits = Array::from_vec(vec![0.0f32, f32::NAN, 0.0, f32::NEG_INFINITY], [2, 2])?;
    let told = |says: &str| {
        let error = device.synchronize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        device.synchronize().unwrap();
    };
    for replacement in [true, false] {
        let drawn = weights.multinomial(1, replacement)?;
        told("multinomial: row 1 has a weight that is negative");
        assert_eq!(drawn.to_vec()?, [1, 0, 0]);
    }
    let drawn = logits.categorical()?;
    told("categorical: row 0 has a logit that is NaN");
    assert_eq!(drawn.to_vec()?, [0, 0]);
    weights.square().eval()?.multinomial(3, true)?;
    device.synchronize()
}
