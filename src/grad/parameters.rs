//! Structures of arrays.

use std::fmt::Display;

use super::buffers::MapBuffers;
use crate::array::{Array, Float};
use crate::error::Result;

/// An array that gradients are computed for, or a structure of arrays of floats.
///
/// `#[derive(Parameters)]` implements this trait for any `struct` whose fields are arrays of floats
/// or implement `Parameters`. `Vec`, `Option`, `Box`, arrays `[P; N]` and tuples of up to four
/// parameters also implement the trait. A field of another type, such as a rate or a name, must be
/// marked by `#[parameters(skip)]`, and is cloned.
///
/// A hand-written implementation must call [`MapArrays::enter`] and [`MapArrays::leave`] around
/// each part, with a name that no other part has. [`files`](super::files) identify arrays by these
/// names. If a part may contain layers with buffers, the implementation must also forward
/// [`Parameters::map_buffers`] to the part.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::Parameters;
///
/// #[derive(Parameters)]
/// struct Layer {
///     weight: Array<f32>,
///     bias: Option<Array<f32>>,
/// }
///
/// #[derive(Parameters)]
/// struct Network {
///     layers: Vec<Layer>,
///     #[parameters(skip)]
///     name: String,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` holds no parameters",
    label = "expected an array of floats, or a structure of arrays of floats",
    note = "to exclude a field, such as a rate or a name, write `#[parameters(skip)]` before it",
    note = "to make a structure of parameters, write `#[derive(Parameters)]` before it"
)]
pub trait Parameters: Sized {
    /// Returns a structure of this type, in which `map` has replaced each array.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::{MapArrays, Parameters};
    /// use cachescope::{Array, Float, Result};
    ///
    /// struct Doubled;
    ///
    /// impl MapArrays for Doubled {
    ///     fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
    ///         (array + array).eval()
    ///     }
    /// }
    ///
    /// let doubled = vec![Array::<f32>::ones(2)?].map_arrays(&mut Doubled)?;
    /// assert_eq!(doubled[0].to_vec()?, [2.0, 2.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first error of `map`.
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self>;

    /// Calls `zip` with each array of `self` and the corresponding array of `other`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::{Parameters, ZipArrays};
    /// use cachescope::{Array, Float, Result};
    ///
    /// struct Copied;
    ///
    /// impl ZipArrays for Copied {
    ///     fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
    ///         own.assign(other)
    ///     }
    /// }
    ///
    /// let mut own = vec![Array::<f32>::zeros(2)?];
    /// own.zip_arrays(&vec![Array::ones(2)?], &mut Copied)?;
    /// assert_eq!(own[0].to_vec()?, [1.0, 1.0]);
    /// assert!(own.zip_arrays(&vec![], &mut Copied).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first error of `zip`. [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if a `Vec`
    /// differs in length, or if an `Option` is `None` in only one of the structures.
    #[track_caller]
    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()>;

    /// Calls `map` with each buffer. If `map` returns an array, the array replaces the buffer. By
    /// default, a structure has no buffers.
    ///
    /// A buffer is an array that a layer updates by itself, such as the running statistics of a
    /// [`BatchNorm`](super::nn::BatchNorm). [`files`](super::files) contain buffers beside the
    /// parameters. Nothing else uses buffers: they have no gradients, and no optimizer, average or
    /// reduction over ranks includes them.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::BatchNorm;
    /// use cachescope::grad::{MapBuffers, Parameters};
    /// use cachescope::{AnyElement, Array, Result};
    ///
    /// struct Count(usize);
    ///
    /// impl MapBuffers for Count {
    ///     fn map<T: AnyElement>(&mut self, buffer: &Array<T>) -> Result<Option<Array<T>>> {
    ///         self.0 += buffer.len();
    ///         Ok(None) // The layer's own array stays.
    ///     }
    /// }
    ///
    /// let mut count = Count(0);
    /// vec![BatchNorm::<f32>::new(3)?].map_buffers(&mut count)?;
    /// assert_eq!(count.0, 3 + 3 + 1); // Means, variances and the number of batches.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first error of `map`.
    #[track_caller]
    fn map_buffers<M: MapBuffers>(&mut self, _map: &mut M) -> Result<()> {
        Ok(())
    }
}

