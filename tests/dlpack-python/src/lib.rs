//! Functions over arrays for `check.py`, which calls them through `ctypes`. A function that fails
//! returns null or `false`, and stores its error message.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use cachescope::half::{bf16, f16};
use cachescope::ndarray::s;
use cachescope::{AnyElement, Array, Complex, Device, Error, ErrorKind, Result, cache_scope};

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// An array of any element type.
pub trait Handle {
    /// Exports the array as a versioned or as a legacy tensor.
    fn export(&self, is_versioned: bool) -> Result<*mut c_void>;

    /// Exports the array for writing, and consumes the array.
    fn hand_over(self: Box<Self>) -> Result<*mut c_void>;

    /// Sets every element of the array.
    fn fill(&mut self, value: f64) -> Result<()>;

    /// Returns the address of the first element.
    fn address(&self) -> u64;
}

impl<T: AnyElement> Handle for Array<T> {
    fn export(&self, is_versioned: bool) -> Result<*mut c_void> {
        match is_versioned {
            true => self.to_dlpack().map(<*mut _>::cast),
            false => self.to_dlpack_legacy().map(<*mut _>::cast),
        }
    }

    fn hand_over(self: Box<Self>) -> Result<*mut c_void> {
        self.into_dlpack().map(<*mut _>::cast)
    }

    fn fill(&mut self, value: f64) -> Result<()> {
        Array::fill(self, T::from_f64(value))
    }

    fn address(&self) -> u64 {
        Array::address(self)
    }
}

/// Calls a generic function with the element type that has this NumPy name.
macro_rules! by_name {
    ($name:expr, $function:ident($($argument:expr),*)) => {
        match $name {
            "float16" => $function::<f16>($($argument),*),
            "bfloat16" => $function::<bf16>($($argument),*),
            "float32" => $function::<f32>($($argument),*),
            "float64" => $function::<f64>($($argument),*),
            "int8" => $function::<i8>($($argument),*),
            "int16" => $function::<i16>($($argument),*),
            "int32" => $function::<i32>($($argument),*),
            "int64" => $function::<i64>($($argument),*),
            "uint8" => $function::<u8>($($argument),*),
            "uint16" => $function::<u16>($($argument),*),
            "uint32" => $function::<u32>($($argument),*),
            "uint64" => $function::<u64>($($argument),*),
            "bool" => $function::<bool>($($argument),*),
            "complex64" => $function::<Complex<f32>>($($argument),*),
            "complex128" => $function::<Complex<f64>>($($argument),*),
            other => Err(Error::new(ErrorKind::InvalidArgument, format!("no type {other}"))),
        }
    };
}

fn new<T: AnyElement>(view: &str) -> Result<Box<dyn Handle>> {
    let array = cache_scope!("python", {
        Array::from_fn([2, 3, 4], |index| {
            T::from_f64((index[0] * 12 + index[1] * 4 + index[2]) as f64)
        })?
    });
    let array = match view {
        "transposed" => array.t()?,
        "flipped" => array.flip(1)?,
        "sliced" => array.slice(s![1, .., 1..;2])?,
        "broadcast" => array.broadcast_to([2, 2, 3, 4])?,
        "scalar" => array.slice(s![1, 2, 3])?,
        "empty" => array.slice(s![.., 3.., ..])?,
        _ => array,
    };
    Ok(Box::new(array))
}

/// # Safety
///
/// The contract of `Array::from_dlpack`.
unsafe fn import<T: AnyElement>(
    tensor: *mut c_void,
    is_versioned: bool,
) -> Result<Box<dyn Handle>> {
    // SAFETY: the caller upholds the contract of `from_dlpack`.
    let array = unsafe {
        match is_versioned {
            true => Array::<T>::from_dlpack(tensor.cast()),
            false => Array::<T>::from_dlpack_legacy(tensor.cast()),
        }
    };
    Ok(Box::new(array?))
}

/// Returns the value. If there is an error, stores its message and returns `failed`.
fn leave<R>(outcome: Result<R>, failed: R) -> R {
    outcome.unwrap_or_else(|error| {
        let message = CString::new(error.to_string()).unwrap_or_default();
        MESSAGE.with_borrow_mut(|last| *last = message);
        failed
    })
}

fn leaked(outcome: Result<Box<dyn Handle>>) -> *mut Box<dyn Handle> {
    leave(
        outcome.map(|array| Box::into_raw(Box::new(array))),
        ptr::null_mut(),
    )
}

/// # Safety
///
/// The text ends with a zero byte.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    // SAFETY: by the contract, the text ends with a zero byte.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}

/// Returns the message of the thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn message() -> *const c_char {
    MESSAGE.with_borrow(|last| last.as_ptr())
}

/// Returns an array of the numbers 0, 1, …, or a view of the array.
///
/// # Safety
///
/// The texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn create(dtype: *const c_char, view: *const c_char) -> *mut Box<dyn Handle> {
    // SAFETY: by the contract, the texts end with a zero byte.
    let (dtype, view) = unsafe { (text(dtype), text(view)) };
    leaked(by_name!(dtype, new(view)))
}

/// Imports a tensor.
///
/// # Safety
///
/// The contract of `Array::from_dlpack`, and the text ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn take(
    tensor: *mut c_void,
    is_versioned: bool,
    dtype: *const c_char,
) -> *mut Box<dyn Handle> {
    // SAFETY: the text ends with a zero byte, and the caller upholds the contract of `from_dlpack`.
    leaked(unsafe { by_name!(text(dtype), import(tensor, is_versioned)) })
}

/// Exports an array.
///
/// # Safety
///
/// The array was returned by a function of this library, and is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn give(array: *mut Box<dyn Handle>, is_versioned: bool) -> *mut c_void {
    // SAFETY: by the contract, the array is alive.
    leave(unsafe { (*array).export(is_versioned) }, ptr::null_mut())
}

/// Exports an array for writing, and drops it.
///
/// # Safety
///
/// The array was returned by a function of this library, and is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hand_over(array: *mut Box<dyn Handle>) -> *mut c_void {
    // SAFETY: by the contract, the array is alive. The call consumes it.
    leave(unsafe { Box::from_raw(array) }.hand_over(), ptr::null_mut())
}

/// Sets every element of an array.
///
/// # Safety
///
/// The array was returned by a function of this library, and is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fill(array: *mut Box<dyn Handle>, value: f64) -> bool {
    // SAFETY: by the contract, the array is alive.
    leave(unsafe { (*array).fill(value) }.map(|()| true), false)
}

/// Returns the address of an array's first element.
///
/// # Safety
///
/// The array was returned by a function of this library, and is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn address(array: *mut Box<dyn Handle>) -> u64 {
    // SAFETY: by the contract, the array is alive.
    unsafe { (*array).address() }
}

/// Drops an array.
///
/// # Safety
///
/// The array was returned by a function of this library, is alive, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn release(array: *mut Box<dyn Handle>) {
    // SAFETY: by the contract, the array is alive, and is not used again.
    drop(unsafe { Box::from_raw(array) });
}

/// Calls the deleters of tensors that no array uses, and empties the cache. Returns the bytes that
/// arrays and tensors use.
#[unsafe(no_mangle)]
pub extern "C" fn settle() -> u64 {
    let device = Device::current();
    let synchronized = device.synchronize();
    device.invalidate_cache("python");
    leave(
        synchronized.map(|()| device.memory_stats().live_bytes),
        u64::MAX,
    )
}
