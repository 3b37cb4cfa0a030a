//! Buffers of layers: arrays beside the parameters, which a layer updates by itself.

use std::fmt::Display;

use crate::array::{AnyElement, Array};
use crate::error::Result;

/// A function that [`Parameters::map_buffers`](super::Parameters::map_buffers) applies to each
/// buffer.
///
/// # Examples
///
/// Lists the names of buffers, as [`files`](super::files) writes them:
///
/// ```
/// use std::fmt::Display;
///
/// use cachescope::grad::nn::BatchNorm;
/// use cachescope::grad::{MapBuffers, Parameters};
/// use cachescope::{AnyElement, Array, Result};
///
/// #[derive(Default)]
/// struct Names {
///     place: Vec<String>,
///     names: Vec<String>,
/// }
///
/// impl MapBuffers for Names {
///     fn map<T: AnyElement>(&mut self, _: &Array<T>) -> Result<Option<Array<T>>> {
///         self.names.push(self.place.join("."));
///         Ok(None)
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
/// let mut names = Names::default();
/// vec![BatchNorm::<f32>::new(3)?].map_buffers(&mut names)?;
/// assert_eq!(names.names, ["0.running_mean", "0.running_var", "0.num_batches_tracked"]);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub trait MapBuffers {
    /// Returns the array that replaces `buffer`, or `None` to keep `buffer`.
    ///
    /// # Examples
    ///
    /// See [`MapBuffers`].
    ///
    /// # Errors
    ///
    /// The errors of the implementation.
    fn map<T: AnyElement>(&mut self, buffer: &Array<T>) -> Result<Option<Array<T>>>;

    /// Enters a part of the structure, like [`MapArrays::enter`](super::MapArrays::enter). A buffer
    /// itself is also a part, which is entered with the buffer's name.
    ///
    /// # Examples
    ///
    /// See [`MapBuffers`].
    fn enter(&mut self, _name: &dyn Display) {}

    /// Leaves a part of the structure, like [`MapArrays::leave`](super::MapArrays::leave).
    ///
    /// # Examples
    ///
    /// See [`MapBuffers`].
    fn leave(&mut self) {}
}
