use cachescope::__private::{Arguments, Function};
use cachescope::ndarray::s;
use cachescope::{Array, DeviceConfig, ErrorKind, Result, elementwise, select};
use half::{bf16, f16};
use under_test::device_with;

elementwise! {
    /// Returns x · tanh(ln(1 + eˣ)).
    fn mish(x: f32) -> f32 {
        x * (1.0 + x.exp()).ln().tanh()
    }

    fn mish_of_doubles(x: f64) -> f64 {
        x * (1.0 + x.exp()).ln().tanh()
    }

    fn mish_of_halves(x: half::f16) -> half::f16 {
        x * (1f32 as half::f16 + x.exp()).ln().tanh()
    }

    fn mish_of_brains(x: bf16) -> bf16 {
        let one: bf16 = 1 as bf16;
        x * (one + x.exp()).ln().tanh()
    }

    fn leaky(x: f32, slope: f32) -> f32 {
        if x < 0.0 { x * slope } else { x }
    }

    fn wave(x: f32) -> f32 {
        (x * x).sin() + mish(x)
    }

    fn weighed(kind: bool, count: i32, x: f32, y: f64) -> f64 {
        let n = count as f64;
        if kind { x as f64 * n } else { y / n }
    }
}

/// Returns the CUDA source of the function.
fn text<Args: Arguments, F: Function<Args>>() -> &'static str {
    F::CUDA
}

/// Returns values of every kind.
fn values() -> Vec<f32> {
    let inner = (-50..50).map(|at| at as f32 * 0.37);
    let special = [
        0.0,
        -0.0,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        1e-40,
        1e10,
    ];
    inner.chain(special).collect()
}

/// Returns the bits of the elements, so that NaN equals itself.
fn bits(array: &Array<f32>) -> Result<Vec<u32>> {
    Ok(array.to_vec()?.into_iter().map(f32::to_bits).collect())
}

#[test]
fn a_function_gives_the_bits_of_the_same_built_in_ones() -> Result<()> {
    let values = values();
    let x = Array::from_slice(&values, values.len())?;
    let expected = (&x * (1.0 + x.exp()).ln().tanh()).eval()?;
    assert_eq!(bits(&mish(&x).eval()?)?, bits(&expected)?);
    let expected = ((&x * &x).sin() + &expected).eval()?;
    assert_eq!(
        bits(&wave(&x).eval()?)?,
        bits(&expected)?,
        "with rare elements"
    );
    let expected = select(x.lt(0.0), &x * 0.1, &x).eval()?;
    assert_eq!(bits(&leaky(&x, 0.1).eval()?)?, bits(&expected)?);
    Ok(())
}

/// Checks that each function `x.name(…)` equals the built-in function `name`, or the second named
/// function.
macro_rules! same_as_built_in {
    ($x:ident: $name:ident($($more:literal),*)) => { same_as_built_in!($x: $name $name($($more),*)) };
    ($x:ident: $name:ident $of:ident($($more:literal),*)) => {{
        elementwise! {
            fn written(x: f32) -> f32 { x.$name($($more),*) }
        }
        let (found, expected) = (written(&$x).eval()?, $x.$of($($more),*).eval()?);
        assert_eq!(bits(&found)?, bits(&expected)?, stringify!($name));
    }};
}

/// Checks that each function `x.name(…)` equals the built-in test `name`.
macro_rules! same_test_as_built_in {
    ($x:ident: $name:ident($($more:literal),*)) => {{
        elementwise! {
            fn written(x: f32) -> bool { x.$name($($more),*) }
        }
        let (found, expected) = (written(&$x).eval()?, $x.lazy().$name($($more),*).eval()?);
        assert_eq!(found, expected, stringify!($name));
    }};
}

