//! The GPT-2 of the example, compared with Hugging Face's code: `tests/reference/gpt2.py`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use cachescope::grad::files::{self, SafetensorsReader};
use cachescope::grad::optim::AdamW;
use cachescope::grad::{value_and_grad, value_and_step};
use cachescope::npy::NpzReader;
use cachescope::{Array, Policy, Result, cache_scope, cache_stats, manual_seed};
use half::bf16;
use ndarray::s;
use safetensors::tensor::{Dtype, TensorView, serialize};
use shared::failure::Failure;
use shared::gpt2::{Choice, Gpt2, KeyValueCache, Size, Tokens};

const GREEDY: Choice = Choice {
    temperature: 0.0,
    top_k: None,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../reference/gpt2")
}

fn network() -> Gpt2 {
    Gpt2::read(&folder()).unwrap()
}

fn expected() -> NpzReader {
    NpzReader::open(folder().join("expected.npz")).unwrap()
}

/// Asserts that no element differs by more than `most`, relative to the largest element.
#[track_caller]
fn assert_close(own: &Array<f32>, expected: &Array<f32>, most: f32) {
    assert_eq!(own.shape(), expected.shape());
    let error = (own - expected).abs().max().unwrap().item().unwrap();
    let largest = expected.abs().max().unwrap().item().unwrap();
    assert!(
        error <= most * largest,
        "an error of {error} beside {largest}"
    );
}

#[test]
fn logits_loss_and_gradients_are_those_of_pytorch() -> Result<()> {
    let (network, mut expected) = (network(), expected());
    assert_eq!(
        network.size(),
        Size {
            vocabulary: 300,
            context: 16,
            width: 32,
            heads: 2,
            layers: 2
        }
    );
    let tokens = expected.read::<i64>("tokens")?;
    assert_close(&network.forward(&tokens)?, &expected.read("logits")?, 1e-5);
    let (loss, gradients) = value_and_grad(&network, |own| own.loss(&tokens))?;
    let (loss, theirs) = (loss.item()?, expected.read::<f32>("loss")?.item()?);
    assert!((loss - theirs).abs() < 1e-5, "{loss} and {theirs}");
    for (name, own) in [
        ("wte.weight", &gradients.wte.weight),
        ("wpe.weight", &gradients.wpe.weight),
        ("h.0.ln_1.weight", &gradients.h[0].ln_1.weight),
        ("h.0.attn.c_attn.weight", &gradients.h[0].attn.c_attn.weight),
        ("h.1.attn.c_proj.weight", &gradients.h[1].attn.c_proj.weight),
        ("h.1.mlp.c_fc.bias", &gradients.h[1].mlp.c_fc.bias),
        ("ln_f.bias", &gradients.ln_f.bias),
    ] {
        assert_close(own, &expected.read(&format!("{name}_gradient"))?, 1e-5);
    }
    Ok(())
}

#[test]
fn writes_the_tokens_of_generate() -> Result<()> {
    let mut expected = expected();
    let prompt = expected.read::<i64>("prompt")?.to_vec()?;
    let written = expected.read::<i64>("written")?.to_vec()?;
    let network = network();
    assert_eq!(network.generate(&prompt, 13, GREEDY)?, written);
    // If more tokens are requested than the context can hold, the text ends with the context.
    assert_eq!(network.generate(&prompt, 50, GREEDY)?, written);
    assert_eq!(network.generate(&prompt, 1, GREEDY)?, written[..1]);
    manual_seed(1);
    let best = Choice {
        temperature: 5.0,
        top_k: Some(1),
    };
    assert_eq!(network.generate(&prompt, 13, best)?, written);
    let random = Choice {
        temperature: 5.0,
        top_k: None,
    };
    assert_ne!(network.generate(&prompt, 13, random)?, written);
    Ok(())
}

#[test]
fn cached_scores_are_those_of_a_whole_pass() -> Result<()> {
    let network = network();
    let tokens = expected().read::<i64>("tokens")?;
    let whole = network.forward(&tokens)?;
    let mut cache = KeyValueCache::new(&network, 2, 16)?;
    let mut end = 0;
    // The second part of the text begins after earlier tokens, and has several tokens.
    for length in [3, 4, 1, 1, 7] {
        let part = tokens.slice(s![.., end..end + length])?;
        end += length;
        let scores = network.next(&part, &mut cache)?;
        assert_close(
            &scores,
            &whole.slice(s![.., end - 1, ..])?.to_uncached()?,
            1e-5,
        );
    }
    assert!(
        network
            .next(&tokens.slice(s![.., ..1])?, &mut cache)
            .is_err()
    );
    Ok(())
}

#[test]
fn memory_does_not_grow_between_tokens() -> Result<()> {
    let network = network();
    let mut cache = KeyValueCache::new(&network, 1, 16)?;
    let token = Array::<i64>::ones([1, 1])?;
    let mut after = Vec::new();
    for _ in 0..16 {
        cache_scope!("gpt2 token", policy = Policy::Plan, {
            network.next(&token, &mut cache)?;
        });
        let stats = cache_stats("gpt2 token").unwrap();
        after.push((stats.misses, stats.cached_bytes, stats.peak_live_bytes));
    }
    assert_eq!(after[3], after[15], "{after:?}");
    Ok(())
}

