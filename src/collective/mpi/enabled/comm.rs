//! MPI calls on the communicator of a world, with checks of their error codes.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr;

use mpi::ffi;

use crate::error::{Error, ErrorKind, Result};

/// The kind of a message. Between two ranks, messages of one kind arrive in the order in which they
/// were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// A control message, such as the report of a failed rank.
    Control,
    /// The header of a collective call.
    Header,
    /// The inputs of a call, in pieces.
    Input,
    /// The results of a reduction, in pieces.
    Reduced,
    /// The header of a message of `send`. Small data is sent with the header.
    Message,
    /// The data of a large message, in pieces.
    Body,
}

/// The library's own communicator of all ranks.
#[derive(Debug)]
pub(super) struct Comm {
    raw: ffi::MPI_Comm,
    pub(super) rank: usize,
    pub(super) size: usize,
}

// SAFETY: the communicator is a handle that any thread may use. MPI was initialised for calls from
// one thread at a time. Only one thread of a rank has the handle at a time.
unsafe impl Send for Comm {}

/// A message in flight.
///
/// The message remains in flight when this handle drops. The message's memory must stay valid until
/// `arrived` reports that the message is done, or for ever.
#[derive(Debug)]
pub(super) struct MpiRequest {
    raw: ffi::MPI_Request,
    receives: bool,
}

// SAFETY: the request is a handle that any thread may use, like the communicator.
unsafe impl Send for MpiRequest {}

impl Comm {
    /// Duplicates the communicator of all ranks, with errors returned to the caller. All ranks must
    /// call this function.
    pub(super) fn duplicate_world() -> Result<Self> {
        let mut raw = MaybeUninit::uninit();
        let (mut rank, mut size) = (0, 0);
        // SAFETY: `World::begin` has initialised MPI. The pointers are to variables of this
        // function.
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

    /// Starts a send.
    ///
    /// # Safety
    ///
    /// The memory has `bytes` readable bytes. The bytes do not change until the send is done.
    pub(super) unsafe fn send(
        &self,
        tag: Tag,
        to: usize,
        (memory, bytes): (*const u8, usize),
    ) -> Result<MpiRequest> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: the memory is valid by this function's contract. MPI writes `raw` on success.
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
            Ok(MpiRequest {
                raw: raw.assume_init(),
                receives: false,
            })
        }
    }

    /// Starts a receive of at most `bytes` bytes.
    ///
    /// # Safety
    ///
    /// The memory has `bytes` writable bytes. Nothing else uses them until the receive is done.
    pub(super) unsafe fn receive(
        &self,
        tag: Tag,
        from: usize,
        (memory, bytes): (*mut u8, usize),
    ) -> Result<MpiRequest> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: the memory is valid by this function's contract. MPI writes `raw` on success.
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
            Ok(MpiRequest {
                raw: raw.assume_init(),
                receives: true,
            })
        }
    }

    /// Returns the sender and the length in bytes of a pending message of kind `tag`, if any.
    pub(super) fn probe(&self, tag: Tag) -> Result<Option<(usize, usize)>> {
        let (mut is_there, mut status) = (0, MaybeUninit::<ffi::MPI_Status>::uninit());
        // SAFETY: the pointers are to variables of this function. If there is a message, MPI writes
        // the status.
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

impl MpiRequest {
    /// Returns the number of bytes received if the message is done, else `None`. Also lets MPI make
    /// progress on all messages.
    pub(super) fn arrived(&mut self) -> Result<Option<usize>> {
        let (mut is_done, mut status) = (0, MaybeUninit::<ffi::MPI_Status>::uninit());
        // SAFETY: the request is from MPI, or null. MPI accepts null requests. If the request is
        // done, MPI writes the status.
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

    /// Cancels the message, if possible. Returns true if MPI has certainly finished with the
    /// message's memory.
    pub(super) fn cancel(&mut self) -> bool {
        /// The maximum number of polls for a cancelled receive. The receive is done as soon as MPI
        /// makes progress.
        const POLLS: usize = 100;
        if self.receives && !self.is_null() {
            // SAFETY: MPI returned the request, and the request is not done. The polls below detect
            // whether the cancellation succeeds.
            unsafe { ffi::MPI_Cancel(&mut self.raw) };
        }
        for _ in 0..POLLS {
            let _ = self.arrived();
            if self.is_null() {
                return true;
            }
        }
        false
    }

    /// Returns true if the message is done: MPI then sets the request to null.
    fn is_null(&self) -> bool {
        // SAFETY: the static is a constant of the MPI library.
        self.raw == unsafe { ffi::RSMPI_REQUEST_NULL }
    }
}

/// Tests many messages in one call. Each call lets MPI make progress on all messages, and may yield
/// the core. Returns the indices of the messages that are done, with the number of bytes received.
pub(super) fn arrived_of<'a>(
    requests: impl Iterator<Item = &'a mut MpiRequest>,
) -> Result<Vec<(usize, usize)>> {
    let mut requests: Vec<&mut MpiRequest> = requests.collect();
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let mut raw: Vec<ffi::MPI_Request> = requests.iter().map(|request| request.raw).collect();
    let mut places: Vec<c_int> = vec![0; raw.len()];
    let mut statuses = vec![MaybeUninit::<ffi::MPI_Status>::zeroed(); raw.len()];
    let mut done = 0;
    // SAFETY: the requests are from MPI, or null. MPI ignores null requests. The other pointers are
    // to vectors of this function with an equal number of elements.
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
            // SAFETY: the status was zeroed, and MPI may have written it. A status is a plain
            // structure of numbers.
            let status = unsafe { status.assume_init_ref() };
            check("MPI_Testsome", status.MPI_ERROR)?;
        }
    }
    check("MPI_Testsome", code)?;
    // If all requests were null, the count is negative.
    let done = usize::try_from(done).unwrap_or(0).min(places.len());
    let arrived = places[..done].iter().zip(&statuses);
    arrived
        .map(|(place, status)| {
            let place = *place as usize;
            let bytes = match requests[place].receives {
                // SAFETY: MPI has written the statuses of the messages that are done.
                true => unsafe { bytes_of(status.assume_init_ref()) }?,
                false => 0,
            };
            Ok((place, bytes))
        })
        .collect()
}

