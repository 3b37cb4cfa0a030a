use ndarray::s;

use super::*;
use crate::array::{AnyElement, Array, Shape};
use crate::ops::expression::expr::{Expr, Lazy};

/// Returns the source of the tiled kernel and the number of tiles. Returns `None` if no kernel with
/// tiles exists for the expression.
fn by_tiles<E: Expr>(lazy: &Lazy<E>) -> Option<(String, usize)> {
    let graph = ExpressionGraph::of(&lazy.expr).unwrap();
    let shape = *graph.shape();
    by_tiles_onto(lazy, &Array::<E::Item>::zeros(shape).unwrap())
}

/// Returns the result of [`by_tiles`] for writes to `target`.
fn by_tiles_onto<E: Expr, T: AnyElement>(
    lazy: &Lazy<E>,
    target: &Array<T>,
) -> Option<(String, usize)> {
    let graph = ExpressionGraph::of(&lazy.expr).unwrap();
    let operand = Operand {
        buffer: target.buffer(),
        layout: target.layout(),
        dtype: T::DTYPE,
    };
    let crossed = Program::onto(&graph, operand).crossed()?;
    Some((crossed_source(&crossed).text, crossed.tiles()))
}

/// Returns the indices of the operands that the kernel reads by tiles.
fn staged(text: &str) -> Vec<usize> {
    let (_, after) = text.split_once("struct Staged {").unwrap();
    let (members, _) = after.split_once('}').unwrap();
    let has = |number: &usize| members.contains(&format!(" x{number}["));
    (0..8).filter(has).collect()
}

#[test]
fn operands_that_are_transposed_are_read_by_tiles() -> Result<()> {
    let (a, b) = (
        Array::<f32>::zeros([100, 70])?,
        Array::<f32>::zeros([70, 100])?,
    );
    let row = Array::<f32>::zeros(70)?;
    let (text, tiles) = by_tiles(&(&a + &b.transpose()?)).unwrap();
    assert_eq!((staged(&text), tiles), (vec![1], 4 * 3));
    let (text, _) = by_tiles(&(&b.transpose()? * 2.0 + &a + &row)).unwrap();
    assert_eq!(staged(&text), [0]);
    let (text, _) = by_tiles(&(&b.transpose()? - &b.flip(0)?.transpose()?)).unwrap();
    assert_eq!(staged(&text), [0, 1]);
    assert_eq!(staged(&by_tiles(&b.transpose()?.lazy()).unwrap().0), [0]);
    Ok(())
}

#[test]
fn other_operands_are_not() -> Result<()> {
    let a = Array::<f32>::zeros([100, 70])?;
    assert!(by_tiles(&(&a + &a)).is_none());
    assert!(by_tiles(&(&a + &Array::<f32>::zeros([100, 1])?)).is_none());
    assert!(by_tiles(&(&a + &a.flip(1)?)).is_none());
    assert!(
        by_tiles(&a.slice(s![.., ..;2])?.lazy()).is_none(),
        "in steps along every axis"
    );
    // If either axis is shorter than 8 elements, tiles are not used.
    for shape in [[7, 100], [100, 7]] {
        assert!(by_tiles(&(Array::<f32>::zeros(shape)?.transpose()? * 2.0)).is_none());
    }
    assert!(by_tiles(&(Array::<f32>::zeros([8, 8])?.transpose()? * 2.0)).is_some());
    Ok(())
}

#[test]
fn the_axes_are_found_among_several() -> Result<()> {
    // The operand is contiguous along the first axis. The target is contiguous along the last axis.
    // Each index of the second axis selects a plane.
    let x = Array::<f32>::zeros([40, 20, 30])?;
    let turned = x.permute(&[2, 1, 0])?;
    let (text, tiles) = by_tiles(&(&turned + 1.0)).unwrap();
    assert_eq!((staged(&text), tiles), (vec![0], 20 * 2));
    // The operands are contiguous along two different axes. The kernel stages only the operands of
    // one axis: the axis with more operands.
    let other = Array::<f32>::zeros([30, 40, 20])?.permute(&[0, 2, 1])?;
    let (text, _) = by_tiles(&(&turned + &other + &other.flip(0)?)).unwrap();
    assert_eq!(staged(&text), [1, 2], "the axis of more operands");
    // The target itself is transposed.
    let target = Array::<f32>::zeros([20, 30])?.transpose()?;
    let dense = Array::<f32>::zeros([30, 20])?;
    let (text, _) = by_tiles_onto(&(&dense + 1.0), &target).unwrap();
    assert_eq!(staged(&text), [0]);
    assert!(by_tiles_onto(&(&target.to_uncached()? + 1.0), &target).is_some());
    assert!(by_tiles_onto(&(&target + 1.0), &target).is_none());
    Ok(())
}

#[test]
fn tiles_take_little_of_a_blocks_memory() -> Result<()> {
    use num_complex::Complex;
    let x = Array::<Complex<f64>>::zeros([40, 40])?;
    let turned = |by: isize| x.flip(by)?.transpose();
    let (text, _) = by_tiles(&(&turned(0)? + &turned(1)? + &x)).unwrap();
    assert_eq!(staged(&text), [0], "16 KiB each and a little more");
    Ok(())
}

#[cfg(feature = "cuda")]
mod compiled {
    use super::*;
    use crate::array::Number;
    use crate::device::cuda::compile_for_all;
    use crate::ops::cuda::tests::{of_every_complex, of_every_float};

    /// Returns tiled kernels over three axes and over two axes.
    fn sources<T: Number>() -> Vec<KernelSource> {
        let x = Array::<T>::zeros([9, 40, 50]).unwrap();
        let y = Array::<T>::zeros([9, 50, 40])
            .unwrap()
            .permute(&[0, 2, 1])
            .unwrap();
        let of = |lazy: &dyn Fn() -> (String, usize)| KernelSource {
            name: T::NAME.into(),
            text: lazy().0,
        };
        let plane = (
            y.slice(s![1, .., ..]).unwrap(),
            x.slice(s![0, .., ..]).unwrap(),
        );
        vec![
            of(&|| by_tiles(&(&x + &y * T::one())).unwrap()),
            of(&|| by_tiles(&(&plane.0 * &plane.1)).unwrap()),
            of(&|| by_tiles(&plane.0.cast::<u8>()).unwrap()),
        ]
    }

    #[test]
    fn tiles_compile() {
        compile_for_all(&of_every_float!(sources).concat());
        compile_for_all(&of_every_complex!(sources).concat());
        compile_for_all(&[sources::<u8>(), sources::<i16>(), sources::<i64>()].concat());
        let far = Array::<u8>::zeros([10, 10]).unwrap().transpose().unwrap();
        let far = far.broadcast_to(Shape::from([1 << 27, 10, 10])).unwrap();
        let near = Array::<u8>::zeros([10, 10]).unwrap();
        let near = near.broadcast_to(Shape::from([1 << 27, 10, 10])).unwrap();
        let wide = far.lazy();
        let (text, tiles) = by_tiles_onto(&wide, &near).unwrap();
        assert_eq!(tiles, 1 << 27);
        assert!(text.contains("typedef u64 index_t"));
        let name = "wide".into();
        compile_for_all(&[KernelSource { name, text }]);
    }
}
