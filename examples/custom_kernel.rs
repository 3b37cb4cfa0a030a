//! A user-defined kernel between array operations: a hot plate cools down by a stencil. The stencil
//! is written in CUDA C++, compiled by NVRTC and launched through cudarc. The result is compared
//! with the result of array operations on the host.
//!
//! No explicit synchronisation is needed. The kernel runs after the work that wrote its arrays, and
//! later work on the arrays runs after the kernel.

use std::error::Error;

use cachescope::cuda::cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use cachescope::cuda::cudarc::nvrtc::compile_ptx;
use cachescope::prelude::*;

const ROWS: usize = 200;
const COLUMNS: usize = 300;
const STEPS: usize = 100;
const RATE: f32 = 0.2;
const TOLERANCE: f32 = 1e-5;

/// A kernel for one step of the heat equation. The elements at the edges do not change.
const SOURCE: &str = r#"
extern "C" __global__ void diffuse(float* out, const float* in, int rows, int columns, float rate) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    int i = row * columns + column;
    float here = in[i];
    bool is_edge = row == 0 || row == rows - 1 || column == 0 || column == columns - 1;
    float flow = is_edge ? 0.0f : in[i - columns] + in[i + columns] + in[i - 1] + in[i + 1] - 4.0f * here;
    out[i] = here + rate * flow;
}
"#;

/// Returns a plate that is warm in the middle, and hottest along a bar.
fn plate() -> Result<Array<f32>> {
    let rows = Array::<f32>::linspace(-1.0, 1.0, ROWS)?.unsqueeze(1)?;
    let columns = Array::<f32>::linspace(-1.0, 1.0, COLUMNS)?.unsqueeze(0)?;
    let warm = (-4.0 * (rows.square() + columns.square())).exp();
    let bar = rows.abs().lt(0.1).cast::<f32>();
    (warm + 2.0 * bar * columns.abs().lt(0.5).cast::<f32>()).eval()
}

/// Computes `STEPS` steps with the kernel. Each step reads one array and writes the other.
fn by_kernel(device: &Device, kernel: &CudaFunction) -> Result<Array<f32>, Box<dyn Error>> {
    let stream = device.default_stream().cuda_stream()?;
    let blocks = |length: usize, threads: u32| (length as u32).div_ceil(threads);
    let launch = LaunchConfig {
        grid_dim: (blocks(COLUMNS, 32), blocks(ROWS, 8), 1),
        block_dim: (32, 8, 1),
        shared_mem_bytes: 0,
    };
    let (mut now, mut next) = (plate()?, Array::<f32>::zeros([ROWS, COLUMNS])?);
    for _ in 0..STEPS {
        {
            let (from, mut to) = (now.cuda_view()?, next.cuda_view_mut()?);
            let mut builder = stream.launch_builder(kernel);
            builder.arg(&mut to).arg(&from);
            builder
                .arg(&(ROWS as i32))
                .arg(&(COLUMNS as i32))
                .arg(&RATE);
            // SAFETY: the arguments are the kernel's parameters, and the kernel's accesses are
            // within the rows and columns of both arrays.
            unsafe { builder.launch(launch) }?;
        }
        std::mem::swap(&mut now, &mut next);
    }
    Ok(now)
}

/// Computes the steps with array operations.
#[expect(
    clippy::reversed_empty_ranges,
    reason = "a negative end counts from the end of the axis"
)]
fn by_operations() -> Result<Array<f32>> {
    let mut plate = plate()?;
    for _ in 0..STEPS {
        plate = cache_scope!("step", {
            let here = plate.slice(s![1..-1, 1..-1])?;
            let beside = plate.slice(s![1..-1, ..-2])? + plate.slice(s![1..-1, 2..])?;
            let above = plate.slice(s![..-2, 1..-1])? + plate.slice(s![2.., 1..-1])?;
            let flow = (above + beside - 4.0 * &here)
                .eval()?
                .pad(&[(1, 1), (1, 1)], 0.0)?;
            (&plate + RATE * flow).eval()?
        });
    }
    Ok(plate)
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = match Device::cuda(0) {
        Ok(device) => device,
        Err(error) => {
            println!("nothing to run on: {error}");
            return Ok(());
        }
    };
    let cooled = {
        let _guard = device.enter();
        // The first use of NVRTC must be an array operation. If NVRTC is missing, the operation's
        // error says what to install, whereas cudarc would panic.
        println!("heat at first: {:.3}", plate()?.sum()?.item()?);
        let module = device.cuda_context()?.load_module(compile_ptx(SOURCE)?)?;
        let cooled = by_kernel(&device, &module.load_function("diffuse")?)?;
        println!("heat after {STEPS} steps: {:.3}", cooled.sum()?.item()?);
        println!("hottest: {:.3}", cooled.max()?.item()?);
        cooled.to_device(&Device::host())?
    };
    let _guard = Device::host().enter();
    let error = (&cooled - &by_operations()?).abs().max()?.item()?;
    println!("the host's array operations differ by {error:.1e} at most");
    assert!(error <= TOLERANCE, "that is another plate");
    Ok(())
}
