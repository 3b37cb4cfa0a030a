//! Hugging Face's format.

use cachescope::grad::files::SafetensorsReader;

use super::*;

/// Returns a file with this header, the header's length, and these bytes of elements.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), data].concat()
}

fn header_of(path: &Path) -> serde_json::Value {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    assert_eq!(length % 8, 0, "the first array is aligned");
    serde_json::from_slice(&bytes[8..8 + length]).unwrap()
}

#[test]
fn structures_survive() -> Result<()> {
    let scratch = Scratch::new("survive-safetensors");
    let path = scratch.path("model.safetensors");
    round_trip(&path)?;
    let header = header_of(&path);
    let mut names: Vec<&str> = header
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .filter(|name| *name != "__metadata__")
        .collect();
    names.sort_unstable();
    assert_eq!(header["__metadata__"]["format"], "pt");
    let mut expected = NAMES;
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(header["type"]["data_offsets"], serde_json::json!([0, 8]));
    assert_eq!(
        header["layers.1.weight"]["shape"],
        serde_json::json!([0, 2])
    );
    assert_eq!(scratch.files(), 1);
    Ok(())
}

#[test]
fn every_float_survives() -> Result<()> {
    let scratch = Scratch::new("floats");
    let path = scratch.path("model.safetensors");
    let arrays = (
        Array::from_slice(&[f16::MAX, f16::from_f32(0.1), f16::NEG_INFINITY], 3)?,
        Array::from_slice(&[bf16::MAX, bf16::from_f32(0.1)], [2, 1])?,
        Array::from_slice(&[0.1_f32, f32::MIN_POSITIVE], 2)?,
        Array::from_slice(&[0.1_f64, f64::MIN_POSITIVE], 2)?,
    );
    files::save(&arrays, &path)?;
    let header = header_of(&path);
    let types = ["0", "1", "2", "3"].map(|name| header[name]["dtype"].clone());
    assert_eq!(types, ["F16", "BF16", "F32", "F64"]);
    let like = (
        Array::zeros(3)?,
        Array::zeros([2, 1])?,
        Array::zeros(2)?,
        Array::zeros(2)?,
    );
    let loaded = files::load(&like, &path)?;
    assert_eq!(loaded, arrays);
    Ok(())
}

/// The file is longer than one buffer.
#[test]
fn large_arrays() -> Result<()> {
    let scratch = Scratch::new("large");
    let path = scratch.path("model.safetensors");
    let array = Array::arange(0.0_f32, 30_000.0, 1.0)?.reshape([100, 300])?;
    files::save(&array.transpose()?, &path)?;
    assert_eq!(
        files::load(&Array::zeros([300, 100])?, &path)?,
        array.transpose()?
    );
    Ok(())
}

