//! A device function for an expression over an index space, and its operands.
//!
//! The source of a program depends only on the form, and on the functions and types of the
//! expression graph. The source is generated only when its kernel is compiled. A program and its
//! arguments are cheap to make. Every member of the C++ structure `Operands` is aligned to eight
//! bytes.

mod crossed;
mod text;

use crate::array::{Bits, Layout, MAX_RANK, Shape};
use crate::device::cuda::{Arguments, KernelKey};
use crate::ops::expression::graph::{ExpressionGraph, NodeKind};
use crate::ops::expression::tree::Operand;

pub(super) use crossed::Crossed;

/// An array that is read or written, over the axes of the index space.
#[derive(Clone, Copy, Debug)]
struct Strided {
    /// The address of the first element.
    address: u64,
    element_bytes: usize,
    strides: [isize; MAX_RANK],
}

/// The parameters of the source, besides the functions and types of the expression graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    /// The number of axes with strides. If the elements of all arrays are contiguous, this is 0.
    rank: usize,
    /// `true` if indices need 64 bits.
    is_wide: bool,
    /// `true` if packs of several elements are read.
    is_packed: bool,
    /// A bit for each operand that repeats one element along the last axis. If no packs are read,
    /// no bit is set.
    repeated: u32,
}

/// The number of bits of [`Form::repeated`] in a key. The variant is above these bits.
const MOST_REPEATED: usize = 19;
/// The position of the lowest bit of a variant in a key.
const VARIANT: u32 = 27;

impl Form {
    /// Returns whether the operand repeats one element along the last axis. Returns `false` if
    /// elements are read one by one.
    fn repeats(self, operand: usize) -> bool {
        operand < MOST_REPEATED && self.repeated & (1 << operand) != 0
    }
}

/// An expression over an index space. The elements of the expression are numbered in row-major
/// order of the axes.
///
/// Invariant: `places` has an entry for each array of the expression graph, in the order of the
/// graph. The entries of the targets follow. Each entry has a stride for each of `dims`.
#[derive(Clone, Debug)]
pub(super) struct Program<'a> {
    graph: &'a ExpressionGraph<'a>,
    form: Form,
    dims: Vec<usize>,
    places: Vec<Strided>,
    scalars: Vec<(Bits, usize)>,
    targets: usize,
    width: usize,
}

/// The identity permutation of axes.
const IN_ORDER: [usize; MAX_RANK] = [0, 1, 2, 3, 4, 5, 6, 7];

impl<'a> Program<'a> {
    /// Makes a program of `graph` over the axes of `shape`, in the order of `axes`, a permutation.
    /// Every operand must broadcast to `shape`.
    pub(super) fn new(
        graph: &'a ExpressionGraph<'a>,
        shape: &Shape,
        axes: [usize; MAX_RANK],
    ) -> Self {
        Self::over(graph, shape, axes, &[])
    }

    pub(super) fn row_major(graph: &'a ExpressionGraph<'a>, shape: &Shape) -> Self {
        Self::new(graph, shape, IN_ORDER)
    }

    /// Makes a program that writes `graph` to `target`, in row-major order. The arguments contain
    /// the strides of `target` after the strides of the operands.
    pub(super) fn onto(graph: &'a ExpressionGraph<'a>, target: Operand<'_>) -> Self {
        Self::onto_all(graph, &[target])
    }

