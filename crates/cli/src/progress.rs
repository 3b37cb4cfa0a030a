//! A progress bar for long runs. It is displayed only on a terminal.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The delay after which the bar appears.
const DELAY: Duration = Duration::from_millis(500);

/// A bar on standard error. It appears after [`DELAY`], and disappears on drop.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// The time at which the bar appears; `None` once it has appeared.
    appears_at: Option<Instant>,
}

impl Progress {
    /// Creates a bar that counts `events` events.
    pub(crate) fn of_events(events: u64) -> Self {
        let template = "{wide_bar} {human_pos} of {human_len} events, {eta} left";
        Self::new(Some(events), template)
    }

    /// Creates a bar that counts the bytes of a file. The length of a pipe is unknown.
    fn of_file(file: &File) -> Self {
        let length = file.metadata().map(|data| data.len()).ok();
        match length.filter(|&bytes| bytes > 0) {
            None => Self::new(None, "{spinner} {bytes} read"),
            length => Self::new(length, "{wide_bar} {bytes} of {total_bytes}, {eta} left"),
        }
    }

    fn new(total: Option<u64>, template: &str) -> Self {
        let style = ProgressStyle::with_template(template).expect("the template is well formed");
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        Self {
            bar: bar.with_style(style),
            appears_at: Some(Instant::now() + DELAY),
        }
    }

    pub(crate) fn advance(&mut self, amount: u64) {
        if self.appears_at.is_some_and(|then| then < Instant::now()) {
            self.appears_at = None;
            // If standard error is not a terminal, draws nothing.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(amount);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A file that displays the progress of reading.
#[derive(Debug)]
pub(crate) struct ProgressReader {
    file: File,
    progress: Progress,
}

impl ProgressReader {
    pub(crate) fn new(file: File) -> Self {
        let progress = Progress::of_file(&file);
        Self { file, progress }
    }
}

impl Read for ProgressReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.progress.advance(read as u64);
        Ok(read)
    }
}
