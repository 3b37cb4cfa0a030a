//! How far a long run is: a bar on a terminal, nothing elsewhere.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is over before that shows no bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// A file that shows how much of it has been read; the bar goes when this drops.
#[derive(Debug)]
pub(crate) struct Watched {
    file: File,
    bar: ProgressBar,
    /// When the bar appears, if it has not yet.
    appears_at: Option<Instant>,
}

impl Watched {
    pub(crate) fn new(file: File) -> Self {
        // A pipe has no length.
        let length = file.metadata().map(|data| data.len()).ok();
        let length = length.filter(|&bytes| bytes > 0);
        let template = match length {
            Some(_) => "{wide_bar} {bytes} of {total_bytes}, {eta} left",
            None => "{spinner} {bytes}",
        };
        let style = ProgressStyle::with_template(template).expect("the template is well formed");
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
        Self {
            file,
            bar: bar.with_style(style),
            appears_at: Some(Instant::now() + PATIENCE),
        }
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.appears_at.is_some_and(|then| then < Instant::now()) {
            self.appears_at = None;
            // Draws nothing where it is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        let read = self.file.read(buffer)?;
        self.bar.inc(read as u64);
        Ok(read)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