/// Version 0.8.0 of the Python package `safetensors` wrote the file.
#[test]
fn files_of_python() -> Result<()> {
    #[derive(Parameters)]
    struct Written {
        layers: (Half, Brain),
        scale: Array<f64>,
    }
    #[derive(Parameters)]
    struct Half {
        weight: Array<f32>,
        bias: Array<f16>,
    }
    #[derive(Parameters)]
    struct Brain {
        weight: Array<bf16>,
    }
    let header = concat!(
        r#"{"__metadata__":{"format":"np"},"scale":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"#,
        r#""layers.0.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},"#,
        r#""layers.1.weight":{"dtype":"BF16","shape":[1,2],"data_offsets":[32,36]},"#,
        r#""layers.0.bias":{"dtype":"F16","shape":[2],"data_offsets":[36,40]}}       "#,
    );
    let data = b"\x9a\x99\x99\x99\x99\x99\xb9?\x00\x00\x80?\x00\x00\x00@\x00\x00@@\x00\x00\x80@\x00\x00\xa0@\x00\x00\xc0@\xc0? \xc0\x008\x00\xb8";
    let bytes = file(header, data);
    assert_eq!(bytes[..8], *b"0\x01\x00\x00\x00\x00\x00\x00");
    let scratch = Scratch::new("python");
    let path = scratch.holding("model.safetensors", &bytes);
    let like = Written {
        layers: (
            Half {
                weight: Array::zeros([2, 3])?,
                bias: Array::zeros(2)?,
            },
            Brain {
                weight: Array::zeros([1, 2])?,
            },
        ),
        scale: Array::zeros([])?,
    };
    let loaded = files::load(&like, &path)?;
    assert_eq!(loaded.scale.item()?, 0.1);
    let (first, second) = loaded.layers;
    assert_eq!(first.weight.to_vec()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(first.bias.to_vec()?, [0.5, -0.5].map(f16::from_f32));
    assert_eq!(second.weight.to_vec()?, [1.5, -2.5].map(bf16::from_f32));
    Ok(())
}

#[test]
fn what_differs_is_refused() -> Result<()> {
    refusals(".safetensors")
}

#[test]
fn a_name_of_the_format() -> Result<()> {
    #[derive(Parameters)]
    struct Named {
        __metadata__: Array<f32>,
    }
    let scratch = Scratch::new("metadata");
    let path = scratch.path("model.safetensors");
    let named = Named {
        __metadata__: Array::zeros(1)?,
    };
    fails(
        files::save(&named, &path),
        ErrorKind::InvalidArgument,
        &["\"__metadata__\""],
    );
    assert_eq!(scratch.files(), 0);
    Ok(())
}

#[test]
fn files_that_lie() -> Result<()> {
    let scratch = Scratch::new("lies");
    let like = (Array::<f32>::zeros(2)?, Array::<f32>::zeros(2)?);
    let entry = |shape: &str, from: u64, to: u64| {
        format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[{from},{to}]}}"#)
    };
    let both = |zero: String, one: String| format!(r#"{{"0":{zero},"1":{one}}}"#);
    let whole = both(entry("[2]", 0, 8), entry("[2]", 8, 16));
    let path = scratch.holding("whole.safetensors", &file(&whole, &[0; 16]));
    assert_eq!(files::load(&like, &path)?, like);

    let with_length = |length: u64| {
        let mut bytes = file(&whole, &[0; 16]);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    let max = u64::MAX;
    let cases: &[(&str, Vec<u8>)] = &[
        (
            "a header beyond the file",
            with_length(whole.len() as u64 + 17),
        ),
        ("a header of all lengths", with_length(max)),
        ("a header of most lengths", with_length(max - 7)),
        (
            "a header that is shorter",
            with_length(whole.len() as u64 - 1),
        ),
        ("no header", with_length(0)),
        ("no JSON", file("{\"0\": what", &[0; 16])),
        ("no text", [&4_u64.to_le_bytes()[..], &[0xff; 4]].concat()),
        ("JSON of a list", file("[1, 2]", &[0; 16])),
        ("lists without end", file(&"[".repeat(100_000), &[0; 16])),
        (
            "parts without end",
            file(&r#"{"0":"#.repeat(50_000), &[0; 16]),
        ),
        ("bytes after it", file(&whole, &[0; 17])),
        (
            "offsets beyond the data",
            file(&both(entry("[2]", 0, 8), entry("[4]", 8, 24)), &[0; 16]),
        ),
        (
            "offsets beyond everything",
            file(
                &both(entry("[2]", 0, 8), entry("[2]", max - 8, max)),
                &[0; 16],
            ),
        ),
        (
            "offsets that overlap",
            file(&both(entry("[2]", 0, 8), entry("[2]", 4, 12)), &[0; 12]),
        ),
        (
            "the same offsets",
            file(&both(entry("[2]", 0, 8), entry("[2]", 0, 8)), &[0; 8]),
        ),
        (
            "offsets with a gap",
            file(&both(entry("[2]", 0, 8), entry("[2]", 12, 20)), &[0; 20]),
        ),
        (
            "offsets that go back",
            file(&both(entry("[2]", 0, 8), entry("[2]", 16, 8)), &[0; 16]),
        ),
        (
            "a shape of fewer bytes",
            file(&both(entry("[2]", 0, 8), entry("[1]", 8, 16)), &[0; 16]),
        ),
        (
            "a shape of more bytes",
            file(
                &both(entry("[2]", 0, 8), entry("[1000000000000]", 8, 16)),
                &[0; 16],
            ),
        ),
        (
            "a shape of too many",
            file(
                &both(entry("[2]", 0, 8), entry("[4294967296, 4294967296]", 8, 16)),
                &[0; 16],
            ),
        ),
        (
            "a negative shape",
            file(&both(entry("[2]", 0, 8), entry("[-2]", 8, 16)), &[0; 16]),
        ),
        (
            "an unknown type",
            file(&whole.replacen("F32", "F31", 1), &[0; 16]),
        ),
        (
            "a name twice",
            file(&whole.replace("\"1\"", "\"0\""), &[0; 16]),
        ),
    ];
    for (case, bytes) in cases {
        let path = scratch.holding(&format!("{case}.safetensors"), bytes);
        fails(files::load(&like, &path), ErrorKind::Io, &[case]);
    }
    let bytes = file(&whole, &[0; 16]);
    for end in 0..bytes.len() {
        let path = scratch.holding("cut.safetensors", &bytes[..end]);
        fails(
            files::load(&like, &path),
            ErrorKind::Io,
            &["cut.safetensors"],
        );
    }
    Ok(())
}

#[test]
fn arrays_are_read_by_name_and_cast() -> Result<()> {
    let header = concat!(
        r#"{"f16":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"#,
        r#""bf16":{"dtype":"BF16","shape":[1,2],"data_offsets":[4,8]},"#,
        r#""f32":{"dtype":"F32","shape":[],"data_offsets":[8,12]},"#,
        r#""mask":{"dtype":"I32","shape":[1],"data_offsets":[12,16]},"#,
        r#""axes":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[16,20]}}"#,
    );
    let data = b"\x008\x00\xb8\xc0? \xc0\x00\x00\x80?\x01\x00\x00\x00\x00\x00\x00\x00";
    let scratch = Scratch::new("by-name");
    let path = scratch.holding("model.safetensors", &file(header, data));
    let mut reader = SafetensorsReader::open(&path)?;
    assert_eq!(reader.names(), ["f16", "bf16", "f32", "mask", "axes"]);
    assert_eq!(reader.shape("bf16"), Some(&[1, 2][..]));
    assert_eq!(reader.shape("else"), None);
    assert_eq!(reader.read::<f32>("f16")?.to_vec()?, [0.5, -0.5]);
    assert_eq!(reader.read::<f64>("bf16")?.to_vec()?, [1.5, -2.5]);
    let half = [1.5, -2.5].map(bf16::from_f32);
    assert_eq!(reader.read::<bf16>("bf16")?.to_vec()?, half);
    assert_eq!(reader.read::<f16>("f32")?.item()?, f16::ONE);
    let names = |name| [name, "model.safetensors"];
    let invalid = ErrorKind::InvalidArgument;
    fails(reader.read::<f32>("else"), invalid, &names("\"else\""));
    fails(
        reader.read::<f32>("mask"),
        invalid,
        &names("I32, expected floats"),
    );
    let error = reader.read::<f32>("axes").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidShape);
    assert!(error.to_string().contains("model.safetensors, \"axes\""));
    let cut = scratch.holding("cut.safetensors", &file(header, &data[..19]));
    fails(
        SafetensorsReader::open(cut),
        ErrorKind::Io,
        &["cut.safetensors"],
    );
    fails(
        SafetensorsReader::open(scratch.path("none")),
        ErrorKind::Io,
        &["none"],
    );
    Ok(())
}

/// A name occurs twice, in equal or different entries, or with an escaped letter.
#[test]
fn names_that_occur_twice_are_refused() {
    #[derive(Debug, Parameters)]
    struct Named {
        w: Array<f32>,
    }
    let scratch = Scratch::new("twice");
    let entry = |from: u64| {
        let to = from + 4;
        format!(r#"{{"dtype":"F32","shape":[1],"data_offsets":[{from},{to}]}}"#)
    };
    let (first, second) = (entry(0), entry(4));
    let headers = [
        (format!(r#"{{"w":{first},"w":{first}}}"#), 4),
        (format!(r#"{{"w":{first},"w":{second}}}"#), 8),
        (format!(r#"{{"w":{first},"b":{second},"w":{first}}}"#), 8),
        (format!(r#"{{"w":{first},"\u0077":{first}}}"#), 4),
        (
            format!(r#"{{"__metadata__":{{}},"w":{first},"w":{first}}}"#),
            4,
        ),
    ];
    for (header, bytes) in headers {
        let path = scratch.holding("model.safetensors", &file(&header, &vec![0; bytes]));
        let words = ["model.safetensors", "\"w\"", "twice"];
        fails(SafetensorsReader::open(&path), ErrorKind::Io, &words);
        let w = Array::zeros(1).unwrap();
        let like = Named { w };
        fails(files::load(&like, &path), ErrorKind::Io, &words);
    }
}
