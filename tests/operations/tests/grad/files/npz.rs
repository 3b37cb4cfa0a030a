//! Parameters in NumPy's archives.

use cachescope::npy::{NpzReader, NpzWriter};

use super::*;

#[test]
fn structures_survive() -> Result<()> {
    let scratch = Scratch::new("survive-npz");
    let path = scratch.path("model.npz");
    round_trip(&path)?;
    assert_eq!(NpzReader::open(&path)?.names(), NAMES);
    assert_eq!(scratch.files(), 1);
    Ok(())
}

#[test]
fn an_array_alone() -> Result<()> {
    let scratch = Scratch::new("alone-npz");
    let (path, array) = (scratch.path("model.NPZ"), Array::<f64>::eye(2)?);
    files::save(&Some(array.clone()), &path)?;
    assert_eq!(NpzReader::open(&path)?.names(), ["array"]);
    assert_eq!(files::load(&Array::<f64>::zeros([2, 2])?, &path)?, array);
    Ok(())
}

#[test]
fn what_differs_is_refused() -> Result<()> {
    refusals(".npz")
}

#[test]
fn bf16_is_refused() -> Result<()> {
    let scratch = Scratch::new("bf16");
    let path = scratch.path("model.npz");
    let arrays = (Array::<f32>::zeros(1)?, Array::<bf16>::zeros(1)?);
    let texts = ["model.npz", "\"1\"", "bf16", ".safetensors"];
    fails(files::save(&arrays, &path), ErrorKind::Unsupported, &texts);
    assert_eq!(scratch.files(), 0);
    fails(files::load(&arrays, &path), ErrorKind::Unsupported, &texts);
    Ok(())
}

#[test]
fn damaged_archives() -> Result<()> {
    let scratch = Scratch::new("damaged-npz");
    let array = Array::<f32>::ones([64])?;
    let path = scratch.path("model.npz");
    let mut writer = NpzWriter::create(&path)?;
    writer.write("array", &array)?;
    writer.finish()?;
    let whole = fs::read(&path).unwrap();
    assert_eq!(files::load(&array, &path)?, array);
    for end in 0..whole.len() {
        let path = scratch.holding("cut.npz", &whole[..end]);
        fails(
            files::load(&array, &path),
            ErrorKind::Io,
            &["load: ", "cut.npz"],
        );
    }
    let mut flipped = whole;
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let path = scratch.holding("flipped.npz", &flipped);
    fails(files::load(&array, &path), ErrorKind::Io, &["flipped.npz"]);
    Ok(())
}
