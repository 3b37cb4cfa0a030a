//! Groups of CUDA devices: NCCL calls, on a stream of each device.

mod watch;

use std::env;

use super::call::{Call, Operation, Reduce};
use super::engine::Settings;
use super::header::{HEADER_WORDS, MessageHeader};
use super::memory::{Span, Spans};
use crate::array::{Array, DType, Shape, Writer};
use crate::context::{Device, Stream};
use crate::device::DevicePtr;
use crate::device::cuda::nccl::{NcclCall, NcclOperation, NcclReduce, NcclType};
use crate::device::cuda::{Communicator, Cuda, nccl};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::sync::Arc;
use crate::sync::plain::{AtomicU64, Mutex, Ordering};
use watch::Watch;

/// The identifier by which the ranks of a group find each other. One rank creates the identifier,
/// and passes it to the other ranks by any channel.
///
/// # Examples
///
/// ```no_run
/// use cachescope::Device;
/// use cachescope::collective::{Group, NcclId, Reduce};
///
/// let id = NcclId::new()?;
/// std::thread::scope(|threads| {
///     for rank in 0..2 {
///         threads.spawn(move || -> cachescope::Result<()> {
///             let _device = Device::cuda(rank)?.enter();
///             let group = Group::nccl(rank, 2, id)?;
///             let mut x = cachescope::Array::full(3, rank as f32)?;
///             group.all_reduce_in_place(&mut x, Reduce::Sum)
///         });
///     }
/// });
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NcclId(pub(super) nccl::NcclId);

impl NcclId {
    /// Creates a new id.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::ErrorKind;
    /// use cachescope::collective::NcclId;
    ///
    /// match NcclId::new() {
    ///     Ok(id) => assert_ne!(id, NcclId::new()?),
    ///     Err(error) => assert!([ErrorKind::Driver, ErrorKind::Unsupported].contains(&error.kind())),
    /// }
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Driver`](ErrorKind::Driver) where NCCL is missing or fails,
    /// [`Unsupported`](ErrorKind::Unsupported) without the feature `cuda`.
    #[track_caller]
    pub fn new() -> Result<Self> {
        Cuda::new_nccl_id().map(Self).at_caller()
    }

    /// Creates the id of ranks that find each other at the address in NCCL's variable
    /// `NCCL_COMM_ID`. If the variable is not set, sets it to `host` and the port after `port`,
    /// because the launcher listens at `port`.
    #[track_caller]
    pub(super) fn of_address(host: &str, port: u16) -> Result<Self> {
        if env::var_os(COMM_ID).is_none() {
            if !is_the_only_thread() {
                let text = format!(
                    "Group::from_environment: {COMM_ID} cannot be set to {host} while other \
                     threads may read the environment: call this function before the first thread \
                     starts, or set {COMM_ID} to an address and a free port of rank 0"
                );
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            let address = format!("{host}:{}", port.saturating_add(1));
            // SAFETY: no other thread exists that could read the environment, as checked.
            unsafe { env::set_var(COMM_ID, address) };
        }
        Self::new()
    }

    /// Returns the id that another process has created.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::collective::NcclId;
    ///
    /// let id = NcclId::from_bytes([7; 128]);
    /// assert_eq!(id, NcclId::from_bytes(id.to_bytes()));
    /// ```
    #[must_use]
    pub fn from_bytes(bytes: [u8; 128]) -> Self {
        Self(nccl::NcclId(bytes))
    }

    /// Returns the bytes of the id, to send to the other processes.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::collective::NcclId;
    ///
    /// assert_eq!(NcclId::from_bytes([7; 128]).to_bytes(), [7; 128]);
    /// ```
    #[must_use]
    pub fn to_bytes(self) -> [u8; 128] {
        self.0.0
    }
}

const COMM_ID: &str = "NCCL_COMM_ID";

/// Returns true if the process is known to have only one thread.
fn is_the_only_thread() -> bool {
    let threads = std::fs::read_dir("/proc/self/task");
    threads.is_ok_and(|threads| threads.count() == 1)
}

/// The transport of one rank of a group of CUDA devices.
#[derive(Debug)]
pub(super) struct NcclCarrier {
    pub(super) device: Device,
    /// The stream that calls are enqueued on, in order.
    stream: Stream,
    communicator: Arc<Communicator>,
    pub(super) rank: usize,
    pub(super) size: usize,
    /// The key of this communicator's memory registrations.
    key: u64,
    /// The number of enqueued calls, which checks compare. Locked while a call is enqueued.
    calls: Mutex<u64>,
    watch: Watch,
}

