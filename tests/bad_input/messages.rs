//! The complete text of error messages: the operation, the given values, and the expected values.

use cachescope::grad::nn::Embedding;
use cachescope::ndarray::s;
use cachescope::{
    Array, ConvOptions, Device, DeviceConfig, INFER, PadMode, Result, attention, concat, einsum,
    eval, meshgrid, select, stack, update,
};

use super::{ones, places};

/// Asserts that each call fails with exactly its text, before the line that `Display` appends.
macro_rules! says {
    ($($call:expr => $text:expr;)+) => {
        $(
            let error = Result::<_>::err($call).expect(stringify!($call));
            let text = error.to_string();
            let message = text.split_once(" at tests/").map_or(&*text, |(message, _)| message);
            assert_eq!(message, $text, "{}", stringify!($call));
            assert_eq!(error.location().map(|at| at.file()), Some(file!()), "{text}");
        )+
    };
}

#[test]
fn of_views_name_the_operation_and_the_shape() {
    let a = ones(&[2, 3]);
    let mut target = a.clone();
    let matrix = "the shape [2, 3]";
    says! {
        a.slice(s![..5, ..]) => format!("slice: the bound 5 is out of range for axis 0 of length 2 of {matrix}");
        a.slice(s![0..1, -4..]) => format!("slice: the bound -4 is out of range for axis 1 of length 3 of {matrix}");
        a.slice(s![0..1, 3]) => format!("slice: the index 3 is out of range for axis 1 of length 3 of {matrix}");
        a.slice(s![1]) => format!("slice: the selection names 1 axis, {matrix} has 2: write `..` for each axis to keep whole");
        a.slice(s![.., .., 0]) => format!("slice: the selection names 3 axes, {matrix} has 2: write one selection for each axis");
        target.slice_mut(s![.., 4..]).map(drop) => format!("slice_mut: the bound 4 is out of range for axis 1 of length 3 of {matrix}");
        a.permute(&[0, 0]) => format!("permute: the axes [0, 0] do not name each of the 2 axes of {matrix} once");
        a.swap_axes(0, 2) => format!("swap_axes: axis 2 is out of range for {matrix} of rank 2, expected -2 to 1");
        ones(&[]).flip(0) => "flip: axis 0 is out of range for the shape [] of rank 0";
        a.unsqueeze(4) => format!("unsqueeze: axis 4 is out of range for a new axis of {matrix}, expected -3 to 2");
        a.squeeze(0) => format!("squeeze: axis 0 of {matrix} has length 2, expected 1");
        a.split(2, 1) => format!("split: axis 1 of length 3 of {matrix} does not divide into 2 parts");
        a.broadcast_to([3, 3]) => format!("broadcast_to: {matrix} does not broadcast to [3, 3]");
        a.windows(&[4]) => format!("windows: a window of length 4 is longer than axis 1 of length 3 of {matrix}");
        a.windows(&[1, 1, 1]) => format!("windows: the 3 sizes [1, 1, 1] are more than the 2 axes of {matrix}");
        a.reshape([4, 2]) => format!("reshape: {matrix} of 6 elements does not reshape to [4, 2] of 8 elements");
        a.reshape([4, INFER]) => format!("reshape: {matrix} does not reshape to [4, INFER]: axis 1 has no length, because 6 elements do not divide by 4, the product of the other lengths");
        a.reshape([INFER, INFER]) => format!("reshape: {matrix} does not reshape to [INFER, INFER]: axes 0 and 1 are both INFER, expected at most one");
        ones(&[0, 3]).reshape([0, INFER]) => "reshape: the shape [0, 3] does not reshape to [0, INFER]: the length of axis 1 is ambiguous beside an axis of length 0";
        a.item() => format!("item: {matrix} has 6 elements, expected 1");
        meshgrid(&[&a]) => "meshgrid: array 0 has the shape [2, 3], expected a vector";
    }
}

