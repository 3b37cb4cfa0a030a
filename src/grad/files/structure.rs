//! The parameters and buffers of a structure, as they are written to and read from a file.

use std::collections::BTreeSet;
use std::panic::Location;

use super::{ArraySource, ArrayTarget, FileContext};
use crate::array::{AnyArray, AnyElement, Array, DType, Float};
use crate::error::{ErrorKind, Result};
use crate::grad::buffers::MapBuffers;
use crate::grad::parameters::{MapArrays, Parameters};
use crate::grad::place::{Member, ParameterPath, follow_place, map_erased, members};
use crate::ops::order::warn;

/// The maximum number of names in each list of an error.
const NAMED: usize = 8;

/// The last part of the name of a buffer that files of old versions of PyTorch lack. No computation
/// uses the value of this buffer.
const OPTIONAL: &str = "num_batches_tracked";

/// A structure and the names of its arrays.
pub(super) struct Structure<P> {
    /// Handles of the structure's arrays.
    own: P,
    parameters: Vec<Member>,
    buffers: Vec<Member>,
}

impl<P: Parameters> Structure<P> {
    #[track_caller]
    pub(super) fn of(like: &P) -> Result<Self> {
        let mut own = map_erased(like, Ok)?;
        let mut listing = BufferListing::default();
        own.map_buffers(&mut listing)?;
        Ok(Self {
            parameters: members(like)?,
            buffers: listing.members,
            own,
        })
    }
}

impl<P> Structure<P> {
    /// Returns the parameters, then the buffers.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Member> {
        self.parameters.iter().chain(&self.buffers)
    }
}

#[derive(Default)]
struct BufferListing {
    place: ParameterPath,
    members: Vec<Member>,
}

impl MapBuffers for BufferListing {
    fn map<T: AnyElement>(&mut self, buffer: &Array<T>) -> Result<Option<Array<T>>> {
        self.members.push(Member {
            name: self.place.name().to_owned(),
            dtype: T::DTYPE,
            shape: *buffer.layout().shape(),
        });
        Ok(None)
    }

    follow_place!();
}

pub(super) fn write_all<P: Parameters, T: ArrayTarget>(
    structure: &mut Structure<P>,
    target: T,
) -> Result<()> {
    let mut writing = StructureWriter {
        place: ParameterPath::default(),
        target,
    };
    structure.own.map_arrays(&mut writing)?;
    structure.own.map_buffers(&mut writing)?;
    writing.target.finish()
}

struct StructureWriter<T> {
    place: ParameterPath,
    target: T,
}

impl<W: ArrayTarget> MapArrays for StructureWriter<W> {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.target.write(self.place.name(), array.erased())?;
        Ok(array.clone())
    }

    follow_place!();
}

impl<W: ArrayTarget> MapBuffers for StructureWriter<W> {
    fn map<T: AnyElement>(&mut self, buffer: &Array<T>) -> Result<Option<Array<T>>> {
        self.target.write(self.place.name(), buffer.erased())?;
        Ok(None)
    }

    follow_place!();
}

