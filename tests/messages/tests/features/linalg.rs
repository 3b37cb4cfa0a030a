//! A factorization without the feature.

use cachescope::Array;

fn main() -> cachescope::Result<()> {
    let a = Array::<f32>::eye(3)?;
    cachescope::linalg::inv(&a).map(drop)
}
