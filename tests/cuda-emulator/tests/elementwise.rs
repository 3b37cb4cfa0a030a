//! Tests of expressions, assignments, random numbers and comparisons, on the emulator or on a real
//! device. The operands have all layouts. The results must equal the host's results bit by bit.

use cachescope::ndarray::s;
use cachescope::{Array, Complex, Device, Element, Generator, Number, Result, elementwise};
use half::{bf16, f16};

/// Compares the result of `operation` on the current device with the result on the host.
fn same<T: Element>(what: &str, operation: &dyn Fn() -> Result<Array<T>>) -> Result<()> {
    let device = Device::current();
    assert_ne!(device, Device::host(), "the tests run on a CUDA device");
    let wanted = {
        let _guard = Device::host().enter();
        operation()?.to_vec()?
    };
    let array = operation()?;
    assert_eq!(*array.device(), device);
    assert_eq!(array.to_vec()?, wanted, "{what}");
    Ok(())
}

fn table() -> Result<Array<f32>> {
    Array::arange(0.0, 960.0, 1.0)?.reshape([4, 6, 40])
}

fn row() -> Result<Array<f32>> {
    Array::arange(0.0, 40.0, 1.0)
}

#[test]
fn operands_of_any_layout_are_read() -> Result<()> {
    let column = || Array::<f32>::arange(0.0, 6.0, 1.0)?.reshape([6, 1]);
    same("dense", &|| (table()? * 2.0 + table()?).eval())?;
    same("a row", &|| (table()? + row()?).eval())?;
    same("a column", &|| (table()? * column()? + row()?).eval())?;
    // The two kernels have the same type, but broadcast different sides.
    same("a column on the right", &|| (table()? - column()?).eval())?;
    same("a column on the left", &|| (column()? - table()?).eval())?;
    same("one element", &|| {
        let odd = table()?.flatten()?.slice(s![..957])?;
        (odd - Array::full([], 7.0)?).eval()
    })?;
    same("between two words", &|| {
        (table()?.flatten()?.slice(s![1..957])? * 2.0).eval()
    })?;
    same("transposed", &|| (table()?.transpose()? * 2.0).eval())?;
    same("backwards", &|| {
        (table()?.flip(0)? + table()?.flip(2)?).eval()
    })?;
    same("in steps", &|| {
        (table()?.slice(s![1..3, ..;2, 3..;-3])? + 1.0).eval()
    })?;
    same("several types", &|| {
        let wide = table()?.cast::<f64>() / 3.0;
        (wide.cast::<f16>() * f16::from_f32(0.1)).eval()
    })
}

/// The lengths are near the boundaries of the 32 × 32 tiles in which transposed operands are read.
#[test]
fn transposed_operands_are_read_by_tiles() -> Result<()> {
    for (rows, columns) in [
        (7, 40),
        (8, 8),
        (31, 32),
        (32, 31),
        (33, 33),
        (64, 65),
        (65, 8),
        (130, 97),
    ] {
        let what = format!("{rows} by {columns}");
        let count = (rows * columns) as f32;
        let straight = || Array::<f32>::arange(0.0, count, 1.0)?.reshape([rows, columns]);
        let crosswise = || -> Result<_> {
            let numbers = (Array::<f32>::arange(0.0, count, 1.0)? * 3.0 - 7.0).eval()?;
            numbers.reshape([columns, rows])?.transpose()
        };
        same(&what, &|| (straight()? + crosswise()?).eval())?;
        same(&what, &|| (crosswise()? * 2.0 - straight()?).eval())?;
        same(&what, &|| {
            let row = Array::<f32>::arange(0.0, columns as f32, 1.0)?;
            (crosswise()? * straight()? + row - crosswise()?.flip(0)? * 0.5).eval()
        })?;
        same(&what, &|| {
            let mut target = crosswise()?;
            target.assign(straight()? * 2.0)?;
            Ok(target)
        })?;
        same(&what, &|| {
            let mut target = straight()?;
            target.update(|target| target * 0.5 + crosswise().unwrap())?;
            Ok(target)
        })?;
        same(&what, &|| {
            let mut all = Array::<f32>::zeros([rows + 5, columns + 3])?;
            let part = s![2..rows + 2, 3..];
            all.slice_mut(part)?.assign(crosswise()? + 1.0)?;
            Ok(all)
        })?;
    }
    Ok(())
}