impl NcclCarrier {
    #[track_caller]
    pub(super) fn new(
        device: &Device,
        communicator: Communicator,
        rank: usize,
        size: usize,
    ) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            device: device.clone(),
            stream: device.new_stream()?,
            watch: Watch::start(device, (rank, key))?,
            communicator: Arc::new(communicator),
            rank,
            size,
            key,
            calls: Mutex::new(0),
        })
    }

    #[track_caller]
    pub(super) fn submit(&self, call: Call, spans: Spans<'_>, settings: Settings) -> Result<()> {
        if *spans.device() != self.device {
            let text = format!(
                "{}: the array is on {}, this rank is on {}",
                call.operation.name(),
                spans.device(),
                self.device
            );
            return Err(Error::new(ErrorKind::DeviceMismatch, text));
        }
        let of_two = matches!(call.operation, Operation::Send(_) | Operation::Receive(_));
        if settings.checks && !of_two {
            self.agree(call, settings)?;
        }
        self.enqueue(call, spans, settings)
    }

    #[track_caller]
    fn enqueue(&self, call: Call, spans: Spans<'_>, settings: Settings) -> Result<()> {
        let nccl_call = self.translated(call, spans)?;
        let mut calls = self.calls.lock();
        *calls += 1;
        if nccl_call.count == 0 {
            return Ok(());
        }
        let stream = self.stream.id();
        spans.order_on(stream).at_caller()?;
        for span in [spans.source, spans.target].into_iter().flatten() {
            self.register(span);
        }
        let gpu = self
            .device
            .backend()
            .cuda()
            .expect("the group has CUDA devices");
        let ready = self.device.backend().record_event(stream)?;
        // SAFETY: the spans have the lengths of the call, because one caller made the call and its
        // spans. The stream is ordered after all earlier uses of the memory. Later uses are ordered
        // after the stream.
        let outcome = unsafe { gpu.communicate(&self.communicator, stream, &nccl_call) };
        outcome.at_caller()?;
        let operation = (call.operation.name(), ready);
        self.watch
            .expect(operation, &self.communicator, settings.timeout)
    }

    /// Registers the memory's segment once, if the segment is one allocation. If NCCL rejects a
    /// registration, NCCL copies through its own buffers.
    fn register(&self, span: Span<'_>) {
        let memory = self.device.memory();
        let register = |first, bytes| {
            let registered = self.communicator.register(first, bytes);
            Ok(registered.ok().map(|own| Box::new(own) as _))
        };
        let _ = memory.attach(DevicePtr(span.address), self.key, register);
    }

    /// Gathers the calls of all ranks, and returns an error if they differ.
    #[track_caller]
    fn agree(&self, call: Call, settings: Settings) -> Result<()> {
        let header = MessageHeader {
            group: 0,
            number: *self.calls.lock(),
            call,
        };
        let all = self.gathered(&header.words(), settings)?;
        let headers: Result<Vec<MessageHeader>> =
            all.chunks(HEADER_WORDS).map(MessageHeader::of).collect();
        let headers = headers?;
        call.check_same(headers.iter().map(|own| &own.call).enumerate())
    }

    /// All-gathers words of metadata. All ranks must pass the same number of words.
    #[track_caller]
    fn gathered(&self, words: &[u64], settings: Settings) -> Result<Vec<u64>> {
        let own = self.words(words)?;
        let all = self.words(&vec![0; words.len() * self.size])?;
        let call = Call::of_words(Operation::AllGather, words.len());
        self.enqueue(call, Spans::between(&own, &all), settings)?;
        all.to_vec()
    }

    /// Returns an array in memory that no cache owns, so that internal exchanges add no requests to
    /// the program's caches.
    #[track_caller]
    fn words(&self, words: &[u64]) -> Result<Array<u64>> {
        let shape = Shape::from(words.len());
        let mut writer = Writer::detached(&self.device, &shape)?;
        writer.extend_from_slice(words)?;
        writer.finish()
    }

    #[track_caller]
    pub(super) fn barrier(&self, settings: Settings) -> Result<()> {
        self.gathered(&[0], settings).map(drop)
    }

    #[track_caller]
    pub(super) fn broadcast_words(&self, words: &[u64], settings: Settings) -> Result<Vec<u64>> {
        let call = Call::of_words(Operation::Broadcast(0), words.len());
        if settings.checks {
            self.agree(call, settings)?;
        }
        let own = self.words(words)?;
        self.enqueue(call, Spans::between(&own, &own), settings)?;
        own.to_vec()
    }

    /// Divides the group. NCCL creates communicators outside of streams, and only while no call is
    /// in flight. Therefore this method first waits for all enqueued calls.
    #[track_caller]
    pub(super) fn split(&self, (color, key): (usize, usize)) -> Result<Self> {
        let _calls = self.calls.lock();
        let backend = self.device.backend();
        backend.synchronize(self.stream.id()).at_caller()?;
        let part = self.communicator.split(Some(color), key).at_caller()?;
        let carrier = part.map(|part| {
            let (rank, size) = (part.rank(), part.size());
            Self::new(&self.device, part, rank, size)
        });
        carrier.expect("a rank is among the ranks of its color")
    }

    /// Translates a call to NCCL's parameters.
    #[track_caller]
    fn translated(&self, call: Call, spans: Spans<'_>) -> Result<NcclCall> {
        let bytes = call.bytes();
        let reduced = || reducible(call).map(|(element, width)| (element, call.count() * width));
        let (element, count, operation) = match call.operation {
            Operation::AllReduce(reduce) => {
                let (element, count) = reduced()?;
                (element, count, NcclOperation::AllReduce(reduction(reduce)))
            }
            Operation::Reduce(reduce, root) => {
                let (element, count) = reduced()?;
                let operation = NcclOperation::Reduce(reduction(reduce), root);
                (element, count, operation)
            }
            Operation::ReduceScatter(reduce) => {
                let (element, count) = reduced()?;
                let operation = NcclOperation::ReduceScatter(reduction(reduce));
                (element, count / self.size, operation)
            }
            Operation::Broadcast(root) => (NcclType::U8, bytes, NcclOperation::Broadcast(root)),
            Operation::AllGather => (NcclType::U8, bytes, NcclOperation::AllGather),
            Operation::AllToAll => (NcclType::U8, bytes / self.size, NcclOperation::AllToAll),
            Operation::Send(to) => (NcclType::U8, bytes, NcclOperation::Send(to)),
            Operation::Receive(from) => (NcclType::U8, bytes, NcclOperation::Receive(from)),
            Operation::Barrier => unreachable!("a barrier sends words"),
        };
        let address = |span: Option<Span<'_>>| span.map(|span| DevicePtr(span.address));
        let (source, target) = (address(spans.source), address(spans.target));
        Ok(NcclCall {
            operation,
            element,
            source: source.or(target).expect("a call has a source or a target"),
            target: target.or(source).expect("a call has a source or a target"),
            count,
        })
    }
}

