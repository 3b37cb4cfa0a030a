//! Tests of foreign kernels and copies on exported arrays, and of imported memory, through cudarc.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use cachescope::cuda::cudarc::driver::{
    CudaFunction, CudaStream, DevicePtr, DeviceSlice, LaunchConfig, PushKernelArg,
};
use cachescope::cuda::cudarc::nvrtc::compile_ptx;
use cachescope::{Array, Device, DeviceConfig, ErrorKind, Policy, cache_scope, graph};
use cuda_emulator::Control;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const N: usize = 100;

const SAXPY: &str = r#"
extern "C" __global__ void saxpy(float* y, const float* x, float a, unsigned long long n) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"#;

/// The device of a test. The lock serialises the tests, because live objects are counted per
/// process.
struct Place {
    device: Device,
    complaints: u64,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    fn new() -> Result<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(Self {
            device: Device::cuda_with(0, DeviceConfig::default())?,
            complaints: Control::of_process().map_or(0, |control| control.complaints()),
            _alone: alone,
        })
    }

    fn saxpy(&self) -> Result<CudaFunction> {
        let module = self
            .device
            .cuda_context()?
            .load_module(compile_ptx(SAXPY)?)?;
        Ok(module.load_function("saxpy")?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(control) = Control::of_process().filter(|_| !std::thread::panicking()) {
            let complaints = control.complaints() - self.complaints;
            assert_eq!(complaints, 0, "{}", control.last_complaint());
        }
    }
}

/// Enqueues the kernel `y += a x` on `stream`.
fn launch(
    stream: &CudaStream,
    saxpy: &CudaFunction,
    y: &mut Array<f32>,
    a: f32,
    x: &Array<f32>,
) -> cachescope::Result<()> {
    let n = x.len();
    let (x, mut y) = (x.cuda_view()?, y.cuda_view_mut()?);
    assert_eq!((x.len(), y.len()), (n, n));
    assert_eq!(x.stream().cu_stream(), stream.cu_stream());
    let mut builder = stream.launch_builder(saxpy);
    builder.arg(&mut y).arg(&x).arg(&a).arg(&n);
    // SAFETY: the arguments match the kernel's parameters, and the kernel accesses at most `n`
    // elements.
    unsafe { builder.launch(LaunchConfig::for_num_elems(n as u32)) }.unwrap();
    Ok(())
}

#[test]
fn a_kernel_runs_between_operations() -> Result<()> {
    let place = Place::new()?;
    let _guard = place.device.enter();
    let (saxpy, stream) = (place.saxpy()?, place.device.default_stream().cuda_stream()?);
    let x = Array::<f32>::arange(0.0, N as f32, 1.0)?;
    let mut y = (&x * 10.0).eval()?;
    let address = y.address();
    launch(&stream, &saxpy, &mut y, 2.0, &x)?;
    let z = (&y + 1.0).eval()?;
    launch(&stream, &saxpy, &mut y, 3.0, &x)?;
    let expected =
        |slope: f32, more: f32| -> Vec<f32> { (0..N).map(|i| slope * i as f32 + more).collect() };
    assert_eq!(z.to_vec()?, expected(12.0, 1.0));
    assert_eq!((y.to_vec()?, y.address()), (expected(15.0, 0.0), address));
    Ok(())
}

/// An event of the stream is recorded between the export and the launch. This event does not
/// include the kernel.
#[test]
fn a_kernel_that_is_launched_late_is_waited_for_all_the_same() -> Result<()> {
    let place = Place::new()?;
    let _guard = place.device.enter();
    let (saxpy, stream) = (place.saxpy()?, place.device.default_stream().cuda_stream()?);
    let other = place.device.new_stream()?;
    let [x, z] = [1.0f32, 3.0].map(|value| Array::full(N, value));
    let (x, z, mut y) = (x?, z?, Array::full(N, 5.0f32)?);
    {
        let (n, a) = (x.len(), 2.0f32);
        let (x, mut y) = (x.cuda_view()?, y.cuda_view_mut()?);
        let _guard = other.enter();
        assert_eq!((&z + 1.0).eval()?.to_vec()?, [4.0; N]);
        let mut builder = stream.launch_builder(&saxpy);
        builder.arg(&mut y).arg(&x).arg(&a).arg(&n);
        // SAFETY: the arguments match the kernel's parameters, and the kernel accesses at most `n`
        // elements.
        unsafe { builder.launch(LaunchConfig::for_num_elems(n as u32)) }?;
    }
    let _guard = other.enter();
    assert_eq!((&y * 10.0).eval()?.to_vec()?, [70.0; N]);
    Ok(())
}

