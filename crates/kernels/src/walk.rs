//! Simultaneous walks over the elements of several arrays of one shape.

use std::ops::Range;

/// The maximum rank of an array.
pub const MAX_RANK: usize = 8;

/// The maximum number of axes of a walk: the rank of an array, and one axis for repeated elements.
const AXES: usize = MAX_RANK + 1;

/// The paired elements of `K` operands, in row-major order. Adjacent axes are joined where the
/// strides permit it. An *offset* is the position of an element in an operand's memory, in
/// elements.
///
/// Invariants: The first `ndim` axes are in use, and `ndim` is at least 1. If the walk has
/// elements, no offset overflows.
#[derive(Clone, Copy, Debug)]
pub struct Walk<const K: usize> {
    dims: [usize; AXES],
    strides: [[isize; K]; AXES],
    first: [usize; K],
    ndim: usize,
}

impl<const K: usize> Walk<K> {
    /// Returns a walk over `axes`, outermost first. `first` has the offset of the first element in
    /// each operand. Each axis is a length and the operands' strides. At most nine axes may remain
    /// after adjacent axes are joined.
    pub fn over(first: [usize; K], axes: impl IntoIterator<Item = (usize, [isize; K])>) -> Self {
        let mut walk = Self {
            dims: [1; AXES],
            strides: [[0; K]; AXES],
            first,
            ndim: 0,
        };
        for (length, strides) in axes {
            walk.append(length, strides);
        }
        // A single element is a row of length 1.
        walk.ndim = walk.ndim.max(1);
        walk
    }

    /// Appends an axis as the innermost axis, or joins it with the innermost axis.
    fn append(&mut self, length: usize, strides: [isize; K]) {
        if length == 1 {
            return;
        }
        if let Some(last) = self.ndim.checked_sub(1) {
            let outer = &mut self.strides[last];
            let joins =
                |(outer, inner): (&isize, &isize)| *outer == inner.wrapping_mul(length as isize);
            if outer.iter().zip(&strides).all(joins) {
                *outer = strides;
                // If the product overflows, an outer axis has length 0, such as an axis of zero
                // repetitions.
                self.dims[last] = self.dims[last].wrapping_mul(length);
                return;
            }
        }
        self.dims[self.ndim] = length;
        self.strides[self.ndim] = strides;
        self.ndim += 1;
    }

    /// Returns the number of elements.
    pub fn count(&self) -> usize {
        self.dims[..self.ndim].iter().product()
    }

    /// Returns the lengths and strides of the axes, outermost first.
    pub fn axes(
        &self,
    ) -> impl ExactSizeIterator<Item = (usize, [isize; K])> + DoubleEndedIterator + Clone {
        let dims = self.dims[..self.ndim].iter().copied();
        dims.zip(self.strides[..self.ndim].iter().copied())
    }

    pub fn length(&self, axis: usize) -> usize {
        self.dims[axis]
    }

    /// Returns the length and the strides of the innermost axis.
    pub fn row(&self) -> (usize, [isize; K]) {
        (self.dims[self.ndim - 1], self.strides[self.ndim - 1])
    }

    /// Returns a walk over the positions `range` of axis `axis`.
    pub fn narrowed(&self, axis: usize, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.dims[axis]);
        let mut narrowed = *self;
        narrowed.dims[axis] = range.len();
        let steps = narrowed.first.iter_mut().zip(&self.strides[axis]);
        for (first, stride) in steps {
            *first = first.wrapping_add_signed(range.start as isize * stride);
        }
        narrowed
    }

    /// Returns the offset of the first element in each operand.
    pub fn first(&self) -> [usize; K] {
        self.first
    }

    /// Returns a walk over the first elements of all rows, and the length and strides of a row. If
    /// a row has no elements, the walk has no elements.
    pub fn by_rows(&self) -> (Self, (usize, [isize; K])) {
        let mut firsts = *self;
        firsts.ndim -= 1;
        if firsts.ndim == 0 {
            firsts.dims[0] = 1;
            firsts.ndim = 1;
        }
        if self.row().0 == 0 {
            firsts.dims[0] = 0;
        }
        (firsts, self.row())
    }

    /// Returns the offsets of the element with row-major index `number`.
    #[inline]
    pub fn at(&self, number: usize) -> [usize; K] {
        self.runs(number..number + 1).at
    }

    /// Returns the offsets of the elements with the row-major indices `range`.
    pub fn each(&self, range: Range<usize>) -> impl Iterator<Item = [usize; K]> + '_ {
        let (_, strides) = self.row();
        self.runs(range).flat_map(move |(first, count)| {
            let mut next = first;
            (0..count).map(move |_| {
                let at = next;
                for (at, stride) in next.iter_mut().zip(&strides) {
                    *at = at.wrapping_add_signed(*stride);
                }
                at
            })
        })
    }

    /// Returns the elements with the row-major indices `range`, in runs along the innermost axis.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer elements than `range` requires.
    #[inline]
    pub fn runs(&self, range: Range<usize>) -> Runs<'_, K> {
        assert!(range.start <= range.end && range.end <= self.count());
        let mut runs = Runs {
            walk: self,
            index: [0; AXES],
            at: self.first,
            left: range.len(),
        };
        if runs.left > 0 {
            let mut rest = range.start;
            for axis in (0..self.ndim).rev() {
                if rest == 0 {
                    break;
                }
                let index = rest % self.dims[axis];
                rest /= self.dims[axis];
                runs.index[axis] = index;
                runs.step(axis, index as isize);
            }
        }
        runs
    }
}

impl Walk<2> {
    /// Returns the walk with its two operands exchanged.
    pub fn swapped(&self) -> Self {
        let swapped = self
            .axes()
            .map(|(length, [one, other])| (length, [other, one]));
        let [one, other] = self.first;
        Self::over([other, one], swapped)
    }
}

#[derive(Clone, Debug)]
pub struct Runs<'a, const K: usize> {
    walk: &'a Walk<K>,
    // The coordinates of the next element, and its offset in each operand.
    index: [usize; AXES],
    at: [usize; K],
    left: usize,
}

impl<const K: usize> Runs<'_, K> {
    #[inline(always)]
    fn step(&mut self, axis: usize, count: isize) {
        for (at, stride) in self.at.iter_mut().zip(&self.walk.strides[axis]) {
            *at = at.wrapping_add_signed(count.wrapping_mul(*stride));
        }
    }
}

impl<const K: usize> Iterator for Runs<'_, K> {
    /// The offsets of a run's first element, and the number of elements of the run.
    type Item = ([usize; K], usize);

    #[inline]
    fn next(&mut self) -> Option<([usize; K], usize)> {
        if self.left == 0 {
            return None;
        }
        let mut axis = self.walk.ndim - 1;
        let begun = self.index[axis];
        let length = self.left.min(self.walk.dims[axis] - begun);
        let run = (self.at, length);
        self.left -= length;
        if self.left == 0 {
            return Some(run);
        }
        // The coordinates count up like an odometer. If an axis reaches its end, its coordinate
        // returns to 0. The coordinate of the next outer axis then advances by 1.
        self.step(axis, -(begun as isize));
        self.index[axis] = 0;
        while axis > 0 {
            axis -= 1;
            self.step(axis, 1);
            self.index[axis] += 1;
            if self.index[axis] < self.walk.dims[axis] {
                break;
            }
            self.step(axis, -(self.walk.dims[axis] as isize));
            self.index[axis] = 0;
        }
        Some(run)
    }
}
