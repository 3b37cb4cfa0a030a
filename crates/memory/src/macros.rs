//! The public macros. They pass `$crate` to the procedural macros, so that paths are right even if
//! this crate is renamed.

/// Runs a block of code inside a named cache, and evaluates to the block's value.
///
/// The block allocates its arrays and buffers on the scope's device from this cache.
/// From the second entry on, the cache reuses the memory of the first entry. At each exit from the
/// block, the cache keeps or releases its idle blocks, according to its [`Policy`](crate::Policy).
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
/// The block is an ordinary block, not a closure: `?`, `return`, `break` and `continue` act on the
/// surrounding code and leave the scope. The scope exits after the temporaries of the block's last
/// expression are dropped, in every edition. (The `let` in `let x = cache_scope!("a", { &f() })`
/// extends the lifetime of the borrowed value, as for any block. The value then escapes the scope
/// like any array.)
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
/// The block may also be written between angle brackets. The last token of the macro call closes
/// the block, so comparisons and generics work inside:
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
/// cachescope::cache_scope!("loop", { next().await }); // error: `.await` cannot be used in the block of a scope
/// # }
/// ```
///
/// The macro rejects an `.await` anywhere in the call, including arguments of other macros and
/// macros that the block defines. It cannot detect an `.await` in the expansion of an external
/// macro, such as `tokio::select!`. A future suspended at that `.await` is not `Send`, because
/// [`ScopeGuard`](crate::scope::ScopeGuard) is not `Send`. If a bound requires `Send`, the
/// compiler's error names the macro and the scope. Otherwise, clippy finds the `.await` with this
/// setting in `clippy.toml`:
///
/// ```toml
/// await-holding-invalid-types = [
///     { path = "cachescope::scope::ScopeGuard", reason = "a scope belongs to one thread from entry to exit" },
/// ]
/// ```
///
/// If a future is nevertheless suspended inside a scope, the scope stays open. Until the future
/// resumes, the cache serves all other work of the thread. No block is handed out twice. If scopes
/// then exit out of order, [`scope::report`](crate::scope::report) reports this, and
/// [`CacheStats::out_of_order_exits`](crate::CacheStats) counts it.
///
/// # The name
///
/// The name is any `AsRef<str>`. A literal needs no look-up after the first entry.
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
/// Options are written between name and block, in any order. They are evaluated in source order,
/// before the scope is entered:
///
/// - `policy = …`, a [`Policy`](crate::Policy): what happens to idle blocks;
/// - `max_bytes = …`, a `u64`: the limit on idle and live bytes (requests beyond this limit bypass
///   the cache);
/// - `device = …`, a `&Device`: the device of the cache, by default
///   [`Device::current`](crate::Device::current). Inside the scope, this device is current.
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
/// Use `uncached!` inside a scope for a result or a parameter that outlives the scope. The memory
/// is allocated from the device's pool directly, and is returned to the pool. A nested
/// [`cache_scope!`](crate::cache_scope) uses its cache again. Like the block of a scope, the block
/// must not contain `.await` or a macro that awaits.
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
