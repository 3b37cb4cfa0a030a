//! Reading a published network.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use cachescope::grad::files::SafetensorsReader;
use serde_json::{Value, json};

use super::{Gpt2, Size};
use crate::failure::Failure;

/// The width of a head in all published sizes.
const HEAD_WIDTH: usize = 64;

/// The name of the output projection. Some files contain it beside the tied embedding.
const HEAD: &str = "lm_head.weight";

impl Gpt2 {
    /// Reads `model.safetensors` in a folder, and `config.json` if it exists.
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let config = folder.join("config.json");
        let heads = match config.exists() {
            true => {
                let text = fs::read(&config).map_err(|error| of_file(&config, error))?;
                Some(heads(&text).map_err(|problem| of_file(&config, problem))?)
            }
            false => None,
        };
        Self::read_file(&folder.join("model.safetensors"), heads)
    }

    /// Reads a file whose array names may begin with "transformer.". The sizes of the network are
    /// read from the shapes of the arrays. The file does not state the number of heads. If `heads`
    /// is `None`, each head has a width of 64.
    pub fn read_file(path: &Path, heads: Option<usize>) -> Result<Self, Failure> {
        let mut file = SafetensorsReader::open(path)?;
        let prefix = match file.shape("transformer.wte.weight") {
            Some(_) => "transformer.",
            None => "",
        };
        let size = size(&file, prefix, heads).map_err(|problem| of_file(path, problem))?;
        let network = Self::build(size, &mut |name, shape| {
            let name = format!("{prefix}{name}");
            check(&file, &name, shape).map_err(|problem| of_file(path, problem))?;
            Ok::<_, Failure>(file.read(&name)?)
        })?;
        if file.shape(HEAD).is_some() && file.read::<f32>(HEAD)? != network.wte.weight {
            let problem = format!("{HEAD:?} differs from \"wte.weight\", but GPT-2's head is tied");
            return Err(of_file(path, problem));
        }
        Ok(network)
    }
}

fn of_file(path: &Path, problem: impl Display) -> Failure {
    Failure::Input(format!("{}: {problem}", path.display()))
}

/// Returns the number of heads that a configuration states. Returns an error if the configuration
/// sets an option that this code does not implement.
fn heads(text: &[u8]) -> Result<usize, String> {
    let config: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    for (name, expected) in [
        ("activation_function", json!("gelu_new")),
        ("layer_norm_epsilon", json!(1e-5)),
        ("scale_attn_by_inverse_layer_idx", json!(false)),
        ("scale_attn_weights", json!(true)),
    ] {
        let found = &config[name];
        if !found.is_null() && *found != expected {
            return Err(format!("{name:?} is {found}, expected {expected}"));
        }
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

/// Returns an error if the file has no array `name` of shape `shape`.
fn check(file: &SafetensorsReader, name: &str, shape: &[usize]) -> Result<(), String> {
    match file.shape(name) {
        Some(found) if found == shape => Ok(()),
        Some(found) => Err(format!(
            "{name:?} has the shape {found:?}, expected {shape:?}"
        )),
        None => Err(format!("no array {name:?}")),
    }
}
