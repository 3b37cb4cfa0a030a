//! The progress of a training run: a bar on a terminal, lines elsewhere.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// Returns a bar for `steps` steps, on standard error. If standard output or standard error is not
/// a terminal, the bar is hidden, and `show` prints lines.
pub fn bar(steps: usize) -> ProgressBar {
    let target = match io::stdout().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len}, {eta} left; {msg}");
    ProgressBar::with_draw_target(Some(steps as u64), target)
        .with_style(style.expect("the template is well formed"))
        .with_finish(ProgressFinish::AndLeave)
}

/// Shows a text beside the bar. If the bar is hidden, prints a line instead.
pub fn show(bar: &ProgressBar, text: String) -> io::Result<()> {
    show_or_write(bar, &mut io::stdout(), text)
}

/// Shows a text beside the bar. If the bar is hidden, writes a line to `out` instead.
pub fn show_or_write(bar: &ProgressBar, out: &mut dyn Write, text: String) -> io::Result<()> {
    if bar.is_hidden() {
        return writeln!(out, "{text}");
    }
    bar.set_message(text);
    Ok(())
}
