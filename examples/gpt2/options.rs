//! The command line.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::{Arg, Parser};
use shared::gpt2::Choice;

const HELP: &str = "\
Reads a published GPT-2, trains it further if that is requested, and continues a text.

Usage: gpt2 [OPTIONS]

Options:
  --model FOLDER     Folder of model.safetensors and config.json
                     [default: a random network of width 32 from the tests]
  --tokens 5,11,2    The text, as numbers of tokens
  --text TEXT        The text; needs vocab.json and merges.txt in the folder
  --count N          Tokens to write [default: 12]
  --temperature T    0 for the most likely token; otherwise tokens are drawn [default: 0]
  --top-k K          Draws from the K most likely tokens only
  --seed N           Seed of the drawing and of the order of training [default: 1]
  --train STEPS      Trains the network on the text first [default: 0]
  --save FILE        Writes the network in the published form, as .safetensors
  --dry-run          Prints the memory that networks of the published sizes need, and ends
  -h, --help         Prints this text";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) model: PathBuf,
    pub(crate) text: Text,
    pub(crate) count: usize,
    pub(crate) choice: Choice,
    pub(crate) seed: u64,
    pub(crate) steps: usize,
    pub(crate) save: Option<PathBuf>,
    pub(crate) is_dry: bool,
}

#[derive(Debug)]
pub(crate) enum Text {
    Tokens(Vec<i64>),
    Words(String),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            model: concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/reference/gpt2").into(),
            text: Text::Tokens(vec![5, 11, 2]),
            count: 12,
            choice: Choice {
                temperature: 0.0,
                top_k: None,
            },
            seed: 1,
            steps: 0,
            save: None,
            is_dry: false,
        }
    }
}

impl Options {
    /// Reads the command line. If the command line requests the help, prints it and returns `None`.
    pub(crate) fn parse() -> Result<Option<Self>, lexopt::Error> {
        let mut options = Self::default();
        let mut parser = Parser::from_env();
        while let Some(argument) = parser.next()? {
            let option = match argument {
                Arg::Short('h') => "help".to_owned(),
                Arg::Long(name) => name.to_owned(),
                unknown => return Err(unknown.unexpected()),
            };
            let mut read = || parser.value();
            match option.as_str() {
                "help" => {
                    println!("{HELP}");
                    return Ok(None);
                }
                "model" => options.model = read()?.into(),
                "tokens" => options.text = Text::Tokens(value(&option, read()?, tokens)?),
                "text" => options.text = Text::Words(value(&option, read()?, str::parse)?),
                "count" => options.count = value(&option, read()?, positive)?,
                "temperature" => {
                    options.choice.temperature = value(&option, read()?, temperature)?;
                }
                "top-k" => options.choice.top_k = Some(value(&option, read()?, positive)?),
                "seed" => options.seed = value(&option, read()?, str::parse)?,
                "train" => options.steps = value(&option, read()?, str::parse)?,
                "save" => options.save = Some(read()?.into()),
                "dry-run" => options.is_dry = true,
                _ => return Err(Arg::Long(&option).unexpected()),
            }
        }
        Ok(Some(options))
    }
}

/// Returns the value of an option, or an error that names the option.
fn value<T, E: Display>(
    option: &str,
    text: OsString,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, lexopt::Error> {
    let text = text.into_string()?;
    parse(&text).map_err(|error| format!("--{option} \"{text}\": {error}").into())
}

fn tokens(text: &str) -> Result<Vec<i64>, String> {
    let numbers = text.split(',').map(|number| i64::from_str(number.trim()));
    let numbers: Result<Vec<_>, _> = numbers.collect();
    numbers.map_err(|_| "expected whole numbers with commas between them".to_owned())
}

fn positive(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| "expected a whole number from 1 on".to_owned())
}

fn temperature(text: &str) -> Result<f32, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number: &f32| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number from 0 on".to_owned())
}
