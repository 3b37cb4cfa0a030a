//! The source of a program in CUDA C++.

use std::fmt::Write;
use std::ops::Range;

use super::Program;
use crate::ops::cuda::code::{Code, name_of};

impl Program<'_> {
    /// Returns the name of the expression in error messages.
    pub(in crate::ops::cuda) fn name(&self) -> String {
        name_of(self.graph)
    }

    /// Appends the types, the structure `Operands`, and the function `element`. If the program
    /// reads packs, also appends `CS_WIDTH` and the function `elements`.
    pub(in crate::ops::cuda) fn text(&self, text: &mut String) {
        let code = Code::of(self.graph);
        self.write_types(text);
        self.write_operands(&code, text);
        self.write_computed(&code, text);
        self.write_element(&code, text);
        if self.form.is_packed {
            self.write_elements(&code, text);
        }
    }

    /// Appends the types `T`, `I`, `index_t` and `offset_t`.
    pub(super) fn write_types(&self, text: &mut String) {
        let stored = self.graph.first().dtype;
        let name = self.name();
        let (index, offset) = if self.form.is_wide {
            ("u64", "i64")
        } else {
            ("u32", "i32")
        };
        let _ = write!(
            text,
            "\n// {name}\ntypedef {} T;\ntypedef {} I;\ntypedef {index} index_t;\ntypedef {offset} offset_t;\n",
            stored.computed_in().in_cuda(),
            stored.in_cuda(),
        );
    }

    /// Appends the types, the structure `Operands`, and the function `store_all`. This function
    /// writes the element of each result to its target.
    pub(in crate::ops::cuda) fn text_of_all(&self, text: &mut String) {
        let code = Code::of(self.graph);
        self.write_types(text);
        self.write_operands(&code, text);
        let arrays = code.arrays.len();
        text.push_str("CS_FN void store_all(const Operands& o, const index_t i) {\n");
        if self.form.rank > 0 {
            self.write_offsets(0..self.places.len(), text);
        }
        let at = |number: usize| match self.form.rank {
            0 => "i".to_owned(),
            _ => format!("at{number}"),
        };
        for (number, of) in code.arrays.iter().enumerate() {
            let (wide, at) = (of.computed_in().in_cuda(), at(number));
            let _ = writeln!(
                text,
                "    const {wide} x{number} = cs_load(o.p{number} + {at});"
            );
        }
        text.push_str(&code.statements);
        // All reads precede the writes, because a target may be an operand, too.
        for (number, result) in self.graph.results().iter().enumerate() {
            let place = arrays + number;
            let _ = writeln!(text, "    cs_store(o.p{place} + {}, v{result});", at(place));
        }
        text.push_str("}\n");
    }

    /// Appends the function `place`, which returns the address of the element with index `i`. If
    /// the program has a target, the address is in the target. Otherwise, it is the address of
    /// `out[i]`.
    pub(in crate::ops::cuda) fn write_place(&self, text: &mut String) {
        text.push_str("CS_FN I* place(const Operands& o, I* const out, const index_t i) {\n");
        let target = self.places.len().saturating_sub(1);
        let from = match self.targets > 0 {
            true => format!("o.p{target}"),
            false => "out".into(),
        };
        let at = if self.targets > 0 && self.form.rank > 0 {
            self.write_offsets(target..target + 1, text);
            format!("at{target}")
        } else {
            "i".into()
        };
        let _ = writeln!(text, "    return {from} + {at};\n}}");
    }

    pub(super) fn write_operands(&self, code: &Code, text: &mut String) {
        let _ = writeln!(text, "struct Operands {{");
        for (number, of) in code.arrays.iter().enumerate() {
            let _ = writeln!(text, "    const {}* p{number};", of.in_cuda());
        }
        for number in 0..self.targets {
            let of = self.graph.nodes()[self.graph.results()[number]].dtype;
            let (of, place) = (of.in_cuda(), code.arrays.len() + number);
            let _ = writeln!(text, "    {of}* p{place};");
        }
        for (number, of) in code.scalars.iter().enumerate() {
            let _ = writeln!(text, "    alignas(8) {} s{number};", of.in_cuda());
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
        if code.arrays.is_empty() && code.scalars.is_empty() && self.form.rank == 0 {
            text.push_str("    u64 none;\n");
        }
        text.push_str("};\n");
    }

    /// Appends the function that computes an element from the elements of the operands.
    pub(super) fn write_computed(&self, code: &Code, text: &mut String) {
        text.push_str("CS_FN T computed(const Operands& o");
        for (number, of) in code.arrays.iter().enumerate() {
            let wide = of.computed_in().in_cuda();
            let _ = write!(text, ", const {wide} x{number}");
        }
        let _ = write!(
            text,
            ") {{\n{}    return v{};\n}}\n",
            code.statements,
            self.graph.results()[0]
        );
    }

    /// Appends the statements that compute the offsets of the places in `range`, for the element
    /// index `i`. The variable for place 3 is `at3`. An operand may repeat one element along the
    /// last axis. If the program reads packs, the offset of this operand does not depend on the
    /// last axis.
    fn write_offsets(&self, range: Range<usize>, text: &mut String) {
        self.write_offsets_along(0..self.form.rank, range, text);
    }

    /// Appends the statements of [`write_offsets`](Self::write_offsets), but only for `axes`, which
    /// are the first axes. `i` is the index of an element over these axes.
    pub(super) fn write_offsets_along(
        &self,
        axes: Range<usize>,
        range: Range<usize>,
        text: &mut String,
    ) {
        let last = self.form.rank - 1;
        let step = |number: usize, axis: usize| {
            let repeats = self.form.repeats(number);
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
        for axis in axes.rev() {
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
        let arrays = code.arrays.len();
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

    /// Appends the function `elements`. The function computes `CS_WIDTH` elements of one row, from
    /// the element index `n * CS_WIDTH` on.
    fn write_elements(&self, code: &Code, text: &mut String) {
        let (width, arrays) = (self.width, &code.arrays);
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
            if self.form.repeats(number) {
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
                "    const auto y{number} = *(const cs_pack<{}, CS_WIDTH>*)(o.p{number} + {at});",
                of.in_cuda()
            );
            let _ = write!(loaded, ", cs_wide(y{number}.at[k])");
        }
        let _ = writeln!(
            text,
            "#pragma unroll\n    for (int k = 0; k < CS_WIDTH; ++k) out[k] = computed(o{loaded});\n}}"
        );
    }
}
