//! A memory snapshot in PyTorch's format, for PyTorch's viewer and for `_memory_viz.py`.
//!
//! A snapshot contains the final state, as segments and blocks, and the entries that led to this
//! state. The category of an entry is its scope. The viewer colours by category. The format
//! requires two facts that a profile lacks. The first is the free device memory when a request
//! failed. It is written as 0. The second is the memory that was allocated before the recording and
//! is still live. This memory is written as idle.
//!
//! Source of the format: `torch/utils/viz/MemoryViz.js`, `torch/cuda/_memory_viz.py` and
//! `torch/csrc/cuda/memory_snapshot.cpp` of pytorch/pytorch.

mod names;
mod pickle;
pub(crate) mod reserved;
mod segments;
mod trace;

use std::io::{self, Write};

use crate::profile::Profile;
use names::Names;
use pickle::Pickle;

/// Writes a profile as a memory snapshot in PyTorch's format.
///
/// # Errors
///
/// Returns the errors of `out`.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{Profile, snapshot};
///
/// let mut file = Vec::new();
/// snapshot::write(&Profile::default(), &mut file)?;
/// assert_eq!(file[..2], [0x80, 4], "a pickle of protocol 4");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut pickle = Pickle::new(out);
    let mut names = Names::new(profile);
    let device = ordinal(&profile.device);
    pickle.begin_dict();
    pickle.text("device_traces");
    let mut devices = pickle.begin_list();
    for _ in 0..device {
        pickle.item(&mut devices);
        let none = pickle.begin_list();
        pickle.end_list(none);
    }
    pickle.item(&mut devices);
    let memory = trace::write(profile, &mut pickle, &mut names)?;
    pickle.end_list(devices);
    pickle.text("segments");
    segments::write(&memory, device.into(), &mut pickle, &mut names)?;
    pickle.text("allocator_settings");
    pickle.begin_dict();
    pickle.text("expandable_segments");
    pickle.yes();
    pickle.end_dict();
    pickle.text("external_annotations");
    let none = pickle.begin_list();
    pickle.end_list(none);
    pickle.end_dict();
    pickle.finish()
}

/// Returns the ordinal of a CUDA device, or 0 for another device.
fn ordinal(device: &str) -> u16 {
    let number = device.strip_prefix("cuda:");
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
