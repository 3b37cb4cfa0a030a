//! Everything that can end the program early, and the exit code that it ends with.

use std::process::ExitCode;
use std::{fmt, io};

/// Why the program ended early.
#[derive(Debug)]
pub enum Failure {
    /// The data cannot be read; the text names the file, and the line and column where there is
    /// one.
    Input(String),
    /// The library reported an error, such as a device without room.
    Library(cachescope::Error),
    /// Standard output cannot be written.
    Output(io::Error),
}

impl Failure {
    /// Tells the user, and answers the exit code: 2 for unreadable input, as for a command line
    /// that does not parse, 1 for what went wrong later.
    pub fn report(&self) -> ExitCode {
        match self {
            // Whoever reads our output has seen enough.
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
