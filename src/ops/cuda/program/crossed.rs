//! Programs with operands that are contiguous along another axis than the target.

use std::fmt::Write;

use super::{Form, MOST_REPEATED, Program};
use crate::device::cuda::{Arguments, KernelKey};
use crate::ops::cuda::code::Code;

/// The length of a tile's side, in elements.
const TILE: usize = 32;

/// The minimum length of an axis, in elements, for which tiles are faster.
const SHORT: usize = 8;

/// The maximum shared memory of a block for tiles, in bytes. The limit allows several blocks to run
/// concurrently.
const SHARED_BYTES: usize = 32 << 10;

/// A program that is evaluated by tiles of its last two axes. The target is contiguous along the
/// last axis. The operands in the bit set `staged` are contiguous along the second-to-last axis,
/// and strided along the last axis. A kernel reads the staged operands by tiles.
///
/// Invariant: the program has one target, and an operand for each bit of `staged`.
#[derive(Clone, Debug)]
pub(in crate::ops::cuda) struct Crossed<'a> {
    program: Program<'a>,
    staged: u32,
}

impl<'a> Program<'a> {
    /// Returns whether the program has several axes, and an operand is strided along the last axis.
    pub(in crate::ops::cuda) fn has_steps(&self) -> bool {
        let last = self.dims.len().wrapping_sub(1);
        let steps = |place: &super::Strided| place.strides[last].unsigned_abs() > 1;
        last != usize::MAX && last > 0 && self.places.iter().any(steps)
    }

    /// Returns the tiled program. Returns `None` if tiles would not be faster.
    pub(in crate::ops::cuda) fn crossed(&self) -> Option<Crossed<'a>> {
        let ([.., target], 1) = (&self.places[..], self.targets) else {
            return None;
        };
        let operands = &self.places[..self.places.len() - 1];
        if operands.len() > MOST_REPEATED {
            return None;
        }
        let is_long = |axis: usize| self.dims[axis] >= SHORT;
        let is_dense = |strides: &[isize], axis: usize| strides[axis].unsigned_abs() == 1;
        let along = (0..self.dims.len())
            .rev()
            .find(|&axis| is_long(axis) && is_dense(&target.strides, axis))?;
        // Selects operands that are contiguous along `axis`, until shared memory is full.
        let staged_along = |axis: usize| {
            let (mut staged, mut left_bytes) = (0u32, SHARED_BYTES);
            for (number, operand) in operands.iter().enumerate() {
                let bytes = TILE * (TILE + padding(operand.element_bytes)) * operand.element_bytes;
                let steps = operand.strides[along].unsigned_abs() > 1;
                if steps && is_dense(&operand.strides, axis) && bytes <= left_bytes {
                    staged |= 1 << number;
                    left_bytes -= bytes;
                }
            }
            staged
        };
        let axes = (0..self.dims.len()).filter(|&axis| axis != along && is_long(axis));
        let choices = axes.map(|axis| (axis, staged_along(axis)));
        let (across, staged) = choices.max_by_key(|(_, staged)| staged.count_ones())?;
        if staged == 0 {
            return None;
        }
        let mut program = self.clone();
        program.reorder(across, along);
        Some(Crossed { program, staged })
    }

    /// Moves the axes `across` and `along` behind all other axes. The move changes the element
    /// indices.
    fn reorder(&mut self, across: usize, along: usize) {
        let others = (0..self.dims.len()).filter(|&axis| axis != across && axis != along);
        let axes: Vec<usize> = others.chain([across, along]).collect();
        self.dims = axes.iter().map(|&axis| self.dims[axis]).collect();
        for place in &mut self.places {
            let old = place.strides;
            for (axis, &from) in axes.iter().enumerate() {
                place.strides[axis] = old[from];
            }
        }
        self.form = Form {
            rank: self.dims.len(),
            is_packed: false,
            repeated: 0,
            ..self.form
        };
    }
}

/// Returns the padding of the lines of a tile, in elements. The padding puts the elements of a
/// column in different banks.
fn padding(element_bytes: usize) -> usize {
    (4 / element_bytes).max(1)
}

