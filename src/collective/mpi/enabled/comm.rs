//! MPI's calls on the communicator of a world, each of them checked.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr;

use mpi::ffi;

use crate::error::{Error, ErrorKind, Result};

/// What kind of message it is. Between two ranks, messages of a kind arrive in the order in which
/// they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// That a rank takes part no longer.
    News,
    /// What a member of a group comes to.
    Head,
    /// What members give each other, piece by piece.
    Given,
    /// What they reduced, likewise.
    Reduced,
    /// What was sent, or the beginning of that.
    Letter,
    /// The rest, piece by piece.
    Body,
}

/// A communicator of all ranks that nothing else sends on.
#[derive(Debug)]
pub(super) struct Comm {
    raw: ffi::MPI_Comm,
    rank: usize,
    size: usize,
}

// SAFETY: it is a handle, which any thread may use: MPI was asked for threads that take turns, and
// they do: one of a rank has it at a time.
unsafe impl Send for Comm {}

/// A message in flight.
///
/// Dropped, it is in flight nevertheless: who has its memory keeps that until `arrived` says so, or
/// for good.
#[derive(Debug)]
pub(super) struct Request {
    raw: ffi::MPI_Request,
    receives: bool,
}

// SAFETY: as for the communicator.
unsafe impl Send for Request {}

impl Comm {
    /// A duplicate of the communicator of all, whose errors are returned. All ranks call it.
    pub(super) fn duplicate_world() -> Result<Self> {
        let mut raw = MaybeUninit::uninit();
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialised, as the caller has seen to; the places are this function's.
        unsafe {
            let code = ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, raw.as_mut_ptr());
            check("MPI_Comm_dup", code)?;
            let raw = raw.assume_init();
            let code = ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN);
            check("MPI_Comm_set_errhandler", code)?;
            check("MPI_Comm_rank", ffi::MPI_Comm_rank(raw, &mut rank))?;
            check("MPI_Comm_size", ffi::MPI_Comm_size(raw, &mut size))?;
            Ok(Self {
                raw,
                rank: rank as usize,
                size: size as usize,
            })
        }
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Begins to send.
    ///
    /// # Safety
    ///
    /// So many bytes are readable and do not change until MPI is through with them.
    pub(super) unsafe fn send(
        &self,
        tag: Tag,
        to: usize,
        (memory, bytes): (*const u8, usize),
    ) -> Result<Request> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: by this function's contract; `raw` is written where it succeeds.
        unsafe {
            let code = ffi::MPI_Isend(
                memory.cast(),
                count(bytes)?,
                ffi::RSMPI_UINT8_T,
                to as c_int,
                tag as c_int,
                self.raw,
                raw.as_mut_ptr(),
            );
            check("MPI_Isend", code)?;
            Ok(Request {
                raw: raw.assume_init(),
                receives: false,
            })
        }
    }

    /// Begins to receive so many bytes at most.
    ///
    /// # Safety
    ///
    /// They are writable, and used by nothing else until MPI is through with them.
    pub(super) unsafe fn receive(
        &self,
        tag: Tag,
        from: usize,
        (memory, bytes): (*mut u8, usize),
    ) -> Result<Request> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: by this function's contract; `raw` is written where it succeeds.
        unsafe {
            let code = ffi::MPI_Irecv(
                memory.cast(),
                count(bytes)?,
                ffi::RSMPI_UINT8_T,
                from as c_int,
                tag as c_int,
                self.raw,
                raw.as_mut_ptr(),
            );
            check("MPI_Irecv", code)?;
            Ok(Request {
                raw: raw.assume_init(),
                receives: true,
            })
        }
    }

    /// A message of the kind that nobody has received: from whom, and of how many bytes.
    pub(super) fn probe(&self, tag: Tag) -> Result<Option<(usize, usize)>> {
        let (mut is_there, mut status) = (0, MaybeUninit::<ffi::MPI_Status>::uninit());
        // SAFETY: the places are this function's; the status is written where there is a message.
        unsafe {
            let code = ffi::MPI_Iprobe(
                ffi::RSMPI_ANY_SOURCE,
                tag as c_int,
                self.raw,
                &mut is_there,
                status.as_mut_ptr(),
            );
            check("MPI_Iprobe", code)?;
            if is_there == 0 {
                return Ok(None);
            }
            let status = status.assume_init();
            Ok(Some((status.MPI_SOURCE as usize, bytes_of(&status)?)))
        }
    }
}