#[test]
fn a_kernel_on_another_stream_is_ordered_as_an_operation_there() -> Result<()> {
    let place = Place::new()?;
    let _guard = place.device.enter();
    let saxpy = place.saxpy()?;
    let stream = place.device.new_stream()?;
    let x = Array::full(N, 1.0f32)?;
    let mut y = Array::full(N, 5.0f32)?;
    {
        let _guard = stream.enter();
        launch(&*stream.cuda_stream()?, &saxpy, &mut y, 2.0, &x)?; // Runs after both fills.
    }
    let mut z = (&y * 10.0).eval()?; // The operation runs after the kernel.
    y.fill(0.0)?;
    let other = place.device.new_stream()?;
    {
        let _guard = other.enter();
        launch(&*other.cuda_stream()?, &saxpy, &mut z, 1.0, &y)?;
    }
    drop((x, y));
    // The new array must not reuse memory that pending kernels read.
    let reused = Array::full(N, 9.0f32)?;
    assert_eq!(reused.to_vec()?, [9.0; N]);
    assert_eq!(z.to_vec()?, [70.0; N]);
    Ok(())
}

#[test]
fn an_array_that_is_read_by_a_kernel_is_written_after_it() -> Result<()> {
    let place = Place::new()?;
    let _guard = place.device.enter();
    let saxpy = place.saxpy()?;
    let stream = place.device.new_stream()?;
    let mut x = Array::full(N, 1.0f32)?;
    let y = {
        let _guard = stream.enter();
        let mut y = Array::full(N, 5.0f32)?;
        launch(&*stream.cuda_stream()?, &saxpy, &mut y, 2.0, &x)?;
        y
    };
    x.fill(100.0)?;
    assert_eq!(x.to_vec()?, [100.0; N]);
    assert_eq!(y.to_vec()?, [7.0; N]);
    Ok(())
}

#[test]
fn copies_on_cudarcs_own_streams_wait_and_are_waited_for() -> Result<()> {
    let place = Place::new()?;
    let _guard = place.device.enter();
    let foreign = place.device.cuda_context()?.new_stream()?;
    let mut x = Array::full(N, 3.0f32)?;
    assert_eq!(foreign.clone_dtoh(&x.cuda_view()?)?, [3.0; N]);
    let slice = foreign.clone_dtod(&x.cuda_view()?)?;
    x.fill(4.0)?;
    assert_eq!(x.to_vec()?, [4.0; N]);
    assert_eq!(foreign.clone_dtoh(&slice)?, [3.0; N]);
    foreign.memcpy_dtod(&slice, &mut x.cuda_view_mut()?)?;
    assert_eq!((&x + 1.0).eval()?.to_vec()?, [4.0; N]);
    Ok(())
}

#[test]
fn what_cannot_be_lent_is_refused() -> Result<()> {
    let place = Place::new()?;
    let refused =
        |outcome: cachescope::Result<()>, kind| assert_eq!(outcome.unwrap_err().kind(), kind);
    {
        let _guard = place.device.enter();
        let mut columns = Array::<f32>::ones([3, 4])?.transpose()?;
        refused(columns.cuda_view().map(drop), ErrorKind::InvalidArgument);
        refused(
            columns.cuda_view_mut().map(drop),
            ErrorKind::InvalidArgument,
        );
    }
    let host = Device::host();
    let _guard = host.enter();
    refused(host.cuda_context().map(drop), ErrorKind::Unsupported);
    refused(
        host.default_stream().cuda_stream().map(drop),
        ErrorKind::Unsupported,
    );
    refused(
        Array::<f32>::ones(3)?.cuda_view().map(drop),
        ErrorKind::Unsupported,
    );
    Ok(())
}

