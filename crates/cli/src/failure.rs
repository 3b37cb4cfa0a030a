//! Failures that end the program early, with their exit codes.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// A failure that ends the program early.
#[derive(Debug)]
pub(crate) enum ExitFailure {
    /// An unreadable input. The error names the file, and the line and the column if known.
    Input(cachescope_tools::Error),
    /// A file that cannot be opened or written. The text names the file.
    File(String),
    Usage(String),
    Output(io::Error),
}

impl ExitFailure {
    /// Returns a function that creates a failure to open or write the file at `path`.
    pub(crate) fn of_file(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |error| Self::File(format!("{}: {error}", path.display()))
    }

    /// Prints the failure. Returns the exit code 2, which is also the code for invalid arguments.
    pub(crate) fn report(&self) -> ExitCode {
        let text = match self {
            // The process that reads standard output has closed the pipe.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::SUCCESS;
            }
            Self::Input(error) => error.to_string(),
            Self::File(text) | Self::Usage(text) => text.clone(),
            Self::Output(error) => format!("standard output: {error}"),
        };
        // If standard error is closed, the exit code reports the failure.
        let _ = writeln!(io::stderr(), "error: {text}");
        ExitCode::from(2)
    }
}

impl From<cachescope_tools::Error> for ExitFailure {
    fn from(error: cachescope_tools::Error) -> Self {
        Self::Input(error)
    }
}
