//! The formats of reports. The extension of a file name selects its format.

use std::io::{self, Write};
use std::path::Path;

use crate::profile::Profile;
use crate::{dhat, flame, folded, page, perfetto, reservations, snapshot, table};

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// An HTML page for any browser.
    Html,
    /// A snapshot for PyTorch's memory viewer.
    Pickle,
    /// A trace for Perfetto.
    Json,
    /// A JSON file for DHAT's viewer.
    Dhat,
    /// The folded stacks of the live memory at the peak, as text.
    Folded,
    /// A flame graph of the live memory at the peak.
    Svg,
    /// A text table of the allocating lines.
    Text,
    /// A log of reservations in RMM's CSV format.
    Csv,
}

impl Format {
    /// All formats, in the order of [`ENDINGS`](Self::ENDINGS).
    const ALL: [Self; 8] = [
        Self::Html,
        Self::Pickle,
        Self::Json,
        Self::Dhat,
        Self::Folded,
        Self::Svg,
        Self::Text,
        Self::Csv,
    ];

    /// The file name extensions of the formats.
    pub const ENDINGS: [&str; 8] = [
        ".html", ".pickle", ".json", ".dhat", ".folded", ".svg", ".txt", ".csv",
    ];

    /// Returns the format that the extension of a file name selects.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::path::Path;
    ///
    /// use cachescope_reports::Format;
    ///
    /// assert_eq!(Format::of(Path::new("run.html")), Some(Format::Html));
    /// assert_eq!(Format::of(Path::new("run.exe")), None);
    /// ```
    pub fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?;
        let place = Self::ENDINGS.iter().position(|own| own[1..] == *ending)?;
        Some(Self::ALL[place])
    }

    /// Writes a profile in the format.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_reports::{Format, Profile};
    ///
    /// let mut page = Vec::new();
    /// Format::Html.write(&Profile::default(), &mut page)?;
    /// assert!(page.starts_with(b"<!"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write(self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Html => page::write(profile, out),
            Self::Pickle => snapshot::write(profile, out),
            Self::Json => perfetto::write(profile, out),
            Self::Dhat => dhat::write(profile, out),
            Self::Folded => folded::write(profile, out),
            Self::Svg => flame::write(profile, out),
            Self::Text => table::write(profile, out),
            Self::Csv => reservations::write(profile, out),
        }
    }
}
