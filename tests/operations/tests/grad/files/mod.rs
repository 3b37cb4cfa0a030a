//! Parameters in files.

use std::fs;
use std::path::{Path, PathBuf};

use cachescope::grad::{MapArrays, Parameters, ZipArrays, files};
use cachescope::{Array, ErrorKind, Result};
use half::{bf16, f16};

#[cfg(feature = "safetensors")]
mod buffers;
#[cfg(feature = "safetensors")]
mod narrow;
mod npz;
mod random;
#[cfg(unix)]
mod replaced;
#[cfg(feature = "safetensors")]
mod safetensors;

/// The file endings of the formats in this build. The first format is in every build.
const ENDINGS: &[&str] = &[
    "npz",
    #[cfg(feature = "safetensors")]
    "safetensors",
];

/// The path of a temporary folder, which is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let unique = format!("cachescope-grad-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Creates a file with these bytes.
    fn holding(&self, file: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(file);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn files(&self) -> usize {
        fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Checks an error's kind, and that its text contains these words and the line of the call.
#[track_caller]
fn fails<T>(outcome: Result<T>, kind: ErrorKind, texts: &[&str]) {
    let error = outcome.err().expect("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    for expected in texts.iter().chain(&["tests/operations/tests/grad/files"]) {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
}

#[derive(Parameters)]
struct Layer {
    weight: Array<f32>,
    bias: Option<Array<f16>>,
}

/// A structure with every kind of nesting.
#[derive(Parameters)]
struct Network {
    layers: Vec<Layer>,
    r#type: Box<Array<f64>>,
    heads: (Array<f32>, [Array<f32>; 2]),
    last: Last,
    #[parameters(skip)]
    name: String,
}

#[derive(Parameters)]
struct Last(#[parameters(skip)] usize, Array<f32>);

/// The names of [`network`]'s arrays in PyTorch's convention.
const NAMES: [&str; 8] = [
    "layers.0.weight",
    "layers.0.bias",
    "layers.1.weight",
    "type",
    "heads.0",
    "heads.1.0",
    "heads.1.1",
    "last.1",
];

/// Returns a structure whose numbers start at `first`. If possible, its arrays are not contiguous.
fn network(first: f32) -> Result<Network> {
    let numbers =
        |count: usize| -> Result<Array<f32>> { Array::arange(first, first + count as f32, 1.0) };
    Ok(Network {
        layers: vec![
            Layer {
                weight: numbers(6)?.reshape([3, 2])?.transpose()?,
                bias: Some(numbers(2)?.cast::<f16>().eval()?),
            },
            Layer {
                weight: numbers(0)?.reshape([0, 2])?,
                bias: None,
            },
        ],
        r#type: Box::new(Array::full([], f64::from(first))?),
        heads: (numbers(1)?, [numbers(2)?, numbers(3)?.flip(0)?]),
        last: Last(7, numbers(1)?.broadcast_to([2, 1])?),
        name: "small".into(),
    })
}

/// A visitor that collects the names and the elements of arrays.
#[derive(Default)]
struct Listed {
    place: Vec<String>,
    names: Vec<String>,
    values: Vec<(Vec<usize>, Vec<f64>)>,
}

impl MapArrays for Listed {
    fn map<T: cachescope::Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.names.push(self.place.join("."));
        let values = array.to_vec()?.into_iter().map(T::to_f64).collect();
        self.values.push((array.shape().to_vec(), values));
        Ok(array.clone())
    }

    fn enter(&mut self, name: &dyn std::fmt::Display) {
        self.place.push(name.to_string());
    }

    fn leave(&mut self) {
        self.place.pop();
    }
}

impl ZipArrays for Listed {
    fn zip<T: cachescope::Float>(&mut self, _own: &mut Array<T>, _other: &Array<T>) -> Result<()> {
        self.names.push(self.place.join("."));
        Ok(())
    }

    fn enter(&mut self, name: &dyn std::fmt::Display) {
        self.place.push(name.to_string());
    }

    fn leave(&mut self) {
        self.place.pop();
    }
}

fn listed<P: Parameters>(parameters: &P) -> Result<Listed> {
    let mut listed = Listed::default();
    parameters.map_arrays(&mut listed)?;
    assert!(listed.place.is_empty(), "it left whatever it entered");
    Ok(listed)
}

/// Saves, overwrites and loads a structure with every kind of part.
#[track_caller]
fn round_trip(path: &Path) -> Result<()> {
    files::save(&network(1.0)?, path)?;
    files::save(&network(5.0)?, path)?;
    let mut like = network(0.0)?;
    like.name = "other".into();
    let loaded = files::load(&like, path)?;
    assert_eq!(listed(&loaded)?.values, listed(&network(5.0)?)?.values);
    assert_eq!((loaded.name.as_str(), loaded.last.0), ("other", 7));
    assert!(loaded.layers[1].bias.is_none());
    assert_eq!(*like.r#type, Array::full([], 0.0)?, "it is only read");
    Ok(())
}

#[test]
fn names_are_those_of_pytorch() -> Result<()> {
    assert_eq!(listed(&network(0.0)?)?.names, NAMES);
    let mut zipped = Listed::default();
    network(0.0)?.zip_arrays(&network(1.0)?, &mut zipped)?;
    assert_eq!(zipped.names, NAMES);
    assert!(zipped.place.is_empty());
    Ok(())
}

#[test]
fn the_extension_selects_the_format() -> Result<()> {
    let (scratch, array) = (Scratch::new("endings"), Array::<f32>::zeros(2)?);
    for name in ["model.pt", "model", ".npz", "npz", "model.npz.old"] {
        let path = scratch.path(name);
        fails(
            files::save(&array, &path),
            ErrorKind::InvalidArgument,
            &["save", name, ".safetensors"],
        );
        fails(
            files::load(&array, &path),
            ErrorKind::InvalidArgument,
            &["load", name, ".npz"],
        );
    }
    assert_eq!(scratch.files(), 0);
    Ok(())
}

/// A structure whose parts have no names.
#[derive(Clone)]
struct Nameless(Array<f32>, Array<f32>);

impl Parameters for Nameless {
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self> {
        Ok(Self(map.map(&self.0)?, map.map(&self.1)?))
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        zip.zip(&mut self.0, &other.0)?;
        zip.zip(&mut self.1, &other.1)
    }
}

/// Checks the errors that both formats have in common.
fn refusals(ending: &str) -> Result<()> {
    let scratch = Scratch::new(&format!("refusals{ending}"));
    let path = scratch.path(&format!("model{ending}"));
    let file = format!("model{ending}");
    let zeros = |shape: &[usize]| Array::<f32>::zeros(shape);
    files::save(&(zeros(&[2, 3])?, zeros(&[4])?), &path)?;
    let old = fs::read(&path).unwrap();

    // The array has another shape with an equal number of elements, another rank, or another type.
    let texts = [file.as_str(), "\"1\"", "4"];
    let like = (zeros(&[2, 3])?, zeros(&[2, 2])?);
    fails(files::load(&like, &path), ErrorKind::ShapeMismatch, &texts);
    let like = (zeros(&[2, 3])?, zeros(&[5])?);
    fails(files::load(&like, &path), ErrorKind::ShapeMismatch, &texts);
    let like = (zeros(&[2, 3])?, Array::<f64>::zeros([4])?);
    let texts = [file.as_str(), "\"1\"", "f64"];
    fails(
        files::load(&like, &path),
        ErrorKind::InvalidArgument,
        &texts,
    );

    // A name is missing in the file, in the structure, or in both.
    let like = (zeros(&[2, 3])?, zeros(&[4])?, zeros(&[1])?);
    let texts = [file.as_str(), "lacks \"2\""];
    fails(
        files::load(&like, &path),
        ErrorKind::InvalidArgument,
        &texts,
    );
    let texts = [file.as_str(), "has \"1\", which the structure lacks"];
    let like = (zeros(&[2, 3])?,);
    fails(
        files::load(&like, &path),
        ErrorKind::InvalidArgument,
        &texts,
    );
    let texts = [file.as_str(), "lacks \"array\"", "has \"0\", \"1\""];
    fails(
        files::load(&zeros(&[4])?, &path),
        ErrorKind::InvalidArgument,
        &texts,
    );

    // A failed save leaves the old file, and removes the temporary file.
    let nameless = Nameless(zeros(&[1])?, zeros(&[1])?);
    fails(
        files::save(&nameless, &path),
        ErrorKind::InvalidArgument,
        &[file.as_str(), "\"array\""],
    );
    assert_eq!(fs::read(&path).unwrap(), old);
    assert_eq!(scratch.files(), 1);
    let nowhere = scratch.path("nowhere").join(&file);
    fails(
        files::save(&zeros(&[1])?, &nowhere),
        ErrorKind::Io,
        &[&file],
    );
    fails(
        files::load(&zeros(&[1])?, &nowhere),
        ErrorKind::Io,
        &[&file],
    );

    // The path is a folder, which is detected after the temporary file is written. The temporary
    // file is removed.
    let folder = scratch.path(&format!("folder{ending}"));
    fs::create_dir(&folder).unwrap();
    fails(
        files::save(&zeros(&[1])?, &folder),
        ErrorKind::Io,
        &["folder"],
    );
    assert_eq!(scratch.files(), 2);
    Ok(())
}
