//! A self-contained HTML page that shows the memory of a recorded run.

mod columns;
mod data;
mod entries;
mod pending;
mod reserved;
#[cfg(test)]
mod tests;

use std::io::{Result, Write};

use crate::profile::Profile;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");

/// The JavaScript modules. Each module may use the modules before it.
const SCRIPTS: [&str; 12] = [
    include_str!("format.js"),
    include_str!("recording.js"),
    include_str!("bands.js"),
    include_str!("lanes.js"),
    include_str!("timeline.js"),
    include_str!("addresses.js"),
    include_str!("segments.js"),
    include_str!("sites.js"),
    include_str!("entry.js"),
    include_str!("growth.js"),
    include_str!("flame.js"),
    include_str!("page.js"),
];

/// Writes a page that shows `profile`. The page loads no other files, so a browser can open it from
/// disk.
///
/// ```
/// let profile = cachescope_reports::Profile::default();
/// let mut page = Vec::new();
/// cachescope_reports::page::write(&profile, &mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let page = write_until("/* style */", PAGE, out)?;
    out.write_all(STYLE.as_bytes())?;
    let page = write_until("/* recording */", page, out)?;
    data::write(profile, out)?;
    let page = write_until("/* scripts */", page, out)?;
    for script in SCRIPTS {
        out.write_all(script.as_bytes())?;
    }
    out.write_all(page.as_bytes())
}

/// Writes the text of `page` before `marker`. Returns the text after `marker`.
fn write_until<'a>(marker: &str, page: &'a str, out: &mut dyn Write) -> Result<&'a str> {
    let (before, after) = page
        .split_once(marker)
        .expect("page.html has each marker once");
    out.write_all(before.as_bytes())?;
    Ok(after)
}
