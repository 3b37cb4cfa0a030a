//! The records of copies on write in a scope. A record has the line of the copy, and the line of
//! the handle that forced the copy.

use cachescope::ndarray::s;
use cachescope::{AllocationRecord, Array, CacheConfig, Device, Result, cache_scope, elementwise};
use under_test::device_with;

elementwise! {
    fn twice(x: f32) -> f32 {
        x + x
    }
}

/// Returns a device whose scope "copies" is recorded.
fn recording_device() -> Result<Device> {
    let device = device_with(Default::default())?;
    let record = CacheConfig {
        record: true,
        ..Default::default()
    };
    device.configure_cache("copies", record);
    Ok(device)
}

/// A function that shares the memory of an array, and returns the other handle.
type Way = fn(&Array<f32>) -> Result<Box<dyn Send>>;

/// Returns the line of each copy in the last entry, with the line of the handle that forced the
/// copy.
fn copies(device: &Device) -> Vec<(u32, Option<u32>)> {
    let record = device.cache_record("copies");
    let marked = record.iter().filter(|record| record.is_copy_on_write);
    let lines = |record: &AllocationRecord| {
        let shared_at = record.shared_at.map(|location| {
            assert!(location.file().ends_with("copies.rs"), "{location}");
            location.line()
        });
        (record.call_site.line(), shared_at)
    };
    marked.map(lines).collect()
}

/// Returns `line` if lines of handles are recorded, as in builds with debug assertions.
fn known(line: u32) -> Option<u32> {
    cfg!(debug_assertions).then_some(line)
}

#[test]
fn a_copy_is_marked_with_the_line_of_the_handle_that_forced_it() -> Result<()> {
    let device = recording_device()?;
    let _guard = device.enter();
    let mut w = Array::<f32>::ones(8)?;
    let gradient = Array::<f32>::ones(8)?;
    let ways: [Way; 6] = [
        |w| Ok(Box::new(w.clone())),
        |w| Ok(Box::new(w.slice(s![..4])?)),
        |w| Ok(Box::new(w * 2.0)),
        |w| Ok(Box::new((w.exp() + 1.0).boxed())),
        |w| Ok(Box::new(w.split(2, 0)?)),
        |w| Ok(Box::new(twice(w))),
    ];
    let first = line!() - 7;
    for (number, way) in ways.iter().enumerate() {
        let kept = way(&w)?;
        let gone = w.clone();
        drop(gone);
        cache_scope!("copies", { w.assign(&w - &gradient * 0.1)? });
        let copy = (line!() - 1, known(first + number as u32));
        assert_eq!(copies(&device), [copy], "way {number}");
        drop(kept);
        cache_scope!("copies", { w.assign(&w - &gradient * 0.1)? });
        assert_eq!(copies(&device), [], "nothing is shared any more");
    }
    Ok(())
}

#[test]
fn the_later_handle_is_named_by_its_own_line() -> Result<()> {
    let device = recording_device()?;
    let _guard = device.enter();
    let kept = Array::<f32>::ones(8)?;
    let mut w = kept.clone();
    let shared = line!() - 1;
    cache_scope!("copies", {
        let ones = Array::<f32>::ones(8)?;
        w.slice_mut(s![2..])?.fill(3.0)?;
        assert_eq!(ones.len() + kept.len(), 16);
    });
    assert_eq!(copies(&device), [(line!() - 3, known(shared))]);
    Ok(())
}

#[test]
fn expressions_that_are_used_again_are_named_by_their_first_line() -> Result<()> {
    let device = recording_device()?;
    let _guard = device.enter();
    let mut p = Array::<f32>::ones(8)?;
    let mut m = Array::<f32>::zeros(8)?;
    let step = &p * 0.5;
    let shared = line!() - 1;
    let step = step.clone() + &step;
    cache_scope!("copies", {
        cachescope::update((&mut p, &mut m), |(p, m)| (p - &step, m + 1.0))?;
    });
    assert_eq!(copies(&device), [(line!() - 2, known(shared))]);
    assert_eq!((p.to_vec()?, m.to_vec()?), (vec![0.0; 8], vec![1.0; 8]));
    Ok(())
}
