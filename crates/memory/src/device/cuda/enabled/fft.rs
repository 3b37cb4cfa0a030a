//! Fourier transforms by cuFFT, which is loaded at the first transform.

use super::{Cuda, Opaque};
use std::ffi::{c_int, c_longlong, c_uint};
use std::ptr;

use cudarc::driver::sys::{CUstream, CUstream_st};

use super::context::{Context, RawHandle};
use super::headers::cufft::{self, ALLOC_FAILED, PlanNumber};
use super::library::{Library, LibraryError, LibraryResult, library_functions};
use crate::device::cuda::fft::{FftCall, FftKind, FftPlan};
use crate::device::{DevicePtr, StreamId};
use crate::error::{Error, Result};
use crate::sync::Arc;
use crate::sync::plain::Mutex;

/// The maximum number of cached plans, not counting plans that graphs use. cuFFT allocates tables
/// in device memory for each plan.
const MOST_PLANS: usize = 64;

/// Cache of the most recently used cuFFT plans of a device.
///
/// A plan stores its current stream and work area. So the lock is held until the transform is
/// enqueued. With this lock, several threads can use one plan on several streams.
#[derive(Debug)]
pub(super) struct Fft {
    context: Arc<Context>,
    /// The cached plans. Invariants: the plans are ordered by last use, the most recent last. No
    /// plan occurs twice.
    plans: Mutex<Vec<CachedPlan>>,
}

#[derive(Debug)]
struct CachedPlan {
    plan: FftPlan,
    handle: PlanNumber,
    workspace_bytes: usize,
    /// The streams on which the plan's transforms were enqueued.
    streams: Vec<RawHandle<CUstream_st>>,
    /// Set if a graph may run the plan. The graph reads the plan's tables, so the plan lives as
    /// long as the device.
    is_captured: bool,
}

impl Cuda {
    /// Returns the size of the work area that [`transform`](Self::transform) needs for a plan.
    pub fn fft_workspace(&self, plan: &FftPlan) -> Result<usize> {
        if self.context.is_imitated() {
            return Ok(0);
        }
        self.fft
            .with_plan(plan, |_, cached| Ok(cached.workspace_bytes))
    }

    /// Transforms rows or matrices in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The addresses must point to memory of this device that is as long as the plan requires. The
    /// work area must be as long as [`fft_workspace`](Self::fft_workspace) returns. Only work that
    /// is ordered with `stream` may use the memory that the call writes.
    pub unsafe fn transform(
        &self,
        stream: StreamId,
        call: &FftCall,
        workspace: DevicePtr,
    ) -> Result<()> {
        if self.context.is_imitated() {
            return Ok(());
        }
        let submission = self.streams.submit_to(stream)?;
        let raw = submission.raw();
        let is_captured = self.streams.capture.captures(stream);
        let fft = &self.fft;
        fft.with_plan(&call.plan, |functions, cached| {
            cached.is_captured |= is_captured;
            if !cached.streams.iter().any(|stream| stream.0 == raw) {
                cached.streams.push(RawHandle(raw));
            }
            let handle = cached.handle;
            fft.context.make_current("fft")?;
            // SAFETY: the handle is the plan's, and no other thread uses it while the lock is held.
            // Streams live as long as `self`. The addresses are valid by this function's contract.
            unsafe {
                functions
                    .set_stream(handle, raw)
                    .and_then(|()| match cached.workspace_bytes {
                        0 => Ok(()),
                        _ => functions.set_work_area(handle, workspace.0 as Opaque),
                    })
                    .and_then(|()| functions.execute(handle, call))
            }
            .map_err(|failure| fft.error(failure))
        })
    }
}

