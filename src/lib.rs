// README.md links to paths of the repository. Rustdoc uses the first definition of a link label.
// Therefore the definitions below replace these links by links to docs.rs.
#![doc = "[All pages]: https://docs.rs/crate/cachescope/latest/source/docs/SUMMARY.md"]
#![doc = "[Benchmarks]: https://docs.rs/crate/cachescope/latest/source/docs/benchmarks.md"]
#![doc = "[cachescope-memory]: https://docs.rs/cachescope-memory"]
#![doc = "[First loop]: https://docs.rs/crate/cachescope/latest/source/docs/first-loop.md"]
#![doc = "[Install]: https://docs.rs/crate/cachescope/latest/source/docs/install.md"]
#![doc = "[Known issues]: https://docs.rs/crate/cachescope/latest/source/docs/known-issues.md"]
#![doc = "[Seeing memory]: https://docs.rs/crate/cachescope/latest/source/docs/seeing-memory.md"]
#![doc = "[Training a model]: https://docs.rs/crate/cachescope/latest/source/docs/training-a-model.md"]
#![doc = "[Under NumPy]: https://docs.rs/crate/cachescope/latest/source/docs/under-numpy.md"]
#![doc = ""]
#![doc = include_str!("../README.md")]

#[macro_use]
mod macros;

#[doc(hidden)]
pub use cachescope_kernels::functions;
pub use cachescope_memory::{plan, simulation};

// The layers, bottom up: each layer may use only the layers above it in this list. The layers of
// the memory are a separate crate.
#[cfg(feature = "collective")]
use cachescope_memory::internal::memory;
use cachescope_memory::internal::{buffer, context, device, error, size, sync, text};

mod sorting;

pub mod testing;

mod array;

mod ops;

mod dry_run;

pub mod graph;

mod interop;

pub mod grad;

#[cfg(feature = "collective")]
pub mod collective;

pub use array::{
    AnyElement, Array, Axes, Bitwise, DType, Element, Float, INFER, Integer, Number, Numeric,
    Shape, meshgrid,
};
pub use cachescope_memory::{
    AllocationRecord, Buffer, CacheConfig, CacheStats, Device, DeviceConfig, DeviceGuard, Error,
    ErrorKind, FaultPlan, Invalidation, MemoryReport, MemoryStats, MetaKind, MetaOptions,
    OutOfMemoryReport, PhaseReport, Policy, PoolKind, PressureGuard, RecordOptions, Recording,
    Result, Stream, StreamGuard, cache_scope, cache_stats, invalidate_cache, record, scope,
    uncached,
};
pub use dry_run::{DryRun, dry_run, largest_fit};
/// The crate [half](https://docs.rs/half), which defines the element types `half::f16` and
/// `half::bf16`.
///
/// ```
/// use cachescope::{Array, half::f16};
///
/// let x = Array::full(2, f16::from_f32(0.5))?;
/// assert_eq!(x.sum()?.item()?, f16::ONE);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub use half;
pub use ndarray;
pub use num_complex::Complex;
pub use ops::{
    ArrayViewMut, Boxed, BoxedLazy, ConvOptions, Expr, Generator, IntoExpr, Lazy, PadMode,
    attention, complex, concat, einsum, eval, manual_seed, select, stack, update,
};

// The items are public, so that a program can name them. They are hidden, because no program needs
// their documentation.
#[doc(hidden)]
pub use cachescope_memory::parse_bytes;
#[doc(hidden)]
pub use ops::{EinsumOperands, Several, Targets, Values};

/// The imports of a training loop: `use cachescope::prelude::*;`
pub mod prelude {
    pub use crate::grad::{Parameters, value_and_grad};
    pub use crate::ndarray::s;
    pub use crate::{
        Array, BoxedLazy, Complex, ConvOptions, Device, Error, Expr, INFER, IntoExpr, Lazy,
        PadMode, Policy, Result, cache_scope, concat, elementwise, invalidate_cache, manual_seed,
        select, stack, uncached,
    };
}

/// The node types of expressions, as they appear in compiler errors. Not for direct use.
// The module is hidden only from rustdoc: compiler errors write types of a hidden module with their
// full paths.
#[cfg_attr(doc, doc(hidden))]
pub mod nodes {
    #[doc(hidden)]
    pub use crate::ops::expression::nodes::*;
}

/// NumPy's `.npz` files. For `.npy` files see [`Array::read_npy`] and [`Array::write_npy`].
#[cfg(feature = "npy")]
pub mod npy {
    pub use crate::interop::npy::{NpzReader, NpzWriter};
}

