use half::{bf16, f16};

use super::digits::{Widths, elements_each};
use super::*;
use crate::array::{AnyElement, Element};
use crate::ops::cuda::tests::of_every_ordered;

/// Returns the values of `CS_ORDER` and `CS_INFINITE` in the source.
fn order_of<T: AnyElement>() -> (String, String) {
    let text = keys(T::DTYPE);
    let after = |name: &str| {
        let rest = text.split_once(&format!("#define {name} ")).unwrap().1;
        rest.lines().next().unwrap().to_owned()
    };
    (after("CS_ORDER"), after("CS_INFINITE"))
}

#[test]
fn elements_are_ordered_by_their_kind() {
    let order = |order: &str, infinite: &str| (order.to_owned(), infinite.to_owned());
    assert_eq!(order_of::<bool>(), order("0", "0ull"));
    assert_eq!(order_of::<u64>(), order("0", "0ull"));
    assert_eq!(order_of::<i8>(), order("1", "0ull"));
    assert_eq!(
        order_of::<f16>(),
        order("2", &format!("{}ull", f16::INFINITY.to_bits()))
    );
    assert_eq!(
        order_of::<bf16>(),
        order("2", &format!("{}ull", bf16::INFINITY.to_bits()))
    );
    assert_eq!(
        order_of::<f64>(),
        order("2", &format!("{}ull", f64::INFINITY.to_bits()))
    );
}

#[test]
fn elements_are_ordered_as_on_the_host() {
    fn check<T: Element>() {
        let bits = 8 * size_of::<T>();
        // Only floats have a negative zero. Its key is the key of the positive zero.
        let (order, infinite) = if T::from_f64(-0.0).is_merged() {
            let infinite: u64 = T::from_f64(f64::INFINITY).key().into();
            (2, infinite ^ 1 << (bits - 1))
        } else {
            let zero: u64 = T::zero().key().into();
            (u8::from(zero > 0), 0)
        };
        let expected = (order.to_string(), format!("{infinite}ull"));
        assert_eq!(order_of::<T>(), expected, "{}", T::NAME);
    }
    of_every_ordered!(check);
}

#[test]
fn each_type_has_kernels_of_its_own() {
    fn keys_of<T: Element>() -> Vec<KernelKey> {
        let widths = [1 << 20, 1 << 31, 1 << 40].map(Widths::of);
        let keys = widths.map(|widths| [false, true].map(|counts| widths.key(T::DTYPE, counts)));
        keys.concat()
    }
    let keys = of_every_ordered!(keys_of).concat();
    for (at, key) in keys.iter().enumerate() {
        assert!(!keys[..at].contains(key), "{key:?}");
    }
}

#[test]
fn contiguous_axes_are_merged() -> Result<()> {
    let whole = Layout::contiguous(&Shape::from([4, 5, 1, 6]))?;
    let lanes = SortLanes::along(512, &whole, 3);
    assert_eq!((lanes.length, lanes.step, lanes.count()), (6, 1, 20));
    assert!(lanes.others.axes().eq([(20, [6])]));
    let lanes = SortLanes::along(512, &whole, 1);
    assert_eq!((lanes.length, lanes.step, lanes.count()), (5, 6, 24));
    assert!(lanes.others.axes().eq([(4, [30]), (6, [1])]));
    let lanes = SortLanes::along(512, &Layout::contiguous(&Shape::from([7]))?, 0);
    assert_eq!((lanes.length, lanes.count()), (7, 1));
    Ok(())
}

/// A block needs at most 48 KiB of shared memory. A larger size would need an attribute of the
/// kernel.
#[test]
fn the_rows_of_a_block_fit() {
    for element_bytes in [1, 2, 4, 8] {
        for place_bytes in [4, 8] {
            let tile = THREADS as usize * elements_each(element_bytes, place_bytes);
            let warps = THREADS as usize / 32;
            let counts = warps * (256 * 4 + 4 + 8) + 256 * (8 + 4) + 8;
            assert!(tile * (element_bytes + place_bytes) + counts <= 48 << 10);
        }
    }
    const { assert!(ITEMS * 16 <= 48 << 10) };
}

#[test]
fn numbers_are_as_wide_as_a_lane_is_long() {
    let widths = |length: u64| {
        let Widths { place, counts } = Widths::of(length as usize);
        (place, counts)
    };
    assert_eq!(widths(3000), (4, 4));
    // The upper two of 32 bits are reserved for the flag.
    assert_eq!(widths((1 << 30) - 1), (4, 4));
    assert_eq!(widths(1 << 30), (4, 8));
    assert_eq!(widths((1 << 32) - 1), (4, 8));
    assert_eq!(widths(1 << 32), (8, 8));
}

#[cfg(feature = "cuda")]
#[test]
fn sorting_compiles_for_every_element() {
    use super::digits::digits_source;
    fn sources<T: Element>() -> [KernelSource; 7] {
        let [short, long, longest] = [1 << 20, 1 << 31, 1 << 40].map(Widths::of);
        [
            network_source(T::DTYPE),
            digits_source(T::DTYPE, short, true),
            digits_source(T::DTYPE, short, false),
            digits_source(T::DTYPE, long, true),
            digits_source(T::DTYPE, long, false),
            digits_source(T::DTYPE, longest, true),
            digits_source(T::DTYPE, longest, false),
        ]
    }
    let sources = of_every_ordered!(sources);
    crate::device::cuda::compile_for_all(&sources.concat());
}
