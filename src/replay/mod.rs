//! What a pool would have made of a recorded program: its steps are run through the pool's algorithm,
//! over addresses that nobody touches.

pub(crate) mod placements;
mod range;
pub(crate) mod run;
mod segments;
pub(crate) mod simulator;
#[cfg(test)]
mod tests;
pub(crate) mod trace;
