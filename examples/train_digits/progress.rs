//! How far the training is: a bar on a terminal, a line for each epoch elsewhere.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What shows the progress of a training.
pub(crate) enum Progress<'a> {
    /// A bar that is drawn over and over, and goes when it drops.
    Bar(ProgressBar),
    /// Lines that stay.
    Lines {
        out: &'a mut dyn Write,
        epochs: usize,
    },
}

impl<'a> Progress<'a> {
    /// A bar where standard output is a terminal and this process, or thread, is the one to show it; lines to `out` elsewhere.
    pub(crate) fn new(epochs: usize, is_first: bool, out: &'a mut dyn Write) -> Self {
        if !is_first || !io::stdout().is_terminal() {
            return Self::Lines { out, epochs };
        }
        let style = ProgressStyle::with_template("epoch {pos}/{len} {wide_bar} {msg}")
            .expect("the template is well formed");
        let bar = ProgressBar::with_draw_target(Some(epochs as u64), ProgressDrawTarget::stdout());
        Self::Bar(bar.with_style(style))
    }

    /// Shows what came of an epoch, counted from 1.
    pub(crate) fn epoch(&mut self, epoch: usize, loss: f32, accuracy: f64) -> io::Result<()> {
        let result = format!("loss {loss:.4}, test accuracy {accuracy:.4}");
        match self {
            Self::Bar(bar) => {
                bar.set_position(epoch as u64);
                bar.set_message(result);
                Ok(())
            }
            Self::Lines { out, epochs } => {
                let width = epochs.to_string().len();
                writeln!(out, "epoch {epoch:width$}/{epochs}: {result}")
            }
        }
    }
}
