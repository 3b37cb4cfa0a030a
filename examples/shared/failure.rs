//! Errors that end an example early, and their exit codes.

use std::process::ExitCode;
use std::{fmt, io};

/// The reason why the program ended early.
#[derive(Debug)]
pub enum Failure {
    /// The data cannot be read. The message names the file, and the line and column if they are
    /// known.
    Input(String),
    /// The library returned an error, for example because the device has no free memory.
    Library(cachescope::Error),
    /// Standard output cannot be written.
    Output(io::Error),
}

impl Failure {
    /// Prints the error and returns the exit code. The code is 2 for unreadable input, as for an
    /// invalid command line. For other errors, the code is 1.
    pub fn report(&self) -> ExitCode {
        match self {
            // The reader of the output has closed the pipe.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Self::Input(_) => self.print(2),
            Self::Library(_) | Self::Output(_) => self.print(1),
        }
    }

    fn print(&self, code: u8) -> ExitCode {
        eprintln!("error: {self}");
        ExitCode::from(code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(text) => f.write_str(text),
            Self::Library(error) => error.fmt(f),
            Self::Output(error) => write!(f, "cannot write to standard output: {error}"),
        }
    }
}

impl From<cachescope::Error> for Failure {
    fn from(error: cachescope::Error) -> Self {
        Self::Library(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
