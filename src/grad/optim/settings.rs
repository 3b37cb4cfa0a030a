//! The domains of settings.

use crate::error::{Error, ErrorKind, Result};

/// The values that a setting can have.
pub(super) struct Domain {
    contains: fn(f64) -> bool,
    text: &'static str,
}

/// The largest number that every accumulation type can represent.
const MOST: f64 = f32::MAX as f64;

/// Learning rates. At a rate of 0, no parameter changes.
pub(super) const RATE: Domain = Domain {
    contains: |value| (0.0..=MOST).contains(&value),
    text: "a number from 0 to 3.4e38",
};

/// Momentum coefficients.
pub(super) const MOMENTUM: Domain = Domain {
    contains: |value| (0.0..=1.0).contains(&value),
    text: "a number from 0 to 1",
};

/// Decay rates of means. At a decay rate of 1, a mean would ignore all gradients.
pub(super) const BETA: Domain = Domain {
    contains: |value| (0.0..1.0).contains(&value),
    text: "a number from 0 to below 1",
};

/// Weight decays.
const DECAY: Domain = Domain {
    contains: |value| (0.0..=MOST).contains(&value),
    text: "a number from 0 to 3.4e38",
};

/// The tolerances of a search.
pub(super) const TOLERANCE: Domain = Domain {
    contains: |value| (0.0..=f64::MAX).contains(&value),
    text: "a finite number, at least 0",
};

/// Returns an error for a value outside of its domain.
#[track_caller]
pub(super) fn check(optimizer: &str, setting: &str, value: f64, domain: &Domain) -> Result<()> {
    match (domain.contains)(value) {
        true => Ok(()),
        false => Err(outside(optimizer, setting, value, domain.text)),
    }
}

/// Checks the decay rates of two means.
#[track_caller]
pub(super) fn check_betas(optimizer: &str, betas: [f64; 2]) -> Result<()> {
    check(optimizer, "the first of `betas`", betas[0], &BETA)?;
    check(optimizer, "the second of `betas`", betas[1], &BETA)
}

/// Checks a learning rate and a weight decay. A step shrinks a parameter by their product, which
/// must be at most 1.
#[track_caller]
pub(super) fn check_rate_and_decay(optimizer: &str, rate: f64, decay: f64) -> Result<()> {
    const NAME: &str = "`weight_decay`";
    check(optimizer, "`rate`", rate, &RATE)?;
    check(optimizer, NAME, decay, &DECAY)?;
    if rate * decay <= 1.0 {
        return Ok(());
    }
    let most = format!("at most 1 over the rate of {rate}");
    Err(outside(optimizer, NAME, decay, &most))
}

#[cold]
#[track_caller]
fn outside(optimizer: &str, setting: &str, value: f64, expected: &str) -> Error {
    let text = format!("{optimizer}: {setting} is {value}, expected {expected}");
    Error::new(ErrorKind::InvalidArgument, text)
}