#[test]
fn of_copies_name_the_operation_and_the_shapes() {
    let (a, b, v) = (ones(&[2, 3]), ones(&[2, 4]), ones(&[3]));
    let mut target = a.clone();
    let (low, column) = (places(&[0]), Array::<i64>::zeros([2, 1]).unwrap());
    let wide = b.gt(0.0).eval().unwrap();
    says! {
        a.take(&low, 3) => "take: axis 3 is out of range for the shape [2, 3] of rank 2, expected -2 to 1";
        a.gather(&low, 0) => "gather: the indices [1] do not fit the array [2, 3]: expected the same rank, and lengths that broadcast along all axes except 0";
        target.scatter_add(&column, &b, 1) => "scatter_add: the source [2, 4] does not broadcast to the shape [2, 1] of the indices [2, 1] for the array [2, 3]";
        concat(&[&a, &b], 0) => "concat: array 1 has the shape [2, 4], array 0 has [2, 3]: expected equal lengths along all axes except 0";
        concat(&[&a, &a], 2) => "concat: axis 2 is out of range for the shape [2, 3] of rank 2, expected -2 to 1";
        concat::<f32>(&[], 0) => "concat: the list of arrays is empty, expected at least one";
        stack(&[&a, &a, &b], 0) => "stack: array 2 has the shape [2, 4], array 0 has [2, 3]: expected equal shapes";
        stack(&[&a, &a], 4) => "stack: axis 4 is out of range for a new axis of the shape [2, 3], expected -3 to 2";
        a.roll(1, 2) => "roll: axis 2 is out of range for the shape [2, 3] of rank 2, expected -2 to 1";
        a.repeat(2, 2) => "repeat: axis 2 is out of range for the shape [2, 3] of rank 2, expected -2 to 1";
        a.pad(&[(1, 1)], 0.0) => "pad: the list of margins [(1, 1)] has length 1, expected 2, one for each axis of the shape [2, 3]";
        ones(&[2, 0]).pad_with(&[(0, 0), (1, 0)], PadMode::Edge) => "pad_with: axis 1 of length 0 of the shape [2, 0] has no elements for the margins [(0, 0), (1, 0)]";
        a.select_by(&wide) => "select_by: the mask [2, 4] does not fit the array [2, 3]: expected the lengths of its leading axes";
        target.masked_assign(&wide, 1.0) => "masked_assign: the mask [2, 4] does not broadcast to the array [2, 3]";
        a.topk(4, 1) => "topk: k is 4, expected at most 3, the length of axis 1 of the shape [2, 3]";
        a.searchsorted(&v) => "searchsorted: the sorted array has the shape [2, 3], expected one axis";
        a.quantile(1.5, 0) => "quantile: q is 1.5, expected a number from 0 to 1";
        v.tril(0) => "tril: the shape [3] has rank 1, expected at least two axes";
    }
}

#[test]
fn of_expressions_name_the_function_and_all_shapes() {
    let (a, b, v) = (ones(&[2, 3]), ones(&[2, 4]), ones(&[3]));
    let mut target = a.clone();
    let differ = "the shapes [2, 3] and [2, 4] do not broadcast: axis -1 has the lengths 3 and 4, expected equal lengths or 1";
    says! {
        (&a + &b).eval() => format!("add: {differ}");
        (&a * 2.0 * &b).sum() => format!("mul: {differ}");
        a.maximum(&b).eval() => format!("maximum: {differ}");
        a.lt(&b).eval() => format!("lt: {differ}");
        select(a.gt(0.0), 0.0, &b).eval() => format!("select: {differ}");
        a.clamp(ones(&[2, 1]), ones(&[4])).eval() => "clamp: the shapes [2, 3], [2, 1] and [4] do not broadcast: axis -1 has the lengths 3 and 4, expected equal lengths or 1";
        target.add_assign(&b) => format!("add: {differ}");
        target.assign(&b) => "assign: the value [2, 4] does not broadcast to the target [2, 3]";
        v.clone().assign(&a) => "assign: the value [2, 3] does not broadcast to the target [3]";
        target.slice_mut(s![0, ..]).unwrap().assign(&a) => "assign: the value [2, 3] does not broadcast to the target [3]";
    }
}