    /// Makes a program that writes each result to its own target. All targets have one shape.
    pub(super) fn onto_all(graph: &'a ExpressionGraph<'a>, targets: &[Operand<'_>]) -> Self {
        Self::over(graph, targets[0].layout.shape(), IN_ORDER, targets)
    }

    fn over(
        graph: &'a ExpressionGraph<'a>,
        shape: &Shape,
        axes: [usize; MAX_RANK],
        targets: &[Operand<'_>],
    ) -> Self {
        let axes = &axes[..shape.ndim()];
        let arrays: Vec<Operand<'_>> = (graph.operands().copied())
            .chain(targets.iter().copied())
            .collect();
        let of_arrays = arrays.iter().map(|operand| operand.dtype.size_bytes());
        let width = width_of(of_arrays.fold(graph.first().dtype.size_bytes(), usize::max));
        let of = |operand: &Operand<'_>| Strided::of(operand, shape, axes);
        let mut places: Vec<Strided> = arrays.iter().map(of).collect();
        let dims = coalesce(shape, axes, &mut places);
        let scalars = graph.nodes().iter().filter_map(|node| match node.kind {
            NodeKind::Scalar(bits) => Some((bits, node.dtype.size_bytes())),
            _ => None,
        });
        let mut program = Self {
            graph,
            form: Form {
                rank: dims.len(),
                is_wide: reaches_far(&dims, &places),
                is_packed: false,
                repeated: 0,
            },
            dims,
            places,
            scalars: scalars.collect(),
            targets: targets.len(),
            width,
        };
        program.choose_packs();
        program
    }

    /// Chooses packs if each operand is aligned to packs or repeats one element. If there are
    /// several results, chooses single elements. The loads and stores of several results keep
    /// enough memory accesses in flight without packs.
    fn choose_packs(&mut self) {
        if self.targets > 1 {
            let [length] = self.dims[..] else { return };
            if length == 1 || self.places.iter().all(|place| place.strides[0] == 1) {
                self.form.rank = 0;
            }
            return;
        }
        let Some(last) = self.dims.len().checked_sub(1) else {
            self.form.is_packed = self.are_aligned(0);
            return;
        };
        if self.places.iter().all(|place| place.strides[last] == 1) && last == 0 {
            // All arrays are contiguous.
            self.form.rank = 0;
            self.form.is_packed = self.are_aligned(0);
            return;
        }
        let are_whole = last == 0 || self.dims[last].is_multiple_of(self.width);
        let steps = || self.places.iter().map(|place| place.strides[last]);
        let are_near = steps().all(|step| step == 0 || step == 1);
        if are_whole && are_near && self.places.len() <= MOST_REPEATED && self.are_aligned(last) {
            self.form.is_packed = true;
            let repeated = steps().enumerate().filter(|(_, step)| *step == 0);
            self.form.repeated = repeated.fold(0, |bits, (index, _)| bits | 1 << index);
        }
    }

    /// Returns whether every operand is aligned to packs, or repeats one element along the axis
    /// `last`.
    fn are_aligned(&self, last: usize) -> bool {
        let mut places = self.places.iter();
        places.all(|place| {
            let repeats = self.dims.len() > last && place.strides[last] == 0;
            repeats || place.is_aligned(self.width, last)
        })
    }

    /// Returns the key of a kernel over the program. `of` maps a form to a key.
    pub(super) fn key(&self, of: fn(u32) -> KernelKey) -> KernelKey {
        of(self.form()).over(self.graph.fingerprint())
    }

    /// Returns the key of variant `variant` of a kernel over the program. Variants are below 32.
    pub(super) fn variant_key(&self, of: fn(u32) -> KernelKey, variant: u32) -> KernelKey {
        debug_assert!(variant < 1 << (u32::BITS - VARIANT));
        of(self.form() | variant << VARIANT).over(self.graph.fingerprint())
    }

    /// Returns the bits of the kernel's key that do not depend on the expression graph.
    pub(super) fn form(&self) -> u32 {
        let Form {
            rank,
            is_wide,
            is_packed,
            repeated,
        } = self.form;
        let has_target = self.targets > 0;
        let [is_wide, is_packed, has_target] = [is_wide, is_packed, has_target].map(u32::from);
        rank as u32 | is_wide << 4 | is_packed << 5 | has_target << 6 | repeated << 8
    }

    /// Returns the number of elements that the source reads at once.
    pub(super) fn width(&self) -> usize {
        if self.form.is_packed { self.width } else { 1 }
    }

    /// Appends the kernel's argument `const Operands`.
    pub(super) fn arguments(&self, arguments: &mut Arguments) {
        let mut members: Vec<u64> = self.places.iter().map(|place| place.address).collect();
        for (bits, size_bytes) in &self.scalars {
            members.extend(bits.words(*size_bytes));
        }
        for axis in 0..self.form.rank {
            if axis > 0 {
                let length = self.dims[axis];
                let (multiplier, shift) = inverse(length);
                members.extend([length as u64, u64::from(multiplier), u64::from(shift)]);
            }
            members.extend(self.places.iter().map(|place| place.strides[axis] as u64));
        }
        if members.is_empty() {
            // In C++, a structure without members still has a size.
            members.push(0);
        }
        arguments.push_all(members);
    }
}

impl Strided {
    fn of(operand: &Operand<'_>, shape: &Shape, axes: &[usize]) -> Self {
        let placed = operand.layout.broadcast_to(shape);
        let ordered = match placed.and_then(|layout| layout.permute(axes)) {
            Ok(layout) => layout,
            // The operands broadcast to the shape of the expression.
            Err(error) => unreachable!("{error}"),
        };
        let mut strides = [0; MAX_RANK];
        strides[..ordered.ndim()].copy_from_slice(ordered.strides());
        Self {
            address: first_of(
                operand.buffer.address(),
                &ordered,
                operand.dtype.size_bytes(),
            ),
            element_bytes: operand.dtype.size_bytes(),
            strides,
        }
    }

    /// Returns whether each pack of `width` elements along the axis `last` is aligned. The
    /// alignment must hold at every index along the axes before `last`.
    fn is_aligned(&self, width: usize, last: usize) -> bool {
        let word = (width * self.element_bytes).min(16);
        let mut outer = self.strides[..last].iter();
        self.address.is_multiple_of(word as u64)
            && outer.all(|stride| stride.unsigned_abs().is_multiple_of(width))
    }
}

fn first_of(address: u64, layout: &Layout, element_bytes: usize) -> u64 {
    address.wrapping_add(layout.offset().wrapping_mul(element_bytes) as u64)
}

/// Merges two neighbouring axes if, in every array of `places`, one stride can replace the strides
/// of both axes. Returns the lengths of the remaining axes. Moves the strides of the remaining axes
/// to the front in every entry of `places`.
fn coalesce(shape: &Shape, axes: &[usize], places: &mut [Strided]) -> Vec<usize> {
    let mut dims: Vec<usize> = Vec::with_capacity(axes.len());
    for (from, &axis) in axes.iter().enumerate() {
        let length = shape.dims()[axis];
        if length == 1 {
            continue;
        }
        let joins = dims.len().checked_sub(1).filter(|&last| {
            places.iter().all(|place| {
                place.strides[last] == place.strides[from].wrapping_mul(length as isize)
            })
        });
        let to = match joins {
            Some(last) => {
                dims[last] *= length;
                last
            }
            None => {
                dims.push(length);
                dims.len() - 1
            }
        };
        for place in &mut *places {
            place.strides[to] = place.strides[from];
        }
    }
    for place in places {
        place.strides[dims.len()..].fill(0);
    }
    dims
}

/// Returns whether the index or the offset of an element needs more than 31 bits.
fn reaches_far(dims: &[usize], places: &[Strided]) -> bool {
    const FAR: usize = i32::MAX as usize;
    let count = dims
        .iter()
        .try_fold(1usize, |product, &length| product.checked_mul(length));
    let reach = |place: &Strided| {
        let steps = dims.iter().zip(place.strides);
        steps.fold(0usize, |reach, (&length, stride)| {
            let along = length
                .saturating_sub(1)
                .saturating_mul(stride.unsigned_abs());
            reach.saturating_add(along)
        })
    };
    count.is_none_or(|count| count > FAR) || places.iter().any(|place| reach(place) > FAR)
}

/// Returns the number of elements of a pack: 16 bytes of the largest type, and at least four
/// elements.
fn width_of(largest: usize) -> usize {
    (16 / largest).max(4)
}

/// Returns the multiplier and the shift by which `cs_quotient` divides numbers below 2^31 by
/// `length`. `length` is from 1 to 2^31.
pub(super) fn inverse(length: usize) -> (u32, u32) {
    let length = length as u64;
    let shift = length.next_power_of_two().trailing_zeros().min(31);
    let power = 1u64 << shift;
    let multiplier = ((power.saturating_sub(length)) << 32) / length.max(1) + 1;
    (multiplier as u32, shift)
}