#[test]
fn trains_further_and_is_written_as_published() -> Result<()> {
    let mut network = network();
    let tokens = expected().read::<i64>("tokens")?;
    let mut optimizer = AdamW::new(0.01);
    let before = network.loss(&tokens)?.item()?;
    for _ in 0..20 {
        value_and_step(&mut network, &mut optimizer, |own| own.loss(&tokens))?;
    }
    let loss = network.loss(&tokens)?.item()?;
    assert!(loss < 0.1 * before, "from {before} to {loss}");
    let path = env::temp_dir().join(format!("cachescope-gpt2-{}.safetensors", process::id()));
    files::save(&network, &path)?;
    let again = Gpt2::read_file(&path, Some(2)).unwrap();
    let sorted = |path: &Path| {
        let mut names = SafetensorsReader::open(path)?.names();
        names.sort();
        Result::Ok(names)
    };
    assert_eq!(sorted(&path)?, sorted(&folder().join("model.safetensors"))?);
    fs::remove_file(path).unwrap();
    assert_eq!(again.loss(&tokens)?, network.loss(&tokens)?);
    Ok(())
}

/// Writes a file with the network's arrays in `bf16`, which `change` modifies, and reads the file.
fn read_changed(
    name: &str,
    change: impl FnOnce(&mut HashMap<String, (Vec<usize>, Vec<f32>)>),
) -> std::result::Result<Gpt2, String> {
    let mut file = SafetensorsReader::open(folder().join("model.safetensors")).unwrap();
    let mut arrays = HashMap::new();
    for name in file.names() {
        let array = file.read::<f32>(&name).unwrap();
        let key = format!("transformer.{name}");
        arrays.insert(key, (array.shape().to_vec(), array.to_vec().unwrap()));
    }
    change(&mut arrays);
    let bytes: HashMap<&String, Vec<u8>> = arrays
        .iter()
        .map(|(name, (_, values))| {
            let values = values.iter().map(|&value| bf16::from_f32(value));
            (name, values.flat_map(bf16::to_le_bytes).collect())
        })
        .collect();
    let views = arrays.iter().map(|(name, (shape, _))| {
        (
            name,
            TensorView::new(Dtype::BF16, shape.clone(), &bytes[name]).unwrap(),
        )
    });
    let path = env::temp_dir().join(format!("cachescope-{}-{name}.safetensors", process::id()));
    fs::write(&path, serialize(views, None).unwrap()).unwrap();
    let read = Gpt2::read_file(&path, Some(2));
    fs::remove_file(path).unwrap();
    read.map_err(|failure| {
        assert!(matches!(failure, Failure::Input(_)));
        failure.to_string()
    })
}

#[test]
fn reads_bf16_with_a_prefix_a_head_and_masks() -> Result<()> {
    let network = read_changed("whole", |arrays| {
        let head = arrays["transformer.wte.weight"].clone();
        arrays.insert("lm_head.weight".into(), head);
        arrays.insert(
            "transformer.h.0.attn.bias".into(),
            (vec![1, 1, 16, 16], vec![1.0; 256]),
        );
        arrays.insert(
            "transformer.h.0.attn.masked_bias".into(),
            (vec![], vec![-1e4]),
        );
    })
    .unwrap();
    let mut expected = expected();
    let logits = network.forward(&expected.read::<i64>("tokens")?)?;
    assert_close(&logits, &expected.read("logits")?, 0.05);
    Ok(())
}

#[test]
fn errors_name_the_array() {
    let missing = read_changed("missing", |arrays| {
        arrays.remove("transformer.h.1.mlp.c_fc.bias");
    });
    let error = missing.unwrap_err();
    assert!(
        error.ends_with("no array \"transformer.h.1.mlp.c_fc.bias\""),
        "{error}"
    );
    let shape = read_changed("shape", |arrays| {
        arrays.insert("transformer.ln_f.weight".into(), (vec![31], vec![0.0; 31]));
    });
    let error = shape.unwrap_err();
    let end = "\"transformer.ln_f.weight\" has the shape [31], expected [32]";
    assert!(error.ends_with(end), "{error}");
    let head = read_changed("head", |arrays| {
        arrays.insert("lm_head.weight".into(), (vec![300, 32], vec![0.0; 9600]));
    });
    assert!(head.unwrap_err().contains("\"lm_head.weight\" differs"));
    // The width of 32 is not a multiple of 64, so the number of heads must be given.
    let path = folder().join("model.safetensors");
    let error = Gpt2::read_file(&path, None).unwrap_err().to_string();
    assert!(
        error.ends_with("a width of 32 does not divide into 0 heads"),
        "{error}"
    );
}

#[test]
fn another_architecture_is_an_error() {
    let other = env::temp_dir().join(format!("cachescope-gpt2-{}", process::id()));
    fs::create_dir_all(&other).unwrap();
    let config = fs::read_to_string(folder().join("config.json")).unwrap();
    fs::write(
        other.join("config.json"),
        config.replace("gelu_new", "relu"),
    )
    .unwrap();
    let error = Gpt2::read(&other).unwrap_err().to_string();
    fs::remove_dir_all(other).unwrap();
    let end = "\"activation_function\" is \"relu\", expected \"gelu_new\"";
    assert!(error.ends_with(end), "{error}");
}

#[test]
fn texts_have_the_tokens_of_hugging_face() {
    let tokens = Tokens::read(&folder()).unwrap();
    let texts = fs::read(folder().join("texts.json")).unwrap();
    let texts: Vec<(String, Vec<i64>)> = serde_json::from_slice(&texts).unwrap();
    assert!(texts.len() > 5);
    for (text, expected) in texts {
        assert_eq!(tokens.encode(&text).unwrap(), expected, "{text:?}");
        assert_eq!(tokens.decode(&expected), text);
    }
}
