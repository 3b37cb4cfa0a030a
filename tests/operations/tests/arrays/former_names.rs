//! Programs that write former names compile, and warn where the compiler can.

#[cfg(any(feature = "fft", feature = "linalg"))]
use cachescope::Array;
#[cfg(feature = "fft")]
use cachescope::fft;
#[cfg(feature = "linalg")]
use cachescope::linalg;
use cachescope::plan::pack;
use cachescope::record::lifetimes;
use cachescope::{Device, DeviceConfig, RecordOptions, Result, plan, record};

#[cfg(feature = "linalg")]
#[expect(deprecated, reason = "the former name")]
fn inverse<T: linalg::Real>(a: &Array<T>) -> Result<Array<T>> {
    linalg::inv(a)
}

#[cfg(feature = "fft")]
fn spectrum<T: fft::Real>(x: &Array<T>) -> Result<Array<<T as fft::Real>::Spectrum>> {
    fft::rfft(x, 0)
}

#[expect(deprecated, reason = "the former name")]
fn buffer(size_bytes: u64) -> plan::Buffer {
    plan::Buffer {
        lower: 0,
        upper: 1,
        size_bytes,
    }
}

#[expect(deprecated, reason = "the former name")]
fn bytes(lifetimes: &[record::Lifetime]) -> u64 {
    lifetimes.iter().map(|own| own.bytes).sum()
}

#[test]
fn programs_with_former_names_compile() -> Result<()> {
    #[cfg(feature = "linalg")]
    assert_eq!(
        inverse(&(Array::<f64>::eye(2)? * 2.0).eval()?)?
            .sum()?
            .item()?,
        1.0
    );
    #[cfg(feature = "fft")]
    assert_eq!(spectrum(&Array::<f32>::ones(4)?)?.shape(), [3]);
    assert_eq!(
        pack(&[buffer(8), buffer(16)], &plan::Options::default()).slab_bytes,
        24
    );
    // Other tests allocate on the current device meanwhile.
    let device = Device::host_with(DeviceConfig::default())?;
    let recording = device.record(RecordOptions::default())?;
    assert_eq!(bytes(&lifetimes(&recording.profile())), 0);
    Ok(())
}
