//! Tests of the division of rows, and of compiled kernels. The tests need no device.

use super::split::{NormKernel, NormPass, source_of_columns};
use crate::array::DType;

const FLOATS: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];

const PASSES: [NormPass; 2] = [NormPass::Forward, NormPass::Backward];

#[test]
fn the_registers_of_a_block_hold_rows_of_at_most_8192_elements() {
    for dtype in FLOATS {
        let word = 16 / dtype.size_bytes();
        let longest = if dtype == DType::F64 { 4096 } else { 8192 };
        for pass in PASSES {
            let of = |width, unit| NormKernel::new(pass, dtype, true, (width, unit));
            for width in (1..=130).chain([768, 1000, 1024, 1600, 4096, longest - 1, longest]) {
                let unit = if width % word == 0 { word } else { 1 };
                for unit in [1, unit] {
                    let kernel = of(width, unit).unwrap();
                    let what = format!("{width} by {unit}: {kernel:?}");
                    let threads = kernel.grid(1).threads as usize;
                    assert!(kernel.elements_of_row() >= width, "{what}");
                    assert!([256, 512].contains(&threads), "{what}");
                    assert_eq!(kernel.tiles(1), 1, "{what}");
                    assert_eq!(kernel.tiles(1 << 20) * threads / 256 % 2, 0, "{what}");
                }
            }
            assert_eq!(of(longest + 1, 1), None);
            assert_eq!(of(longest + word, word), None);
        }
    }
}

#[test]
fn each_block_of_a_gradient_has_rows() {
    let kernel = NormKernel::new(NormPass::Backward, DType::F32, true, (768, 4)).unwrap();
    // A block holds two rows at once, and a multiprocessor runs four blocks.
    for (rows, blocks) in [(1, 1), (3, 2), (1000, 500), (8192, 528), (1 << 40, 528)] {
        assert_eq!(kernel.blocks_for_sums(rows, 132), blocks);
    }
    assert_eq!(kernel.blocks_for_sums(5, 0), 1);
}

#[cfg(feature = "cuda")]
mod compiled {
    use super::*;
    use crate::device::cuda::{compile_for_all, ptx_of, resources_of};

    fn kernels(width: usize) -> Vec<NormKernel> {
        let mut kernels = Vec::new();
        for dtype in FLOATS {
            let word = 16 / dtype.size_bytes();
            for unit in [1, word] {
                for pass in PASSES {
                    for is_centred in [false, true] {
                        kernels.extend(NormKernel::new(pass, dtype, is_centred, (width, unit)));
                    }
                }
            }
        }
        kernels
    }

    #[test]
    fn norms_compile_for_every_float() {
        let sources = kernels(768);
        let sources = sources.iter().map(NormKernel::source);
        let columns = [DType::F32, DType::F64].map(source_of_columns);
        compile_for_all(&sources.chain(columns).collect::<Vec<_>>());
    }

    /// A multiprocessor runs the planned threads of each kernel, without local memory.
    #[test]
    fn registers_hold_all_rows() {
        for (width, capability) in [(768, (8, 0)), (8192, (9, 0))] {
            for kernel in kernels(width) {
                let Some(resources) = resources_of(&kernel.source(), capability) else {
                    return;
                };
                // The compiler may store two registers to run more blocks.
                assert!(resources.local_bytes <= 8, "{kernel:?}: {resources:?}");
                let threads = kernel.threads_at_once() as u32;
                let registers = resources.registers.next_multiple_of(8) * threads;
                assert!(registers <= 1 << 16, "{kernel:?}: {resources:?}");
            }
        }
    }

    /// Rows are read and written in words of 16 bytes.
    #[test]
    fn aligned_rows_are_read_in_whole_words() {
        for pass in PASSES {
            let kernel = NormKernel::new(pass, DType::Bf16, true, (768, 8)).unwrap();
            let Some(ptx) = ptx_of(&kernel.source(), 80) else {
                return;
            };
            let count = |text: &str| ptx.matches(text).count();
            assert!(
                count("ld.global.v4.u32") + count("ld.global.v4.b32") >= 2,
                "{ptx}"
            );
            assert!(
                count("st.global.v4.u32") + count("st.global.v4.b32") >= 1,
                "{ptx}"
            );
            assert_eq!(count("ld.global.u16") + count("st.global.u16"), 0, "{ptx}");
        }
    }
}
