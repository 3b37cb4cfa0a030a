//! Tests of matrix products on the emulated device, which must equal the host's products.

use cachescope::ndarray::s;
use cachescope::{Array, Device, DeviceConfig, Numeric, Result};
use half::bf16;

use crate::indexing::{numbers, same};

fn products<T: Numeric>() -> Result<()> {
    let name = T::NAME;
    let matrix = |rows: usize, columns: usize| numbers::<T>(&[rows, columns]);
    same(&format!("{name}: rows by columns"), || {
        matrix(35, 40)?.matmul(&matrix(40, 33)?)
    })?;
    same(&format!("{name}: transposes"), || {
        let (left, right) = (matrix(7, 5)?.transpose()?, matrix(4, 7)?.transpose()?);
        left.matmul(&right)
    })?;
    same(&format!("{name}: parts and gaps"), || {
        let left = matrix(9, 12)?.slice(s![1..7;2, ..;2])?;
        left.matmul(&matrix(6, 9)?.slice(s![..;-1, 2..7])?)
    })?;
    same(&format!("{name}: batches that are broadcast"), || {
        let left = numbers::<T>(&[3, 1, 4, 5])?;
        left.matmul(&numbers(&[2, 5, 3])?)
    })?;
    same(&format!("{name}: heads inside of positions"), || {
        let left = numbers::<T>(&[2, 4, 9, 5])?.swap_axes(1, 2)?;
        left.matmul(&numbers::<T>(&[2, 4, 9, 5])?.permute(&[0, 2, 3, 1])?)
    })?;
    same(&format!("{name}: a matrix and a vector"), || {
        matrix(20, 50)?.matmul(&numbers(&[50])?)
    })?;
    same(&format!("{name}: a vector and a matrix"), || {
        numbers::<T>(&[600])?.matmul(&matrix(600, 30)?)
    })?;
    same(&format!("{name}: an inner product"), || {
        numbers::<T>(&[40_000])?.dot(&numbers::<T>(&[40_000])?.flip(0)?)
    })?;
    same(&format!("{name}: batches of vectors"), || {
        numbers::<T>(&[3, 4, 1200])?.matmul(&numbers(&[3, 1200, 1])?)
    })?;
    same(&format!("{name}: sums of nothing"), || {
        matrix(3, 0)?.matmul(&matrix(0, 4)?)
    })
}

#[test]
fn products_run_on_the_current_stream() -> Result<()> {
    let device = Device::cuda_with(0, Default::default())?;
    let _guard = device.enter();
    let left = Array::<f32>::ones([40, 30])?;
    let right = Array::<f32>::full([30, 50], 2.0)?;
    let streams = [device.new_stream()?, device.new_stream()?];
    for stream in streams.iter().cycle().take(4) {
        let _guard = stream.enter();
        assert_eq!(left.matmul(&right)?.to_vec()?, [60.0; 2000]);
    }
    Ok(())
}

#[test]
fn products_of_floats() -> Result<()> {
    products::<f32>()?;
    products::<f64>()
}

#[test]
fn products_of_short_floats() -> Result<()> {
    products::<bf16>()
}

#[test]
fn products_of_integers() -> Result<()> {
    products::<i8>()?;
    products::<u64>()
}

#[test]
fn f32_is_rounded_to_tf32_by_choice_alone() -> Result<()> {
    let value = 1.0 + 8.0 * f32::EPSILON;
    let multiplied = |tf32| {
        let device = Device::cuda_with(
            0,
            DeviceConfig {
                tf32,
                ..Default::default()
            },
        )?;
        let _guard = device.enter();
        let identity = Array::from_vec(vec![1.0, 0.0, 0.0, 1.0], [2, 2])?;
        Array::full([2, 2], value)?.matmul(&identity)?.to_vec()
    };
    assert_eq!(multiplied(false)?, [value; 4]);
    let rounded = multiplied(true)?;
    // A real device may compute without TF32.
    if cuda_emulator::Control::of_process().is_some() {
        assert_eq!(rounded, [1.0; 4]);
    }
    assert!(
        rounded
            .iter()
            .all(|&rounded| rounded == 1.0 || rounded == value)
    );
    Ok(())
}
