//! An expression over a frame as a device function, and the operands that it takes.
//!
//! The text depends on the type of the expression and on the form alone, so that it is written once for
//! each form; making a program and its arguments is cheap. Every member of `Operands` takes eight bytes.

use std::fmt::Write;
use std::marker::PhantomData;
use std::ops::Range;

use super::code::Code;
use super::types::computed_in;
use crate::array::{Array, Element, Layout, MAX_RANK, Shape};
use crate::device::cuda::Arguments;
use crate::ops::Expr;
use crate::ops::expr::Operand;

/// An array that is read or written, over the axes of the frame.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Of the first element.
    address: u64,
    element_bytes: usize,
    strides: [isize; MAX_RANK],
}

/// What the text depends on beside the type of the expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    /// The axes that elements are found by; none where they all stand one after another.
    rank: usize,
    /// Whether indices take 64 bits.
    is_wide: bool,
    /// Whether several elements are read at once.
    is_packed: bool,
    /// The operands that repeat one element along the last axis, as bits, where several are read at once.
    repeated: u32,
}

/// The bits of [`Form::repeated`] that fit a key.
const MOST_REPEATED: usize = 24;

/// An expression over a frame: its elements are numbered in row-major order of the frame's axes.
///
/// Invariant: `places` has a place for each array of the expression, in its order, and after them one for
/// the target, where there is one; all have the strides of `dims`, as many as the form's rank.
#[derive(Clone, Debug)]
pub(super) struct Program<E> {
    form: Form,
    dims: Vec<usize>,
    places: Vec<Place>,
    scalars: Vec<u64>,
    has_target: bool,
    width: usize,
    of: PhantomData<fn() -> E>,
}

impl<E: Expr> Program<E> {
    /// `expr` over the axes of `shape` in the order of `axes`, which names each once; every operand must
    /// broadcast to `shape`.
    pub(super) fn new(expr: &E, shape: &Shape, axes: [usize; MAX_RANK]) -> Self {
        Self::over(expr, shape, &axes[..shape.ndim()], None)
    }

    /// `expr` in row-major order of `shape`.
    pub(super) fn row_major(expr: &E, shape: &Shape) -> Self {
        Self::new(expr, shape, std::array::from_fn(|axis| axis))
    }

    /// `expr` in row-major order of `target`, whose elements are found beside those of the operands.
    pub(super) fn onto(expr: &E, target: &Array<E::Item>) -> Self {
        let shape = target.layout().shape();
        let axes: [usize; MAX_RANK] = std::array::from_fn(|axis| axis);
        let target = Operand {
            buffer: target.buffer(),
            layout: target.layout(),
            element_bytes: size_of::<E::Item>(),
        };
        Self::over(expr, shape, &axes[..shape.ndim()], Some(&target))
    }

