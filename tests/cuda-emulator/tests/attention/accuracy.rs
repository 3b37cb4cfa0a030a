//! The errors of fused attention, against `f64` and against separate operations of the same type.

use cachescope::{Array, Device, DeviceConfig, Float, Result};
use half::{bf16, f16};

use super::{Case, Operands, case};

/// Widths and lengths on both sides of each tile. A causal mask has more queries than keys, or
/// fewer.
const CASES: [Case; 12] = [
    case(&[2, 3], [40, 40], [32, 32], false),
    case(&[2], [65, 65], [64, 64], true),
    case(&[], [1, 1], [8, 8], true),
    case(&[1], [3, 130], [16, 40], false),
    case(&[2], [150, 70], [24, 33], true),
    case(&[2], [70, 150], [96, 64], true),
    case(&[1], [33, 97], [128, 128], false),
    case(&[1], [129, 129], [128, 128], true),
    case(&[1], [66, 34], [192, 160], true),
    case(&[1], [40, 70], [256, 256], false),
    case(&[1], [65, 17], [256, 200], true),
    case(&[1], [300, 290], [1, 3], true),
];

/// Checks the errors against the errors of separate operations. The factor is two for the result,
/// and three for the gradients.
fn check<T: Float>(device: &Device, case: &Case, spread: f64) -> Result<()> {
    let operands = case.operands::<T>(spread)?;
    let exact = operands.cast::<f64>()?.attended(case.causal)?;
    let allowed = operands.unfused(case.causal)?.errors(&exact);
    let _guard = device.enter();
    let errors = operands.on(device)?.attended(case.causal)?.errors(&exact);
    for (at, (error, allowed)) in errors.into_iter().zip(allowed).enumerate() {
        let times = if at == 0 { 2.0 } else { 3.0 };
        let least = 1e-7 * spread;
        assert!(
            error <= times * allowed + least,
            "{case:?} {at}: {error:e}, {allowed:e}"
        );
    }
    Ok(())
}

fn check_all<T: Float>(device: &Device, cases: &[Case]) -> Result<()> {
    for case in cases {
        check::<T>(device, case, 1.0)?;
    }
    check::<T>(device, &CASES[1], 3.0)
}

#[test]
fn halves_are_as_accurate_as_separate_operations() -> Result<()> {
    // Only two instructions differ between `f16` and `bf16`.
    check_all::<f16>(&Device::cuda(0)?, &CASES[..5])
}

#[test]
fn brain_floats_are_as_accurate_as_separate_operations() -> Result<()> {
    check_all::<bf16>(&Device::cuda(0)?, &CASES)
}

#[test]
fn floats_are_as_accurate_as_separate_operations() -> Result<()> {
    check_all::<f32>(&Device::cuda(0)?, &CASES)
}

/// Operands rounded to TF32 have 11 significant bits, as `f16` has.
#[test]
fn tf32_is_as_accurate_as_its_operands() -> Result<()> {
    let config = DeviceConfig {
        tf32: true,
        ..DeviceConfig::default()
    };
    let device = Device::cuda_with(0, config)?;
    for case in &CASES[..8] {
        let operands = case.operands::<f32>(1.0)?;
        let exact = operands.cast::<f64>()?.attended(case.causal)?;
        let allowed = operands.cast::<f16>()?.unfused(case.causal)?.errors(&exact);
        let _guard = device.enter();
        let errors = operands.on(&device)?.attended(case.causal)?.errors(&exact);
        for (at, (error, allowed)) in errors.into_iter().zip(allowed).enumerate() {
            assert!(
                error <= 3.0 * allowed + 1e-7,
                "{case:?} {at}: {error:e}, {allowed:e}"
            );
        }
    }
    Ok(())
}

/// Each operand broadcasts along other axes of the heads.
#[test]
fn heads_broadcast() -> Result<()> {
    let heads: [[&'static [usize]; 3]; 4] = [
        [&[2, 4], &[2, 1], &[2, 1]],
        [&[2, 3], &[1, 3], &[3]],
        [&[], &[3], &[2, 1]],
        [&[1, 2, 1], &[2, 1, 3], &[1, 1, 3]],
    ];
    for heads in heads {
        let mut case = case(&[], [70, 50], [32, 32], true);
        case.heads = heads;
        let device = Device::cuda(0)?;
        let operands = case.operands::<f32>(1.0)?;
        let shape = operands
            .q
            .matmul(&operands.k.swap_axes(-1, -2)?)?
            .matmul(&operands.v)?;
        let weights = Array::<f32>::randn(shape.shape())?;
        let operands = Operands {
            weights,
            ..operands
        };
        let exact = operands.cast::<f64>()?.attended(true)?;
        let _guard = device.enter();
        let errors = operands.on(&device)?.attended(true)?.errors(&exact);
        assert!(
            errors.into_iter().all(|error| error < 2e-6),
            "{heads:?}: {errors:?}"
        );
    }
    Ok(())
}
