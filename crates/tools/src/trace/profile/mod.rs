//! Profiles of recorded programs, the input of all reports. The programs are snapshots of PyTorch,
//! logs of RMM, lifetimes and plans.

mod builder;
mod call_site;
mod snapshot;
mod tables;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::io::BufRead;

use cachescope_reports::Profile;

use super::csv_table::CsvTable;
use super::io_error;
use super::reader::is_log;
use super::snapshot::Snapshot;
use crate::error::Result;

/// The options of [`profiles_with`].
///
/// # Examples
///
/// ```
/// # extern crate cachescope_tools as cachescope;
/// use cachescope::trace::ProfileOptions;
///
/// let options = ProfileOptions {
///     own_code: Some("my_model/*.py".to_owned()),
///     ..ProfileOptions::default()
/// };
/// assert_eq!(ProfileOptions::default().own_code, None);
/// # drop(options);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileOptions {
    /// A pattern for paths of the user's files: a substring, in which `*` matches any text. If a
    /// file in a backtrace matches, the innermost matching frame is the line of the allocation.
    pub own_code: Option<String>,
}

/// Reads a recorded program of any known format. Returns a profile for each of its devices. Errors
/// refer to the input as `name`.
///
/// - Snapshots of PyTorch, or of [`Recording::write`](crate::record::Recording::write). A profile
///   has their lines, backtraces and categories. Categories become scopes. The line of an
///   allocation is the innermost frame with a file and a line. If only the free of a block is
///   recorded, the line of the free is used, and is marked. If a block is live at the end and has
///   no entry, its allocation precedes all events.
/// - Logs of RMM, with their times, threads and streams.
/// - Lifetimes in MiniMalloc's format, with one step per microsecond. If the file has a column
///   `offset`, as `cachescope plan` writes it, the buffers are at these offsets. Otherwise, they
///   are placed side by side.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_tools as cachescope;
/// use cachescope::record::EventKind;
/// use cachescope::trace::profiles;
///
/// let plan = "id,lower,upper,size,offset\na,0,4,512,0\nb,2,6,256,512\n";
/// let profile = profiles("a plan", plan.as_bytes())?.remove(0);
/// assert_eq!(profile.events.len(), 5);
/// assert_eq!((profile.events[0].kind, profile.events[0].bytes), (EventKind::Reserve, 768));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// Returns [`Io`](crate::ErrorKind::Io) with the position if the input has none of these formats or
/// is malformed. Returns the errors of [`Snapshot::read`], including its limits, and of
/// [`Trace::new`](super::Trace::new). A table with more than 4096 columns is an error.
pub fn profiles(name: impl Display, input: impl BufRead) -> Result<Vec<Profile>> {
    profiles_with(name, input, &ProfileOptions::default())
}

/// Reads profiles like [`profiles`], with options.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_tools as cachescope;
/// use cachescope::trace::{ProfileOptions, profiles_with};
///
/// let plan = "id,lower,upper,size\na,0,4,512\n";
/// let profiles = profiles_with("a plan", plan.as_bytes(), &ProfileOptions::default())?;
/// assert_eq!(profiles[0].device, "plan");
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// Returns the errors of [`profiles`].
pub fn profiles_with(
    name: impl Display,
    mut input: impl BufRead,
    options: &ProfileOptions,
) -> Result<Vec<Profile>> {
    let start = input.fill_buf().map_err(|error| io_error(&name, error))?;
    if Snapshot::begins_like(start) {
        return snapshot::profiles(name, input, options);
    }
    let table = CsvTable::new(name, input)?;
    let profile = if is_log(&table) {
        tables::of_log(table)?
    } else {
        tables::of_lifetimes(table)?
    };
    Ok(vec![profile])
}
