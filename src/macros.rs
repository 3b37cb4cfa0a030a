//! The public macros. They pass `$crate` to the procedural macros, so that paths are right even if this crate
//! is renamed.

/// Runs a block of code inside a named cache, and evaluates to the block's value.
///
/// Every array and buffer that the block allocates on the scope's device comes from the cache of this name;
/// from the second entry on, it reuses the memory of the first. At exit, on whichever path, the cache keeps or
/// frees its idle blocks according to its [`Policy`](crate::Policy).
///
/// ```
/// use cachescope::{Buffer, Device, cache_scope, cache_stats};
///
/// let device = Device::current();
/// for _ in 0..100 {
///     cache_scope!("loop", {
///         Buffer::new(&device, 4096)?;
///     });
/// }
/// let stats = cache_stats("loop").expect("the scope was entered");
/// assert_eq!((stats.entries, stats.misses, stats.hits), (100, 1, 99));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # The block
///
/// It is an ordinary block, not a closure: `?`, `return`, `break` and `continue` act on the surrounding code
/// and leave the scope. The scope exits after the temporaries of the block's last expression are dropped, in
/// every edition. (The `let` in `let x = cache_scope!("a", { &f() })` extends the lifetime of the borrowed
/// value, as for any block; it then escapes the scope like any array.)
///
/// ```
/// use cachescope::{Array, Result, cache_scope};
///
/// fn first_above(limit: f32, candidates: &[f32]) -> Result<Option<f32>> {
///     for &candidate in candidates {
///         cache_scope!("search", {
///             let doubled = Array::<f32>::full([16], candidate)?.to_vec()?[0] * 2.0;
///             if doubled > limit {
///                 return Ok(Some(candidate));
///             }
///         });
///     }
///     Ok(None)
/// }
/// assert_eq!(first_above(5.0, &[1.0, 2.0, 3.0, 4.0])?, Some(3.0));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// The block may also be written between angle brackets. The last token of the call closes it, so comparisons
/// and generics work inside:
///
/// ```
/// # use cachescope::cache_scope;
/// let evens = cache_scope!("angle", <
///     let found: Vec<u32> = (0..9).filter(|n| n % 2 == 0).collect::<Vec<_>>();
///     if found.len() > 3 { found } else { Vec::new() }
/// >);
/// assert_eq!(evens, [0, 2, 4, 6, 8]);
/// ```
///
/// # Awaiting
///
/// The block cannot contain `.await`: a scope belongs to one thread from entry to exit. Awaits in a nested
/// `async` block are allowed.
///
/// ```compile_fail
/// # async fn next() {}
/// # async fn train() {
/// cachescope::cache_scope!("loop", { next().await }); // error: `.await` cannot stand in the block of a scope
/// # }
/// ```
///
/// The macro finds `.await` anywhere in the call, in arguments of other macros and in macros defined in the
/// block too. It cannot see an `.await` in the expansion of an external macro, such as `tokio::select!`. A
/// future suspended there is not `Send`, because [`ScopeGuard`](crate::scope::ScopeGuard) is not, and the
/// compiler names the macro and the scope where `Send` is required. Elsewhere clippy finds it with this in
/// `clippy.toml`:
///
/// ```toml
/// await-holding-invalid-types = [
///     { path = "cachescope::scope::ScopeGuard", reason = "a scope belongs to one thread from entry to exit" },
/// ]
/// ```
///
/// A future that is nevertheless suspended inside a scope leaves it open: until it resumes, the cache serves
/// the other work of its thread. No block is shared by that. If scopes are then left out of order,
/// [`scope::report`](crate::scope::report) says so, and [`CacheStats::out_of_order_exits`](crate::CacheStats)
/// counts it.
///
/// # The name
///
/// Any `AsRef<str>`. A literal costs no look-up after the first entry.
///
/// ```
/// # use cachescope::{cache_scope, cache_stats};
/// for layer in 0..3 {
///     cache_scope!(format!("layer {layer}"), { /* … */ });
/// }
/// assert_eq!(cache_stats("layer 2").map(|stats| stats.entries), Some(1));
/// ```
///
/// # Options
///
/// In any order between name and block. They are evaluated in source order, before the scope is entered:
///
/// - `policy = …`, a [`Policy`](crate::Policy): what happens to idle blocks;
/// - `max_bytes = …`, a `u64`: the limit on idle and live bytes, beyond which requests bypass the cache;
/// - `device = …`, a `&Device`: the device of the cache, which is also current inside; by default
///   [`Device::current`](crate::Device::current).
///
/// ```
/// use cachescope::{Device, DeviceConfig, Policy, cache_scope};
///
/// let other = Device::host_with(DeviceConfig::default())?;
/// cache_scope!("batch", device = &other, max_bytes = 64 << 20, policy = Policy::Release, {
///     assert_eq!(Device::current(), other);
/// });
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// For code that cannot use a macro, see [`Device::scope`](crate::Device::scope).
#[macro_export]
macro_rules! cache_scope {
    ($($tokens:tt)*) => {
        $crate::__private::expand_cache_scope! { ($crate) $($tokens)* }
    };
}