impl Fft {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            plans: Mutex::default(),
        }
    }

    /// Calls `work` with a plan, under the lock of the plans. If the plan is not cached, first
    /// waits for the captures in progress, and creates the plan.
    fn with_plan<T>(
        &self,
        plan: &FftPlan,
        work: impl FnOnce(&Functions, &mut CachedPlan) -> Result<T>,
    ) -> Result<T> {
        let functions = Functions::get()?;
        if let Some(cached) = most_recent(&mut self.plans.lock(), plan) {
            return work(functions, cached);
        }
        // The lock is not held during the wait, because a capture may need a plan before it ends.
        let none_captures = self
            .context
            .captures
            .wait_for_captures("a new plan of fft")?;
        let mut plans = self.plans.lock();
        if most_recent(&mut plans, plan).is_none() {
            let cached = self.create_in_place_of_others(functions, &mut plans, plan)?;
            plans.push(cached);
        }
        drop(none_captures);
        work(
            functions,
            plans.last_mut().expect("the plan was found or added"),
        )
    }

    /// Creates a plan. If the cache is full, first evicts the least recently used plan. If there is
    /// no memory for the new plan's tables, evicts all plans that can be evicted, and tries again.
    fn create_in_place_of_others(
        &self,
        functions: &Functions,
        plans: &mut Vec<CachedPlan>,
        plan: &FftPlan,
    ) -> Result<CachedPlan> {
        self.context.make_current("fft")?;
        self.evict_to(functions, plans, MOST_PLANS - 1);
        let cached = self.make(functions, plan).or_else(|failure| {
            if failure.status != ALLOC_FAILED {
                return Err(failure);
            }
            self.evict_to(functions, plans, 0);
            self.make(functions, plan)
        });
        let cached = cached.map_err(|failure| self.error(failure))?;
        // cuFFT copies the tables on the legacy default stream, and returns before the copy is
        // done. The device's streams do not wait for the legacy default stream.
        // SAFETY: the legacy default stream is never destroyed.
        let filled = unsafe { self.context.wait_for_stream(ptr::null_mut()) };
        match filled {
            Ok(()) => Ok(cached),
            Err(error) => {
                destroy(&self.context, functions, cached.handle);
                Err(error)
            }
        }
    }

    /// Destroys all plans except the `count` most recent plans and plans that graphs use. First
    /// waits for a plan's transforms, because they read the plan's tables. The documentation does
    /// not state that `cufftDestroy` waits.
    fn evict_to(&self, functions: &Functions, plans: &mut Vec<CachedPlan>, count: usize) {
        let others = plans.iter().filter(|cached| !cached.is_captured).count();
        let mut surplus = others.saturating_sub(count);
        plans.retain(|cached| {
            let stays = surplus == 0 || cached.is_captured;
            if !stays {
                surplus -= 1;
                for stream in &cached.streams {
                    // SAFETY: streams live as long as `self`. After an error of the device, nothing
                    // reads the tables.
                    let _ = unsafe { self.context.wait_for_stream(stream.0) };
                }
                destroy(&self.context, functions, cached.handle);
            }
            stays
        });
    }

    fn make(&self, functions: &Functions, plan: &FftPlan) -> LibraryResult<CachedPlan> {
        let mut handle = 0;
        // SAFETY: `handle` is writable, and the context is current.
        unsafe { functions.create(&mut handle) }?;
        // SAFETY: the handle was just created.
        match unsafe { functions.prepare(handle, plan) } {
            Ok(workspace_bytes) => Ok(CachedPlan {
                plan: *plan,
                handle,
                workspace_bytes,
                streams: Vec::new(),
                is_captured: false,
            }),
            Err(failure) => {
                destroy(&self.context, functions, handle);
                Err(failure)
            }
        }
    }

    fn error(&self, failure: LibraryError) -> Error {
        failure.of(self.context.id(), "fft")
    }
}

/// If `plans` contains the plan, moves it to the end of `plans` and returns it.
fn most_recent<'a>(plans: &'a mut [CachedPlan], plan: &FftPlan) -> Option<&'a mut CachedPlan> {
    let place = plans.iter().rposition(|cached| cached.plan == *plan)?;
    plans[place..].rotate_left(1);
    plans.last_mut()
}

impl Drop for Fft {
    fn drop(&mut self) {
        let plans = std::mem::take(self.plans.get_mut());
        if plans.is_empty() {
            return;
        }
        let Ok(functions) = Functions::get() else {
            return;
        };
        for cached in &plans {
            // The plan is detached from its stream, which may be destroyed before the plan.
            // SAFETY: the handle was made by `make`.
            let _ = unsafe { functions.set_stream(cached.handle, ptr::null_mut()) };
        }
        let context = Arc::clone(&self.context);
        self.context.captures.make_or_postpone(move || {
            let handles = plans.iter().map(|cached| cached.handle);
            handles.for_each(|handle| destroy(&context, functions, handle));
        });
    }
}