#[test]
fn an_array_that_shares_its_memory_is_copied_to_be_written_to() -> Result<()> {
    let place = Place::new()?;
    let _guard = place.device.enter();
    let (saxpy, stream) = (place.saxpy()?, place.device.default_stream().cuda_stream()?);
    let x = Array::full(N, 1.0f32)?;
    let mut y = x.clone();
    launch(&stream, &saxpy, &mut y, 2.0, &x)?;
    assert_eq!((x.to_vec()?, y.to_vec()?), (vec![1.0; N], vec![3.0; N]));
    Ok(())
}

#[test]
fn a_stream_of_cudarcs_outlives_the_device() -> Result<()> {
    let place = Place::new()?;
    let before = Control::of_process().map(|control| control.report().streams);
    for _ in 0..3 {
        let device = Device::cuda_with(0, DeviceConfig::default())?;
        let stream = device.default_stream().cuda_stream()?;
        let second = device.new_stream()?.cuda_stream()?;
        drop(device);
        stream.synchronize()?;
        second.synchronize()?;
    }
    // The first device has two streams. It may have a third stream, from which cudarc detects the
    // use of several streams.
    let after = Control::of_process().map(|control| control.report().streams);
    assert!(
        after <= before.map(|before| before + 3),
        "each is used again"
    );
    drop(place);
    Ok(())
}

#[test]
fn a_kernel_is_captured_with_the_operations_around_it() -> Result<()> {
    let place = Place::new()?;
    let _guard = place.device.enter();
    let (saxpy, stream) = (place.saxpy()?, place.device.default_stream().cuda_stream()?);
    let x = Array::full(N, 1.0f32)?;
    let mut y = Array::full(N, 0.0f32)?;
    let mut step = || {
        cache_scope!("step", policy = Policy::Plan, {
            let double = (&x * 2.0).eval()?;
            launch(&stream, &saxpy, &mut y, 1.0, &double)
        })
    };
    step()?;
    step()?;
    let graph = graph::capture(&place.device, step)?;
    drop(x); // The graph pins `x`.
    graph.launch()?;
    graph.launch()?;
    assert_eq!(y.to_vec()?, [8.0; N]);
    Ok(())
}

#[test]
fn a_view_held_over_a_graphs_launch_is_ordered_after_it() -> Result<()> {
    let place = Place::new()?;
    let device = &place.device;
    let _guard = device.enter();
    let saxpy = place.saxpy()?;
    let stream = device.new_stream()?;
    let cuda_stream = stream.cuda_stream()?;
    let mut x = Array::full(N, 1.0f32)?;
    x.update(|x| x * 2.0)?; // Compiles the kernel.
    let graph = graph::capture(device, || x.update(|x| x * 2.0))?;
    let _guard = stream.enter();
    let mut y = Array::full(N, 0.0f32)?;
    {
        let (lent, mut sum) = (x.cuda_view()?, y.cuda_view_mut()?);
        graph.launch()?; // The launch is on the default stream.
        let mut builder = cuda_stream.launch_builder(&saxpy);
        builder.arg(&mut sum).arg(&lent).arg(&1.0f32).arg(&N);
        // SAFETY: the arguments match the kernel's parameters, and the kernel accesses at most `N`
        // elements.
        unsafe { builder.launch(LaunchConfig::for_num_elems(N as u32)) }?;
    }
    assert_eq!(y.to_vec()?, [4.0; N]);
    Ok(())
}

