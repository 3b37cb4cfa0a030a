//! The cases of a file, in the format of `make.py`.

use std::fs::File;
use std::path::Path;

use cachescope::ndarray::{Array1, SliceInfoElem};
use cachescope::{Array, Complex};
use half::{bf16, f16};
use ndarray_npy::NpzReader;
use serde_json::Value;

use crate::reference::stored::Stored;

/// The cases, and the elements of all arrays by type.
pub(crate) struct Book {
    pub(crate) name: String,
    /// The version of NumPy that computed the results.
    pub(crate) numpy: String,
    pub(crate) cases: Vec<Case>,
    pub(crate) elements: Elements,
}

/// The elements of all arrays of each type, one array after another.
#[derive(Default)]
pub(crate) struct Elements {
    pub(crate) f32: Vec<f32>,
    pub(crate) f64: Vec<f64>,
    pub(crate) f16: Vec<f16>,
    pub(crate) bf16: Vec<bf16>,
    pub(crate) i8: Vec<i8>,
    pub(crate) i16: Vec<i16>,
    pub(crate) i32: Vec<i32>,
    pub(crate) i64: Vec<i64>,
    pub(crate) u8: Vec<u8>,
    pub(crate) u16: Vec<u16>,
    pub(crate) u32: Vec<u32>,
    pub(crate) u64: Vec<u64>,
    pub(crate) bool: Vec<bool>,
    pub(crate) c32: Vec<Complex<f32>>,
    pub(crate) c64: Vec<Complex<f64>>,
}

/// One operation on given arrays, and its results.
pub(crate) struct Case {
    pub(crate) op: String,
    pub(crate) inputs: Vec<Place>,
    pub(crate) outputs: Vec<Place>,
    pub(crate) args: Vec<f64>,
    /// The tolerance for floats in units in the last place. `slack` is an absolute tolerance.
    pub(crate) ulps: u64,
    pub(crate) slack: f64,
    /// True if the signs of zeros are compared.
    pub(crate) zeros: bool,
}

/// The position of an array among the elements of its type.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) element: String,
    start: usize,
    shape: Vec<usize>,
    /// The steps that make a view of the array, each with a name and an argument.
    steps: Vec<(String, Value)>,
}

impl Book {
    pub(crate) fn read(name: &str) -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folder = tests.join("reference");
        let file = File::open(folder.join(format!("{name}.npz"))).unwrap();
        let mut file = NpzReader::new(file).unwrap();
        let text: Array1<u8> = file.by_name("cases").unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let (numpy, cases) = text.split_once('\n').unwrap();
        let mut elements = Elements::default();
        macro_rules! read {
            ($($type:ident)+) => {
                $(
                    // A file contains only the element types that it needs.
                    if let Ok(values) = file.by_name::<_, _>(stringify!($type)) {
                        let values: Array1<_> = values;
                        elements.$type = values.to_vec();
                    }
                )+
            };
        }
        read!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool c32 c64);
        // The reader of this format does not support 16-bit floats, so the files store their bits.
        let mut bits = |name: &str| -> Vec<u16> {
            let values = file.by_name(name);
            values
                .map(|values: Array1<u16>| values.to_vec())
                .unwrap_or_default()
        };
        elements.f16 = bits("f16").into_iter().map(f16::from_bits).collect();
        elements.bf16 = bits("bf16").into_iter().map(bf16::from_bits).collect();
        Self {
            name: name.to_owned(),
            numpy: numpy.to_owned(),
            cases: cases.lines().map(Case::parse).collect(),
            elements,
        }
    }

    /// Returns the elements of an array in row-major order, before the steps that make a view.
    pub(crate) fn slice<T: Stored>(&self, place: &Place) -> &[T] {
        assert_eq!(T::IN_FILES, place.element, "the type of {place:?}");
        let length: usize = place.shape.iter().product();
        &T::elements(&self.elements)[place.start..place.start + length]
    }

    /// Returns an array on the current device.
    pub(crate) fn array<T: Stored>(&self, place: &Place) -> Array<T> {
        let array = Array::from_slice(self.slice(place), &place.shape[..]).unwrap();
        let mut view = array;
        for (step, argument) in &place.steps {
            view = match step.as_str() {
                "permute" => view.permute(&lengths(argument)),
                "slice" => view.slice(selection(argument)),
                "flip" => view.flip(argument.as_i64().unwrap() as isize),
                "broadcast" => view.broadcast_to(lengths(argument)),
                other => panic!("no step {other}"),
            }
            .unwrap();
        }
        view
    }
}

impl Case {
    fn parse(line: &str) -> Self {
        let line: Value = serde_json::from_str(line).unwrap();
        let places = |name: &str| list(&line[name]).iter().map(Place::parse).collect();
        Self {
            op: text(&line["op"]),
            inputs: places("in"),
            outputs: places("out"),
            args: list(&line["args"]).iter().map(number).collect(),
            ulps: line["ulps"].as_u64().unwrap_or(0),
            slack: line["slack"].as_f64().unwrap_or(0.0),
            zeros: line["zeros"].as_bool().unwrap_or(true),
        }
    }
}

impl Place {
    fn parse(value: &Value) -> Self {
        let step = |step: &Value| (text(&step[0]), step[1].clone());
        Self {
            element: text(&value[0]),
            start: value[1].as_u64().unwrap() as usize,
            shape: lengths(&value[2]),
            steps: list(&value[3]).iter().map(step).collect(),
        }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }
}

/// Returns the elements of a JSON array, or no elements if the array is missing.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn lengths(value: &Value) -> Vec<usize> {
    let length = |value: &Value| value.as_u64().unwrap() as usize;
    list(value).iter().map(length).collect()
}

/// Returns a number. If JSON cannot express the number, it is given by a name.
fn number(value: &Value) -> f64 {
    let named = || value.as_str().unwrap().parse().unwrap();
    value.as_f64().unwrap_or_else(named)
}

/// Parses `[start, stop or null, step]` for each axis.
fn selection(value: &Value) -> Vec<SliceInfoElem> {
    let part = |part: &Value| SliceInfoElem::Slice {
        start: part[0].as_i64().unwrap() as isize,
        end: part[1].as_i64().map(|end| end as isize),
        step: part[2].as_i64().unwrap() as isize,
    };
    list(value).iter().map(part).collect()
}
