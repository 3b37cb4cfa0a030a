//! Groups of CUDA devices: NCCL's calls, on a stream of each device.

mod watch;

use std::env;

use super::call::{Call, Operation, Reduce};
use super::carrier::Carrier;
use super::group::{Group, Settings, TIMEOUT};
use super::head::{HEAD, Head};
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

/// What the ranks of a group know each other by: one of them makes it, and passes it to the others,
/// by whatever channel there is.
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
///             group.all_reduce(&mut x, Reduce::Sum)
///         });
///     }
/// });
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NcclId(nccl::NcclId);

impl NcclId {
    /// A new one.
    ///
    /// # Errors
    ///
    /// [`Driver`](ErrorKind::Driver) where NCCL is missing or fails,
    /// [`Unsupported`](ErrorKind::Unsupported) without the feature `cuda`.
    #[track_caller]
    pub fn new() -> Result<Self> {
        Cuda::new_nccl_id().map(Self).at_caller()
    }

    /// The one of ranks that find each other at an address, by what NCCL does where its variable
    /// `NCCL_COMM_ID` is set. The launcher listens at the port itself, so that it is the next one.
    #[track_caller]
    pub(super) fn of_address(host: &str, port: u16) -> Result<Self> {
        if env::var_os(COMM_ID).is_none() {
            if !is_the_only_thread() {
                let text = format!(
                    "Group::from_environment: NCCL is told of {host} by the environment, which other threads may read: call it before \
                     there are any, or set {COMM_ID} to an address and a free port of rank 0"
                );
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            let address = format!("{host}:{}", port.saturating_add(1));
            // SAFETY: there is no other thread to read the environment, as checked.
            unsafe { env::set_var(COMM_ID, address) };
        }
        Self::new()
    }

    /// One that another process has made.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 128]) -> Self {
        Self(nccl::NcclId(bytes))
    }

    /// What to tell the other processes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 128] {
        self.0.0
    }
}

const COMM_ID: &str = "NCCL_COMM_ID";

/// Whether the process is known to have one thread.
fn is_the_only_thread() -> bool {
    let threads = std::fs::read_dir("/proc/self/task");
    threads.is_ok_and(|threads| threads.count() == 1)
}

