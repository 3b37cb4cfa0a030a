//! The `macro_rules!` fronts of the procedural macros. They pass `$crate`, which is right under every name of this
//! crate.

/// Runs a block of code inside a named cache, and has the block's value.
///
/// Every array and buffer that the block allocates on the scope's device comes from the cache of
/// this name, and from the second entry on its memory is that of the first. At the exit, by
/// whichever way, the cache keeps or frees its idle blocks as its [`Policy`](crate::Policy) says.
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
/// It is an ordinary block and no closure: `?`, `return`, `break` and `continue` act on the code
/// around it, and leave the scope on their way. The scope's exit comes after the temporaries of
/// the block's last expression are gone, in every edition. (What `let x = cache_scope!("a", { &f() })`
/// borrows is prolonged by the `let`, as with any block, and lives on like any array that escapes.)
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
/// The block may also stand between angle brackets. The last token of the call closes it, so
/// comparisons and generics need no care inside:
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
/// The block cannot contain `.await`: a scope belongs to one thread from entry to exit. What a nested
/// `async` block awaits when it is polled is its own affair.
///
/// ```compile_fail
/// # async fn next() {}
/// # async fn train() {
/// cachescope::cache_scope!("loop", { next().await }); // error: `.await` cannot stand in the block of a scope
/// # }
/// ```
///
/// The macro sees the word wherever it is written in the call: in arguments of other macros, and in macros
/// that are defined in the block. It cannot see an `.await` that only the expansion of a macro from elsewhere
/// has (`tokio::select!` is one). A future that is suspended by that is not `Send`, because
/// [`ScopeGuard`](crate::scope::ScopeGuard) is not, and the compiler names the macro and the scope as soon as
/// somebody needs it to be. Where nobody does, clippy finds it, if the file `clippy.toml` says so:
///
/// ```toml
/// await-holding-invalid-types = [
///     { path = "cachescope::scope::ScopeGuard", reason = "a scope belongs to one thread from entry to exit" },
/// ]
/// ```
///
/// A future that is suspended inside of a scope all the same leaves it open: until it is resumed, the cache
/// serves whatever else its thread does. No block is shared by that. Where scopes are then left in another
/// order than nested blocks are, [`scope::report`](crate::scope::report) tells so, and
/// [`CacheStats::out_of_order_exits`](crate::CacheStats) counts it.
///
/// # The name
///
/// Anything that is `AsRef<str>`. A literal costs no look-up after the first entry.
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
/// In any order between the name and the block, evaluated as written, before the scope is
/// entered:
///
/// - `policy = …`, a [`Policy`](crate::Policy): what becomes of idle blocks;
/// - `max_bytes = …`, a `u64`: the bytes, idle and live, beyond which requests bypass the cache;
/// - `device = …`, a `&Device`: the device whose cache is bound, and which is the current one
///   inside; without it, [`Device::current`](crate::Device::current).
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
/// For code that cannot use a macro there is [`Device::scope`](crate::Device::scope).
#[macro_export]
macro_rules! cache_scope {
    ($($tokens:tt)*) => {
        $crate::__private::expand_cache_scope! { ($crate) $($tokens)* }
    };
}

/// Runs a block, or evaluates an expression, outside every cache, and has its value.
///
/// For what is made inside a scope to outlive it, such as a result or a parameter: its memory
/// comes straight from the device's pool and goes back there. A [`cache_scope!`](crate::cache_scope)
/// inside binds its cache again. Like the block of a scope, it cannot contain `.await`, and what is said there
/// of macros that await holds here.
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

/// Functions of single elements, written as Rust, that fuse into expressions as the built-in ones do.
///
/// Each `fn` becomes a function of that name: it takes arrays, expressions or single values that
/// broadcast together, and returns a [`Lazy`](crate::Lazy).
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
/// # What a function is made of
///
/// It has one to four arguments, each of an element type, and an element type as its value. The types may
/// differ from one another. Its block is made of
///
/// - the operators `+ - * / %`, `== != < <= > >=`, `&& || !`, and on integers and `bool` `& | ^ !`, on
///   integers `<< >>`;
/// - `let`, `if` with `else`, blocks, parentheses, literals;
/// - constants of element types, such as `std::f32::consts::PI` or a `const` of one's own: names that begin with a
///   capital letter, and paths;
/// - `as` to any element type;
/// - the mathematical functions of arrays as methods, such as `x.exp()`, `x.powi(2)`, `x.clamp(0.0, 1.0)`;
///   `max` and `min` stand for `maximum` and `minimum`;
/// - calls of other functions that were written so, by their paths.
///
/// Anything else is an error where it stands, because it would not run on every device. Operators and
/// functions compute as those of arrays do: integers wrap, their division by zero gives 0, and shifts count
/// modulo the number of bits; NaN passes through `max`; every operator and function of `f16` and `bf16`
/// rounds its result to the type.
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
#[macro_export]
macro_rules! elementwise {
    ($($tokens:tt)*) => {
        $crate::__private::expand_elementwise! { ($crate) $($tokens)* }
    };
}
