//! Settings outside of their domain. The tests cover every function with a bounded numeric setting,
//! and every kind of invalid value.

use cachescope::{Array, ErrorKind, Result};
use half::{bf16, f16};

use super::ones;

/// A test case: a call with a setting, the setting's name, and the values that the call refuses and
/// accepts.
struct Setting {
    name: &'static str,
    setting: &'static str,
    call: fn(f64) -> Result<()>,
    refuses: &'static [f64],
    takes: &'static [f64],
}

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;
const TINY: f64 = f64::MIN_POSITIVE;

const PROBABILITY: &[f64] = &[NAN, INF, -INF, -TINY, -0.1, 1.0 + f64::EPSILON, 2.0];
const NOT_FINITE: &[f64] = &[NAN, INF, -INF];
const NOT_A_STEP: &[f64] = &[NAN, 0.0, -0.0];

const SETTINGS: &[Setting] = &[
    Setting {
        name: "bernoulli",
        setting: "probability",
        call: |p| Array::bernoulli(p, 3).map(drop),
        refuses: PROBABILITY,
        takes: &[0.0, 0.5, 1.0],
    },
    Setting {
        name: "dropout_mask",
        setting: "probability",
        call: |p| Array::<f32>::dropout_mask(p, 3).map(drop),
        refuses: PROBABILITY,
        takes: &[0.0, 0.5, 1.0 - f64::EPSILON, 1.0],
    },
    Setting {
        name: "dropout_mask",
        setting: "probability",
        call: |p| Array::<f16>::dropout_mask(p, 3).map(drop),
        refuses: &[NAN, -0.1, 0.99999, 1.0 - f64::EPSILON, 1.5],
        takes: &[0.0, 0.999, 1.0],
    },
    Setting {
        name: "quantile",
        setting: "q is",
        call: |q| ones(&[3]).quantile(q, 0).map(drop),
        refuses: PROBABILITY,
        takes: &[0.0, 0.3, 1.0],
    },
    Setting {
        name: "arange",
        setting: "step",
        call: |step| Array::arange(0.0, 1.0, step).map(drop),
        refuses: NOT_A_STEP,
        takes: &[0.1, -1.0, INF, -INF],
    },
    Setting {
        name: "arange",
        setting: "step",
        call: |step| Array::arange(f16::ZERO, f16::ONE, f16::from_f64(step)).map(drop),
        refuses: &[NAN, 0.0, 1e-9],
        takes: &[0.1, 1e9],
    },
    Setting {
        name: "arange",
        setting: "from",
        call: |start| Array::arange(start, 1.0, 0.5).map(drop),
        refuses: NOT_FINITE,
        takes: &[0.0, 1e300],
    },
    Setting {
        name: "arange",
        setting: "to",
        call: |stop| Array::arange(bf16::ZERO, bf16::from_f64(stop), bf16::ONE).map(drop),
        refuses: &[NAN, INF, -INF, 1e300],
        takes: &[0.0, 3.0, -1e30],
    },
    Setting {
        name: "linspace",
        setting: "start",
        call: |start| Array::linspace(start, 1.0, 3).map(drop),
        refuses: NOT_FINITE,
        takes: &[0.0, f64::MAX, f64::MIN],
    },
    Setting {
        name: "linspace",
        setting: "stop",
        call: |stop| Array::linspace(0.0, stop as f32, 3).map(drop),
        refuses: &[NAN, INF, -INF, 1e300],
        takes: &[0.0, 1e38],
    },
    #[cfg(feature = "fft")]
    Setting {
        name: "fftfreq",
        setting: "spacing",
        call: |spacing| cachescope::fft::fftfreq(4, spacing).map(drop),
        refuses: &[NAN, INF, -INF, 0.0, -0.0, -1.0, f64::from_bits(1)],
        takes: &[1e-300, 0.1, f64::MAX],
    },
    #[cfg(feature = "fft")]
    Setting {
        name: "rfftfreq",
        setting: "spacing",
        call: |spacing| cachescope::fft::rfftfreq(5, spacing as f32).map(drop),
        refuses: &[NAN, INF, -INF, 0.0, -0.1, 1e-40, 1e-300],
        takes: &[1e-30, 0.1, 1e38],
    },
];

#[test]
fn settings_outside_of_their_domain() {
    for own in SETTINGS {
        for &value in own.refuses {
            let error = (own.call)(value).expect_err(&format!("{} takes {value}", own.name));
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
            let prefix = format!("{}:", own.name);
            assert!(
                text.starts_with(&prefix) && text.contains(own.setting),
                "{value}: {text}"
            );
        }
        for &value in own.takes {
            let outcome = (own.call)(value);
            assert!(outcome.is_ok(), "{} with {value}: {outcome:?}", own.name);
        }
    }
}