/// The callback of `functions!`: checks each row, with operands of any kind, under all of its
/// names.
macro_rules! known {
    ($lane:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as [$($alias:ident)+])? { $($body:tt)+ }
    )+) => {
        #[test]
        fn every_known_function_is_the_built_in_one() -> Result<()> {
            let values = values();
            let x = Array::from_slice(&values, values.len())?;
            $(
                known! { @row $kind x $name $arguments }
                $($(known! { @alias x $alias $name $arguments })+)?
            )+
            Ok(())
        }
    };
    (@row bits $x:ident $name:ident $arguments:tt) => {}; // These rows are not for floats.
    (@row integer $x:ident $name:ident $arguments:tt) => {};
    (@row test $x:ident $name:ident $arguments:tt) => { same_test_as_built_in!($x: $name()) };
    (@row equality $($row:tt)+) => { known! { @row compare $($row)+ } };
    (@row compare $x:ident $name:ident $arguments:tt) => { same_test_as_built_in!($x: $name(0.37)) };
    (@row $kind:ident $x:ident $name:ident ($a:ident)) => { same_as_built_in!($x: $name()) };
    (@row $kind:ident $x:ident $name:ident ($a:ident, $b:ident)) => { same_as_built_in!($x: $name(0.25)) };
    (@row $kind:ident $x:ident $name:ident ($a:ident, $b:ident: i32)) => { same_as_built_in!($x: $name(3)) };
    (@row $kind:ident $x:ident $name:ident ($a:ident, $b:ident, $c:ident)) => { same_as_built_in!($x: $name(-1.5, 2.0)) };
    (@alias $x:ident $alias:ident $name:ident ($a:ident)) => { same_as_built_in!($x: $alias $name()) };
    (@alias $x:ident $alias:ident $name:ident ($a:ident, $b:ident)) => { same_as_built_in!($x: $alias $name(0.25)) };
}

cachescope::functions! { known }

#[test]
fn functions_of_bits_are_the_built_in_ones() -> Result<()> {
    elementwise! {
        fn both(x: i32, y: i32) -> i32 { x.and(6).or(y) }
        fn neither(x: i32) -> i32 { x.not() }
    }
    let x = Array::from_slice(&[5, -7, i32::MIN, 0], 4)?;
    assert_eq!(both(&x, 1).eval()?, (x.and(6).or(1)).eval()?);
    assert_eq!(neither(&x).eval()?, x.not().eval()?);
    Ok(())
}

#[test]
fn every_float_type_rounds_as_its_operations_do() -> Result<()> {
    let values = values();
    let x = Array::from_slice(&values, values.len())?;
    let wide = x.cast::<f64>().eval()?;
    let expected = (&wide * (1.0 + wide.exp()).ln().tanh()).eval()?;
    let bits = |array: &Array<f64>| -> Result<Vec<u64>> {
        Ok(array.to_vec()?.into_iter().map(f64::to_bits).collect())
    };
    assert_eq!(bits(&mish_of_doubles(&wide).eval()?)?, bits(&expected)?);
    let halves = x.cast::<f16>().eval()?;
    let expected = &halves * (f16::ONE + halves.exp()).ln().tanh();
    let found = mish_of_halves(&halves).cast::<f32>().eval()?;
    assert_eq!(
        self::bits(&found)?,
        self::bits(&expected.cast::<f32>().eval()?)?
    );
    let brains = x.cast::<bf16>().eval()?;
    let expected = &brains * (bf16::ONE + brains.exp()).ln().tanh();
    let found = mish_of_brains(&brains).cast::<f32>().eval()?;
    assert_eq!(
        self::bits(&found)?,
        self::bits(&expected.cast::<f32>().eval()?)?
    );
    Ok(())
}

#[test]
fn a_function_fuses_with_what_is_around_it() -> Result<()> {
    let device = device_with(DeviceConfig::default())?;
    let _guard = device.enter();
    let x = Array::<f32>::linspace(-1.0, 1.0, 1000)?;
    let scope = device.scope("fused").enter();
    let y = (leaky(mish(&x * 2.0) + 1.0, 0.5) * wave(&x)).eval()?;
    let total = mish(&x).sum()?;
    drop(scope);
    let stats = device.cache_stats("fused").expect("the scope was entered");
    assert_eq!(stats.hits + stats.misses, 2, "one for each result");
    let two = (&x * 2.0).eval()?;
    let one = (mish(&two).eval()? + 1.0).eval()?;
    let expected = (leaky(&one, 0.5).eval()? * wave(&x).eval()?).eval()?;
    assert_eq!(y, expected);
    assert_eq!(total, mish(&x).eval()?.sum()?);
    Ok(())
}