#[test]
fn axes_of_tiles_are_found_among_several() -> Result<()> {
    let table = || Array::<i32>::arange(0, 9 * 34 * 65, 1)?.reshape([9, 34, 65]);
    let orders: [[usize; 3]; 6] = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for one in orders {
        for other in orders {
            let back = |order: [usize; 3]| {
                // After the permutation, the array has the shape of the table.
                let mut dims = [0; 3];
                for (axis, from) in order.into_iter().enumerate() {
                    dims[from] = [9, 34, 65][axis];
                }
                let flat = table()?.flatten()?;
                flat.reshape(dims)?.permute(&order)
            };
            same(&format!("{one:?} and {other:?}"), &|| {
                (back(one)? * 3 + back(other)? - table()?).eval()
            })?;
        }
    }
    same("in four axes", &|| {
        let x = Array::<i32>::arange(0, 3 * 10 * 4 * 40, 1)?.reshape([3, 10, 4, 40])?;
        let y = x.reshape([3, 40, 4, 10])?.permute(&[0, 3, 2, 1])?;
        (x + y * 2).eval()
    })
}

#[test]
fn tiles_of_every_size_of_elements() -> Result<()> {
    fn of<T: Element + Number>() -> Result<()> {
        same(T::NAME, &|| {
            let x = Array::<i64>::arange(0, 40 * 70, 1)?.cast::<T>().eval()?;
            let y = x.reshape([70, 40])?.transpose()?;
            (x.reshape([40, 70])? + y).eval()
        })
    }
    of::<u8>()?;
    of::<i16>()?;
    of::<f16>()?;
    of::<u32>()?;
    of::<f64>()?;
    same("several types", &|| {
        let x = Array::<f64>::arange(0.0, 2800.0, 1.0)?.reshape([70, 40])?;
        let (y, z) = (x.cast::<u8>().eval()?, x.cast::<f16>().eval()?);
        let straight = x.reshape([40, 70])?;
        (x.transpose()? + y.transpose()?.cast::<f64>() * straight + z.transpose()?.cast::<f64>())
            .eval()
    })?;
    let complex = || -> Result<Array<Complex<f64>>> {
        let re = Array::<f64>::arange(0.0, 2800.0, 1.0)?.reshape([70, 40])?;
        let z = cachescope::complex(&re, &re * 2.0).eval()?;
        (z.transpose()? + z.reshape([40, 70])?).eval()
    };
    let wanted = {
        let _guard = Device::host().enter();
        complex()?.to_vec()?
    };
    assert_eq!(complex()?.to_vec()?, wanted);
    Ok(())
}

const SCALE: f16 = f16::from_f32_const(1.0 / 3.0);

const OFFSET: i64 = -3;

/// A NaN with a payload.
const MARKED: f32 = f32::from_bits(0x7fc1_2345);

elementwise! {
    fn degrees(x: f32) -> f32 {
        x * 180.0 / std::f32::consts::PI
    }

    fn scaled(x: f16) -> f16 {
        x * SCALE - f16::EPSILON
    }

    fn bounded(n: i64) -> bool {
        n > i64::MIN && n < -OFFSET
    }

    fn marked(x: f32) -> f32 {
        if x > 2.0 { MARKED } else { -f32::MIN_POSITIVE }
    }
}