/// The structures of [DLPack] 1.x. Through these structures, libraries of one process, such as
/// NumPy, PyTorch, JAX and CuPy, share arrays without a copy.
///
/// [`Array::to_dlpack`] exports an array, and [`Array::from_dlpack`] imports a tensor of another
/// library. In Python, a tensor is in a capsule, which `x.__dlpack__(max_version=(1, 1))` returns.
/// The capsule's name is `dltensor_versioned`, and the consumer renames it to
/// `used_dltensor_versioned`. A capsule with the name `dltensor` has the structure of DLPack before
/// 1.0: [`Array::from_dlpack_legacy`] and [`Array::to_dlpack_legacy`].
///
/// [DLPack]: https://dmlc.github.io/dlpack/latest/
///
/// # Examples
///
/// A consumer reads the fields and calls the deleter once:
///
/// ```
/// use cachescope::Array;
/// use cachescope::dlpack::{DLDataType, kDLCPU, kDLFloat};
///
/// let tensor = Array::<f32>::ones([2, 3])?.t()?.to_dlpack()?;
/// // SAFETY: nothing else has the tensor, which is used until its deleter is called.
/// unsafe {
///     let fields = &(*tensor).dl_tensor;
///     assert_eq!(fields.device.device_type, kDLCPU);
///     assert_eq!(fields.dtype, DLDataType { code: kDLFloat, bits: 32, lanes: 1 });
///     assert_eq!(std::slice::from_raw_parts(fields.shape, 2), [3, 2]);
///     assert_eq!(std::slice::from_raw_parts(fields.strides, 2), [1, 3]);
///     (*tensor).deleter.expect("a deleter")(tensor);
/// }
/// # Ok::<(), cachescope::Error>(())
/// ```
pub mod dlpack {
    pub use crate::interop::dlpack::*;
}

/// Fourier transforms, with the names of NumPy's `fft`. This module needs the feature `fft`.
///
/// The elements are `Complex<f32>` or `Complex<f64>`, or real numbers of `f32` or `f64`. The
/// transformed axis is any axis, of any length, prime lengths included. Lengths without large prime
/// factors are the fastest. The forward transform is not scaled, and the inverse is divided by the
/// length. Operands may have any strides. Results are row-major. The host computes with the crates
/// [rustfft] and [realfft]. CUDA devices compute with cuFFT, which is loaded at run time.
///
/// Each length needs a table of roots of unity. The tables of the most recently used lengths are
/// cached, up to a fixed number of lengths. On a CUDA device, the table belongs to a plan of cuFFT.
/// The plan stores the table in device memory that this library does not manage. If a captured
/// graph uses a plan, the plan lives as long as the device.
///
/// [rustfft]: https://docs.rs/rustfft
/// [realfft]: https://docs.rs/realfft
#[cfg(feature = "fft")]
pub mod fft {
    pub use crate::ops::fft::{
        Signal, Spectrum, fft, fft2, fftfreq, fftshift, ifft, ifft2, ifftshift, irfft, rfft,
        rfftfreq,
    };
}

/// Factorizations of matrices, and functions that use factorizations, with the names of NumPy's
/// `linalg`. This module needs the feature `linalg`.
///
/// Matrices are the last two axes of an array of `f32` or `f64`. The other axes index the matrices,
/// and any axis may have length 0. Operands may have any strides. Results are row-major. The host
/// computes with the crate [faer], and CUDA devices compute with cuSOLVER, which is loaded at run
/// time.
///
/// If a function has no result for a matrix, an error names the matrix's position. An example is a
/// solve with a singular matrix. To detect this case, a function waits for its stream. The
/// exceptions are [`det`](linalg::det) and [`qr`](linalg::qr), which have a result for every
/// matrix.
///
/// # Derivatives
///
/// Every function has derivatives where it is smooth. [`det`](linalg::det) has first and second
/// derivatives for every matrix, and higher derivatives for invertible matrices.
///
/// If eigenvalues or singular values are equal ([`eigh`](linalg::eigh), [`svd`](linalg::svd)),
/// their vectors are an arbitrary basis of a space. A loss that depends on the basis has no
/// derivative: its gradient is infinite or NaN. In the gradient of any other loss, the terms
/// between equal values are 0. This is correct for functions of the values, and for norms and
/// traces of V f(w) Vᵀ. If a loss weights single elements of V f(w) Vᵀ, a term of the gradient is
/// missing. Compute the elements of such a loss without the vectors.
///
/// Second derivatives of functions of the values are correct at equal values. Second derivatives of
/// functions of the vectors are correct by [`jvp`](crate::grad::jvp) and [`hvp`](crate::grad::hvp).
/// These two functions choose vectors that are smooth along the direction of the derivative. If a
/// loss weights single elements of V f(w) Vᵀ, `hvp` is NaN at equal values. Gradients of gradients
/// by [`value_and_grad`](crate::grad::value_and_grad) lack the terms of the vectors of equal
/// values.
///
/// If two values are equal and the loss depends on their order, there are no derivatives. At
/// singular values of 0, only a loss that is an even function of these values has derivatives. The
/// nuclear norm is not even. [`qr`](linalg::qr) has no derivatives for matrices whose first columns
/// are dependent, and [`lstsq`](linalg::lstsq) has none where the rank changes.
///
/// [faer]: https://docs.rs/faer
#[cfg(feature = "linalg")]
pub mod linalg {
    pub use crate::ops::linear::linalg::{
        Factorizable, MatrixNorm, cholesky, det, eigh, eigvalsh, inv, lstsq, norm, qr, solve, svd,
        svdvals,
    };
}