impl Request {
    /// Looks whether it has arrived, and lets MPI go on with everything. Gives how many bytes were
    /// received.
    pub(super) fn arrived(&mut self) -> Result<Option<usize>> {
        let (mut is_done, mut status) = (0, MaybeUninit::<ffi::MPI_Status>::uninit());
        // SAFETY: the request is one that MPI gave, or null, which it accepts; a status is written
        // where it is done.
        unsafe {
            let code = ffi::MPI_Test(&mut self.raw, &mut is_done, status.as_mut_ptr());
            check("MPI_Test", code)?;
            match (is_done != 0, self.receives) {
                (false, _) => Ok(None),
                (true, false) => Ok(Some(0)),
                (true, true) => bytes_of(&status.assume_init()).map(Some),
            }
        }
    }

    /// Takes it back, if that can be done. Answers whether MPI is through with its memory for
    /// certain.
    pub(super) fn take_back(&mut self) -> bool {
        /// What was cancelled is done as soon as MPI looks.
        const LOOKS: usize = 100;
        if self.receives && !self.is_null() {
            // SAFETY: the request is one that MPI gave, and not done. Whether this succeeds, the
            // looks below tell.
            unsafe { ffi::MPI_Cancel(&mut self.raw) };
        }
        for _ in 0..LOOKS {
            let _ = self.arrived();
            if self.is_null() {
                return true;
            }
        }
        false
    }

    /// MPI takes away the request of what is done.
    fn is_null(&self) -> bool {
        // SAFETY: a constant of the library.
        self.raw == unsafe { ffi::RSMPI_REQUEST_NULL }
    }
}

/// Looks at many messages in one call: each call lets MPI go on with everything, and may give away
/// the core. Gives the places of those that are done, and how many bytes were received.
pub(super) fn arrived_of<'a>(
    requests: impl Iterator<Item = &'a mut Request>,
) -> Result<Vec<(usize, usize)>> {
    let mut requests: Vec<&mut Request> = requests.collect();
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let mut raw: Vec<ffi::MPI_Request> = requests.iter().map(|request| request.raw).collect();
    let mut places: Vec<c_int> = vec![0; raw.len()];
    let mut statuses = vec![MaybeUninit::<ffi::MPI_Status>::zeroed(); raw.len()];
    let mut done = 0;
    // SAFETY: the requests are those that MPI gave, or null, which it passes over; the other places
    // are this function's, as many.
    let code = unsafe {
        ffi::MPI_Testsome(
            raw.len() as c_int,
            raw.as_mut_ptr(),
            &mut done,
            places.as_mut_ptr(),
            statuses.as_mut_ptr().cast(),
        )
    };
    for (request, raw) in requests.iter_mut().zip(raw) {
        request.raw = raw;
    }
    if code == ffi::MPI_ERR_IN_STATUS as c_int {
        for status in &statuses {
            // SAFETY: zeroed, and written by MPI, a status is a plain structure of numbers.
            let status = unsafe { status.assume_init_ref() };
            check("MPI_Testsome", status.MPI_ERROR)?;
        }
    }
    check("MPI_Testsome", code)?;
    // Negative where all were null.
    let done = usize::try_from(done).unwrap_or(0).min(places.len());
    let arrived = places[..done].iter().zip(&statuses);
    arrived
        .map(|(place, status)| {
            let place = *place as usize;
            let bytes = match requests[place].receives {
                // SAFETY: MPI has written the statuses of those that are done.
                true => unsafe { bytes_of(status.assume_init_ref()) }?,
                false => 0,
            };
            Ok((place, bytes))
        })
        .collect()
}

/// How MPI counts bytes.
fn count(bytes: usize) -> Result<c_int> {
    bytes.try_into().map_err(|_| {
        let text = format!("{bytes} bytes are more than one message of MPI has");
        Error::new(ErrorKind::Communication, text)
    })
}

/// # Safety
///
/// MPI has written the status.
unsafe fn bytes_of(status: &ffi::MPI_Status) -> Result<usize> {
    let mut bytes = 0;
    // SAFETY: by this function's contract.
    let code = unsafe { ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &mut bytes) };
    check("MPI_Get_count", code)?;
    // What was cancelled has none.
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// MPI's error of a call, as one of this crate.
pub(super) fn check(call: &str, code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    let place: *mut c_char = ptr::from_mut(&mut text).cast();
    // SAFETY: the text has the room that MPI asks for.
    unsafe { ffi::MPI_Error_string(code, place, &mut length) };
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    let text = String::from_utf8_lossy(&text[..length]);
    Err(Error::new(
        ErrorKind::Communication,
        format!("{call}: {text}"),
    ))
}