impl Group {
    /// The rank `rank` of a group of `size` CUDA devices, this one being the current device; waits
    /// until all ranks have come. Each rank has a device of its own, and all have the same `id`.
    ///
    /// Exchanges are work on a stream of the device. NCCL knows no 16-bit integers, which are moved
    /// and not reduced; it sums in an order of its own.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) where the current device is the host,
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where there is no such rank,
    /// [`Driver`](ErrorKind::Driver) where NCCL is missing or fails, for two ranks on one device,
    /// and where not all ranks come in time.
    #[track_caller]
    pub fn nccl(rank: usize, size: usize, id: NcclId) -> Result<Self> {
        if rank >= size {
            let text = format!("Group::nccl: there is no rank {rank} of {size}");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let device = Device::current();
        let Some(gpu) = device.backend().cuda() else {
            let text =
                format!("Group::nccl: {device} is no CUDA device; threads and MPI work on it");
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        let communicator = gpu.join(&id.0, rank, size, TIMEOUT).at_caller()?;
        let carrier = NcclCarrier::new(&device, communicator, rank, size)?;
        Ok(Self::over(Carrier::Nccl(carrier)))
    }
}

/// One rank's end of a group of CUDA devices.
#[derive(Debug)]
pub(super) struct NcclCarrier {
    device: Device,
    /// What the calls are given to, in their order.
    stream: Stream,
    communicator: Arc<Communicator>,
    rank: usize,
    size: usize,
    /// What the registrations of this communicator are known by.
    key: u64,
    /// How many calls of checks were made; held while a call is given to the stream.
    calls: Mutex<u64>,
    watch: Watch,
}

impl NcclCarrier {
    #[track_caller]
    fn new(device: &Device, communicator: Communicator, rank: usize, size: usize) -> Result<Self> {
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

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    #[track_caller]
    pub(super) fn ask(&self, call: Call, spans: Spans<'_>, settings: Settings) -> Result<()> {
        if *spans.device() != self.device {
            let text = format!(
                "{}: an array on {}, and this rank is on {}",
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
        self.give(call, spans, settings)
    }

    /// Gives a call to the stream.
    #[track_caller]
    fn give(&self, call: Call, spans: Spans<'_>, settings: Settings) -> Result<()> {
        let given = self.translated(call, spans)?;
        let mut calls = self.calls.lock();
        *calls += 1;
        if given.count == 0 {
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
            .expect("the group is of CUDA devices");
        let ready = self.device.backend().record_event(stream)?;
        // SAFETY: the spans are as long as the call says, by those who made both; the stream is
        // ordered after all uses of the memory, and who uses it next is ordered after the stream.
        let asked = unsafe { gpu.communicate(&self.communicator, stream, &given) };
        asked.at_caller()?;
        let given = (call.operation.name(), ready);
        self.watch
            .expect(given, &self.communicator, settings.timeout)
    }

    /// Registers the segment that memory lies in, once, where that is one allocation. NCCL copies
    /// what it does not take.
    fn register(&self, span: Span<'_>) {
        let memory = self.device.memory();
        let register = |first, bytes| {
            let registered = self.communicator.register(first, bytes);
            Ok(registered.ok().map(|own| Box::new(own) as _))
        };
        let _ = memory.attach(DevicePtr(span.address), self.key, register);
    }

    /// Waits until all ranks have said what they call, and refuses what they do not agree on.
    #[track_caller]
    fn agree(&self, call: Call, settings: Settings) -> Result<()> {
        let head = Head {
            group: 0,
            number: *self.calls.lock(),
            call,
        };
        let all = self.gathered(&head.words(), settings)?;
        let heads: Result<Vec<Head>> = all.chunks(HEAD).map(Head::of).collect();
        let heads = heads?;
        call.check_same(heads.iter().map(|own| &own.call).enumerate())
    }

    /// What each rank tells all, as many words as each.
    #[track_caller]
    fn gathered(&self, words: &[u64], settings: Settings) -> Result<Vec<u64>> {
        let own = self.words(words)?;
        let all = self.words(&vec![0; words.len() * self.size])?;
        let call = Call::of_words(Operation::AllGather, words.len());
        self.give(call, Spans::between(&own, &all), settings)?;
        all.to_vec()
    }

    /// Words in memory that no cache owns: what a program asks for is not changed by what ranks
    /// tell each other.
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
    pub(super) fn told_by_first(&self, words: &[u64], settings: Settings) -> Result<Vec<u64>> {
        let call = Call::of_words(Operation::Broadcast(0), words.len());
        if settings.checks {
            self.agree(call, settings)?;
        }
        let own = self.words(words)?;
        self.give(call, Spans::between(&own, &own), settings)?;
        own.to_vec()
    }

    /// The part of this rank. NCCL makes communicators in no stream, and with nothing under way:
    /// what was asked for before is waited for.
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
        carrier.expect("a rank has its own color")
    }

    /// The call as NCCL knows it.
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
            Operation::Barrier => unreachable!("a barrier tells words"),
        };
        let address = |span: Option<Span<'_>>| span.map(|span| DevicePtr(span.address));
        let (source, target) = (address(spans.source), address(spans.target));
        Ok(NcclCall {
            operation,
            element,
            source: source.or(target).expect("a call has memory"),
            target: target.or(source).expect("a call has memory"),
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

/// What NCCL reduces elements as, and how many of these an element is.
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
        // True is 1, so that the largest and the smallest are what they are of truth values.
        DType::U8 | DType::Bool => (NcclType::U8, 1),
        DType::U32 => (NcclType::U32, 1),
        DType::U64 => (NcclType::U64, 1),
        DType::C32 => (NcclType::F32, 2),
        DType::C64 => (NcclType::F64, 2),
        DType::I16 | DType::U16 => {
            let (name, dtype) = (call.operation.name(), call.dtype.name());
            let text = format!("{name}: NCCL does not reduce {dtype}; cast to a wider type");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    })
}