fn reduction(reduce: Reduce) -> NcclReduce {
    match reduce {
        Reduce::Sum => NcclReduce::Sum,
        Reduce::Mean => NcclReduce::Mean,
        Reduce::Max => NcclReduce::Max,
        Reduce::Min => NcclReduce::Min,
    }
}

/// Returns the NCCL type that reduces the elements, and the number of NCCL elements in each
/// element.
#[track_caller]
fn reducible(call: Call) -> Result<(NcclType, usize)> {
    Ok(match call.dtype {
        DType::F32 => (NcclType::F32, 1),
        DType::F64 => (NcclType::F64, 1),
        DType::F16 => (NcclType::F16, 1),
        DType::Bf16 => (NcclType::Bf16, 1),
        DType::I8 => (NcclType::I8, 1),
        DType::I32 => (NcclType::I32, 1),
        DType::I64 => (NcclType::I64, 1),
        // True is 1, so that the maximum and the minimum are correct for `bool`.
        DType::U8 | DType::Bool => (NcclType::U8, 1),
        DType::U32 => (NcclType::U32, 1),
        DType::U64 => (NcclType::U64, 1),
        DType::C32 => (NcclType::F32, 2),
        DType::C64 => (NcclType::F64, 2),
        _ => {
            let (name, dtype) = (call.operation.name(), call.dtype.name());
            let text = format!("{name}: NCCL does not reduce {dtype}: cast to a wider type");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    })
}
