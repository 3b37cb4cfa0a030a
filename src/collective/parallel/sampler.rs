//! The distribution of samples to the ranks of a group.

use crate::collective::Group;
use crate::grad::data::Sampler;

impl Sampler {
    /// Divides each batch among the ranks of `group` (default: a single rank). If the last batch
    /// does not divide evenly, its remainder is not used.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::collective::{Group, Sampler};
    ///
    /// Group::threads(2, |group| {
    ///     let own = Sampler::new(8, 4).group(&group).epoch(0)?;
    ///     assert_eq!(own[0].to_vec()?, [[0, 1], [2, 3]][group.rank()]);
    ///     assert!(Sampler::new(8, 3).group(&group).epoch(0).is_err());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn group(self, group: &Group) -> Self {
        self.ranks(group.rank(), group.size())
    }
}
