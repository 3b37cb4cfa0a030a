//! Tests of the kernel sources of fills for CUDA devices.

use cachescope_kernels::random::Fill;
use cachescope_kernels::random::fill::{Below, Dropout, Normal, Truth, Uniform};
use cachescope_kernels::random::philox::Draws;
use half::{bf16, f16};

use crate::array::{AnyElement, Float, Integer};
use crate::device::cuda::{KernelSource, compile_for_all};

fn draws() -> Draws {
    Draws {
        seed: 7,
        sequence: 0,
        start: 0,
    }
}

/// A consumer GPU is 32 or 64 times slower in `f64` than in `f32`.
#[cfg(feature = "cuda")]
#[test]
fn what_has_fewer_digits_is_not_drawn_in_f64() {
    use crate::device::cuda::ptx_of;
    use crate::ops::cuda::FillKernels;
    let texts = [
        (FillKernels::of::<f32, Normal>(), false),
        (FillKernels::of::<f16, Normal>(), false),
        (FillKernels::of::<bf16, Normal>(), false),
        (FillKernels::of::<f64, Normal>(), true),
    ];
    for (kernels, is_wide) in texts {
        let source = kernels.source();
        let Some(ptx) = ptx_of(&source, 80) else {
            return;
        };
        assert_eq!(ptx.contains(".f64"), is_wide, "{}", source.name);
        assert_eq!(ptx.contains("fma.rn.f32"), !is_wide, "{}", source.name);
    }
}

#[test]
fn every_text_compiles_and_has_the_members_that_are_passed() {
    use crate::ops::cuda::FillKernels;
    fn checked<T: AnyElement, F: Fill<T>>(fill: F) -> KernelSource {
        let source = FillKernels::of::<T, F>().source();
        let mut members = 0;
        fill.operands(&mut |_| members += 1);
        let count = |name: &str| {
            let (_, after) = source
                .text
                .split_once(&format!("struct {name} {{"))
                .unwrap();
            after.split_once("};").unwrap().0.matches(';').count()
        };
        let nested = ["Draws", "Probability"].iter().filter(|name| {
            let operands = source.text.split_once("struct Operands {").unwrap().1;
            operands.split_once("};").unwrap().0.contains(**name)
        });
        let more: usize = nested.map(|name| count(name) - 1).sum();
        assert_eq!(count("Operands") + more, members, "{}", source.text);
        source
    }
    fn of_floats<T: Float>() -> [KernelSource; 3] {
        let dropout = Dropout::<T>::new(draws(), 0.5);
        [
            checked::<T, _>(Uniform(draws())),
            checked::<T, _>(Normal(draws())),
            checked::<T, _>(dropout),
        ]
    }
    fn of_integers<T: Integer>() -> [KernelSource; 1] {
        let (draws, low) = (draws(), T::zero());
        [checked::<T, _>(Below {
            draws,
            low,
            bound: 3,
        })]
    }
    let mut sources = vec![checked(Truth::new(draws(), 0.5))];
    sources.extend(of_floats::<f32>());
    sources.extend(of_floats::<f64>());
    sources.extend(of_floats::<f16>());
    sources.extend(of_floats::<bf16>());
    sources.extend(of_integers::<i8>());
    sources.extend(of_integers::<i16>());
    sources.extend(of_integers::<i32>());
    sources.extend(of_integers::<i64>());
    sources.extend(of_integers::<u8>());
    sources.extend(of_integers::<u16>());
    sources.extend(of_integers::<u32>());
    sources.extend(of_integers::<u64>());
    compile_for_all(&sources);
}