/// Destroys an unused plan. Errors are ignored, because they cannot be reported.
fn destroy(context: &Context, functions: &Functions, handle: PlanNumber) {
    context.discard(|_| {
        // SAFETY: the handle was made by `make`, and nothing else has it.
        let _ = unsafe { functions.destroy(handle) };
        Ok(())
    });
}

static LIBRARY: Library = Library {
    name: "cuFFT",
    file: "cufft",
    versions: &["12", "11"],
    operation: "fft",
    install: "install cuFFT of CUDA 12 or 13 (libcufft.so.11 or .12)",
    statuses: cufft::STATUSES,
    unsupported: &[8, 14, 16],
};

library_functions! { LIBRARY:
    create = cufftCreate(handle: *mut PlanNumber);
    destroy = cufftDestroy(handle: PlanNumber);
    set_auto_allocation = cufftSetAutoAllocation(handle: PlanNumber, is_on: c_int);
    make_plan = cufftMakePlanMany64(handle: PlanNumber, rank: c_int, n: *mut c_longlong, from_rows: *mut c_longlong, from_stride: c_longlong, from_distance: c_longlong, to_rows: *mut c_longlong, to_stride: c_longlong, to_distance: c_longlong, kind: c_uint, count: c_longlong, workspace_bytes: *mut usize);
    set_stream = cufftSetStream(handle: PlanNumber, stream: CUstream);
    set_work_area = cufftSetWorkArea(handle: PlanNumber, workspace: Opaque);
    complex = [cufftExecC2C, cufftExecZ2Z](handle: PlanNumber, from: Opaque, to: Opaque, direction: c_int);
    forward = [cufftExecR2C, cufftExecD2Z](handle: PlanNumber, from: Opaque, to: Opaque);
    inverse = [cufftExecC2R, cufftExecZ2D](handle: PlanNumber, from: Opaque, to: Opaque);
}

impl Functions {
    /// Initialises the plan of a new handle. Returns the size of the work area that the plan needs.
    ///
    /// # Safety
    ///
    /// `handle` must be a valid handle, and its context must be current.
    unsafe fn prepare(&self, handle: PlanNumber, plan: &FftPlan) -> LibraryResult<usize> {
        let [rows, numbers] = plan.lengths;
        // A row of n real numbers has n / 2 + 1 complex numbers in its spectrum.
        let half = |is_half: bool| [rows, if is_half { numbers / 2 + 1 } else { numbers }];
        let mut lengths = [
            plan.lengths,
            half(plan.kind == FftKind::Inverse),
            half(plan.kind == FftKind::Forward),
        ];
        let rank = if rows > 1 { 2 } else { 1 };
        // A plan of one axis reads only the last length.
        let [n, from_rows, to_rows] = lengths
            .each_mut()
            .map(|lengths| lengths[2 - rank..].as_mut_ptr());
        let kind = cufft::TYPES[plan.kind as usize][usize::from(plan.is_wide)];
        let mut workspace_bytes = 0;
        // SAFETY: by this function's contract. Each array has `rank` lengths, and the outputs are
        // writable.
        unsafe {
            self.set_auto_allocation(handle, 0)?;
            self.make_plan(
                handle,
                rank as c_int,
                n,
                from_rows,
                plan.from.stride,
                plan.from.distance,
                to_rows,
                plan.to.stride,
                plan.to.distance,
                kind,
                plan.count,
                &mut workspace_bytes,
            )?;
        }
        Ok(workspace_bytes)
    }

    /// Enqueues a transform.
    ///
    /// # Safety
    ///
    /// The conditions of [`Cuda::transform`] must hold. `handle` must be the handle of the plan,
    /// and its context must be current.
    unsafe fn execute(&self, handle: PlanNumber, call: &FftCall) -> LibraryResult {
        let width = usize::from(call.plan.is_wide);
        let [from, to] = [call.from, call.to].map(|address| address.0 as Opaque);
        // SAFETY: by this function's contract.
        unsafe {
            match call.plan.kind {
                FftKind::Complex => {
                    let direction = cufft::DIRECTIONS[usize::from(call.is_inverse)];
                    self.complex(width, handle, from, to, direction)
                }
                FftKind::Forward => self.forward(width, handle, from, to),
                FftKind::Inverse => self.inverse(width, handle, from, to),
            }
        }
    }
}