#[test]
fn constants_have_the_bits_that_they_have_on_the_host() -> Result<()> {
    same("of f32", &|| degrees(table()? * 0.37).eval())?;
    same("of f16", &|| scaled(table()?.cast::<f16>()).eval())?;
    same("of i64", &|| {
        let ends = Array::from_slice(&[i64::MIN, i64::MIN + 1, 2, 3, i64::MAX], 5)?;
        bounded(ends).eval()
    })?;
    let found = marked(Array::<f32>::arange(2.0, 4.0, 1.0)?).eval()?;
    let bits: Vec<u32> = found.to_vec()?.into_iter().map(f32::to_bits).collect();
    assert_eq!(bits, [0x8080_0000, 0x7fc1_2345]);
    Ok(())
}

#[test]
fn arrays_are_written_in_place() -> Result<()> {
    same("dense", &|| {
        let mut target = table()?;
        target.update(|t| t * 2.0 + &row().unwrap())?;
        Ok(target)
    })?;
    same("in steps", &|| {
        let mut target = table()?.slice(s![1..3, ..;2, 3..;-3])?;
        target.update(|t| t * 2.0)?;
        Ok(target)
    })?;
    same("in whole words of a part", &|| {
        let mut target = table()?.slice(s![.., .., 4..24])?;
        target.update(|t| t * 2.0)?;
        Ok(target)
    })?;
    same("from between two words", &|| {
        let mut target = table()?.flatten()?.slice(s![1..957])?;
        target.assign(Array::<f32>::arange(0.0, 956.0, 1.0)? * 2.0)?;
        Ok(target)
    })?;
    same("crosswise", &|| {
        let mut target = Array::<f32>::arange(0.0, 36.0, 1.0)?.reshape([6, 6])?;
        let turned = target.transpose()?;
        target.assign(turned * 2.0)?;
        Ok(target)
    })
}

/// The numbers have all signs, exponents and upper seven bits of the mantissa. Their lower 16 bits
/// are less than, equal to, or more than half a unit of the last kept bit. A NaN keeps its sign and
/// its upper bits.
#[test]
fn halves_are_rounded_as_on_the_host() -> Result<()> {
    let ends = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
    let begins = (0..=u16::MAX).map(|begin| u32::from(begin) << 16);
    let values: Vec<f32> = begins
        .flat_map(|begin| ends.map(|end| f32::from_bits(begin | end)))
        .collect();
    let x = Array::from_slice(&values, values.len())?;
    let found = x.cast::<bf16>().eval()?.to_vec()?;
    for (&value, found) in values.iter().zip(found) {
        let wanted = bf16::from_f32(value);
        assert_eq!(found.to_bits(), wanted.to_bits(), "{:#x}", value.to_bits());
    }
    // The hardware has only one NaN of `f16`.
    let found = x.cast::<f16>().eval()?.to_vec()?;
    for (&value, found) in values.iter().zip(found) {
        let wanted = f16::from_f32(value);
        assert!(
            found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan()),
            "{:#x}",
            value.to_bits()
        );
    }
    Ok(())
}

#[test]
fn random_numbers_are_those_of_the_host() -> Result<()> {
    for before in 0..4 {
        let generator = || -> Result<Generator> {
            let mut generator = Generator::new(77);
            Array::<f32>::rand_with(&mut generator, before)?;
            Array::<f32>::randn_with(&mut generator, before)?;
            Ok(generator)
        };
        same("rand", &|| Array::<f32>::rand_with(&mut generator()?, 103))?;
        same("rand", &|| Array::<f64>::rand_with(&mut generator()?, 103))?;
        same("rand", &|| Array::<f16>::rand_with(&mut generator()?, 103))?;
        same("randn", &|| {
            Array::<f32>::randn_with(&mut generator()?, 50_003)
        })?;
        same("randn", &|| {
            Array::<f64>::randn_with(&mut generator()?, 1003)
        })?;
        same("randn", &|| {
            Array::<f16>::randn_with(&mut generator()?, 1003)
        })?;
        same("randn", &|| {
            Array::<bf16>::randn_with(&mut generator()?, 1003)
        })?;
        same("randint", &|| {
            Array::randint_with(&mut generator()?, -5i8, 100, 103)
        })?;
        // Almost half of the draws are rejected.
        let bound = (1u64 << 63) + 6;
        same("randint", &|| {
            Array::randint_with(&mut generator()?, 5, bound, 103)
        })?;
        same("bernoulli", &|| {
            Array::bernoulli_with(&mut generator()?, 0.3, 103)
        })?;
        same("dropout_mask", &|| {
            Array::<f32>::dropout_mask_with(&mut generator()?, 0.3, 103)
        })?;
    }
    Ok(())
}

