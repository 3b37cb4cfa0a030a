use cachescope::elementwise;

fn helper(x: f32) -> f32 {
    x
}

elementwise! {
    fn double(x: f64) -> f64 { x + x }
    fn mixed(x: f32, y: f64) -> f32 { x * y }
    fn returned(x: f32) -> f64 { x }
    fn condition(x: f32) -> f32 { if x { x } else { 0.0 } }
    fn branches(x: f32, n: i32) -> f32 { if n > 0 { x } else { n } }
    fn bound(x: f32) -> f32 { let y: i32 = x; x }
    fn shifted(x: f32) -> f32 { x << 1.0 }
    fn not_so(x: f32) -> f32 { !x }
    fn argument(x: f32) -> f64 { double(x) }
    fn count(x: f64) -> f64 { double(x, x) }
}

elementwise! {
    fn plain(x: f32) -> f32 { helper(x) }
    fn unknown(x: f32) -> f32 { sine(x) }
}

const COUNT: usize = 3;
const WIDE: f64 = 1.5;

elementwise! {
    fn foreign(x: f32) -> f32 { x * COUNT }
    fn widened(x: f32) -> f32 { x * WIDE }
    fn missing(x: f32) -> f32 { x * std::f32::consts::TAO }
    fn computed(x: f32) -> f32 { x * f32::sqrt }
}

fn main() {}