#[test]
fn a_function_takes_views_values_and_expressions() -> Result<()> {
    let table = Array::<f32>::linspace(-3.0, 3.0, 12)?.reshape([3, 4])?;
    let whole = mish(&table).eval()?;
    let view = table.slice(s![..;-2, 1..])?.transpose()?;
    let expected = whole.slice(s![..;-2, 1..])?.transpose()?;
    assert_eq!(mish(&view).eval()?, expected.to_uncached()?);
    let slopes = Array::from_slice(&[0.5f32, 2.0, 4.0], [3, 1])?;
    let y = leaky(&table, slopes).eval()?;
    assert_eq!(y.shape(), [3, 4]);
    assert_eq!(y.to_vec()?[0], -1.5);
    assert_eq!(leaky(-2.0, 0.25).eval()?.item()?, -0.5);
    let mut target = table.to_uncached()?;
    let address = target.address();
    target.update(|t| leaky(t, 0.0))?;
    assert_eq!((target.address(), target.to_vec()?[0]), (address, 0.0));
    let narrow = Array::<f32>::ones(3)?;
    let error = leaky(&table, &narrow).eval().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    assert!(error.to_string().contains("leaky"), "{error}");
    Ok(())
}

#[test]
fn arguments_may_have_different_types() -> Result<()> {
    let kind = Array::from_slice(&[true, false], 2)?;
    let count = Array::from_slice(&[3, 4], 2)?;
    let y = weighed(kind, count, 1.5, Array::from_slice(&[9.0, 10.0], 2)?).eval()?;
    assert_eq!(y.to_vec()?, [4.5, 2.5]);
    Ok(())
}

elementwise! {
    fn clipped(x: f32) -> f32 {
        x.max(-1.0).min(1.0)
    }

    fn is_less(x: f32, y: f32) -> bool {
        x < y
    }

    fn sign_of(x: f32) -> i8 {
        if x > 0.0 { 1 } else if x < 0.0 { -1 } else if x == x { 0 } else { 100 }
    }

    fn exclusive(x: f32) -> bool {
        !(x >= 0.0) && !(x < 0.0) || x == 7.0
    }
}

#[test]
fn nan_passes_through_and_compares_as_in_rust() -> Result<()> {
    let x = Array::from_slice(&[f32::NAN, 2.0, -2.0, 0.5, 7.0], 5)?;
    let y = clipped(&x).eval()?.to_vec()?;
    assert!(y[0].is_nan());
    assert_eq!(y[1..], [1.0, -1.0, 0.5, 1.0]);
    assert_eq!(is_less(&x, f32::NAN).eval()?.to_vec()?, [false; 5]);
    assert_eq!(sign_of(&x).eval()?.to_vec()?, [100, 1, -1, 1, 1]);
    assert_eq!(
        exclusive(&x).eval()?.to_vec()?,
        [true, false, false, false, true]
    );
    Ok(())
}

elementwise! {
    fn arithmetic(x: i8, y: i8) -> i8 {
        x * y + x - y
    }

    fn quotient(x: i32, y: i32) -> i32 {
        x / y
    }

    fn remainder(x: i32, y: i32) -> i32 {
        x % y
    }

    fn negative(x: u8) -> u8 {
        -x
    }

    fn least(x: i32) -> bool {
        x == -2147483648
    }

    fn shifted(x: i8, by: i8) -> i8 {
        (x << by) ^ (x >> by)
    }

    fn mixed_bits(x: u8, y: u8) -> u8 {
        !(x & y) | 0b1000_0000 ^ 0xf
    }

    fn bits_of_truth(x: bool, y: bool) -> bool {
        (x ^ y) & !(x | y) | x
    }

    fn converted(x: f32) -> u8 {
        (x as i64 as u8) - (x != 0.0) as u8 + x as bool as u8
    }
}

