//! Standard output.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::ExitFailure;

pub(crate) fn print_json(object: &impl Serialize) -> Result<(), ExitFailure> {
    let text = serde_json::to_string_pretty(object).expect("plain numbers and names are JSON");
    print(&text)
}

pub(crate) fn print(text: &str) -> Result<(), ExitFailure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(ExitFailure::Output)
}
