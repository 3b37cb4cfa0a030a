//! Ranges of decimals in every float type, and ranges at the limits of the types.

use cachescope::{Array, ErrorKind, Float, Result};
use half::{bf16, f16};

use crate::arrays::fails;

/// A range of decimals: `start`, `step` and `stop` in hundredths.
#[derive(Clone, Copy, Debug)]
struct Decimals {
    start: i64,
    step: i64,
    stop: i64,
}

impl Decimals {
    /// Returns the exact value at `index`, rounded to `f64`.
    fn at(self, index: i64) -> f64 {
        (self.start + index * self.step) as f64 / 100.0
    }

    fn bounds<T: Float>(self) -> [T; 3] {
        [self.start, self.stop, self.step].map(|number| T::from_f64(number as f64 / 100.0))
    }
}

/// Returns 2,640 ranges in both directions. Some ranges end at a value, and others end between two
/// values.
fn ranges() -> impl Iterator<Item = Decimals> {
    let starts = [0, 10, 50, 100, -100, 250, -30, 700];
    let steps = [1, 3, 5, 10, 15, 20, 30, 40, 60, 70, 90];
    let counts = [1, 2, 3, 7, 10, 13, 29, 50, 100, 256];
    let lengths = counts.map(|count| [2 * count, 2 * count - 1]);
    let lengths = lengths.into_iter().flatten().take(15);
    starts.into_iter().flat_map(move |start| {
        let lengths = lengths.clone();
        steps.into_iter().flat_map(move |step| {
            let ways = lengths
                .clone()
                .flat_map(move |halves| [(halves, step), (halves, -step)]);
            ways.map(move |(halves, step)| Decimals {
                start,
                step,
                stop: start + halves * step / 2,
            })
        })
    })
}

fn holds<T: Float>() -> Result<()> {
    let mut checked = 0;
    for range in ranges() {
        let [start, stop, step] = range.bounds::<T>();
        let values = Array::arange(start, stop, step)?.to_vec()?;
        let name = format!("{} {range:?}", T::NAME);
        let is_before = |value: f64| match range.step > 0 {
            true => value < stop.to_f64(),
            false => value > stop.to_f64(),
        };
        assert!(
            values.iter().all(|value| is_before(value.to_f64())),
            "{name}: {values:?}"
        );
        assert_eq!(
            values.first().copied(),
            is_before(start.to_f64()).then_some(start),
            "{name}"
        );
        // `exact` contains the values that are before the end after rounding. Values of `f64` are
        // rounded twice, so their count may differ by one.
        let exact = (0..).map(|index| T::from_f64(range.at(index)));
        let exact: Vec<T> = exact
            .take_while(|value| is_before(value.to_f64()))
            .collect();
        if T::MANTISSA_DIGITS < f64::MANTISSA_DIGITS {
            assert_eq!(values, exact, "{name}");
        } else {
            assert!(values.len().abs_diff(exact.len()) <= 1, "{name}");
        }
        checked += 1;
    }
    assert!(checked > 2600, "{checked}");
    Ok(())
}

#[test]
fn no_value_of_a_range_is_at_its_end_or_beyond() -> Result<()> {
    holds::<f32>()?;
    holds::<f64>()?;
    holds::<f16>()?;
    holds::<bf16>()
}

/// The ranges for which NumPy's `arange` returns one more value.
const LONGER_IN_NUMPY: [(f64, f64, f64); 18] = [
    (0.0, 2.1, 0.3),
    (0.0, 4.2, 0.6),
    (1.0, 1.1, 0.1),
    (1.0, 1.3, 0.1),
    (1.0, 1.6, 0.1),
    (1.0, 2.2, 0.1),
    (1.0, 1.6, 0.2),
    (1.0, 2.2, 0.2),
    (1.0, 1.3, 0.3),
    (1.0, 1.6, 0.3),
    (1.0, 2.2, 0.3),
    (1.0, 3.1, 0.3),
    (1.0, 4.9, 0.3),
    (1.0, 2.2, 0.4),
    (1.0, 1.6, 0.6),
    (1.0, 2.2, 0.6),
    (1.0, 5.2, 0.6),
    (1.0, 8.8, 0.6),
];