#[test]
fn integers_obey_the_rules_of_arrays() -> Result<()> {
    let x = Array::from_slice(&[i8::MIN, -1, 100, 7], 4)?;
    let y = Array::from_slice(&[-1, i8::MIN, 3, 2], 4)?;
    let expected = (&x * &y + &x - &y).eval()?;
    assert_eq!(arithmetic(&x, &y).eval()?, expected);
    let x = Array::from_slice(&[7, -7, i32::MIN, 5], 4)?;
    let y = Array::from_slice(&[2, 2, -1, 0], 4)?;
    assert_eq!(quotient(&x, &y).eval()?.to_vec()?, [3, -3, i32::MIN, 0]);
    assert_eq!(remainder(&x, &y).eval()?.to_vec()?, [1, -1, 0, 0]);
    assert_eq!(negative(1).eval()?.item()?, 255);
    assert_eq!(least(&x).eval()?.to_vec()?, [false, false, true, false]);
    assert_eq!(shifted(-6, 1).eval()?.item()?, -12 ^ -3);
    assert_eq!(shifted(1, 9).eval()?.item()?, 2, "modulo the bits");
    assert_eq!(
        mixed_bits(0b1100, 0b1010).eval()?.item()?,
        0b1111_0111 | 0b1000_1111
    );
    assert!(bits_of_truth(true, false).eval()?.item()?);
    assert_eq!(converted(-1.9).eval()?.item()?, 255);
    Ok(())
}

const FACTOR: f32 = 0.1;

/// Constants that functions name by their paths.
mod constants {
    pub(super) const LOWER: i8 = -7;
    pub(super) const ROUNDED: half::f16 = half::f16::from_f32_const(1.0 / 3.0);

    #[expect(non_upper_case_globals, reason = "a name such as others have")]
    pub(super) const hidden: f64 = 0.25;

    pub(super) struct Model;

    impl Model {
        pub(super) const TRAINS: bool = true;
    }
}

elementwise! {
    fn degrees(x: f32) -> f32 {
        x * 180.0 / std::f32::consts::PI
    }

    fn scaled(x: f32) -> f32 {
        if constants::Model::TRAINS { x * FACTOR } else { x }
    }

    fn above_the_lowest(x: i8) -> bool {
        x > constants::LOWER && x != i8::MIN
    }

    fn thirds(x: half::f16) -> half::f16 {
        x * self::constants::ROUNDED
    }

    fn of_hidden(x: f64) -> f64 {
        constants::hidden.max(x)
    }
}

#[test]
fn constants_have_their_values() -> Result<()> {
    let values = values();
    let x = Array::from_slice(&values, values.len())?;
    let expected = (&x * 180.0 / std::f32::consts::PI).eval()?;
    assert_eq!(bits(&degrees(&x).eval()?)?, bits(&expected)?);
    let expected = (&x * FACTOR).eval()?;
    assert_eq!(bits(&scaled(&x).eval()?)?, bits(&expected)?);
    let found = above_the_lowest(Array::from_slice(&[-7, -6, i8::MIN], 3)?).eval()?;
    assert_eq!(found.to_vec()?, [false, true, false]);
    let third = thirds(f16::from_f32(3.0)).eval()?.item()?;
    assert_eq!(third, f16::from_f32(3.0) * constants::ROUNDED);
    assert_eq!(of_hidden(0.125).eval()?.item()?, 0.25);
    assert_eq!(of_its_own_constant()?, 8.0);
    Ok(())
}

/// Uses a constant that is local to this function.
fn of_its_own_constant() -> Result<f32> {
    const FACTOR: f32 = 4.0;
    elementwise! {
        fn scaled(x: f32) -> f32 { x * FACTOR }
    }
    scaled(2.0).eval()?.item()
}