#[test]
fn large_arrays_are_compared_where_they_are() -> Result<()> {
    let device = Device::current();
    let x = Array::<f32>::arange(0.0, 60_000.0, 1.0)?.reshape([300, 200])?;
    let (y, mut other) = (x.to_uncached()?, x.to_uncached()?.flatten()?);
    other.assign(other.lazy().minimum(59_998.0))?;
    let _scope = device.scope("compared").enter();
    assert!(x == y);
    assert!(x.transpose()? == y.transpose()?);
    assert!(x != x.transpose()?);
    assert!(x != other.reshape([300, 200])?, "in the last element");
    let stats = device
        .cache_stats("compared")
        .expect("the scope was entered");
    assert_eq!(stats.hits + stats.misses, 0);
    let nan = Array::full(60_000, f32::NAN)?;
    assert!(nan != nan.clone());
    Ok(())
}

#[test]
fn one_kernel_writes_several_results() -> Result<()> {
    let parts = |number: usize| -> Result<Array<f64>> {
        let (table, row) = (table()?, row()?);
        let common = (&table - &row) * 0.5;
        let turned = table.transpose()?.transpose()?;
        let (a, b, c, d) = cachescope::eval((
            &common + 1.0,
            common.cast::<f16>(),
            common.gt(&turned),
            &row * 2.0,
        ))?;
        let all = [
            a.cast::<f64>().eval()?,
            b.cast::<f64>().eval()?,
            c.cast::<f64>().eval()?,
            d.cast::<f64>().eval()?,
        ];
        Ok(all.into_iter().nth(number).unwrap())
    };
    for number in 0..4 {
        same("a result", &|| parts(number))?;
    }
    Ok(())
}

#[test]
fn several_arrays_are_updated_of_their_old_values() -> Result<()> {
    let updated = |number: usize| -> Result<Array<f32>> {
        let (mut a, mut b, mut row) = (table()?, (table()? * 3.0).eval()?, row()?);
        let addresses = [a.address(), b.address()];
        cachescope::update((&mut a, &mut b, &mut row), |(a, b, row)| {
            (&b - &a, (a * 0.25 + b), row + 1.0)
        })?;
        assert_eq!([a.address(), b.address()], addresses, "in place");
        // The first target shares its memory with another handle. The second target is a part of a
        // larger array.
        let mut part = table()?
            .slice(s![.., 1..5, ..;2])?
            .to_uncached()?
            .slice(s![.., 1..3, ..])?;
        let kept = a.clone();
        cachescope::update((&mut a, &mut part), |(a, part)| (a * 2.0, part - 1.0))?;
        assert_eq!(kept.address(), addresses[0]);
        let all = [a, b, row, part, kept];
        Ok(all.into_iter().nth(number).unwrap())
    };
    for number in 0..5 {
        same("an array", &|| updated(number))?;
    }
    Ok(())
}

#[test]
fn boxed_expressions_are_kernels_too() -> Result<()> {
    same("a sum of a loop", &|| {
        let (table, row) = (table()?, row()?);
        let mut sum = table.lazy().boxed();
        for power in 1..6 {
            sum = (sum + &row * power as f32).boxed();
        }
        sum.eval()
    })?;
    same("a fold", &|| (table()? * 2.0).boxed().max_axis(1))?;
    // The first expression has a common subexpression. The second has equal values in different
    // operands.
    same("the same twice", &|| {
        let table = table()?;
        let part = (&table + 1.0).boxed();
        (&part * &part + (&table + 1.0)).eval()
    })?;
    same("not quite", &|| {
        let table = table()?;
        ((&table + 1.0) * (&table + 2.0) + (&table + 1.0)).eval()
    })
}