/// Reads a structure with the names, shapes and types of `like`.
pub(super) fn read_all<P: Parameters, S: ArraySource>(
    like: &Structure<P>,
    source: S,
    (context, call_site): (&FileContext<'_>, &'static Location<'static>),
) -> Result<P> {
    let absent = check_names(like, &source.names(), context)?;
    let mut reading = StructureReader {
        place: ParameterPath::default(),
        source,
        absent,
    };
    let mut loaded = like.own.map_arrays(&mut reading)?;
    loaded.map_buffers(&mut reading)?;
    let absent: Vec<&str> = reading.absent.iter().map(String::as_str).collect();
    if absent.iter().any(|name| !is_optional(name)) {
        warn::once(
            call_site,
            format_args!(
                "{} has no buffers: the values of {} are unchanged",
                context.path.display(),
                listed(absent)
            ),
        );
    }
    Ok(loaded)
}

struct StructureReader<S> {
    place: ParameterPath,
    source: S,
    /// The buffers that the file lacks.
    absent: BTreeSet<String>,
}

impl<S: ArraySource> StructureReader<S> {
    /// Reads the array at the present place, with the device and the shape of `like`.
    fn read(&mut self, dtype: DType, like: &AnyArray) -> Result<AnyArray> {
        let (name, device) = (self.place.name(), like.device());
        self.source.read(name, dtype, device, like.shape())
    }

    /// Reads a state of the type `wide`. If the file has it in the type `narrow`, converts it.
    fn read_state(&mut self, [wide, narrow]: [DType; 2], like: &AnyArray) -> Result<AnyArray> {
        match self.read(wide, like) {
            Err(error) if narrow != wide => {
                let read = self.read(narrow, like);
                read.map_err(|_| error)?.converted(wide)
            }
            read => read,
        }
    }
}

impl<S: ArraySource> MapArrays for StructureReader<S> {
    fn map<T: Float>(&mut self, like: &Array<T>) -> Result<Array<T>> {
        self.read(T::DTYPE, like.erased()).map(Array::from_erased)
    }

    /// Reads an optimizer state. A file may contain the state in the parameter's type `T` instead
    /// of its accumulation type.
    fn map_state<T: Float>(&mut self, like: &Array<T::Computed>) -> Result<Array<T::Computed>> {
        let (wide, narrow) = (<T::Computed>::DTYPE, T::DTYPE);
        self.read_state([wide, narrow], like.erased())
            .map(Array::from_erased)
    }

    follow_place!();
}

impl<S: ArraySource> MapBuffers for StructureReader<S> {
    fn map<T: AnyElement>(&mut self, like: &Array<T>) -> Result<Option<Array<T>>> {
        let name = self.place.name();
        // The buffer is copied, so that an update of one structure does not change the other
        // structure.
        let read = match self.absent.contains(name) {
            true => return like.lazy().eval_unfused().map(Some),
            false => read_buffer(&mut self.source, name, like.erased()),
        };
        read.map(Array::from_erased).map(Some)
    }

    follow_place!();
}

/// Reads a buffer. If the file's float type differs from the type of `like`, the elements are
/// converted. PyTorch stores running statistics in the parameters' type.
fn read_buffer(source: &mut impl ArraySource, name: &str, like: &AnyArray) -> Result<AnyArray> {
    let (device, shape) = (like.device(), like.shape());
    let read = source.read(name, like.dtype, device, shape);
    let Err(error) = &read else {
        return read;
    };
    if error.kind() != ErrorKind::InvalidArgument || !like.dtype.is_float() {
        return read;
    }
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        if let Ok(other) = source.read(name, dtype, device, shape) {
            return other.converted(like.dtype);
        }
    }
    read
}

/// Returns an error unless the file has each name of the structure once, and no other name. Returns
/// the buffers that the file lacks: all buffers, or only optional buffers.
fn check_names<P>(
    like: &Structure<P>,
    found: &[String],
    context: &FileContext<'_>,
) -> Result<BTreeSet<String>> {
    let expected: BTreeSet<&str> = like.entries().map(|entry| entry.name.as_str()).collect();
    let mut missing = expected.clone();
    let mut beyond = Vec::new();
    for name in found {
        if !missing.remove(name.as_str()) {
            beyond.push(name.as_str());
        }
    }
    let buffers = || like.buffers.iter().map(|entry| entry.name.as_str());
    let has_none = buffers().all(|name| is_optional(name) || missing.contains(name));
    let may_lack = |name: &&str| has_none || is_optional(name);
    let mut absent = BTreeSet::new();
    for name in buffers().filter(may_lack) {
        if missing.remove(name) {
            absent.insert(name.to_owned());
        }
    }
    let mut problems = Vec::new();
    if !missing.is_empty() {
        let missing = missing.into_iter().collect();
        problems.push(format!("the file lacks {}", listed(missing)));
    }
    if !beyond.is_empty() {
        let twice = beyond.iter().any(|name| expected.contains(name));
        let why = if twice {
            ", or which the file has twice"
        } else {
            ""
        };
        let beyond = listed(beyond);
        problems.push(format!("it has {beyond}, which the structure lacks{why}"));
    }
    if problems.is_empty() {
        return Ok(absent);
    }
    Err(context.error(ErrorKind::InvalidArgument, None, problems.join("; ")))
}

/// Returns true for the name of a buffer that a file may lack.
fn is_optional(name: &str) -> bool {
    name.rsplit('.').next() == Some(OPTIONAL)
}

/// Returns a list of the first [`NAMED`] names, and the number of further names.
pub(super) fn listed(names: Vec<&str>) -> String {
    let mut listed: Vec<String> = names
        .iter()
        .take(NAMED)
        .map(|name| format!("{name:?}"))
        .collect();
    if names.len() > NAMED {
        listed.push(format!("{} more", names.len() - NAMED));
    }
    listed.join(", ")
}
