use cachescope::elementwise;

// Code that does not run on every device, each in a call of its own.
elementwise! {}
elementwise! { fn f(x: f32) -> f32 { let mut total = 0.0; total } }
elementwise! { fn f(x: f32) -> f32 { for _ in 0..3 {} x } }
elementwise! { fn f(x: f32) -> f32 { while x > 0.0 {} x } }
elementwise! { fn f(x: f32) -> f32 { x + x.gamma() } }
elementwise! { fn f(x: f32) -> f32 { x.powi() } }
elementwise! { fn f(x: f32) -> f32 { (|y| y)(x) } }
elementwise! { fn f(x: f32) -> f32 { x + dbg!(x) } }
elementwise! { fn f(x: f32) -> f32 { *&x } }
elementwise! { fn f(x: f32) -> f32 { return x } }
elementwise! { fn f(x: f32) -> f32 { x + "1.0" } }
elementwise! { fn f(x: usize) -> f32 { 1.0 } }
elementwise! { fn f(x: f32) -> Vec<f32> { x } }
elementwise! { fn f<T>(x: T) -> T { x } }
elementwise! { fn f(x: f32) -> f32 { x[0] } }
elementwise! { fn f(x: f32) -> f32 { match x { _ => x } } }
elementwise! { fn f(x: f32) -> f32 { if x > 0.0 { x } } }
elementwise! { fn f(x: f32) -> f32 { x + y } }
elementwise! { fn f(x: f32) -> f32 { x + Self::PI } }
elementwise! { fn f(x: f32) -> f32 { 1.0 + f(x) } }
elementwise! { fn f(x: f32) -> f32 { x += 1.0; x } }
elementwise! { unsafe fn f(x: f32) -> f32 { x } }
elementwise! { struct S; }

fn main() {}