/// A function that [`Parameters::map_arrays`] applies to each array.
///
/// # Examples
///
/// Lists the names of arrays, as [`files`](super::files) writes them:
///
/// ```
/// use std::fmt::Display;
///
/// use cachescope::grad::{MapArrays, Parameters};
/// use cachescope::{Array, Float, Result};
///
/// #[derive(Default)]
/// struct Names {
///     place: Vec<String>,
///     names: Vec<String>,
/// }
///
/// impl MapArrays for Names {
///     fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
///         self.names.push(self.place.join("."));
///         Ok(array.clone())
///     }
///
///     fn enter(&mut self, name: &dyn Display) {
///         self.place.push(name.to_string());
///     }
///
///     fn leave(&mut self) {
///         self.place.pop();
///     }
/// }
///
/// #[derive(Parameters)]
/// struct Layer {
///     weight: Array<f32>,
///     bias: Option<Array<f32>>,
/// }
///
/// let layer = || -> Result<Layer> { Ok(Layer { weight: Array::eye(2)?, bias: Some(Array::zeros(2)?) }) };
/// let mut names = Names::default();
/// vec![layer()?, layer()?].map_arrays(&mut names)?;
/// assert_eq!(names.names, ["0.weight", "0.bias", "1.weight", "1.bias"]);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub trait MapArrays {
    /// Returns the array that replaces `array`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::{MapArrays, Parameters};
    /// use cachescope::{Array, Float, Result};
    ///
    /// struct Count(usize);
    ///
    /// impl MapArrays for Count {
    ///     fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
    ///         self.0 += array.len();
    ///         Ok(array.clone())
    ///     }
    /// }
    ///
    /// let mut count = Count(0);
    /// (Array::<f32>::zeros([2, 3])?, Array::<f64>::zeros(4)?).map_arrays(&mut count)?;
    /// assert_eq!(count.0, 10);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of the implementation.
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>>;

    /// Returns the array that replaces `state`, a state of an [optimizer](super::optim) for a
    /// parameter of type `T`. The state is stored in the [accumulation type](Float::Computed) of
    /// `T`. The default calls [`map`](Self::map).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::MapArrays;
    /// use cachescope::half::f16;
    /// use cachescope::{Array, Float, Result};
    ///
    /// struct Count(usize);
    ///
    /// impl MapArrays for Count {
    ///     fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
    ///         self.0 += array.len() * size_of::<T>();
    ///         Ok(array.clone())
    ///     }
    /// }
    ///
    /// let mut count = Count(0);
    /// count.map_state::<f16>(&Array::<f32>::zeros(3)?)?;
    /// assert_eq!(count.0, 12);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of the implementation.
    fn map_state<T: Float>(&mut self, state: &Array<T::Computed>) -> Result<Array<T::Computed>> {
        self.map(state)
    }

    /// Begins a part of the structure. The name of a part is the name of the field, or the index of
    /// a field without a name. Elements of a `Vec` or an array `[P; N]`, and members of a tuple,
    /// have their indices as names. The contents of an `Option` or a `Box` are not a separate part.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::fmt::Display;
    ///
    /// use cachescope::grad::{MapArrays, Parameters};
    /// use cachescope::{Array, Float, Result};
    ///
    /// struct Parts(Vec<String>);
    ///
    /// impl MapArrays for Parts {
    ///     fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
    ///         Ok(array.clone())
    ///     }
    ///
    ///     fn enter(&mut self, name: &dyn Display) {
    ///         self.0.push(name.to_string());
    ///     }
    /// }
    ///
    /// let mut parts = Parts(Vec::new());
    /// vec![Array::<f32>::zeros(1)?, Array::zeros(2)?].map_arrays(&mut parts)?;
    /// assert_eq!(parts.0, ["0", "1"]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    fn enter(&mut self, _name: &dyn Display) {}

    /// Ends the part that was begun last. This method is not called after an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::{MapArrays, Parameters};
    /// use cachescope::{Array, Float, Result};
    ///
    /// struct Ended(usize);
    ///
    /// impl MapArrays for Ended {
    ///     fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
    ///         Ok(array.clone())
    ///     }
    ///
    ///     fn leave(&mut self) {
    ///         self.0 += 1;
    ///     }
    /// }
    ///
    /// let mut ended = Ended(0);
    /// vec![Array::<f32>::zeros(1)?, Array::zeros(2)?].map_arrays(&mut ended)?;
    /// assert_eq!(ended.0, 2);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    fn leave(&mut self) {}
}

/// A function that [`Parameters::zip_arrays`] applies to each pair of arrays.
pub trait ZipArrays {
    /// Handles an array of one structure and the corresponding array of the other structure.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::{Parameters, ZipArrays};
    /// use cachescope::{Array, Float, Result};
    ///
    /// struct Largest(f64);
    ///
    /// impl ZipArrays for Largest {
    ///     fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
    ///         let difference = (&*own - other).abs().max()?;
    ///         self.0 = self.0.max(difference.item()?.to_f64());
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut largest = Largest(0.0);
    /// let mut own = vec![Array::<f32>::zeros(2)?, Array::ones(1)?];
    /// own.zip_arrays(&vec![Array::full(2, 3.0)?, Array::ones(1)?], &mut largest)?;
    /// assert_eq!(largest.0, 3.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of the implementation.
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()>;

    /// Begins a part of the structures, like [`MapArrays::enter`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::fmt::Display;
    ///
    /// use cachescope::grad::{Parameters, ZipArrays};
    /// use cachescope::{Array, Float, Result};
    ///
    /// struct Parts(Vec<String>);
    ///
    /// impl ZipArrays for Parts {
    ///     fn zip<T: Float>(&mut self, _: &mut Array<T>, _: &Array<T>) -> Result<()> {
    ///         Ok(())
    ///     }
    ///
    ///     fn enter(&mut self, name: &dyn Display) {
    ///         self.0.push(name.to_string());
    ///     }
    /// }
    ///
    /// let mut parts = Parts(Vec::new());
    /// let mut own = (Array::<f32>::zeros(1)?, Array::<f32>::zeros(2)?);
    /// let other = (Array::zeros(1)?, Array::zeros(2)?);
    /// own.zip_arrays(&other, &mut parts)?;
    /// assert_eq!(parts.0, ["0", "1"]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    fn enter(&mut self, _name: &dyn Display) {}

    /// Ends a part of the structures, like [`MapArrays::leave`].
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::{Parameters, ZipArrays};
    /// use cachescope::{Array, Float, Result};
    ///
    /// struct Ended(usize);
    ///
    /// impl ZipArrays for Ended {
    ///     fn zip<T: Float>(&mut self, _: &mut Array<T>, _: &Array<T>) -> Result<()> {
    ///         Ok(())
    ///     }
    ///
    ///     fn leave(&mut self) {
    ///         self.0 += 1;
    ///     }
    /// }
    ///
    /// let mut ended = Ended(0);
    /// vec![Array::<f32>::zeros(1)?].zip_arrays(&vec![Array::zeros(1)?], &mut ended)?;
    /// assert_eq!(ended.0, 1);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    fn leave(&mut self) {}
}