#[test]
fn the_text_for_a_gpu_has_the_very_bits_of_constants() {
    assert_eq!(
        text::<_, degrees>(),
        "[](f32 v0) -> f32 { return cs_div(cs_mul(v0, cs_literal(180.0)), cs_bits<f32>(0x40490fdbu)); }(a)"
    );
    assert_eq!(
        text::<_, scaled>(),
        "[](f32 v0) -> f32 { return (true ? cs_mul(v0, cs_bits<f32>(0x3dcccccdu)) : v0); }(a)"
    );
    assert_eq!(
        text::<_, above_the_lowest>(),
        "[](i8 v0) -> bool { return ((v0 > cs_cast<i8>(0xf9ull)) && (v0 != cs_cast<i8>(0x80ull))); }(a)"
    );
    assert_eq!(
        text::<_, thirds>(),
        "[](f16 v0) -> f16 { return cs_mul(v0, cs_f16_of_bits(0x3555u)); }(a)"
    );
}

/// Functions that other functions call by their paths.
mod elsewhere {
    use cachescope::elementwise;

    elementwise! {
        /// Returns x² + 1.
        pub(super) fn above(x: f32) -> f32 {
            let square = x * x;
            square + 1.0
        }
    }

    pub(super) mod deeper {
        cachescope::elementwise! {
            pub(in super::super) fn twice(x: f32) -> f32 {
                let x = super::above(x) - 1.0;
                let y = { let x = x + x; x };
                y
            }
        }
    }
}

use elsewhere::above;

elementwise! {
    fn all_of_them(x: f32) -> f32 {
        above(elsewhere::above(x)) + self::elsewhere::deeper::twice(x) + local(x)
    }

    fn local(lane: f32) -> f32 {
        lane + 0.5
    }
}

#[test]
fn functions_call_each_other_across_modules() -> Result<()> {
    let x = Array::from_slice(&[0.0f32, 1.0, 2.0], 3)?;
    assert_eq!(all_of_them(&x).eval()?.to_vec()?, [2.5, 8.5, 36.5]);
    // A function may have the name of the function that it calls.
    elementwise! {
        fn above(x: f32) -> f32 { elsewhere::above(x) * 2.0 }
    }
    assert_eq!(above(&x).eval()?.to_vec()?, [2.0, 4.0, 10.0]);
    Ok(())
}

#[test]
fn the_text_for_a_gpu_is_complete() {
    assert_eq!(
        text::<_, leaky>(),
        "[](f32 v0, f32 v1) -> f32 { return ((v0 < cs_literal(0.0)) ? cs_mul(v0, v1) : v0); }(a, b)"
    );
    let root = "[](auto a_) { using T = cs_common<decltype(a_)>; using R = T; \
                auto a = cs_wide(T(a_)); return R(sqrt(a)); }";
    elementwise! {
        fn inner(x: f32) -> f32 { x.sqrt() }
        fn outer(x: f32) -> f32 { inner(x) + elsewhere::above(x) }
    }
    let above = "[](f32 v0) -> f32 { auto v1 = cs_mul(v0, v0); \
                 return cs_add(v1, cs_literal(1.0)); }";
    let inner = format!("[](f32 v0) -> f32 {{ return {root}(v0); }}");
    let outer = format!("[](f32 v0) -> f32 {{ return cs_add({inner}(v0), {above}(v0)); }}(a)");
    assert_eq!(text::<_, outer>(), outer);
}

#[test]
fn only_what_may_meet_rare_elements_is_watched() {
    fn is_rare<Args: Arguments, F: Function<Args>>() -> bool {
        F::RARE
    }
    elementwise! {
        fn calls_sine(x: f32) -> f32 { 1.0 + wave(x) }
    }
    let sine = cachescope::__private::element::rare::sin;
    assert_eq!(is_rare::<_, wave>(), sine);
    assert_eq!(is_rare::<_, calls_sine>(), sine);
    assert!(!is_rare::<_, leaky>());
}
