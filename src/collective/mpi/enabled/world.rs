//! The start and the end of a process's world.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use mpi::ffi;

use super::MpiEngine;
use super::comm::{Comm, check};
use super::cuda::knows_cuda;
use super::shutdown::{ExitStep, LAST_WAIT, Shutdown, is_finalised};
use crate::collective::carrier::HostCarrier;
use crate::collective::engine::Members;
use crate::collective::worker::Worker;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::sync::Arc;
use crate::sync::at_exit::at_exit;
use crate::sync::plain::Mutex;

/// The MPI rank of this process, created at its first use.
#[derive(Debug)]
struct World {
    worker: Arc<Worker>,
    rank: usize,
    size: usize,
    shutdown: Arc<Shutdown>,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

/// True if the library initialised MPI, even if the world then failed to start.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Returns the group of all ranks. `takes_device_memory` overrides the MPI library's own report of
/// CUDA-awareness.
#[track_caller]
pub(in crate::collective) fn world(takes_device_memory: Option<bool>) -> Result<HostCarrier> {
    let mut world = WORLD.lock();
    if world.is_none() {
        *world = Some(World::begin(takes_device_memory).at_caller()?);
    }
    let World {
        worker, rank, size, ..
    } = world.as_ref().expect("the world has been started");
    Ok(HostCarrier::new(
        Arc::clone(worker),
        Members::all(*rank, *size),
    ))
}

impl World {
    fn begin(takes_device_memory: Option<bool>) -> Result<Self> {
        let is_ours = initialise()?;
        let comm = Comm::duplicate_world()?;
        let (rank, size) = (comm.rank, comm.size);
        let shutdown = Arc::new(Shutdown::new(is_ours));
        let knows_cuda = takes_device_memory.unwrap_or_else(knows_cuda);
        let engine = MpiEngine::new(comm, Arc::clone(&shutdown), knows_cuda);
        let (worker, _) = Worker::start(rank, Box::new(engine))?;
        at_exit(end);
        Ok(Self {
            worker,
            rank,
            size,
            shutdown,
        })
    }
}

/// Initialises MPI, unless the program has done so. Returns true if the library must finalise MPI.
fn initialise() -> Result<bool> {
    if is_finalised() {
        let text = "Group::mpi: MPI has been finalised, and a process cannot initialise it again";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let (mut is_initialised, mut threads): (c_int, c_int) = (0, 0);
    // SAFETY: MPI allows `MPI_Initialized` at any time, and its result selects an allowed call. The
    // pointers are to variables of this function.
    unsafe {
        check("MPI_Initialized", ffi::MPI_Initialized(&mut is_initialised))?;
        let code = match is_initialised != 0 {
            true => ffi::MPI_Query_thread(&mut threads),
            false => ffi::MPI_Init_thread(
                ptr::null_mut(),
                ptr::null_mut(),
                ffi::RSMPI_THREAD_MULTIPLE,
                &mut threads,
            ),
        };
        check("MPI_Init_thread", code)?;
        IS_OURS.fetch_or(is_initialised == 0, Ordering::Relaxed);
        if threads < ffi::RSMPI_THREAD_SERIALIZED {
            let text = "Group::mpi: MPI is initialised for calls of one thread, expected MPI_THREAD_SERIALIZED or more";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    }
    Ok(IS_OURS.load(Ordering::Relaxed))
}

/// Runs at process exit: completes the queued calls of the rank, and ends MPI.
extern "C" fn end() {
    let world = WORLD.lock().take();
    let Some(world) = world else {
        return;
    };
    world.worker.close();
    match world.shutdown.wait() {
        Ok(ExitStep::Finalise) => finalise(),
        Ok(ExitStep::Skip) => {}
        Ok(ExitStep::Abort) => {
            eprintln!(
                "cachescope: rank {} failed, and other ranks have not ended within {LAST_WAIT:?}: \
                 MPI_Abort ends them",
                world.rank
            );
            abort();
        }
        Err(error) => {
            eprintln!("cachescope: rank {}: {error}", world.rank);
            abort();
        }
    }
}

fn finalise() {
    if !is_finalised() {
        // SAFETY: the rank's thread has ended, and the program issues no more calls.
        unsafe { ffi::MPI_Finalize() };
    }
}

/// Aborts the processes of all ranks, including this one.
fn abort() {
    if !is_finalised() {
        // SAFETY: MPI is initialised, and the call accesses no memory of this program.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, 1) };
    }
}
