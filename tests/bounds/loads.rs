//! Loads parameters from hostile files. The parameters' sizes bound the memory use.

use cachescope::grad::files;
use cachescope::{Array, Device, DeviceConfig, ErrorKind, PoolKind, Result};

use crate::bounds::archives::{self, Entry};
use crate::bounds::files::{Scratch, fails};
use crate::bounds::heap::peak_of;

/// Loading uses memory in proportion to the sizes of the parameters. A larger array is refused
/// after its header is read.
#[test]
fn a_load_takes_memory_by_what_is_loaded() -> Result<()> {
    let dictionary =
        |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let zeros = vec![0; 64 << 20];
    let small = Array::<f32>::zeros([2, 2])?;
    // The refused shapes have few elements, many elements, an overflowing length, or too many axes.
    for (shape, elements) in [
        ("(4,)", &zeros[..16]),
        ("(4096, 4096)", &zeros),
        ("(16777216,)", &zeros),
        ("(9223372036854775807, 16)", &zeros),
        ("(1, 1, 1, 1, 1, 1, 1, 1, 1)", &zeros[..4]),
    ] {
        let data = archives::npy(&dictionary(shape), elements);
        let bytes = archives::archive(&[Entry::new("array.npy", &data, true)], false);
        let scratch = Scratch::new("bomb.npz");
        scratch.hold(&bytes).unwrap();
        let device = Device::host_with(DeviceConfig {
            pool: PoolKind::Direct,
            ..Default::default()
        })?;
        let _current = device.enter();
        let like = Array::<f32>::zeros([2, 2])?;
        let before = device.memory_stats().peak_reserved_bytes;
        let (loaded, heap_bytes) = peak_of(|| files::load(&like, &scratch));
        fails(loaded, ErrorKind::ShapeMismatch, "[2, 2]");
        assert!(heap_bytes < 256 << 10, "{heap_bytes} of heap for {shape}");
        assert_eq!(device.memory_stats().peak_reserved_bytes, before, "{shape}");
    }
    // A file with the expected shape but more data is an error. Its load uses only the memory of
    // the expected elements.
    let data = archives::npy(&dictionary("(2, 2)"), &zeros);
    let bytes = archives::archive(&[Entry::new("array.npy", &data, true)], false);
    let scratch = Scratch::new("longer.npz");
    scratch.hold(&bytes).unwrap();
    let (loaded, heap_bytes) = peak_of(|| files::load(&small, &scratch));
    fails(loaded, ErrorKind::Io, "data are longer than the array");
    assert!(heap_bytes < 256 << 10, "{heap_bytes} of heap");
    Ok(())
}
