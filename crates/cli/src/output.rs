//! Standard output.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::ExitFailure;

pub(crate) fn print_json(object: &impl Serialize) -> Result<(), ExitFailure> {
    let text =
        serde_json::to_string_pretty(object).expect("numbers and names can be written as JSON");
    print(&text)
}

pub(crate) fn print(text: &str) -> Result<(), ExitFailure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(ExitFailure::Output)
}
