//! Tests of softmax and log-softmax. Some lanes fit into a block's shared memory, with or without
//! packs, and other lanes do not fit. The results are compared with the host's results, and with
//! general properties.

use cachescope::ndarray::s;
use cachescope::{Array, Float, Result};
use half::{bf16, f16};

use crate::along::{both, floats, near};

fn alike<T: Float>(what: &str, tolerance: f64, host: &Array<T>, cuda: &Array<T>) -> Result<()> {
    let what = format!("{what} of {} in {:?}", T::NAME, host.shape());
    near(&what, tolerance, &host.softmax(1)?, &cuda.softmax(1)?)?;
    let (one, other) = (host.log_softmax(1)?, cuda.log_softmax(1)?);
    near(&what, 2.0 * tolerance, &one, &other)
}

/// Checks lanes of at least `least` elements. The element values depend on their indices.
fn lanes<T: Float>(of: fn(f32) -> T, tolerance: f64, least: usize) -> Result<()> {
    // The lengths are near the first length that does not fit, and near multiples of packs and of
    // parts.
    let lengths =
        [0, 1, 2, 3, 7, 8, 15, 16, 4095, 4096, 4097, 8193, 12_289].map(|more| least + more);
    for length in lengths {
        for lines in [1, 2, 3] {
            let values: Vec<T> = (floats(lines * length).iter())
                .map(|&x| of(x * 12.0))
                .collect();
            let [host, cuda] = both(&values, &[lines, length])?;
            alike("numbers", tolerance, &host, &cuda)?;
        }
    }
    Ok(())
}

#[test]
fn long_lanes_of_every_float() -> Result<()> {
    lanes(|x| x, 5e-7, 8193)?;
    lanes(f64::from, 2e-15, 4097)?;
    lanes(f16::from_f32, 1e-3, 8193)?;
    lanes(bf16::from_f32, 8e-3, 8193)
}

/// Lanes that consist of whole packs, and other lanes. A lane is computed by a thread, a warp or a
/// block.
#[test]
fn short_lanes_of_every_float() -> Result<()> {
    fn of<T: Float>(of: fn(f32) -> T, tolerance: f64) -> Result<()> {
        for length in [
            1, 3, 4, 8, 12, 16, 17, 24, 64, 100, 127, 128, 136, 256, 260, 264, 2048, 4096,
        ] {
            for lines in [1, 3, 37, 1025] {
                if lines > 37 && length > 300 {
                    continue;
                }
                let values = floats(lines * length);
                let values: Vec<T> = values.iter().map(|&x| of(x * 12.0)).collect();
                let [host, cuda] = both(&values, &[lines, length])?;
                alike("numbers", tolerance, &host, &cuda)?;
            }
        }
        Ok(())
    }
    of(|x| x, 5e-7)?;
    of(f64::from, 2e-15)?;
    of(f16::from_f32, 1e-3)?;
    of(bf16::from_f32, 8e-3)
}

/// The operands cannot be read in packs, or their lanes do not begin at a pack boundary.
#[test]
fn long_lanes_of_any_operands() -> Result<()> {
    let values = floats(4 * 9003);
    let [host, cuda] = both(&values, &[4, 9003])?;
    type Part = fn(&Array<f32>) -> Result<Array<f32>>;
    let parts: [(&str, Part); 5] = [
        ("between packs", |x| {
            x.flatten()?.slice(s![1..18_007])?.reshape([2, 9003])
        }),
        ("in steps", |x| x.reshape([2, 18_006])?.slice(s![.., ..;2])),
        ("rows apart", |x| x.slice(s![..;2, 3..8999])),
        ("backwards", |x| x.flip(1)),
        ("one row", |x| {
            x.slice(s![1..2, ..])?.broadcast_to([3, 9003])
        }),
    ];
    for (what, part) in parts {
        alike(what, 5e-7, &part(&host)?, &part(&cuda)?)?;
    }
    let sums = |x: &Array<f32>| (x * 9.0 + &x.slice(s![1, ..])?).softmax(1);
    near("an expression", 5e-7, &sums(&host)?, &sums(&cuda)?)
}

/// The maximum increases repeatedly, is the first element, or follows elements of −∞.
#[test]
fn the_scale_is_found_on_the_way() -> Result<()> {
    let length = 20_011;
    let along = |of: &dyn Fn(usize) -> f32| (0..length).map(of).collect::<Vec<f32>>();
    let inf = f32::INFINITY;
    let lines = [
        ("rising", along(&|at| at as f32 * 1e-3)),
        ("rising slowly", along(&|at| at as f32 * 1e-5)),
        ("rising fast", along(&|at| at as f32)),
        ("falling", along(&|at| at as f32 * -1e-3)),
        ("equal", along(&|_| 3.5)),
        (
            "masked before",
            along(&|at| if at < 15_000 { -inf } else { 0.5 }),
        ),
        (
            "masked behind",
            along(&|at| if at < 7 { 2.0 } else { -inf }),
        ),
        (
            "masked here and there",
            along(&|at| if at % 9 == 4 { 1.0 } else { -inf }),
        ),
        (
            "one alone",
            along(&|at| if at == 11_111 { -300.0 } else { -inf }),
        ),
        ("large", along(&|at| if at % 2 == 0 { 3e38 } else { -3e38 })),
        ("none", along(&|_| -inf)),
        (
            "infinite",
            along(&|at| if at == 11_111 { inf } else { 0.0 }),
        ),
        (
            "NaN",
            along(&|at| if at == 3 { f32::NAN } else { at as f32 }),
        ),
        (
            "NaN at the end",
            along(&|at| if at == length - 1 { f32::NAN } else { -inf }),
        ),
    ];
    for (what, values) in lines {
        // The lane begins at each possible distance from a pack boundary.
        for begin in 0..5 {
            let [host, cuda] = both(&values, &[1, length])?;
            let part = |x: Array<f32>| x.slice(s![.., begin..]);
            alike(what, 5e-7, &part(host)?, &part(cuda)?)?;
        }
    }
    Ok(())
}

/// The rounding errors of a sum of equal terms do not grow with the length of the lane.
#[test]
fn shares_of_a_long_lane_are_exact() -> Result<()> {
    let [_, cuda] = both(&vec![0.25f32; 3 << 18], &[3, 1 << 18])?;
    assert_eq!(
        cuda.softmax(1)?.to_vec()?,
        vec![1.0 / (1 << 18) as f32; 3 << 18]
    );
    Ok(())
}
