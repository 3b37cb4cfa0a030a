//! The public macros. They pass `$crate` to the procedural macros, so that paths are right even if
//! this crate is renamed.

/// Runs a block of code inside a named cache, and evaluates to the block's value.
///
/// Every array and buffer that the block allocates on the scope's device comes from the cache of
/// this name; from the second entry on, it reuses the memory of the first entry. At exit, on
/// whichever path, the cache keeps or frees its idle blocks according to its
/// [`Policy`](crate::Policy).
///
/// ```
/// # extern crate cachescope_memory as cachescope;
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
/// It is an ordinary block, not a closure: `?`, `return`, `break` and `continue` act on the
/// surrounding code and leave the scope. The scope exits after the temporaries of the block's last
/// expression are dropped, in every edition. (The `let` in `let x = cache_scope!("a", { &f() })`
/// extends the lifetime of the borrowed value, as for any block; it then escapes the scope like any
/// array.)
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, Result, cache_scope};
///
/// fn first_above(limit: usize, candidates: &[usize]) -> Result<Option<usize>> {
///     let device = Device::current();
///     for &candidate in candidates {
///         cache_scope!("search", {
///             let doubled = Buffer::new(&device, 2 * candidate)?.size_bytes();
///             if doubled > limit {
///                 return Ok(Some(candidate));
///             }
///         });
///     }
///     Ok(None)
/// }
/// assert_eq!(first_above(5, &[1, 2, 3, 4])?, Some(3));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// The block may also be written between angle brackets. The last token of the call closes it, so
/// comparisons and generics work inside:
///
/// ```
/// # extern crate cachescope_memory as cachescope;
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
/// The block cannot contain `.await`: a scope belongs to one thread from entry to exit. Awaits in a
/// nested `async` block are allowed.
///
/// ```compile_fail
/// # extern crate cachescope_memory as cachescope;
/// # async fn next() {}
/// # async fn train() {
/// cachescope::cache_scope!("loop", { next().await }); // error: `.await` cannot stand in the block of a scope
/// # }
/// ```
///
/// The macro finds `.await` anywhere in the call, in arguments of other macros and in macros
/// defined in the block too. It cannot see an `.await` in the expansion of an external macro, such
/// as `tokio::select!`. A future suspended there is not `Send`, because
/// [`ScopeGuard`](crate::scope::ScopeGuard) is not, and the compiler names the macro and the scope
/// where `Send` is required. Elsewhere clippy finds it with this in `clippy.toml`:
///
/// ```toml
/// await-holding-invalid-types = [
///     { path = "cachescope::scope::ScopeGuard", reason = "a scope belongs to one thread from entry to exit" },
/// ]
/// ```
///
/// A future that is nevertheless suspended inside a scope leaves it open: until it resumes, the
/// cache serves the other work of its thread. No block is shared by that. If scopes are then left
/// out of order, [`scope::report`](crate::scope::report) reports this, and
/// [`CacheStats::out_of_order_exits`](crate::CacheStats) counts it.
///
/// # The name
///
/// Any `AsRef<str>`. A literal costs no look-up after the first entry.
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// # use cachescope::{cache_scope, cache_stats};
/// for layer in 0..3 {
///     cache_scope!(format!("layer {layer}"), { /* … */ });
/// }
/// assert_eq!(cache_stats("layer 2").map(|stats| stats.entries), Some(1));
/// ```
///
/// # Options
///
/// In any order between name and block. They are evaluated in source order, before the scope is
/// entered:
///
/// - `policy = …`, a [`Policy`](crate::Policy): what happens to idle blocks;
/// - `max_bytes = …`, a `u64`: the limit on idle and live bytes, beyond which requests bypass the
///   cache;
/// - `device = …`, a `&Device`: the device of the cache, which is also current inside; by default
///   [`Device::current`](crate::Device::current).
///
/// ```
/// # extern crate cachescope_memory as cachescope;
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
/// Use it inside a scope for a result or a parameter that outlives the scope: the memory comes
/// directly from the device's pool and returns there. A [`cache_scope!`](crate::cache_scope) inside
/// binds its cache again. As in the block of a scope, `.await` is not allowed, and the same holds
/// for macros that await.
///
/// ```
/// # extern crate cachescope_memory as cachescope;
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