    fn over(expr: &E, shape: &Shape, axes: &[usize], target: Option<&Operand<'_>>) -> Self {
        let mut places = Vec::new();
        let mut scalars = Vec::new();
        let mut largest = size_of::<E::Item>();
        let mut place = |operand: &Operand<'_>| {
            largest = largest.max(operand.element_bytes);
            places.push(Place::of(operand, shape, axes));
        };
        expr.operands(&mut |operand| place(&operand));
        if let Some(target) = target {
            place(target);
        }
        expr.scalars(&mut |bits| scalars.push(bits));
        let dims = coalesce(shape, axes, &mut places);
        let width = width_of(largest);
        let mut program = Self {
            form: Form {
                rank: dims.len(),
                is_wide: reaches_far(&dims, &places),
                is_packed: false,
                repeated: 0,
            },
            dims,
            places,
            scalars,
            has_target: target.is_some(),
            width,
            of: PhantomData,
        };
        program.choose_packs();
        program
    }

    /// Several elements are read at once where each operand stands so, or repeats one.
    fn choose_packs(&mut self) {
        let Some(last) = self.dims.len().checked_sub(1) else {
            self.form.is_packed = self.are_aligned(0);
            return;
        };
        if self.places.iter().all(|place| place.strides[last] == 1) && last == 0 {
            // One after another.
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

    /// Whether whole words can be read of every operand that does not repeat one element along the axis
    /// `last`.
    fn are_aligned(&self, last: usize) -> bool {
        let mut places = self.places.iter();
        places.all(|place| {
            let repeats = self.dims.len() > last && place.strides[last] == 0;
            repeats || place.is_aligned(self.width, last)
        })
    }

    /// The part of the kernel's key that the expression's type does not tell.
    pub(super) fn form(&self) -> u32 {
        let Form {
            rank,
            is_wide,
            is_packed,
            repeated,
        } = self.form;
        rank as u32 | u32::from(is_wide) << 4 | u32::from(is_packed) << 5 | repeated << 8
    }

    /// How many elements the text reads at once.
    pub(super) fn width(&self) -> usize {
        if self.form.is_packed { self.width } else { 1 }
    }

    /// Adds the one argument that the text takes, `const Operands`.
    pub(super) fn arguments(&self, arguments: &mut Arguments) {
        let mut members: Vec<u64> = self.places.iter().map(|place| place.address).collect();
        members.extend(&self.scalars);
        for axis in 0..self.form.rank {
            if axis > 0 {
                let length = self.dims[axis];
                let (multiplier, shift) = inverse(length);
                members.extend([length as u64, u64::from(multiplier), u64::from(shift)]);
            }
            members.extend(self.places.iter().map(|place| place.strides[axis] as u64));
        }
        if members.is_empty() {
            // A structure without members has a size of its own.
            members.push(0);
        }
        arguments.push_all(members);
    }

    /// What error messages call the expression.
    pub(super) fn name(&self) -> String {
        let mut code = Code::default();
        let value = E::write(&mut code);
        code.name(value).into()
    }

    /// Writes the types `T`, `I` and `index_t`, `Operands`, and the functions `element` and, where there is
    /// a target, `place`; where several elements are read at once, `CS_WIDTH` and `elements` too.
    pub(super) fn text(&self, text: &mut String) {
        let mut code = Code::default();
        let value = E::write(&mut code);
        let stored = E::Item::NAME;
        let (index, offset) = if self.form.is_wide {
            ("u64", "i64")
        } else {
            ("u32", "i32")
        };
        let _ = write!(
            text,
            "\n// {}\ntypedef {} T;\ntypedef {stored} I;\ntypedef {index} index_t;\ntypedef {offset} offset_t;\n",
            code.name(value),
            computed_in(stored),
        );
        self.write_operands(&code, text);
        self.write_computed(&code, value.number(), text);
        self.write_element(&code, text);
        if self.has_target {
            self.write_place(text);
        }
        if self.form.is_packed {
            self.write_elements(&code, text);
        }
    }

    fn write_operands(&self, code: &Code, text: &mut String) {
        let _ = writeln!(text, "struct Operands {{");
        for (number, of) in code.arrays().iter().enumerate() {
            let _ = writeln!(text, "    const {of}* p{number};");
        }
        if self.has_target {
            let _ = writeln!(text, "    I* p{};", code.arrays().len());
        }
        for (number, of) in code.scalars().iter().enumerate() {
            let _ = writeln!(text, "    alignas(8) {of} s{number};");
        }
        for axis in 0..self.form.rank {
            if axis > 0 {
                let _ = writeln!(
                    text,
                    "    alignas(8) index_t n{axis};\n    alignas(8) u32 m{axis};\n    alignas(8) u32 h{axis};"
                );
            }
            for number in 0..self.places.len() {
                let _ = writeln!(text, "    alignas(8) offset_t t{number}_{axis};");
            }
        }
        if code.arrays().is_empty() && code.scalars().is_empty() && self.form.rank == 0 {
            text.push_str("    u64 none;\n");
        }
        text.push_str("};\n");
    }

    /// The function of the operands' elements.
    fn write_computed(&self, code: &Code, value: usize, text: &mut String) {
        text.push_str("CS_FN T computed(const Operands& o");
        for (number, of) in code.arrays().iter().enumerate() {
            let _ = write!(text, ", const {} x{number}", computed_in(of));
        }
        let _ = write!(
            text,
            ") {{\n{}    return v{value};\n}}\n",
            code.statements()
        );
    }

    /// Where the places of `range` are, for the element number `i`, as `at` and their numbers. Where
    /// several elements are read at once, an operand that repeats one does not move along the last axis.
    fn write_offsets(&self, range: Range<usize>, text: &mut String) {
        let last = self.form.rank - 1;
        let step = |number: usize, axis: usize| {
            let repeats = self.form.repeated & (1 << number) != 0;
            match (self.form.is_packed && axis == last, repeats) {
                (true, true) => None,
                (true, false) => Some(String::new()),
                (false, _) => Some(format!(" * o.t{number}_{axis}")),
            }
        };
        for number in range.clone() {
            let _ = writeln!(text, "    offset_t at{number} = 0;");
        }
        text.push_str("    index_t rest = i;\n");
        for axis in (0..self.form.rank).rev() {
            let position = if axis > 0 {
                let _ = writeln!(
                    text,
                    "    const index_t q{axis} = cs_quotient(rest, o.n{axis}, o.m{axis}, o.h{axis});\n    \
                     const offset_t c{axis} = (offset_t)(rest - q{axis} * o.n{axis});\n    rest = q{axis};"
                );
                format!("c{axis}")
            } else {
                "(offset_t)rest".into()
            };
            for number in range.clone() {
                if let Some(step) = step(number, axis) {
                    let _ = writeln!(text, "    at{number} += {position}{step};");
                }
            }
        }
    }

    fn write_element(&self, code: &Code, text: &mut String) {
        let arrays = code.arrays().len();
        text.push_str("CS_FN T element(const Operands& o, const index_t i) {\n");
        let at = if self.form.rank == 0 {
            |_| "i".to_owned()
        } else {
            self.write_offsets(0..arrays, text);
            |number| format!("at{number}")
        };
        text.push_str("    return computed(o");
        for number in 0..arrays {
            let _ = write!(text, ", cs_load(o.p{number} + {})", at(number));
        }
        text.push_str(");\n}\n");
    }

    /// Where the target's element number `i` stands.
    fn write_place(&self, text: &mut String) {
        let target = self.places.len() - 1;
        text.push_str("CS_FN I* place(const Operands& o, const index_t i) {\n");
        if self.form.rank == 0 {
            let _ = writeln!(text, "    return o.p{target} + i;\n}}");
            return;
        }
        self.write_offsets(target..target + 1, text);
        let _ = writeln!(text, "    return o.p{target} + at{target};\n}}");
    }

    /// `CS_WIDTH` elements from that number times `n` on, which stand in one row.
    fn write_elements(&self, code: &Code, text: &mut String) {
        let (width, arrays) = (self.width, code.arrays());
        let _ = writeln!(
            text,
            "#define CS_WIDTH {width}\n\
             CS_FN void elements(const Operands& o, const index_t n, T (&out)[CS_WIDTH]) {{"
        );
        if self.form.rank > 0 {
            text.push_str("    const index_t i = n * CS_WIDTH;\n");
            self.write_offsets(0..arrays.len(), text);
        }
        let mut loaded = String::new();
        for (number, of) in arrays.iter().enumerate() {
            if self.form.repeated & (1 << number) != 0 {
                let _ = writeln!(
                    text,
                    "    const auto y{number} = cs_load(o.p{number} + at{number});"
                );
                let _ = write!(loaded, ", y{number}");
                continue;
            }
            let at = match self.form.rank {
                0 => "n * CS_WIDTH".into(),
                _ => format!("at{number}"),
            };
            let _ = writeln!(
                text,
                "    const auto y{number} = *(const cs_pack<{of}, CS_WIDTH>*)(o.p{number} + {at});"
            );
            let _ = write!(loaded, ", cs_wide(y{number}.at[k])");
        }
        let _ = writeln!(
            text,
            "#pragma unroll\n    for (int k = 0; k < CS_WIDTH; ++k) out[k] = computed(o{loaded});\n}}"
        );
    }
}

impl Place {
    fn of(operand: &Operand<'_>, shape: &Shape, axes: &[usize]) -> Self {
        let placed = operand.layout.broadcast_to(shape);
        let ordered = match placed.and_then(|layout| layout.permute(axes)) {
            Ok(layout) => layout,
            // The expression's shape excludes it.
            Err(error) => unreachable!("{error}"),
        };
        let mut strides = [0; MAX_RANK];
        strides[..ordered.ndim()].copy_from_slice(ordered.strides());
        Self {
            address: first_of(operand.buffer.address(), &ordered, operand.element_bytes),
            element_bytes: operand.element_bytes,
            strides,
        }
    }

    /// Whether `width` elements that begin at a multiple of so many along the axis `last` make whole words,
    /// wherever along the axes before it.
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

/// The lengths of the fewest axes that all places can be walked along, of which the strides stay. Axes
/// along which every place goes on where the one inside ends become one.
fn coalesce(shape: &Shape, axes: &[usize], places: &mut [Place]) -> Vec<usize> {
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

/// Whether a number or an offset of an element needs more than 31 bits.
fn reaches_far(dims: &[usize], places: &[Place]) -> bool {
    const FAR: usize = i32::MAX as usize;
    let count = dims
        .iter()
        .try_fold(1usize, |product, &length| product.checked_mul(length));
    let reach = |place: &Place| {
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

/// How many elements are read at once where they can be: 16 bytes of the largest, and at least four.
fn width_of(largest: usize) -> usize {
    (16 / largest).max(4)
}

/// The multiplier and the shift by which `cs_quotient` divides numbers below 2^31 by `length`, from 1 to
/// 2^31.
pub(super) fn inverse(length: usize) -> (u32, u32) {
    let length = length as u64;
    let shift = length.next_power_of_two().trailing_zeros().min(31);
    let power = 1u64 << shift;
    let multiplier = ((power.saturating_sub(length)) << 32) / length.max(1) + 1;
    (multiplier as u32, shift)
}