#[test]
fn of_products_and_layers_name_what_was_expected() {
    let (a, b, v) = (ones(&[2, 3]), ones(&[2, 4]), ones(&[3]));
    let (q, k) = (ones(&[2, 8, 64]), ones(&[2, 8, 32]));
    let (image, kernel) = (ones(&[1, 3, 5, 5]), ones(&[2, 4, 3, 3]));
    let plain = ConvOptions::default();
    says! {
        a.matmul(&b) => "matmul: the shapes [2, 3] and [2, 4] do not multiply: the left operand has 3 columns, the right operand has 2 rows";
        a.matmul(&ones(&[])) => "matmul: the shapes [2, 3] and [] do not multiply: expected at least one axis in each";
        ones(&[3, 2, 3]).matmul(&ones(&[2, 3, 4])) => "matmul: the shapes [3, 2, 3] and [2, 3, 4] do not multiply: the axes before the last two, [3] and [2], do not broadcast";
        v.dot(&ones(&[4])) => "dot: the shapes [3] and [4] do not multiply: expected vectors of equal length";
        a.outer(&v) => "outer: the shapes [2, 3] and [3] do not multiply: expected two vectors";
        einsum("ij,jk->ik", (&a, &b)) => "einsum: the letter j has length 3 in operand 0 of shape [2, 3] and length 2 in operand 1 of shape [2, 4]";
        einsum("ij", (&a, &b)) => "einsum: \"ij\" names 1 operand, expected 2";
        einsum("i,jk", (&a, &b)) => "einsum: \"i,jk\" names 1 axis of operand 0, which has the shape [2, 3] of rank 2";
        attention(&q, &k, &q, false) => "attention: q [2, 8, 64], k [2, 8, 32] and v [2, 8, 64] do not fit: the last axis of q has length 64, the last axis of k has length 32";
        attention(&q, &q, &k.slice(s![.., 1.., ..]).unwrap(), true) => "attention: q [2, 8, 64], k [2, 8, 64] and v [2, 7, 32] do not fit: axis -2 of k has length 8, axis -2 of v has length 7";
        image.conv2d(&kernel, plain) => "conv2d: input [1, 3, 5, 5] and kernel [2, 4, 3, 3] do not fit: the input has 3 channels, expected 1 group of 4";
        image.conv2d(&ones(&[2, 3, 7, 3]), plain) => "conv2d: input [1, 3, 5, 5] and kernel [2, 3, 7, 3] do not fit: the kernel spans 7 elements along axis 2, the padded input has 5";
        ones(&[1, 1, 4]).conv1d(&ones(&[1, 1, 5]), plain) => "conv1d: input [1, 1, 4] and kernel [1, 1, 5] do not fit: the kernel spans 5 elements along axis 2, the padded input has 4";
        a.conv2d(&kernel, plain) => "conv2d: input [2, 3] and kernel [2, 4, 3, 3] do not fit: expected 4 axes each, [N, C, H, W] and [O, C / groups, h, w]";
        a.cross_entropy(&places(&[0, 1, 2])) => "cross_entropy: logits [2, 3] and classes [3] do not fit, expected [N, C] and [N]";
        a.layer_norm(&v, &ones(&[2]), 1e-5) => "layer_norm: bias [2] does not fit x [2, 3]: expected a vector as long as the last axis of x";
    }
}

/// On a CUDA device, the kernel finds the bad indices, and a later call reports them.
#[test]
fn of_indices_out_of_range_name_the_axis_and_the_shape() {
    let a = ones(&[2, 3]);
    let words = Embedding::<f32>::new(5, 3).unwrap();
    says! {
        places(&[7]).bincount(3) => "bincount: the array of shape [1] has the number 7, expected numbers from 0 to 2";
        places(&[7]).one_hot::<f32>(3) => "one_hot: the class 7 in the array of shape [1] is out of range for 3 classes";
        a.take(&places(&[5]), 0) => "take: the index 5 is out of range for axis 0 of length 2 of the shape [2, 3]";
        a.cross_entropy(&places(&[0, 3])) => "cross_entropy: the class 3 is out of range for logits [2, 3] of 3 classes";
        words.forward(&places(&[0, 9])) => "embedding: take: the index 9 is out of range for axis 0 of length 5 of the shape [5, 3]";
    }
}