/// Removes the items whose request is done. Keeps the items whose test fails.
///
/// # Errors
///
/// The error of the last failed test.
pub(super) fn retain_pending<T>(
    items: &mut Vec<T>,
    request: impl Fn(&mut T) -> &mut MpiRequest,
) -> Result<()> {
    let mut outcome = Ok(());
    items.retain_mut(|item| {
        let arrived = request(item).arrived();
        let is_pending = !matches!(arrived, Ok(Some(_)));
        if let Err(error) = arrived {
            outcome = Err(error);
        }
        is_pending
    });
    outcome
}

/// Converts a length to MPI's type.
fn count(bytes: usize) -> Result<c_int> {
    bytes.try_into().map_err(|_| {
        let text = format!(
            "a message has {bytes} bytes, expected at most {}, MPI's limit",
            c_int::MAX
        );
        Error::new(ErrorKind::Communication, text)
    })
}

/// # Safety
///
/// MPI must have written the status.
unsafe fn bytes_of(status: &ffi::MPI_Status) -> Result<usize> {
    let mut bytes = 0;
    // SAFETY: MPI has written the status, by this function's contract.
    let code = unsafe { ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &mut bytes) };
    check("MPI_Get_count", code)?;
    // The count is negative for a cancelled message, which has no bytes.
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Converts MPI's error code of a call to an error of this crate.
pub(super) fn check(call: &str, code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    let place: *mut c_char = ptr::from_mut(&mut text).cast();
    // SAFETY: the buffer has the length that MPI requires.
    unsafe { ffi::MPI_Error_string(code, place, &mut length) };
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    let text = String::from_utf8_lossy(&text[..length]);
    Err(Error::new(
        ErrorKind::Communication,
        format!("{call}: {text}"),
    ))
}
