//! Reading a published network.

use std::fs;
use std::path::Path;

use cachescope::Array;
use cachescope::grad::files::SafetensorsReader;

use super::{Gpt2, Size};
use crate::failure::Failure;

/// The width of a head in all published sizes.
const HEAD_WIDTH: usize = 64;

impl Gpt2 {
    /// Reads `model.safetensors` in a folder, with its `config.json` if there is one.
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let heads = match fs::read(folder.join("config.json")) {
            Ok(text) => Some(heads(&text).map_err(|problem| {
                Failure::Input(format!(
                    "{}: {problem}",
                    folder.join("config.json").display()
                ))
            })?),
            Err(_) => None,
        };
        Self::read_file(&folder.join("model.safetensors"), heads)
    }

    /// Reads a file, whose names may begin with "transformer.". The shapes of its arrays are the
    /// sizes of the network. It does not state the number of heads: if that is not given, each head
    /// has a width of 64.
    pub fn read_file(path: &Path, heads: Option<usize>) -> Result<Self, Failure> {
        let mut file = SafetensorsReader::open(path)?;
        let prefix = match file.shape("transformer.wte.weight") {
            Some(_) => "transformer.",
            None => "",
        };
        let size = size(&file, prefix, heads)
            .map_err(|problem| Failure::Input(format!("{}: {problem}", path.display())))?;
        let network = Self::build(size, &mut |name, shape| {
            let name = format!("{prefix}{name}");
            check(&file, &name, shape)
                .map_err(|problem| Failure::Input(format!("{}: {problem}", path.display())))?;
            Ok::<_, Failure>(file.read(&name)?)
        })?;
        let head: Option<Array<f32>> = match file.shape("lm_head.weight") {
            Some(_) => Some(file.read("lm_head.weight")?),
            None => None,
        };
        if head.is_some_and(|head| head != network.wte.weight) {
            let problem =
                "\"lm_head.weight\" differs from \"wte.weight\", but GPT-2's head is tied";
            return Err(Failure::Input(format!("{}: {problem}", path.display())));
        }
        Ok(network)
    }
}

/// Returns the number of heads that a configuration states.
fn heads(text: &[u8]) -> Result<usize, String> {
    let config: serde_json::Value =
        serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let gelu = config["activation_function"].as_str().unwrap_or("gelu_new");
    if gelu != "gelu_new" {
        return Err(format!("the activation is {gelu:?}, expected \"gelu_new\""));
    }
    let heads = config["n_head"].as_u64().ok_or("no number \"n_head\"")?;
    usize::try_from(heads).map_err(|error| error.to_string())
}

fn size(file: &SafetensorsReader, prefix: &str, heads: Option<usize>) -> Result<Size, String> {
    let lengths = |name: &str| {
        let name = format!("{prefix}{name}");
        match file.shape(&name) {
            Some(&[rows, columns]) => Ok((rows, columns)),
            Some(shape) => Err(format!(
                "{name:?} has the shape {shape:?}, expected two axes"
            )),
            None => Err(format!("no array {name:?}")),
        }
    };
    let (vocabulary, width) = lengths("wte.weight")?;
    let (context, _) = lengths("wpe.weight")?;
    let is_layer = |layer: &usize| {
        file.shape(&format!("{prefix}h.{layer}.ln_1.weight"))
            .is_some()
    };
    let heads = heads.unwrap_or(width / HEAD_WIDTH);
    if heads == 0 || !width.is_multiple_of(heads) {
        return Err(format!(
            "a width of {width} does not divide into {heads} heads"
        ));
    }
    Ok(Size {
        vocabulary,
        context,
        width,
        heads,
        layers: (0..).take_while(is_layer).count(),
    })
}

/// Returns what is wrong with an array, if it does not have this shape.
fn check(file: &SafetensorsReader, name: &str, shape: &[usize]) -> Result<(), String> {
    match file.shape(name) {
        Some(found) if found == shape => Ok(()),
        Some(found) => Err(format!(
            "{name:?} has the shape {found:?}, expected {shape:?}"
        )),
        None => Err(format!("no array {name:?}")),
    }
}
