//! New arrays with extreme sizes and numbers.

use cachescope::{Array, Buffer, CacheConfig, Device, ErrorKind, Policy, Result};

use super::{ARGUMENT, COUNTS, Expected, Failures, MAX, on_small_device};
use Expected::Shape;

#[test]
fn counts_of_new_arrays() -> Result<()> {
    let mut failures = Failures::default();
    on_small_device(|| {
        for &count in COUNTS {
            let length = || Shape(vec![count as u128]);
            failures.expect(("zeros", count), length(), || Array::<u8>::zeros(count));
            failures.expect(("full", count), length(), || Array::full(count, 1.0f64));
            failures.expect(("linspace", count), length(), || {
                Array::linspace(0.0f32, 1.0, count)
            });
            failures.expect(("rand", count), length(), || Array::<f32>::rand(count));
            failures.expect(("randn", count), length(), || Array::<f64>::randn(count));
            failures.expect(("randint", count), length(), || {
                Array::randint(0i8, 5, count)
            });
            failures.expect(("bernoulli", count), length(), || {
                Array::<bool>::bernoulli(0.5, count)
            });
            failures.expect(("permutation", count), length(), || {
                Array::permutation(count)
            });
            let square = Shape(vec![count as u128; 2]);
            failures.expect(("eye", count), square, || Array::<f32>::eye(count));
            let empty = Shape(vec![0, count as u128]);
            failures.expect(("zeros", 0, count), empty, || {
                Array::<i64>::zeros([0, count])
            });
            let empty = Shape(vec![count as u128, 0]);
            failures.expect(("rand", count, 0), empty, || Array::<f64>::rand([count, 0]));
        }
        Ok(())
    })?;
    failures.none();
    Ok(())
}

/// Under every policy, a request of an impossible size is refused.
#[test]
fn sizes_within_scopes() -> Result<()> {
    on_small_device(|| {
        let device = Device::current();
        for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
            for max_bytes in [None, Some(0), Some(u64::MAX)] {
                let config = CacheConfig {
                    policy,
                    max_bytes,
                    record: max_bytes.is_none(),
                    ..Default::default()
                };
                device.configure_cache("extreme", config);
                for _ in 0..3 {
                    let _entry = device.scope("extreme").enter();
                    for bytes in [
                        MAX / 2,
                        MAX - 511,
                        MAX,
                        MAX + 1,
                        usize::MAX - 511,
                        usize::MAX,
                    ] {
                        let error = Buffer::new(&device, bytes).expect_err("nobody has so much");
                        let kind = error.kind();
                        let is_reported =
                            kind == ErrorKind::InvalidShape || error.is_out_of_memory();
                        assert!(is_reported, "{policy}: {error}");
                        assert_eq!(Array::<u8>::ones(bytes % 7)?.len(), bytes % 7);
                    }
                }
            }
        }
        Ok(())
    })
}

/// Compares ranges for every combination of extreme starts, stops and steps with ranges in wider
/// integers.
macro_rules! check_ranges {
    ($failures:ident, $($type:ident)+) => {
        $(
            let ends = [$type::MIN, $type::MIN + 1, 0, 1, $type::MAX / 2, $type::MAX - 1, $type::MAX];
            let pairs = ends.iter().flat_map(|start| ends.map(|stop| (*start, stop)));
            for ((start, stop), step) in pairs.flat_map(|pair| ends.map(|step| (pair, step))) {
                let [from, to, by] = [start, stop, step].map(|end| i128::try_from(end).unwrap());
                let count = match by {
                    0 => None,
                    _ if (to - from).signum() != by.signum() => Some(0),
                    _ => Some((to - from).unsigned_abs().div_ceil(by.unsigned_abs())),
                };
                let expected = count.map_or(ARGUMENT, |count| Shape(vec![count]));
                let call = (stringify!($type), start, stop, step);
                $failures.expect(call, expected, || Array::arange(start, stop, step));
                if let Some(count) = count.filter(|&count| count < 1000) {
                    let values = (0..count as i128).map(|index| (from + index * by) as $type);
                    let values: Vec<$type> = values.collect();
                    assert_eq!(Array::arange(start, stop, step)?.to_vec()?, values, "{call:?}");
                }
            }
        )+
    };
}

#[test]
fn ranges_of_extreme_numbers() -> Result<()> {
    let mut failures = Failures::default();
    on_small_device(|| {
        check_ranges!(failures, i8 i16 i32 i64 u8 u16 u32 u64);
        let numbers = [
            0.0,
            1.0,
            -1.0,
            1e300,
            f64::MIN,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::INFINITY,
            f64::NAN,
        ];
        for start in numbers {
            for stop in numbers {
                for step in numbers {
                    failures.survives(("arange", start, stop, step), || {
                        Array::arange(start, stop, step).map(drop)
                    });
                }
                let is_range = start.is_finite() && stop.is_finite();
                let expected = if is_range { Shape(vec![3]) } else { ARGUMENT };
                failures.expect(("linspace", start, stop), expected, || {
                    Array::linspace(start, stop, 3)
                });
            }
        }
        let nine = || Shape(vec![9]);
        failures.expect("randint", nine(), || Array::randint(i64::MIN, i64::MAX, 9));
        failures.expect("randint", nine(), || Array::randint(0, u64::MAX, 9));
        Ok(())
    })?;
    failures.none();
    Ok(())
}