#[test]
fn ranges_that_are_longer_in_numpy() -> Result<()> {
    let mut found = Vec::new();
    for (start, tenths, count) in [0, 10]
        .iter()
        .flat_map(|start| (1..10).map(move |tenths| (*start, tenths)))
        .flat_map(|(start, tenths)| (1..14).map(move |count| (start, tenths, count)))
    {
        let [start, stop, step] =
            [start, start + count * tenths, tenths].map(|number| f64::from(number) / 10.0);
        let in_numpy = ((stop - start) / step).ceil() as usize;
        let length = Array::arange(start, stop, step)?.len();
        match in_numpy - length {
            0 => {}
            1 => found.push((start, stop, step)),
            more => panic!("{more} more for {start}, {stop}, {step}"),
        }
    }
    assert_eq!(found, LONGER_IN_NUMPY);
    Ok(())
}

/// For these ranges, a length that is computed from the rounded bounds would be wrong.
#[test]
fn ranges_of_decimals_of_every_size() -> Result<()> {
    fn lengths<T: Float>(rows: &[(f64, f64, f64, usize)]) -> Result<()> {
        for &(start, stop, step, length) in rows {
            let ends = [start, stop, step].map(T::from_f64);
            let forwards = Array::arange(ends[0], ends[1], ends[2])?;
            let backwards = Array::arange(-ends[0], -ends[1], -ends[2])?;
            let name = format!("{} from {start} to {stop} in steps of {step}", T::NAME);
            assert_eq!(
                (forwards.len(), backwards.len()),
                (length, length),
                "{name}"
            );
        }
        Ok(())
    }
    lengths::<bf16>(&[
        (1.06, 1.16, 0.01, 10),
        (1.09, 1.12, 0.01, 3),
        (1.16, 1.17, 0.01, 1),
        (3e37, 0.0, -1e37, 3),
    ])?;
    lengths::<f16>(&[(20.47, 20.8, 0.01, 32)])?;
    lengths::<f32>(&[
        (7.86438, 7.9517, 0.02183, 4),
        (3e37, 0.0, -1e37, 3),
        (3e-29, 0.0, -3e-30, 10),
        (-0.3, 1e-40, 0.1, 4),
    ])?;
    let values = Array::arange(3e37_f32, 0.0, -1e37)?.to_vec()?;
    assert_eq!(values, [3e37, 2e37, 1e37]);
    Ok(())
}

#[test]
fn a_step_beyond_the_end_leads_to_the_start() -> Result<()> {
    fn alone<T: Float>() -> Result<()> {
        let (most, inf) = (T::max_value(), T::from_f64(f64::INFINITY));
        for step in [T::from_f64(3.0), T::from_f64(1e4), most, inf] {
            let (zero, one) = (T::zero(), T::one());
            assert_eq!(Array::arange(zero, one, step)?.to_vec()?, [zero]);
            assert_eq!(Array::arange(one, zero, -step)?.to_vec()?, [one]);
            assert_eq!(Array::arange(one, zero, step)?.len(), 0);
            assert_eq!(Array::arange(one, one, step)?.len(), 0);
            assert_eq!(Array::arange(zero, most, inf)?.to_vec()?, [zero]);
        }
        Ok(())
    }
    alone::<f32>()?;
    alone::<f64>()?;
    alone::<f16>()?;
    alone::<bf16>()?;
    assert_eq!(Array::arange(0.0, 1.0, 1e300)?.to_vec()?, [0.0]);
    Ok(())
}

