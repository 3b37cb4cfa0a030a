//! `cachescope view`: writes a report of a recorded program.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use cachescope_tools::record::{Format, Profile};
use cachescope_tools::trace::{ProfileOptions, profiles_with};
use clap::Args;

use crate::failure::ExitFailure;
use crate::output::print;
use crate::snapshot::{without_any, without_device};

/// Writes an HTML page of a recorded program, or another report.
///
/// Reads snapshots of PyTorch and of cachescope (.pickle), logs of RMM, and lifetimes or plans in
/// MiniMalloc's format.
#[derive(Debug, Args)]
pub(crate) struct ViewArguments {
    /// The recorded program
    input: PathBuf,

    /// The file to write; its extension selects the report: .html, .pickle, .json (Perfetto),
    /// .dhat, .folded, .svg or .txt [default: the input with the extension .html]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    selection: Selection,
}

/// The device to report, and the selection of lines.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// The device, if a snapshot has several [default: the device with the most events]
    #[arg(long, value_name = "N")]
    device: Option<usize>,

    /// A part of the paths of your own files, where `*` matches any text: an allocation is listed
    /// by its innermost frame in such a file [default: by the innermost frame with a line]
    #[arg(long, value_name = "PATTERN")]
    own: Option<String>,
}

pub(crate) fn run(options: &ViewArguments) -> Result<(), ExitFailure> {
    let default = || options.input.with_extension("html");
    let output = options.output.clone().unwrap_or_else(default);
    let format = Format::of(&output).ok_or_else(|| {
        let endings = Format::ENDINGS.join(", ");
        ExitFailure::Usage(format!(
            "{}: unknown ending, expected one of {endings}",
            output.display()
        ))
    })?;
    let profile = read(&options.input, &options.selection)?;
    let failed = ExitFailure::of_file(&output);
    let mut file = BufWriter::new(File::create(&output).map_err(failed)?);
    format
        .write(&profile, &mut file)
        .and_then(|()| file.flush())
        .map_err(failed)?;
    print(&format!("{}", output.display()))
}

/// Returns the profile of the selected device. By default, selects the device with the most events.
pub(crate) fn read(path: &Path, selection: &Selection) -> Result<Profile, ExitFailure> {
    let file = File::open(path).map_err(ExitFailure::of_file(path))?;
    let options = ProfileOptions {
        own_code: selection.own.clone(),
    };
    let profiles = profiles_with(path.display(), BufReader::new(file), &options)?;
    let Some(ordinal) = selection.device else {
        let most = profiles
            .into_iter()
            .max_by_key(|profile| profile.events.len());
        return most.ok_or_else(|| without_any(path));
    };
    let names: Vec<String> = profiles
        .iter()
        .map(|profile| profile.device.clone())
        .collect();
    let wanted = format!("cuda:{ordinal}");
    let found = profiles
        .into_iter()
        .find(|profile| profile.device == wanted);
    found.ok_or_else(|| without_device(path, ordinal, &names.join(", ")))
}