#[test]
fn of_two_devices_name_which_operand_is_where() -> Result<()> {
    let other = Device::host_with(DeviceConfig::default())?;
    let (a, v) = (ones(&[2, 3]), ones(&[3]));
    let (there, w) = (a.to_device(&other)?, v.to_device(&other)?);
    let mut target = a.clone();
    let (mask, row) = (a.gt(0.0).eval()?, Array::<i64>::zeros([1, 1])?);
    let (away, places) = (row.to_device(&other)?, places(&[0]).to_device(&other)?);
    let here = a.device().to_string();
    let place = match here == other.to_string() {
        true => "another host device",
        false => "host",
    };
    let ends = |one: &str, two: &str| {
        format!("{one} is on {here}, {two} on {place}: move one with `.to_device(&device)`")
    };
    let sides = ends("the left operand [2, 3]", "the right operand [2, 3]");
    says! {
        (&a + &there).eval() => format!("add: {sides}");
        (2.0 * &a - there.exp() * 2.0).sum() => format!("sub: {sides}");
        a.lt(&there).any() => format!("lt: {sides}");
        target.mul_assign(&there) => format!("mul: {sides}");
        select(&mask, &a, &there).eval() => format!("select: {}", ends("the first operand [2, 3]", "the third operand [2, 3]"));
        a.clamp(0.0, &w).eval() => format!("clamp: {}", ends("the first operand [2, 3]", "the third operand [3]"));
        eval((&a + 1.0, &w + 1.0)) => format!("eval: {}", ends("expression 0 [2, 3]", "expression 1 [3]"));
        target.assign(&there) => format!("assign: {}", ends("the target [2, 3]", "the value [2, 3]"));
        target.slice_mut(s![0, ..])?.assign(&w) => format!("assign: {}", ends("the target [3]", "the value [3]"));
        update((&mut target, &mut there.clone()), |(x, y)| (x, y)) => format!("update: {}", ends("target 0 [2, 3]", "target 1 [2, 3]"));
        target.masked_assign(&mask, &there) => format!("masked_assign: {}", ends("the array [2, 3]", "the value [2, 3]"));
        a.select_by(&mask.to_device(&other)?) => format!("select_by: {}", ends("the array [2, 3]", "the mask [2, 3]"));
        a.matmul(&there.transpose()?) => format!("matmul: {}", ends("the left operand [2, 3]", "the right operand [3, 2]"));
        v.dot(&w) => format!("dot: {}", ends("the left operand [3]", "the right operand [3]"));
        einsum("ij,j", (&a, &w)) => format!("einsum: {}", ends("operand 0 [2, 3]", "operand 1 [3]"));
        concat(&[&a, &a, &there], 0) => format!("concat: {}", ends("array 0 [2, 3]", "array 2 [2, 3]"));
        stack(&[&a, &there], 0) => format!("stack: {}", ends("array 0 [2, 3]", "array 1 [2, 3]"));
        a.take(&places, 0) => format!("take: {}", ends("the array [2, 3]", "the indices [1]"));
        a.gather(&away, 0) => format!("gather: {}", ends("the array [2, 3]", "the indices [1, 1]"));
        target.scatter(&row, &there, 0) => format!("scatter: {}", ends("the array [2, 3]", "the source [2, 3]"));
        v.searchsorted(&w) => format!("searchsorted: {}", ends("the sorted array [3]", "the values [3]"));
        attention(&a, &a, &there, false) => format!("attention: {}", ends("q [2, 3]", "v [2, 3]"));
        a.cross_entropy(&places) => format!("cross_entropy: {}", ends("the array of logits [2, 3]", "the classes [1]"));
        a.rms_norm(&w, 1e-5) => format!("rms_norm: {}", ends("x [2, 3]", "weight [3]"));
    }
    Ok(())
}