/// Runs a block or an expression outside every cache, and evaluates to its value.
///
/// Use it inside a scope for a result or a parameter that outlives the scope: the memory comes directly from
/// the device's pool and returns there. A [`cache_scope!`](crate::cache_scope) inside binds its cache again. As
/// in the block of a scope, `.await` is not allowed, and the same holds for macros that await.
///
/// ```
/// use cachescope::{Buffer, Device, cache_scope, cache_stats, uncached};
///
/// let device = Device::current();
/// let kept = cache_scope!("step", {
///     let _scratch = Buffer::new(&device, 4096)?;
///     uncached!(Buffer::new(&device, 64)?)
/// });
/// assert_eq!(kept.size_bytes(), 64);
/// let stats = cache_stats("step").expect("the scope was entered");
/// assert_eq!((stats.misses, stats.escaped_blocks), (1, 0));
/// # Ok::<(), cachescope::Error>(())
/// ```
#[macro_export]
macro_rules! uncached {
    ($($tokens:tt)*) => {
        $crate::__private::expand_uncached! { ($crate) $($tokens)* }
    };
}

/// Functions of single elements, written in Rust, that fuse into expressions like the built-in ones.
///
/// Each `fn` becomes a function of the same name. It takes arrays, expressions or scalars that broadcast
/// together, and returns a [`Lazy`](crate::Lazy).
///
/// ```
/// use cachescope::{Array, elementwise};
///
/// elementwise! {
///     /// x · tanh(ln(1 + eˣ))
///     pub fn mish(x: f32) -> f32 {
///         x * (1.0 + x.exp()).ln().tanh()
///     }
///
///     /// The loss of Huber (1964).
///     pub fn huber(x: f32, y: f32, delta: f32) -> f32 {
///         let error = (x - y).abs();
///         if error < delta { 0.5 * error * error } else { delta * (error - 0.5 * delta) }
///     }
/// }
///
/// let x = Array::from_slice(&[0.0_f32, 2.0], 2)?;
/// let y = (mish(&x) * 2.0).eval()?; // one pass, one allocation
/// assert_eq!(y.to_vec()?[0], 0.0);
/// assert_eq!(huber(&x, 1.0, 0.5).sum()?.item()?, 0.75);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Supported syntax
///
/// A function has one to four parameters and a result, each of any element type. Its body may contain
///
/// - the operators `+ - * / %`, `== != < <= > >=`, `&& || !`, and on integers and `bool` `& | ^ !`, on
///   integers `<< >>`;
/// - `let`, `if` with `else`, blocks, parentheses, literals;
/// - constants of element types, such as `std::f32::consts::PI` or your own `const`: names that begin with a
///   capital letter, and paths;
/// - `as` to any element type;
/// - the mathematical functions of arrays as methods, such as `x.exp()`, `x.powi(2)`, `x.clamp(0.0, 1.0)`;
///   `max` and `min` are `maximum` and `minimum`;
/// - calls of other `elementwise!` functions, by path.
///
/// Anything else is a compile error, because it would not run on every device. Operators and functions behave
/// as those of arrays: integers wrap, and integer division by zero gives 0; only the shift counts of `<<` and `>>` are
/// modulo the number of bits, as in Rust's `wrapping_shl`, while `x.shl(places)` shifts as arrays do; `max` propagates NaN; every operation on `f16` and `bf16` rounds its result to the type.
///
/// ```
/// use cachescope::{Array, elementwise};
///
/// const SLOPE: f32 = 0.25;
///
/// elementwise! {
///     fn leaky(x: f32) -> f32 { if x < 0.0 { SLOPE * x } else { x } }
///     fn degrees(x: f32) -> f32 { x * 180.0 / std::f32::consts::PI }
/// }
///
/// let x = Array::from_slice(&[-4.0_f32, std::f32::consts::PI], 2)?;
/// assert_eq!(leaky(&x).eval()?.to_vec()?[0], -1.0);
/// assert_eq!(degrees(&x).eval()?.to_vec()?[1], 180.0);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// ```compile_fail
/// cachescope::elementwise! {
///     fn sum_to(x: f32) -> f32 {
///         let mut total = 0.0; // error: `mut` cannot stand in a function of an element
///         for i in 0..3 { total += x; }
///         total
///     }
/// }
/// ```
///
/// # Derivatives
///
/// Gradients pass through: the derivative is derived from the body, and of an `if` it is that of the branch which is taken. Shifts by
/// `<<` and `>>` are refused by name. Where another derivative is wanted, `#[derivative(…)]` names for each argument a function of
/// the same arguments that gives it, or `_` for none:
///
/// ```
/// use cachescope::grad::value_and_grad;
/// use cachescope::{Array, elementwise};
///
/// elementwise! {
///     fn one(_x: f32) -> f32 { 1.0 }
///
///     /// Rounds; gradients pass as if it did not.
///     #[derivative(one)]
///     fn rounded(x: f32) -> f32 { x.round() }
/// }
///
/// let x = Array::from_slice(&[0.4_f32, 1.6], 2)?;
/// let (_, gradient) = value_and_grad(&x, |x| (rounded(x) * 3.0).sum())?;
/// assert_eq!(gradient.to_vec()?, [3.0, 3.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[macro_export]
macro_rules! elementwise {
    ($($tokens:tt)*) => {
        $crate::__elementwise! { $($tokens)* }
    };
}

/// The callback of `functions!`: what `elementwise!` hands on to the procedural macro, which cannot see the rows. `$`
/// is the token of that name.
macro_rules! door {
    ([$dollar:tt] $pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident ($($x:ident $(: $type:ident)?),+) $kind:ident $(as [$($alias:ident)+])? { $($body:tt)+ }
    )+) => {
        #[doc(hidden)]
        #[macro_export]
        macro_rules! __elementwise {
            ($dollar ($dollar tokens:tt)*) => {
                $crate::__private::expand_elementwise! {
                    ($crate)
                    [$($name [$($($alias)+)?] ($($x)+))+]
                    $dollar ($dollar tokens)*
                }
            };
        }
    };
}

functions! { door [$] }