impl Crossed<'_> {
    pub(in crate::ops::cuda) fn name(&self) -> String {
        self.program.name()
    }

    pub(in crate::ops::cuda) fn key(&self, of: fn(u32) -> KernelKey) -> KernelKey {
        of(self.program.form() | self.staged << 8).over(self.program.graph.fingerprint())
    }

    pub(in crate::ops::cuda) fn tiles(&self) -> usize {
        let (outer, plane) = self.program.dims.split_at(self.program.dims.len() - 2);
        let in_plane = plane.iter().map(|length| length.div_ceil(TILE));
        outer.iter().product::<usize>() * in_plane.product::<usize>()
    }

    /// Appends the arguments: the operands, the lengths of the last two axes, and the number of
    /// tiles.
    pub(in crate::ops::cuda) fn arguments(&self, arguments: &mut Arguments) {
        self.program.arguments(arguments);
        let [.., across, along] = self.program.dims[..] else {
            unreachable!("the program has at least two axes");
        };
        for number in [across, along, self.tiles()] {
            arguments.push(number as u64);
        }
    }

    /// Appends the definitions of the program to `text`. Then appends two structures: `Staged`, a
    /// tile of each staged operand, and `Places`, the offsets of a plane. Finally, appends the
    /// functions `places`, `stage` and `finish`.
    pub(in crate::ops::cuda) fn text(&self, text: &mut String) {
        let program = &self.program;
        let code = Code::of(program.graph);
        program.write_types(text);
        program.write_operands(&code, text);
        program.write_computed(&code, text);
        let is_staged = |number: usize| self.staged & (1 << number) != 0;
        let arrays = &code.arrays;
        let _ = writeln!(text, "#define CS_TILE {TILE}\nstruct Staged {{");
        for (number, of) in arrays.iter().enumerate().filter(|(n, _)| is_staged(*n)) {
            let padding = padding(program.places[number].element_bytes);
            let of = of.in_cuda();
            let _ = writeln!(text, "    {of} x{number}[CS_TILE][CS_TILE + {padding}];");
        }
        let numbers = 0..program.places.len();
        text.push_str("};\nstruct Places {\n");
        for number in numbers.clone() {
            let _ = writeln!(text, "    offset_t at{number};");
        }
        text.push_str("};\nCS_FN Places places(const Operands& o, const index_t i) {\n");
        program.write_offsets_along(0..program.dims.len() - 2, numbers.clone(), text);
        let all: Vec<String> = numbers.map(|number| format!("at{number}")).collect();
        let _ = writeln!(text, "    return Places{{{}}};\n}}", all.join(", "));
        let (across, along) = (program.dims.len() - 2, program.dims.len() - 1);
        let place = |number: usize| {
            format!(
                "o.p{number} + (at.at{number} + i * o.t{number}_{across} + j * o.t{number}_{along})"
            )
        };
        let parameters = "const Places& at, const offset_t i, const offset_t j, \
                          const index_t line, const index_t place";
        let _ = writeln!(
            text,
            "CS_FN void stage(const Operands& o, Staged& tile, {parameters}) {{"
        );
        for number in (0..arrays.len()).filter(|&number| is_staged(number)) {
            let _ = writeln!(
                text,
                "    tile.x{number}[line][place] = *({});",
                place(number)
            );
        }
        let _ = writeln!(
            text,
            "}}\nCS_FN void finish(const Operands& o, const Staged& tile, {parameters}) {{"
        );
        for (number, of) in arrays.iter().enumerate() {
            let wide = of.computed_in().in_cuda();
            let read = match is_staged(number) {
                true => format!("cs_wide(tile.x{number}[line][place])"),
                false => format!("cs_load({})", place(number)),
            };
            let _ = writeln!(text, "    const {wide} x{number} = {read};");
        }
        let operands: String = (0..arrays.len())
            .map(|number| format!(", x{number}"))
            .collect();
        let _ = writeln!(
            text,
            "    cs_store({}, computed(o{operands}));\n}}",
            place(arrays.len())
        );
    }
}
