#![doc = include_str!("../README.md")]

mod naming;
#[macro_use]
mod macros;

// The layers, bottom up: each layer may name only the layers before it.
mod costs;
mod error;
mod size;
#[allow(
    missing_docs,
    missing_debug_implementations,
    reason = "items of `internal` are not for users"
)]
mod sync;
mod text;

#[allow(
    missing_docs,
    missing_debug_implementations,
    reason = "items of `internal` are not for users"
)]
mod device;

mod source;

mod pool;

pub mod plan;

mod recorder;

mod memory;

pub mod simulation;

mod cache;

mod context;

mod buffer;

pub use buffer::Buffer;
pub use cache::{AllocationRecord, CacheConfig, CacheStats, Invalidation, Policy};
pub use context::{
    Device, DeviceConfig, DeviceGuard, MetaKind, MetaOptions, PressureGuard, RecordOptions,
    Recording, Stream, StreamGuard,
};
pub use error::{Error, ErrorKind, OutOfMemoryReport, Result};
pub use memory::{MemoryReport, MemoryStats, PhaseReport};
pub use pool::PoolKind;
#[doc(hidden)]
pub use size::parse_bytes;
pub use source::fault::FaultPlan;

/// Recordings of a device's memory, made by [`Device::record`], and reports of the recordings.
pub mod record {
    pub use cachescope_reports::{
        AllocationLifetime, CallSite, Event, EventKind, Format, Frame, OtherReport, Peak, Profile,
        Segment, SiteSummary, by_call_site, lifetimes, live_at, peak,
    };

    pub use crate::context::{RecordOptions, RecordedEvent, Recording};
}

/// Scopes without the macro, and handles that other threads can enter.
pub mod scope {
    pub use crate::cache::{CacheReport, Growth, ScopeReport};
    pub use crate::context::scope::{ScopeGuard, ScopeHandle, current, growth, report};
    pub use crate::error::{CacheUse, LineUse, LineUse as LineGrowth};
}

/// The crate [cudarc], whose types [`Device::cuda_context`] and [`Stream::cuda_stream`] return.
///
/// Pass [`Buffer::address`] to a kernel as its pointer. Launch the kernel on the stream that was
/// current when its buffers were allocated. The memory of a dropped buffer is reused in the order
/// of this stream. So a buffer may be dropped before the kernel has run.
///
/// # Examples
///
/// ```no_run
/// use cachescope_memory::cuda::cudarc::driver::{LaunchConfig, PushKernelArg};
/// use cachescope_memory::cuda::cudarc::nvrtc::compile_ptx;
/// use cachescope_memory::{Buffer, Device, cache_scope};
///
/// const SOURCE: &str = r#"
///     extern "C" __global__ void fill(float* out, float value, unsigned long long n) {
///         unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
///         if (i < n) out[i] = value;
///     }
/// "#;
///
/// let device = Device::cuda(0)?;
/// let module = device.cuda_context()?.load_module(compile_ptx(SOURCE)?)?;
/// let fill = module.load_function("fill")?;
/// let stream = device.default_stream().cuda_stream()?;
/// let n = 1_000_000_usize;
/// for step in 0..100_u16 {
///     cache_scope!("step", device = &device, {
///         let scratch = Buffer::new(&device, n * size_of::<f32>())?;
///         let (address, value) = (scratch.address(), f32::from(step));
///         let mut launch = stream.launch_builder(&fill);
///         launch.arg(&address).arg(&value).arg(&n);
///         // SAFETY: the arguments match the kernel's parameters. It writes `n` elements, which the
///         // buffer has, on the stream that the buffer was allocated on.
///         unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }?;
///     });
/// }
/// assert_eq!(device.cache_stats("step").unwrap().misses, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use cudarc;
}

/// Calls [`Device::invalidate_cache`] on the current device.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, DeviceConfig, cache_scope};
///
/// let device = Device::host_with(DeviceConfig::default())?;
/// let _current = device.enter();
/// cache_scope!("step", { Buffer::new(&device, 4096)?; });
/// assert_eq!(cachescope::invalidate_cache("step").bytes, 4096);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub fn invalidate_cache(name: &str) -> Invalidation {
    Device::with_current(|device| device.invalidate_cache(name))
}

/// Calls [`Device::cache_stats`] on the current device.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, DeviceConfig, cache_scope};
///
/// let device = Device::host_with(DeviceConfig::default())?;
/// let _current = device.enter();
/// cache_scope!("step", { Buffer::new(&device, 4096)?; });
/// assert_eq!(cachescope::cache_stats("step").unwrap().entries, 1);
/// assert!(cachescope::cache_stats("another").is_none());
/// # Ok::<(), cachescope::Error>(())
/// ```
pub fn cache_stats(name: &str) -> Option<CacheStats> {
    Device::with_current(|device| device.cache_stats(name))
}

