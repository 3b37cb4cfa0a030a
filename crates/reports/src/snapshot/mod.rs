//! A memory snapshot of PyTorch: the file that its viewer shows, and that its `_memory_viz.py`
//! reads.
//!
//! It has the state at the end, as segments and their blocks, and the entries that led to this
//! state. The scope of an entry is its category, by which the viewer colours. The format needs two
//! things that a profile does not have. One is the free memory of a device when a request failed (0
//! here). The other is the memory that was allocated before the recording and is still live (idle
//! here).
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

/// Writes a profile as a memory snapshot of PyTorch.
///
/// # Errors
///
/// The errors of `out`.
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

/// Returns the number of a CUDA device; 0 for another device.
fn ordinal(device: &str) -> u16 {
    let number = device.strip_prefix("cuda:");
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
