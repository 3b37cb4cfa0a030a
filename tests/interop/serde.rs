use cachescope::{AnyElement, Array, Complex, Device, DeviceConfig, Result};
use half::{bf16, f16};
use serde_json::{from_str, from_value, json, to_string, to_value};

#[test]
fn every_element_type_survives() -> Result<()> {
    fn survives<T>(elements: &[T]) -> Result<()>
    where
        T: AnyElement + serde::Serialize + serde::de::DeserializeOwned,
    {
        let array = Array::from_slice(elements, [elements.len(), 1])?;
        let text = to_string(&array).unwrap();
        assert_eq!(from_str::<Array<T>>(&text).unwrap(), array, "{text}");
        Ok(())
    }
    survives(&[0.1f32, -1e30])?;
    survives(&[Complex::new(0.1f32, -1e30)])?;
    survives(&[Complex::new(f64::MIN_POSITIVE, 0.1)])?;
    survives(&[0.1f64, f64::MIN_POSITIVE])?;
    survives(&[f16::MAX, f16::from_f32(0.1)])?;
    survives(&[bf16::MAX, bf16::from_f32(0.1)])?;
    survives(&[i8::MIN])?;
    survives(&[i16::MIN])?;
    survives(&[i32::MIN])?;
    survives(&[i64::MIN, i64::MAX])?;
    survives(&[u8::MAX])?;
    survives(&[u16::MAX])?;
    survives(&[u32::MAX])?;
    survives(&[u64::MAX])?;
    survives(&[true, false])
}

#[test]
fn an_array_is_its_shape_and_its_elements() -> Result<()> {
    let view = Array::arange(0, 6, 1)?.reshape([2, 3])?.transpose()?;
    let expected = json!({"shape": [3, 2], "data": [0, 3, 1, 4, 2, 5]});
    assert_eq!(to_value(&view).unwrap(), expected);
    let reversed = json!({"data": [0, 3, 1, 4, 2, 5], "shape": [3, 2]});
    assert_eq!(from_value::<Array<i32>>(reversed).unwrap(), view);
    let one = json!({"shape": [], "data": [7]});
    assert_eq!(from_value::<Array<u8>>(one).unwrap().item()?, 7);
    Ok(())
}

#[test]
fn it_is_read_on_the_current_device() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _guard = device.enter();
    let array: Array<u8> = from_str(r#"{"shape":[2],"data":[1,2]}"#).unwrap();
    assert_eq!(*array.device(), device);
    Ok(())
}

#[test]
fn what_is_no_array_is_an_error() {
    for (text, message) in [
        (
            r#"{"shape":[2,2],"data":[1,2,3]}"#,
            "3 elements are given, the shape [2, 2] has 4",
        ),
        (r#"{"shape":[1,1,1,1,1,1,1,1,1],"data":[1]}"#, "rank 9"),
        (
            r#"{"shape":[4294967296,4294967296],"data":[]}"#,
            "overflows",
        ),
        (r#"{"shape":[-1],"data":[]}"#, "invalid value"),
        (r#"{"shape":[1]}"#, "missing field `data`"),
        (
            r#"{"shape":[1],"data":[1],"more":1}"#,
            "unknown field `more`",
        ),
        (r#"{"shape":[1],"data":[300]}"#, "invalid value"),
        (r#"[1,2]"#, "invalid type"),
    ] {
        let error = from_str::<Array<u8>>(text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}