/// Interoperation with other CUDA code through [cudarc].
///
/// [`Device::cuda_context`] and [`Stream::cuda_stream`] return a device's context and streams as
/// cudarc types. [`Array::cuda_view`] and [`Array::cuda_view_mut`] export arrays to kernels and
/// copies. Like an operation, an export is ordered on the thread's current stream. A kernel
/// launched on this stream runs after earlier work on the array, on any stream. Later uses of the
/// array run after the kernel. While an array is exported, its memory cannot be freed, moved or
/// used otherwise. In the other direction, [`Array::from_cuda_slice`] and [`Array::from_raw_parts`]
/// import memory allocated elsewhere.
///
/// # Examples
///
/// ```no_run
/// use cachescope::cuda::cudarc::driver::{LaunchConfig, PushKernelArg};
/// use cachescope::cuda::cudarc::nvrtc::compile_ptx;
/// use cachescope::{Array, Device};
///
/// const SOURCE: &str = r#"
///     extern "C" __global__ void saxpy(float* y, const float* x, float a, unsigned long long n) {
///         unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
///         if (i < n) y[i] += a * x[i];
///     }
/// "#;
///
/// let device = Device::cuda(0)?;
/// let _guard = device.enter();
/// let module = device.cuda_context()?.load_module(compile_ptx(SOURCE)?)?;
/// let saxpy = module.load_function("saxpy")?;
///
/// let x = Array::<f32>::arange(0.0, 1000.0, 1.0)?;
/// let mut y = Array::<f32>::ones(1000)?;
/// let n = x.len();
/// {
///     let stream = device.default_stream().cuda_stream()?;
///     let (x, mut y) = (x.cuda_view()?, y.cuda_view_mut()?);
///     let mut launch = stream.launch_builder(&saxpy);
///     launch.arg(&mut y).arg(&x).arg(&2.0f32).arg(&n);
///     // SAFETY: the arguments are those of the kernel, which stays within `n` elements of both arrays.
///     unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }?;
/// }
/// assert_eq!(y.sum()?.item()?, 1_000_000.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use cudarc;

    pub use crate::interop::cudarc::{ExportedView, ExportedViewMut};
}

/// The code of the documents for users, compiled and run as doc tests.
#[cfg(doctest)]
mod documents {
    macro_rules! documents {
        ($($name:ident $path:literal)+) => {
            $(
                #[doc = include_str!($path)]
                mod $name {}
            )+
        };
    }
    documents! {
        choosing_a_policy "../docs/choosing-a-policy.md"
        coming_from "../docs/coming-from.md"
        compiler_messages "../docs/compiler-messages.md"
        compile_times_and_features "../docs/compile-times-and-features.md"
        debugging_growth "../docs/debugging-growth.md"
        errors "../docs/errors.md"
        first_loop "../docs/first-loop.md"
        gradients_and_training "../docs/gradients-and-training.md"
        install "../docs/install.md"
        kernels_streams_graphs "../docs/kernels-streams-graphs.md"
        managing_memory "../docs/managing-memory.md"
        reading_the_out_of_memory_report "../docs/reading-the-out-of-memory-report.md"
        seeing_memory "../docs/seeing-memory.md"
        several_devices "../docs/several-devices.md"
        sharp_edges "../docs/sharp-edges.md"
        thinking_in_scopes "../docs/thinking-in-scopes.md"
        training_a_model "../docs/training-a-model.md"
        will_it_fit "../docs/will-it-fit.md"
    }
}

/// The items that the macros expand to. Not for direct use.
#[doc(hidden)]
pub mod __private {
    pub use crate::ops::{
        binary as apply2, quaternary as apply4, ternary as apply3, unary as apply1,
    };
    pub use cachescope_kernels::element::scalar::{math, pass, pass::Pass};
    pub use cachescope_kernels::elementwise::call::Call;
    pub use cachescope_kernels::elementwise::function::{Apply, Function, call_of};
    pub use cachescope_kernels::elementwise::loops::{Arguments, Loops};
    pub use cachescope_kernels::elementwise::written::{element, operators, terms, text};
    pub use cachescope_macros::expand_elementwise;
    // Macros access `core` by a path through this crate, because a user's crate may be named
    // `core`.
    pub use core;
}