/// The items that the macros expand to; not for direct use.
#[doc(hidden)]
pub mod __private {
    pub use crate::cache::CallSite;
    pub use crate::context::scope::{ScopeOptions, enter, enter_named, enter_site, enter_uncached};
    pub use cachescope_macros::{expand_cache_scope, expand_uncached};
    // The macros use a path through this crate, because a user's crate may be named `core`.
    pub use core;
}

/// The items that the crate `cachescope` builds on; not for users.
#[doc(hidden)]
pub mod internal {
    pub mod buffer {
        pub use crate::buffer::captured::{CaptureTracking, CapturedMemory};
        pub use crate::buffer::value_id::{
            TapeId, ValueId, refuse_tracked, refuse_while_tracking, set_has_tape,
        };
    }

    pub mod cache {
        pub use crate::cache::{CallSite, SharedBlock, SharedCache};
    }

    pub mod context {
        #[cfg(feature = "cuda")]
        pub use crate::context::cudarc::{driver_error, stream_of};
        pub use crate::context::scope;
        pub use crate::context::{Switch, Timed, setting, size_setting};
        pub use crate::record::RecordedEvent;
        pub use crate::{Device, DeviceConfig, PressureGuard, RecordOptions, Recording, Stream};
    }

    pub mod device {
        pub mod cuda {
            #[cfg(feature = "fft")]
            pub mod fft {
                pub use crate::device::cuda::fft::{FftCall, FftKind, FftPlaces, FftPlan};
            }

            pub mod nccl {
                pub use crate::device::cuda::nccl::{
                    NcclCall, NcclId, NcclOperation, NcclReduce, NcclType,
                };
            }

            #[cfg(feature = "linalg")]
            pub mod solver {
                pub use crate::device::cuda::solver::{Factorization, SolverCall, solver_length};
            }

            pub use crate::device::cuda::{
                Arguments, Communicator, Cuda, CurrentContext, Executable, Gemm, GemmOperand,
                GemmType, Grid, Indexing, KernelKey, KernelSource, RowFault, SharedLaunchGuard,
                compile_for_all,
            };
            #[cfg(feature = "cuda")]
            pub use crate::device::cuda::{KernelResources, headers, ptx_of, resources_of};
        }

        pub mod host {
            pub mod streams {
                pub use crate::device::host::streams::DelayedStreams;
            }

            pub use crate::device::host::host_pointer;
        }

        pub mod host_streams {
            pub use crate::device::host_streams::{
                HostFailure, HostStream, HostStreams, StealWork,
            };
        }

        pub use crate::device::{
            Backend, DeviceId, DevicePtr, Event, HostExecution, StreamId, Use,
        };
    }

    pub mod error {
        pub use crate::error::{
            AtCaller, CallSiteOverride, Error, ErrorCode, ErrorKind, Result, reported_call_site,
        };
    }

    pub mod memory {
        pub mod uses {
            pub use crate::memory::uses::StreamUse;
        }
    }

    pub mod plan {
        pub use crate::plan::components::{Component, decompose};
        pub use crate::plan::deadline::Deadline;
        pub use crate::plan::greedy::first_fit;
        pub use crate::plan::incumbent::{Incumbent, TimeLimits};
        pub use crate::plan::kd_tree::{KdTree, REMOVED};
        pub use crate::plan::occupancy::Occupancy;
        pub use crate::plan::ordering::{Orderings, SortKey};
        pub use crate::plan::pack::{Improve, pack_within};
        pub use crate::plan::sections::{Item, Problem};
        pub use crate::plan::skyline::{SkylineFit, best_fit};
        pub use crate::plan::weights::LearnedWeights;
    }

    pub mod pool {
        pub use crate::pool::simulated::{SimulatedBlock, SimulatedPool};
    }

    pub mod simulation {
        pub use crate::simulation::memory::{SimulatedMemory, SimulatedMemoryBlock};
    }

    pub mod size {
        pub use crate::size::ByteSize;
    }

    pub mod text {
        pub use crate::text::write_to_stderr;
    }

    pub mod sync {
        pub mod at_exit {
            pub use crate::sync::at_exit::at_exit;
        }

        pub mod plain {
            pub use std::sync::MutexGuard;
            pub use std::sync::atomic::{AtomicU64, Ordering};

            pub use crate::sync::plain::{Condvar, Mutex};
        }

        pub use crate::sync::{Arc, OfThisThread, Weak};
    }
}
