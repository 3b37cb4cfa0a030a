//! A transform without the feature.

use cachescope::fft::fftfreq;

fn main() -> cachescope::Result<()> {
    fftfreq::<f32>(8, 1.0).map(drop)
}