#[test]
fn ranges_whose_length_overflows() -> Result<()> {
    let values = Array::arange(-1.5e308, 1.7e308, 1e307)?.to_vec()?;
    assert_eq!(values.len(), 32);
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]) && values[31] < 1.7e308);
    let back = Array::arange(f64::MAX, f64::MIN, -f64::MAX)?.to_vec()?;
    assert_eq!(back, [f64::MAX, 0.0]);
    let most = f16::MAX;
    assert_eq!(
        Array::arange(-most, most, most)?.to_vec()?,
        [-most, f16::ZERO]
    );
    let values = Array::linspace(f64::MIN, f64::MAX, 5)?.to_vec()?;
    let parts = values.iter().map(|value| value / f64::MAX);
    let mut pairs = parts.zip([-1.0, -0.5, 0.0, 0.5, 1.0]);
    assert!(pairs.all(|(part, expected): (f64, f64)| (part - expected).abs() < 1e-15));
    let values = Array::linspace(f32::MAX, f32::MIN, 3)?.to_vec()?;
    assert_eq!(values, [f32::MAX, 0.0, f32::MIN]);
    Ok(())
}

#[test]
fn bins_whose_width_overflows() -> Result<()> {
    fn wide<T: Float>() -> Result<()> {
        let (most, zero) = (T::max_value(), T::zero());
        let x = Array::from_slice(&[-most, most, zero, T::one(), most], 5)?;
        let (counts, edges) = x.histogram(2)?;
        assert_eq!(counts.to_vec()?, [1, 4], "{}", T::NAME);
        assert_eq!(edges.to_vec()?, [-most, zero, most], "{}", T::NAME);
        assert_eq!(x.histogram(1)?.0.to_vec()?, [5]);
        Ok(())
    }
    wide::<f32>()?;
    wide::<f64>()?;
    wide::<f16>()?;
    wide::<bf16>()
}

#[test]
fn binary_steps_stay_exact() -> Result<()> {
    for power in [3, 10, 16, 20] {
        let step = 0.5_f32.powi(power);
        let values = Array::arange(0.0, 1.0, step)?.to_vec()?;
        assert_eq!(values.len(), 1 << power);
        assert!(
            values
                .iter()
                .enumerate()
                .all(|(index, &value)| value == index as f32 * step)
        );
    }
    let step = f16::from_f64(0.5_f64.powi(11));
    assert_eq!(Array::arange(f16::ZERO, f16::ONE, step)?.len(), 1 << 11);
    Ok(())
}

#[test]
fn linspace_stays_between_its_ends() -> Result<()> {
    fn ordered<T: Float>() -> Result<()> {
        for (start, stop) in [
            (0.1, 0.7),
            (0.7, 0.1),
            (-3.0, 1e-3),
            (1.0, 1.0 + 1e-15),
            (5.0, 5.0),
        ] {
            let [start, stop] = [start, stop].map(T::from_f64);
            for count in [2, 3, 10, 4097] {
                let values = Array::linspace(start, stop, count)?.to_vec()?;
                assert_eq!((values[0], values[count - 1]), (start, stop));
                let is_ordered = values.windows(2).all(|pair| match start <= stop {
                    true => pair[0] <= pair[1],
                    false => pair[0] >= pair[1],
                });
                assert!(is_ordered, "{} from {start} to {stop}", T::NAME);
            }
        }
        Ok(())
    }
    ordered::<f32>()?;
    ordered::<f64>()?;
    ordered::<f16>()?;
    ordered::<bf16>()
}

#[test]
fn refuses_ends_and_steps_that_lead_nowhere() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for bad in odd {
        fails(Array::arange(bad, 1.0, 1.0), KIND, "arange");
        fails(Array::arange(0.0, bad, 1.0), KIND, "arange");
        fails(Array::arange(0.0_f32, bad as f32, 1.0), KIND, "arange");
        for count in [0, 1, 5] {
            fails(Array::linspace(bad, 1.0, count), KIND, "linspace: start");
            fails(Array::linspace(0.0, bad, count), KIND, "linspace: stop");
            let bad = f16::from_f64(bad);
            fails(
                Array::linspace(f16::ZERO, bad, count),
                KIND,
                "linspace: stop",
            );
        }
    }
    for step in [0.0, -0.0, f64::NAN] {
        fails(Array::arange(0.0, 1.0, step), KIND, "arange");
        fails(Array::arange(0.0_f32, 1.0, step as f32), KIND, "arange");
    }
}
