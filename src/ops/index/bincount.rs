//! Counts of numbers.

use super::{check_size, invalid};
use crate::array::{AnyElement, Array, Buffer, DType, Elements, Integer, Layout, Shape};
use crate::context::Device;
use crate::device::cuda::Indexing;
use crate::error::Result;
use crate::ops::order::UpdateTargets;
use crate::ops::order::aliasing::Target;

impl<T: Integer> Array<T> {
    /// Returns the number of occurrences of each number from 0 to `length` − 1 among all elements:
    /// NumPy's `bincount`, in the shape `[length]`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let classes = Array::from_slice(&[2, 0, 2, 1, 2], 5)?;
    /// assert_eq!(classes.bincount(4)?.to_vec()?, [1, 1, 3, 0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if an element is negative, or
    /// `length` or more: on CUDA devices, where a kernel checks this, from the next call that
    /// synchronises. [`InvalidShape`](crate::ErrorKind::InvalidShape) if the size overflows, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory); on CUDA devices, elements that are not `i64`
    /// are first copied as `i64`.
    #[track_caller]
    pub fn bincount(&self, length: usize) -> Result<Array<i64>> {
        let own = self.layout().shape();
        check_size("bincount", &Shape::from(length), DType::I64)?;
        if self.device().backend().cuda().is_none() {
            return self.counted(length);
        }
        if length == 0 && !self.is_empty() {
            return Err(invalid(format!(
                "bincount: the length is 0, and there are elements in the array of shape {own}"
            )));
        }
        if const { T::DTYPE as u8 == DType::I64 as u8 } {
            return occurrences(&self.downcast_ref().flatten()?, length);
        }
        occurrences(&self.cast::<i64>().eval_unfused()?.flatten()?, length)
    }

    /// Counts on the host, in one pass.
    #[track_caller]
    fn counted(&self, length: usize) -> Result<Array<i64>> {
        check_room(self.device(), length)?;
        let counts = tally(&Elements::of(self)?, length, |number: T| {
            // As `u64`, a negative number is a large number.
            usize::try_from(T::into_u64(number)).unwrap_or(usize::MAX)
        });
        match counts {
            Ok(counts) => {
                let _device = self.device().enter();
                Array::from_vec(counts, length)
            }
            Err(number) => Err(invalid(format!(
                "bincount: the array of shape {} has the number {number}, expected numbers from 0 to below {length}",
                self.layout().shape()
            ))),
        }
    }
}

/// # Errors
///
/// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the device has no memory for `count` numbers.
/// The host is about to allocate a list of `count` numbers.
#[track_caller]
pub(super) fn check_room(device: &Device, count: usize) -> Result<()> {
    let size_bytes = Shape::from(count).size_bytes(size_of::<i64>())?;
    Buffer::new(device, size_bytes).map(drop)
}

/// The number of tables that are used in turn if there are few places. With several tables, the
/// count of an element does not wait for the count of an equal element before it.
const TURNS: usize = 4;

/// The minimum number of places for which one table is enough.
const MANY: usize = 1 << 12;

/// Returns the number of elements of each place below `length`, or the first element whose place is
/// not below `length`.
pub(super) fn tally<T: AnyElement>(
    elements: &Elements<'_, T>,
    length: usize,
    place: impl Fn(T) -> usize,
) -> std::result::Result<Vec<i64>, T> {
    if length < MANY {
        tally_in_turns::<T, TURNS>(elements, length, &place)
    } else {
        tally_in_turns::<T, 1>(elements, length, &place)
    }
}

/// Like [`tally`], with `TABLES` tables.
fn tally_in_turns<T: AnyElement, const TABLES: usize>(
    elements: &Elements<'_, T>,
    length: usize,
    place: &impl Fn(T) -> usize,
) -> std::result::Result<Vec<i64>, T> {
    let mut tables: [Vec<i64>; TABLES] = std::array::from_fn(|_| vec![0; length]);
    let walk = Layout::walk([elements.layout()]);
    let (_, [stride]) = walk.row();
    for ([first], count) in walk.runs(0..walk.count()) {
        let tables = tables.each_mut().map(Vec::as_mut_slice);
        if stride == 1 {
            tally_row(elements.run(first, count), tables, place)?;
        } else {
            tally_row(elements.row(first, stride, count), tables, place)?;
        }
    }
    let sum = tables.into_iter().reduce(|mut counts, more| {
        let pairs = counts.iter_mut().zip(more);
        pairs.for_each(|(count, more)| *count += more);
        counts
    });
    Ok(sum.unwrap_or_default())
}

#[inline(always)]
fn tally_row<T: AnyElement, const TABLES: usize>(
    mut row: impl Iterator<Item = T>,
    mut tables: [&mut [i64]; TABLES],
    place: &impl Fn(T) -> usize,
) -> std::result::Result<(), T> {
    loop {
        for counts in &mut tables {
            let Some(value) = row.next() else {
                return Ok(());
            };
            match counts.get_mut(place(value)) {
                Some(count) => *count += 1,
                None => return Err(value),
            }
        }
    }
}

/// Returns the number of occurrences of each number below `length` in an array of one axis.
#[track_caller]
pub(super) fn occurrences(numbers: &Array<i64>, length: usize) -> Result<Array<i64>> {
    let _device = numbers.device().enter();
    let mut counts = Array::<i64>::zeros(length)?;
    if numbers.is_empty() {
        return Ok(counts);
    }
    let (one, shape) = (Array::<i64>::ones([])?, *numbers.layout().shape());
    let target = Target::new(counts.erased_mut());
    let updating = UpdateTargets {
        targets: &[target.buffer()],
        reading: [numbers.buffer(), one.buffer()],
    };
    let along = (0, Indexing::Bincount);
    on_device!(
        target.device(),
        touching & updating,
        add_at(target, numbers.into(), (&one).into(), along, &shape)
    )?;
    Ok(counts)
}