/// The library holds no lock between the request of a view's address and the work on the view. So
/// another thread could enqueue a launch in between.
#[test]
fn a_launch_that_collides_with_a_view_is_refused_to_other_threads() -> Result<()> {
    let place = Place::new()?;
    let device = &place.device;
    let _guard = device.enter();
    let x = Array::full(N, 1.0f32)?;
    let mut y = Array::full(N, 2.0f32)?;
    let graph = graph::capture(device, || y.assign(&x + 1.0))?;
    let launch = || std::thread::scope(|scope| scope.spawn(|| graph.launch()).join().unwrap());
    {
        let _reading = x.cuda_view()?;
        launch()?; // The launch also reads.
        let _reading = y.cuda_view()?;
        graph.launch()?; // This thread owns the view.
        let error = launch().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("cuda_view"), "{error}");
    }
    launch()?;
    {
        let _writing = y.cuda_view_mut()?;
        assert!(launch().is_err());
    }
    launch()?;
    assert_eq!(y.to_vec()?, [2.0; N]);
    Ok(())
}

#[test]
fn a_slice_of_cudarcs_becomes_an_array() -> Result<()> {
    let place = Place::new()?;
    let _guard = place.device.enter();
    let foreign = place.device.cuda_context()?.new_stream()?;
    let alive = || Control::of_process().map(|control| control.report().pool_allocations);
    let before = alive();
    let slice = foreign.clone_htod(&vec![3.0f32; N])?; // The copy has not run yet.
    let array = Array::from_cuda_slice(&place.device, slice, [10, 10])?;
    let double = (&array * 2.0).eval()?;
    drop(array);
    assert_eq!(
        alive(),
        before.map(|before| before + 1),
        "dropping frees nothing"
    );
    assert_eq!(double.to_vec()?, [6.0; N]);
    place.device.synchronize()?;
    foreign.synchronize()?;
    assert_eq!(alive(), before);

    let slice = foreign.alloc_zeros::<f32>(3)?;
    let wrong = Array::from_cuda_slice(&place.device, slice, 4);
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::InvalidShape);
    foreign.synchronize()?;
    assert_eq!(alive(), before, "it was dropped all the same");
    Ok(())
}

#[test]
fn slices_of_cudarcs_keep_their_order_across_streams_of_ours() -> Result<()> {
    let place = Place::new()?;
    let saxpy = place.saxpy()?;
    let (first, second) = (place.device.new_stream()?, place.device.new_stream()?);
    let (first, second) = (first.cuda_stream()?, second.cuda_stream()?);
    let x = first.clone_htod(&vec![1.0f32; N])?;
    let mut y = second.clone_htod(&vec![5.0f32; N])?;
    let mut builder = second.launch_builder(&saxpy);
    builder.arg(&mut y).arg(&x).arg(&2.0f32).arg(&N);
    // SAFETY: the arguments match the kernel's parameters, and the kernel accesses at most `N`
    // elements.
    unsafe { builder.launch(LaunchConfig::for_num_elems(N as u32)) }?;
    assert_eq!(second.clone_dtoh(&y)?, [7.0; N]);
    Ok(())
}

#[test]
fn imported_memory_is_released_after_the_last_kernel() -> Result<()> {
    let place = Place::new()?;
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let (saxpy, stream) = (place.saxpy()?, device.default_stream().cuda_stream()?);
    let calls = Arc::new(AtomicU64::new(0));
    let slice = stream.clone_htod(&vec![1.0f32; N])?;
    let address = slice.device_ptr(&stream).0;
    let counted = Arc::clone(&calls);
    let destructor = move || {
        drop(slice);
        counted.fetch_add(1, Ordering::SeqCst);
    };
    // SAFETY: the slice owns the memory, and is unused until the destructor drops it. The current
    // stream wrote the memory.
    let x = unsafe { Array::<f32>::from_raw_parts(&device, address, N, destructor)? };
    let mut y = Array::full(N, 0.0f32)?;
    launch(&stream, &saxpy, &mut y, 2.0, &x)?;
    drop(x);
    let _ = device.memory_stats();
    let has_run = Control::of_process().is_none(); // The emulator runs streams late.
    assert!(has_run || calls.load(Ordering::SeqCst) == 0);
    assert_eq!(y.to_vec()?, [2.0; N]);
    drop(y);
    drop((_guard, device)); // Runs the destructor, if it has not run yet.
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    drop(place);
    Ok(())
}
