use cachescope::ndarray::s;
use cachescope::{Array, Device, DeviceConfig, Element, Result};
use half::{bf16, f16};

/// Checks that the array prints as NumPy 2.4 prints the same elements.
#[track_caller]
fn prints<T: Element>(elements: &[T], shape: &[usize], expected: &str) -> Result<()> {
    let array = Array::from_slice(elements, shape)?;
    assert_eq!(array.to_string(), expected);
    Ok(())
}

#[test]
fn every_element_type_prints() -> Result<()> {
    fn printed<T: Element>() -> Result<String> {
        let array = Array::<T>::eye(2)?.to_device(&Device::host())?;
        Ok(format!("{array:?}"))
    }
    let whole = "array([[1, 0],\n       [0, 1]]";
    let float = "array([[1., 0.],\n       [0., 1.]]";
    let truth = "array([[ True, False],\n       [False,  True]]";
    for (text, matrix, name) in [
        (printed::<f32>()?, float, "f32"),
        (printed::<f64>()?, float, "f64"),
        (printed::<f16>()?, float, "f16"),
        (printed::<bf16>()?, float, "bf16"),
        (printed::<i8>()?, whole, "i8"),
        (printed::<i16>()?, whole, "i16"),
        (printed::<i32>()?, whole, "i32"),
        (printed::<i64>()?, whole, "i64"),
        (printed::<u8>()?, whole, "u8"),
        (printed::<u16>()?, whole, "u16"),
        (printed::<u32>()?, whole, "u32"),
        (printed::<u64>()?, whole, "u64"),
        (printed::<bool>()?, truth, "bool"),
    ] {
        let expected = format!("{matrix}, shape=[2, 2], dtype={name}, device=host)");
        assert_eq!(text, expected);
    }
    Ok(())
}

#[test]
fn brackets_nest_and_cells_align() -> Result<()> {
    assert_eq!(Array::<f32>::zeros([2, 0])?.to_string(), "[]");
    prints(&[-1, 10], &[2], "[-1 10]")?;
    prints(&[true], &[1], "[ True]")?;
    prints(&[true, false], &[2, 1], "[[ True]\n [False]]")?;
    let cube = Array::arange(0, 8, 1)?.reshape([2, 2, 2])?;
    assert_eq!(cube.to_string(), "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]");
    assert_eq!(
        cube.slice(s![.., 1, ..])?.transpose()?.to_string(),
        "[[2 6]\n [3 7]]"
    );
    Ok(())
}

#[test]
fn a_single_value_is_printed_in_full() -> Result<()> {
    prints(&[true], &[], "True")?;
    prints(&[-7], &[], "-7")?;
    for (value, expected) in [
        (2.5, "2.5"),
        (3.0, "3.0"),
        (-0.0, "-0.0"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e-4, "0.0001"),
        (9e-5, "9e-05"),
        (123456789.0, "123456789.0"),
        (1e16, "1e+16"),
        (1.5e300, "1.5e+300"),
        (f64::NAN, "nan"),
        (f64::NEG_INFINITY, "-inf"),
    ] {
        prints(&[value], &[], expected)?;
    }
    prints(&[1e6f32], &[], "1e+06")?;
    prints(&[123456789.0f32], &[], "1.2345679e+08")?;
    prints(&[f16::MAX], &[], "6.55e+04")?;
    let host = Array::full([], 3.0)?.to_device(&Device::host())?;
    assert_eq!(
        format!("{host:?}"),
        "array(3., shape=[], dtype=f64, device=host)"
    );
    Ok(())
}

#[test]
fn floats_take_the_notation_that_suits_them_all() -> Result<()> {
    let third = 1.0 / 3.0;
    prints(
        &[0.1f32, 1.0 / 3.0, 2.0 / 3.0],
        &[3],
        "[0.1        0.33333334 0.6666667 ]",
    )?;
    prints(&[0.0001234567891, 0.1], &[2], "[0.00012346 0.1       ]")?;
    prints(&[1.0, 999.9, -5.0], &[3], "[  1.  999.9  -5. ]")?;
    prints(&[-0.0, 0.0], &[2], "[-0.  0.]")?;
    prints(&[999_999.0f32, 1000.0], &[2], "[999999.   1000.]")?;
    // The numbers are far apart, large, or small.
    prints(&[1.0, 1000.1], &[2], "[1.0000e+00 1.0001e+03]")?;
    prints(&[1e6f32, 1.0], &[2], "[1.e+06 1.e+00]")?;
    prints(&[9e-5], &[1], "[9.e-05]")?;
    prints(&[1e-5, 1e100], &[2], "[1.e-005 1.e+100]")?;
    prints(
        &[1e-30, 0.1, 12345.678, f64::NAN, f64::INFINITY],
        &[5],
        "[1.0000000e-30 1.0000000e-01 1.2345678e+04           nan           inf]",
    )?;
    prints(&[f64::NAN, f64::NEG_INFINITY], &[2], "[ nan -inf]")?;
    let halves = [0.1, third, 100.0].map(f16::from_f64);
    prints(&halves, &[3], "[  0.1      0.3333 100.    ]")?;
    let halves = [0.1, third, 1000.0].map(f16::from_f64);
    prints(&halves, &[3], "[9.998e-02 3.333e-01 1.000e+03]")?;
    Ok(())
}

