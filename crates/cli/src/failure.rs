//! Failures that end the program early, and its exit codes.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// The failure that ended the program early.
#[derive(Debug)]
pub(crate) enum ExitFailure {
    /// An input cannot be read; the error names the file, and the line and column if known.
    Input(cachescope_tools::Error),
    /// A file cannot be opened or written; the text names it.
    File(String),
    /// Options that conflict.
    Usage(String),
    /// Standard output cannot be written.
    Output(io::Error),
}

impl ExitFailure {
    /// Returns a function that makes the failure to open or write the file at `path`.
    pub(crate) fn of_file(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |error| Self::File(format!("{}: {error}", path.display()))
    }

    /// Prints the failure; returns the exit code 2, as for a command line that does not parse.
    pub(crate) fn report(&self) -> ExitCode {
        let text = match self {
            // The reader of our output has closed it.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::SUCCESS;
            }
            Self::Input(error) => error.to_string(),
            Self::File(text) | Self::Usage(text) => text.clone(),
            Self::Output(error) => format!("standard output: {error}"),
        };
        // If standard error is closed, the exit code still reports the failure.
        let _ = writeln!(io::stderr(), "error: {text}");
        ExitCode::from(2)
    }
}

impl From<cachescope_tools::Error> for ExitFailure {
    fn from(error: cachescope_tools::Error) -> Self {
        Self::Input(error)
    }
}
