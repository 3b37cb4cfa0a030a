//! Arrays in any format of serde, as `{ shape: [2, 3], data: [ … ] }`. The elements are in
//! row-major order.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::array::{AnyElement, Array};

/// The serialized form of an array.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Array", deny_unknown_fields)]
struct Stored<S, D> {
    shape: S,
    data: D,
}

/// Serializes an array as `{ shape, data }`, with the elements in row-major order. `f16` and `bf16`
/// are written as their bits, like the `half` crate does.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
///
/// let array = Array::<f32>::eye(2)?;
/// let text = serde_json::to_string(&array).unwrap();
/// assert_eq!(text, r#"{"shape":[2,2],"data":[1.0,0.0,0.0,1.0]}"#);
/// assert_eq!(serde_json::from_str::<Array<f32>>(&text).unwrap(), array);
/// # Ok::<(), cachescope::Error>(())
/// ```
impl<T: AnyElement + Serialize> Serialize for Array<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let data = self.to_vec().map_err(serde::ser::Error::custom)?;
        let shape = self.shape();
        Stored { shape, data }.serialize(serializer)
    }
}

/// Deserializes an array to [`Device::current`](crate::Device::current). Returns an error if the
/// shape is invalid or does not fit the number of elements.
impl<'de, T: AnyElement + Deserialize<'de>> Deserialize<'de> for Array<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Stored { shape, data } = Stored::<Vec<usize>, Vec<T>>::deserialize(deserializer)?;
        Self::from_vec(data, shape).map_err(D::Error::custom)
    }
}
