use cachescope::ndarray::s;
use cachescope::{Array, Device, Element, Result};
use half::{bf16, f16};

#[test]
fn every_element_type_prints() -> Result<()> {
    fn printed<T: Element>() -> Result<String> {
        let array = Array::<T>::eye(2)?.to_device(&Device::host())?;
        Ok(format!("{array:?}"))
    }
    let whole = "[[1, 0],\n [0, 1]]";
    let float = "[[1.0, 0.0],\n [0.0, 1.0]]";
    assert_eq!(
        printed::<f32>()?,
        format!("{float}, f32, shape [2, 2] on host")
    );
    assert_eq!(
        printed::<f64>()?,
        format!("{float}, f64, shape [2, 2] on host")
    );
    assert_eq!(
        printed::<f16>()?,
        format!("{float}, f16, shape [2, 2] on host")
    );
    assert_eq!(
        printed::<bf16>()?,
        format!("{float}, bf16, shape [2, 2] on host")
    );
    assert_eq!(
        printed::<i8>()?,
        format!("{whole}, i8, shape [2, 2] on host")
    );
    assert_eq!(
        printed::<i16>()?,
        format!("{whole}, i16, shape [2, 2] on host")
    );
    assert_eq!(
        printed::<i32>()?,
        format!("{whole}, i32, shape [2, 2] on host")
    );
    assert_eq!(
        printed::<i64>()?,
        format!("{whole}, i64, shape [2, 2] on host")
    );
    assert_eq!(
        printed::<u8>()?,
        format!("{whole}, u8, shape [2, 2] on host")
    );
    assert_eq!(
        printed::<u16>()?,
        format!("{whole}, u16, shape [2, 2] on host")
    );
    assert_eq!(
        printed::<u32>()?,
        format!("{whole}, u32, shape [2, 2] on host")
    );
    assert_eq!(
        printed::<u64>()?,
        format!("{whole}, u64, shape [2, 2] on host")
    );
    let truth = "[[ true, false],\n [false,  true]]";
    assert_eq!(
        printed::<bool>()?,
        format!("{truth}, bool, shape [2, 2] on host")
    );
    Ok(())
}

#[test]
fn brackets_nest_and_cells_align() -> Result<()> {
    assert_eq!(Array::full([], 2.5f32)?.to_string(), "2.5");
    assert_eq!(Array::<f32>::zeros([2, 0])?.to_string(), "[]");
    assert_eq!(Array::from_vec(vec![-1, 10], 2)?.to_string(), "[-1, 10]");
    let cube = Array::arange(0, 8, 1)?.reshape([2, 2, 2])?;
    assert_eq!(
        cube.to_string(),
        "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]"
    );
    assert_eq!(
        cube.slice(s![.., 1, ..])?.transpose()?.to_string(),
        "[[2, 6],\n [3, 7]]"
    );
    Ok(())
}

#[test]
fn floats_keep_their_digits_unless_told_otherwise() -> Result<()> {
    let array = Array::from_vec(vec![1e-30f64, 0.1, 12345.678, f64::NAN, f64::INFINITY], 5)?;
    assert_eq!(
        array.to_string(),
        "[    1e-30,       0.1, 12345.678,       NaN,       inf]"
    );
    assert_eq!(format!("{:.2}", Array::full(2, 0.125f32)?), "[0.12, 0.12]");
    assert_eq!(
        format!("{:.1}", Array::full(2, f16::from_f32(2.25))?),
        "[2.2, 2.2]"
    );
    assert_eq!(
        format!("{:.2}", Array::from_vec(vec![true, false], 2)?),
        "[ true, false]"
    );
    assert_eq!(format!("{:.2}", Array::from_vec(vec![7u8], 1)?), "[7]");
    Ok(())
}

#[test]
fn more_than_a_thousand_elements_show_their_edges() -> Result<()> {
    let row = |start: i32| {
        let cells = |range: std::ops::Range<i32>| {
            let cells: Vec<String> = range.map(|cell| format!("{cell:4}")).collect();
            cells.join(", ")
        };
        format!(
            "[{}, …, {}]",
            cells(start..start + 3),
            cells(start + 37..start + 40)
        )
    };
    let matrix = Array::arange(0, 1600, 1)?.reshape([40, 40])?;
    let expected = format!(
        "[{},\n {},\n {},\n …,\n {},\n {},\n {}]",
        row(0),
        row(40),
        row(80),
        row(1480),
        row(1520),
        row(1560),
    );
    assert_eq!(matrix.to_string(), expected);
    // A short axis is shown whole, beside one that is not.
    let tall = Array::arange(0, 1200, 1)?.reshape([600, 2])?;
    assert!(
        tall.to_string()
            .starts_with("[[   0,    1],\n [   2,    3],\n [   4,    5],\n …,\n [1194")
    );
    let wide = tall.transpose()?;
    assert_eq!(
        wide.to_string(),
        "[[   0,    2,    4, …, 1194, 1196, 1198],\n [   1,    3,    5, …, 1195, 1197, 1199]]",
    );
    assert!(!Array::<u8>::zeros(1000)?.to_string().contains('…'));
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