#[test]
fn a_precision_fixes_the_decimals_of_floats() -> Result<()> {
    assert_eq!(format!("{:.2}", Array::full(2, 0.125f32)?), "[0.12 0.12]");
    assert_eq!(
        format!("{:.1}", Array::full(2, f16::from_f32(2.25))?),
        "[2.2 2.2]"
    );
    let mixed = Array::from_vec(vec![1e-9, 2.25], 2)?;
    assert_eq!(format!("{mixed:.2}"), "[1.00e-09 2.25e+00]");
    assert_eq!(format!("{:.0}", Array::full(1, 2.25)?), "[2.]");
    assert_eq!(format!("{:.2}", Array::full([], 2.5)?), "2.50");
    assert_eq!(
        format!("{:.2}", Array::from_vec(vec![true, false], 2)?),
        "[ True False]"
    );
    assert_eq!(format!("{:.2}", Array::from_vec(vec![7u8], 1)?), "[7]");
    Ok(())
}

#[test]
fn long_rows_wrap() -> Result<()> {
    let thirds = (Array::arange(0.0, 14.0, 1.0)? / 3.0).eval()?;
    assert_eq!(
        thirds.to_string(),
        "[0.         0.33333333 0.66666667 1.         1.33333333 1.66666667\n \
          2.         2.33333333 2.66666667 3.         3.33333333 3.66666667\n \
          4.         4.33333333]"
    );
    let host = thirds.to_device(&Device::host())?;
    assert_eq!(
        format!("{host:?}"),
        "array([0.        , 0.33333333, 0.66666667, 1.        , 1.33333333,\n       \
                1.66666667, 2.        , 2.33333333, 2.66666667, 3.        ,\n       \
                3.33333333, 3.66666667, 4.        , 4.33333333],\n      \
                shape=[14], dtype=f64, device=host)"
    );
    Ok(())
}

#[test]
fn more_than_a_thousand_elements_show_their_edges() -> Result<()> {
    let row = |start: i32| {
        let cells = |range: std::ops::Range<i32>| {
            let cells: Vec<String> = range.map(|cell| format!("{cell:4}")).collect();
            cells.join(" ")
        };
        format!(
            "[{} ... {}]",
            cells(start..start + 3),
            cells(start + 37..start + 40)
        )
    };
    let matrix = Array::arange(0, 1600, 1)?.reshape([40, 40])?;
    let expected = format!(
        "[{}\n {}\n {}\n ...\n {}\n {}\n {}]",
        row(0),
        row(40),
        row(80),
        row(1480),
        row(1520),
        row(1560),
    );
    assert_eq!(matrix.to_string(), expected);
    // A short axis is printed in full, even if another axis is abbreviated.
    let tall = Array::arange(0, 1200, 1)?.reshape([600, 2])?;
    assert!(
        tall.to_string()
            .starts_with("[[   0    1]\n [   2    3]\n [   4    5]\n ...\n [1194")
    );
    let wide = tall.transpose()?;
    assert_eq!(
        wide.to_string(),
        "[[   0    2    4 ... 1194 1196 1198]\n [   1    3    5 ... 1195 1197 1199]]",
    );
    assert!(!Array::<u8>::zeros(1000)?.to_string().contains("..."));
    let flat = Array::arange(0, 1001, 1)?.to_device(&Device::host())?;
    assert_eq!(
        format!("{flat:?}"),
        "array([   0,    1,    2, ...,  998,  999, 1000],\n      shape=[1001], dtype=i32, device=host)"
    );
    assert_eq!(
        Array::<u8>::zeros([2; 8])?
            .broadcast_to([2; 8])?
            .to_string()
            .matches('0')
            .count(),
        256
    );
    Ok(())
}

#[test]
fn debug_neither_waits_nor_allocates() -> Result<()> {
    let device = Device::host_with(DeviceConfig {
        delay_streams: true,
        ..DeviceConfig::default()
    })?;
    let _current = device.enter();
    let stream = device.new_stream()?;
    let array = {
        let _on_stream = stream.enter();
        (Array::from_vec(vec![1.0f32, 2.0], 2)? + 1.0).eval()?
    };
    let before = device.memory_stats();
    for text in [format!("{array:?}"), format!("{:?}", array.flip(0)?)] {
        assert_eq!(text, "array(..., shape=[2], dtype=f32, device=host)");
    }
    assert_eq!(device.memory_stats(), before);
    assert_eq!(array.to_string(), "[2. 3.]");
    Ok(())
}
