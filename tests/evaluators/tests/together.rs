//! Several results of one pass, and subexpressions that a broadcast computes once.

use cachescope::{
    Array, Device, DeviceConfig, ErrorKind, Result, cache_scope, cache_stats, eval, update,
};
use ndarray::s;

fn ramp(length: usize) -> Array<f32> {
    let values = (0..length)
        .map(|index| (index as f32 * 0.3).sin())
        .collect();
    Array::from_vec(values, length).unwrap()
}

#[test]
fn several_results_are_those_of_each_alone() -> Result<()> {
    let (x, y) = (ramp(5000), ramp(5003).slice(s![3..])?);
    let common = (&x * &y + 1.0).exp();
    let (a, b, c, d) = eval((&common * 2.0, common.cast::<f64>(), x.gt(&y), &x))?;
    assert_eq!(a, (&common * 2.0).eval()?);
    assert_eq!(b, common.cast::<f64>().eval()?);
    assert_eq!(c, x.gt(&y).eval()?);
    assert_eq!(d, x);
    assert_ne!(d.address(), x.address(), "a copy, as `lazy().eval()` is");
    let (one,) = eval((&common,))?;
    assert_eq!(one, common.eval()?);
    Ok(())
}

#[test]
fn results_of_several_shapes_and_the_same_one_twice() -> Result<()> {
    let (x, row) = (ramp(600).reshape([20, 30])?, ramp(30));
    let sum = &x + &row;
    let (a, b, c, d) = eval((&sum, &row * 2.0, &sum, 3.0 - &row))?;
    assert_eq!((a.shape(), b.shape()), (&[20, 30][..], &[30][..]));
    assert_eq!((&a, &c), (&sum.eval()?, &sum.eval()?));
    assert_ne!(a.address(), c.address());
    assert_eq!((b, d), ((&row * 2.0).eval()?, (3.0 - &row).eval()?));
    let empty = Array::<f32>::zeros([0, 4])?;
    let (none, some) = eval((&empty + 1.0, &row + 1.0))?;
    assert_eq!((none.len(), some.len()), (0, 30));
    Ok(())
}

#[test]
fn each_result_takes_one_allocation() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _guard = device.enter();
    let x = ramp(1000);
    let takes = || {
        let stats = cache_stats("together").unwrap();
        stats.hits + stats.misses
    };
    cache_scope!("together", {
        let before = takes();
        let kept = eval((x.sin(), x.cos(), x.sin() + x.cos()))?;
        assert_eq!(takes() - before, 3);
        drop(kept);
    });
    Ok(())
}

#[test]
fn a_step_of_adam_is_what_its_parts_are_one_after_another() -> Result<()> {
    for length in [1, 100, 5000] {
        let g = ramp(length);
        let (mut w, mut m, mut v) = (ramp(length), (&g * 0.5).eval()?, g.square().eval()?);
        let new_m = (&m * 0.9 + &g * 0.1).eval()?;
        let new_v = (&v * 0.999 + g.square() * 0.001).eval()?;
        let new_w = (&w - 0.1 * &new_m / (new_v.sqrt() + 1e-8)).eval()?;
        let addresses = [w.address(), m.address(), v.address()];
        update((&mut w, &mut m, &mut v), |(w, m, v)| {
            let m = m * 0.9 + &g * 0.1;
            let v = v * 0.999 + g.square() * 0.001;
            (w - 0.1 * &m / (v.sqrt() + 1e-8), m, v)
        })?;
        assert_eq!((&w, &m, &v), (&new_w, &new_m, &new_v));
        assert_eq!(
            [w.address(), m.address(), v.address()],
            addresses,
            "in place"
        );
    }
    Ok(())
}

