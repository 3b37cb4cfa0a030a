//! The progress of a training: one line that is redrawn on a terminal, a line for each epoch
//! elsewhere.

use std::io::{self, IsTerminal, Write};

/// Shows the progress of a training.
pub(crate) struct Progress<'a> {
    out: &'a mut dyn Write,
    epochs: usize,
    redraws: bool,
}

impl<'a> Progress<'a> {
    /// Redraws one line if standard output is a terminal and this process, or thread, is the one to
    /// write to it. Otherwise writes a line for each epoch to `out`.
    pub(crate) fn new(epochs: usize, is_first: bool, out: &'a mut dyn Write) -> Self {
        Self {
            out,
            epochs,
            redraws: is_first && io::stdout().is_terminal(),
        }
    }

    /// Shows the result of an epoch, counted from 1.
    pub(crate) fn epoch(&mut self, epoch: usize, loss: f32, accuracy: f64) -> io::Result<()> {
        let Self { epochs, .. } = self;
        let width = epochs.to_string().len();
        let line =
            format!("epoch {epoch:width$}/{epochs}: loss {loss:.4}, test accuracy {accuracy:.4}");
        if !self.redraws {
            return writeln!(self.out, "{line}");
        }
        // Directly: `out` may be a buffer that is printed after the training.
        let mut terminal = io::stdout();
        let end = if epoch == self.epochs { "\n" } else { "" };
        write!(terminal, "\r{line}{end}")?;
        terminal.flush()
    }
}
