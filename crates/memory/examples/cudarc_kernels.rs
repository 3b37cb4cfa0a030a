//! Uses a named cache for kernels that are launched through cudarc, without arrays. The program
//! integrates `y' = -y` by the midpoint method. Each step needs scratch memory.
//!
//! The host waits for the device only at the end, because a dropped buffer is reused in stream
//! order.

use std::error::Error;
use std::sync::Arc;

use cachescope_memory::cuda::cudarc::driver::result::memcpy_dtoh_async;
use cachescope_memory::cuda::cudarc::driver::{
    CudaFunction, CudaStream, LaunchConfig, PushKernelArg,
};
use cachescope_memory::cuda::cudarc::nvrtc::compile_ptx;
use cachescope_memory::{Buffer, Device, cache_scope};

const N: usize = 1000;
const STEPS: usize = 1000;
const STEP: f32 = 1e-3;
const TOLERANCE: f32 = 1e-4;

const SOURCE: &str = r#"
extern "C" __global__ void fill(float* out, float value, unsigned long long n) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = value;
}

extern "C" __global__ void slope(float* out, const float* y, unsigned long long n) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = -y[i];
}

extern "C" __global__ void advance(float* out, const float* y, const float* slope, float time,
                                   unsigned long long n) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = y[i] + time * slope[i];
}
"#;

/// An integrator of `y' = -y` for vectors of `N` numbers. It launches its kernels on `stream`.
struct Solver {
    device: Device,
    stream: Arc<CudaStream>,
    fill: CudaFunction,
    slope: CudaFunction,
    advance: CudaFunction,
}

impl Solver {
    fn new(device: Device) -> Result<Self, Box<dyn Error>> {
        let module = device.cuda_context()?.load_module(compile_ptx(SOURCE)?)?;
        Ok(Self {
            stream: device.default_stream().cuda_stream()?,
            fill: module.load_function("fill")?,
            slope: module.load_function("slope")?,
            advance: module.load_function("advance")?,
            device,
        })
    }

    /// Allocates a vector. Inside a scope, the vector is allocated from the scope's cache.
    fn vector(&self) -> cachescope_memory::Result<Buffer> {
        Buffer::new(&self.device, N * size_of::<f32>())
    }

    fn filled(&self, value: f32) -> Result<Buffer, Box<dyn Error>> {
        let out = self.vector()?;
        let address = out.address();
        let mut launch = self.stream.launch_builder(&self.fill);
        launch.arg(&address).arg(&value).arg(&N);
        // SAFETY: the arguments match the kernel's parameters. The kernel writes `N` numbers of
        // `out`, which was allocated on the stream.
        unsafe { launch.launch(LaunchConfig::for_num_elems(N as u32)) }?;
        Ok(out)
    }

    fn slope_of(&self, y: &Buffer) -> Result<Buffer, Box<dyn Error>> {
        let out = self.vector()?;
        let addresses = [out.address(), y.address()];
        let mut launch = self.stream.launch_builder(&self.slope);
        launch.arg(&addresses[0]).arg(&addresses[1]).arg(&N);
        // SAFETY: as in `filled`. Like `out`, `y` has `N` numbers and was allocated on the stream.
        unsafe { launch.launch(LaunchConfig::for_num_elems(N as u32)) }?;
        Ok(out)
    }

    /// Writes `y + time * slope` to `out`, which may be `y`.
    fn advance(
        &self,
        out: &Buffer,
        y: &Buffer,
        slope: &Buffer,
        time: f32,
    ) -> Result<(), Box<dyn Error>> {
        let addresses = [out, y, slope].map(Buffer::address);
        let mut launch = self.stream.launch_builder(&self.advance);
        for address in &addresses {
            launch.arg(address);
        }
        launch.arg(&time).arg(&N);
        // SAFETY: as in `slope_of`. A thread reads an element before it writes that element.
        unsafe { launch.launch(LaunchConfig::for_num_elems(N as u32)) }?;
        Ok(())
    }

    /// Advances `y` in place by one step.
    fn step(&self, y: &Buffer) -> Result<(), Box<dyn Error>> {
        let middle = self.vector()?;
        // The slope at `y` drops at the end of this statement. The slope at `middle` reuses its
        // block.
        self.advance(&middle, y, &self.slope_of(y)?, STEP / 2.0)?;
        self.advance(y, y, &self.slope_of(&middle)?, STEP)
    }

    /// Copies a vector to the host.
    fn read(&self, y: &Buffer) -> Result<Vec<f32>, Box<dyn Error>> {
        let mut numbers = vec![0.0; N];
        self.stream.context().bind_to_thread()?;
        // SAFETY: source and target have `N` numbers. The copy follows the kernels in the stream's
        // order, and `numbers` lives until the stream is synchronized.
        unsafe { memcpy_dtoh_async(&mut numbers, y.address(), self.stream.cu_stream()) }?;
        self.stream.synchronize()?;
        Ok(numbers)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = match Device::cuda(0) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let solver = Solver::new(device.clone())?;
    let y = solver.filled(1.0)?;
    for _ in 0..STEPS {
        cache_scope!("step", device = &device, { solver.step(&y)? });
    }
    let expected = (-(STEPS as f32) * STEP).exp();
    let numbers = solver.read(&y)?;
    let error = numbers
        .iter()
        .map(|number| (number - expected).abs())
        .fold(0.0, f32::max);
    println!("exp(-1) = {expected}, computed {}", numbers[0]);
    assert!(error <= TOLERANCE, "the error is {error}");

    let stats = device.cache_stats("step").expect("the scope was entered");
    println!(
        "{} blocks served {} requests",
        stats.misses,
        stats.hits + stats.misses
    );
    assert_eq!((stats.misses, stats.hits), (2, 3 * STEPS as u64 - 2));
    assert_eq!(stats.escaped_blocks, 0);
    Ok(())
}