#[test]
fn new_values_are_made_of_old_ones() -> Result<()> {
    let (mut a, mut b) = (ramp(3000), (ramp(3000) * 2.0).eval()?);
    let (old_a, old_b) = (a.to_uncached()?, b.to_uncached()?);
    let addresses = (a.address(), b.address());
    update((&mut a, &mut b), |(a, b)| (b, a))?;
    assert_eq!((&a, &b), (&old_b, &old_a), "exchanged");
    assert_eq!((a.address(), b.address()), addresses);
    // The targets have different shapes. If another expression reads a target at other positions,
    // the target is written last.
    let (mut table, mut row) = (ramp(1200).reshape([30, 40])?, ramp(40));
    let (old_table, old_row) = (table.to_uncached()?, row.to_uncached()?);
    update((&mut table, &mut row), |(table, row)| {
        (table + &row, row * 2.0)
    })?;
    assert_eq!(table, (&old_table + &old_row).eval()?);
    assert_eq!(row, (&old_row * 2.0).eval()?);
    let mut square = ramp(900).reshape([30, 30])?;
    let mut other = square.to_uncached()?;
    let old = square.to_uncached()?;
    let turned = square.transpose()?;
    update((&mut square, &mut other), |(square, other)| {
        (turned.lazy() + square, other + &turned)
    })?;
    drop(turned);
    assert_eq!(square, (&old + old.transpose()?).eval()?);
    assert_eq!(other, square);
    Ok(())
}

#[test]
fn what_others_share_keeps_its_values() -> Result<()> {
    let (mut a, mut b) = (ramp(100), ramp(100));
    let kept = a.clone();
    let view = kept.slice(s![10..20])?;
    update((&mut a, &mut b), |(a, b)| (a + 1.0, b * 2.0))?;
    assert_eq!(kept, ramp(100));
    assert_eq!(view, ramp(100).slice(s![10..20])?);
    assert_eq!(
        (a, b),
        ((ramp(100) + 1.0).eval()?, (ramp(100) * 2.0).eval()?)
    );
    // One value fills a whole target, and the targets have different types.
    let (mut x, mut count) = (ramp(50), Array::<i64>::zeros(50)?);
    update((&mut x, &mut count), |(x, count)| {
        (0.5, count + x.gt(0.0).cast::<i64>())
    })?;
    assert_eq!(x, Array::full(50, 0.5)?);
    assert_eq!(count, ramp(50).gt(0.0).cast::<i64>().eval()?);
    Ok(())
}

#[test]
fn nothing_is_written_where_one_does_not_fit() -> Result<()> {
    let (mut a, mut b) = (ramp(10), ramp(10));
    let long = ramp(11);
    let error = update((&mut a, &mut b), |(a, b)| (a + 1.0, b + &long)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    assert_eq!((&a, &b), (&ramp(10), &ramp(10)));
    let other = Device::host_with(DeviceConfig::default())?;
    let mut there = b.to_device(&other)?;
    let error = update((&mut a, &mut there), |(a, b)| (a + 1.0, b + 1.0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceMismatch);
    assert_eq!(
        eval((&a + 1.0, &there + 1.0)).unwrap_err().kind(),
        ErrorKind::DeviceMismatch
    );
    assert_eq!(
        eval((&a + 1.0, &a + &long)).unwrap_err().kind(),
        ErrorKind::ShapeMismatch
    );
    Ok(())
}

#[test]
fn a_small_operand_of_a_broadcast_is_computed_once() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _guard = device.enter();
    let (x, a) = (
        ramp(400 * 300).reshape([400, 300])?,
        ramp(400).reshape([400, 1])?,
    );
    let takes = || {
        let stats = cache_stats("hoisted").unwrap();
        stats.hits + stats.misses
    };
    cache_scope!("hoisted", {
        let divisor = || (a.powf(2.0) + 1.0).ln().sqrt() + 0.5;
        let before = takes();
        let y = (&x / divisor()).eval()?;
        assert_eq!(takes() - before, 2, "the divisor has room of its own");
        assert_eq!(y, (&x / divisor().eval()?).eval()?);
        let before = takes();
        let sum = (&x / divisor()).sum_axis(0)?;
        assert_eq!(takes() - before, 2);
        assert_eq!(sum, y.sum_axis(0)?);
        let mut z = x.to_uncached()?;
        z.update(|z| z / divisor())?;
        assert_eq!(z, y);
        // If the target broadcasts the whole expression, the expression is computed once.
        let before = takes();
        z.assign(a.exp())?;
        assert_eq!(takes() - before, 1);
        assert_eq!(z, a.exp().eval()?.broadcast_to([400, 300])?);
        // If a subexpression is small, or has the target's size, it is not computed separately.
        let few = x.slice(s![..10, ..10])?;
        let before = takes();
        (&few / (a.slice(s![..10, ..])?.exp() + 1.0)).eval()?;
        (x.exp() + 1.0 + &a).eval()?;
        assert_eq!(takes() - before, 2);
    });
    assert_eq!(cache_stats("hoisted").unwrap().live_blocks, 0);
    Ok(())
}
