//! Groups of parameters, each with its own optimizer.

use super::state::Stateful;
use crate::array::{Array, Float};
use crate::error::{Error, ErrorKind, Result};
use crate::grad::place::members;
use crate::grad::{Optimizer, Parameters};

/// An optimizer whose settings, such as the rate or the weight decay, differ between groups of
/// parameters. Parameters are chosen by their names in [files](crate::grad::files).
///
/// All groups have optimizers of one type, with different settings. The state has the form of a
/// single optimizer's state. Therefore a saved state can be restored with other groups. Groups
/// cannot be used in `collective::Sharded`. There, a rank updates slices of buckets, and a slice
/// may contain elements of several parameters.
///
/// # Examples
///
/// This optimizer has no weight decay for biases:
///
/// ```
/// use cachescope::grad::nn::Linear;
/// use cachescope::grad::optim::{AdamW, Groups};
/// use cachescope::grad::value_and_step;
/// use cachescope::{Array, manual_seed};
///
/// manual_seed(1);
/// let mut layer = Linear::<f32>::new(3, 2)?;
/// let mut optimizer = Groups::new(&layer, AdamW::new(1e-3).weight_decay(0.1))?
///     .with(AdamW::new(1e-3).weight_decay(0.0), |name| name.ends_with("bias"))?;
/// let x = Array::randn([8, 3])?;
/// value_and_step(&mut layer, &mut optimizer, |layer| layer.forward(&x)?.square().mean())?;
/// for group in optimizer.groups_mut() {
///     group.rate = 1e-4; // a schedule sets the rate of each group
/// }
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Debug)]
pub struct Groups<O> {
    groups: Vec<O>,
    names: Vec<String>,
    /// The group of each parameter.
    of: Vec<usize>,
}

impl<O: Stateful> Groups<O> {
    /// Makes a single group of all parameters.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{Groups, Sgd};
    ///
    /// let mut x = Array::<f32>::ones(2)?;
    /// Groups::new(&x, Sgd::new(0.5))?.step(&mut x, &Array::ones(2)?)?;
    /// assert_eq!(x.to_vec()?, [0.5, 0.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Parameters::map_arrays`], which the derived implementations do not have.
    #[track_caller]
    pub fn new<P: Parameters>(parameters: &P, optimizer: O) -> Result<Self> {
        let members = members(parameters)?;
        Ok(Self {
            groups: vec![optimizer],
            of: vec![0; members.len()],
            names: members.into_iter().map(|member| member.name).collect(),
        })
    }

    /// Moves the parameters for whose names `chooses` returns true to a new group.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{Groups, Sgd};
    ///
    /// let mut x = vec![Array::<f32>::ones(1)?, Array::ones(1)?];
    /// let mut optimizer = Groups::new(&x, Sgd::new(0.5))?.with(Sgd::new(0.0), |name| name == "1")?;
    /// optimizer.step(&mut x, &vec![Array::ones(1)?, Array::ones(1)?])?;
    /// assert_eq!((x[0].item()?, x[1].item()?), (0.5, 1.0));
    /// assert!(Groups::new(&x, Sgd::new(0.5))?.with(Sgd::new(0.0), |name| name == "2").is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if no parameter is chosen, or if the
    /// optimizer's number of states or steps differs from the first group.
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the optimizer [scales](super::LossScaled)
    /// the loss: write `LossScaled::new(groups)` instead.
    #[track_caller]
    pub fn with(mut self, optimizer: O, chooses: impl Fn(&str) -> bool) -> Result<Self> {
        let first = &self.groups[0];
        let counts = [first, &optimizer].map(|own| (own.states(), own.steps()));
        if counts[0] != counts[1] {
            let [(states, steps), (own_states, own_steps)] = counts;
            let text = format!(
                "Groups::with: the optimizer has {own_states} states and made {own_steps} steps, \
                 the optimizer of the first group has {states} states and made {steps} steps"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if [first, &optimizer]
            .iter()
            .any(|own| own.loss_scale() != 1.0)
        {
            let text = "Groups::with: the optimizer of a group scales the loss, expected one \
                        scale for all groups: write `LossScaled::new(groups)`";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let group = self.groups.len();
        let mut is_empty = true;
        for (own, name) in self.of.iter_mut().zip(&self.names) {
            if chooses(name) {
                (*own, is_empty) = (group, false);
            }
        }
        if is_empty {
            let text = format!(
                "Groups::with: the function selects no parameter, expected some of {}",
                self.names.join(", ")
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        self.groups.push(optimizer);
        Ok(self)
    }

    /// Returns the optimizer of each group, in the order of creation. The first optimizer is for
    /// the parameters that no other group has.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::{Groups, Sgd};
    ///
    /// let mut optimizer = Groups::new(&Array::<f32>::ones(2)?, Sgd::new(0.5))?;
    /// optimizer.groups_mut()[0].rate = 0.25;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn groups_mut(&mut self) -> &mut [O] {
        &mut self.groups
    }

    /// Returns the optimizer of a parameter.
    #[track_caller]
    fn of(&mut self, number: usize) -> Result<&mut O> {
        match self.of.get(number) {
            Some(&group) => Ok(&mut self.groups[group]),
            None => {
                let count = self.of.len();
                let text =
                    format!("Groups: parameter {number} is out of range for {count} parameters");
                Err(Error::new(ErrorKind::InvalidArgument, text))
            }
        }
    }
}

impl<O: Stateful> Optimizer for Groups<O> {
    fn begin(&mut self) {
        self.groups.iter_mut().for_each(Optimizer::begin);
    }

    fn abandon(&mut self) {
        self.groups.iter_mut().for_each(Optimizer::abandon);
    }

    fn needs_norm(&self) -> bool {
        self.groups.iter().any(Optimizer::needs_norm)
    }

    fn set_norm(&mut self, norm: &Array<f64>) {
        self.groups.iter_mut().for_each(|own| own.set_norm(norm));
    }

    fn loss_scale(&self) -> f64 {
        self.groups[0].loss_scale()
    }

    #[track_caller]
    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        self.check_settings()?;
        self.of(number)?.step_one(number, own, gradient)
    }

    #[track_caller]
    fn step_wide<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T::Computed>,
    ) -> Result<()> {
        self.check_settings()?;
        self.of(number)?.step_wide(number, own, gradient)
    }

    /// Checks all groups, so that no parameter changes if the settings of any group are invalid.
    #[track_caller]
    fn check_settings(&self) -> Result<()> {
        // The loop does not call `try_for_each`, because an error in a closure would report the
        // closure as the caller.
        for own in &self.groups {
            own.check_settings()?;
        }
        Ok(())
    }
}

impl<O: Stateful> Stateful for Groups<O> {
    fn states(&self) -> usize {
        self.groups[0].states()
    }

    fn keeps(&self, which: usize, shape: &[usize]) -> bool {
        self.groups[0].keeps(which, shape)
    }

    #[track_caller]
    fn state_of<T: Float>(
        &mut self,
        which: usize,
        number: usize,
        parameter: &Array<T>,
    ) -> Result<&mut Array<T::Computed>> {
        self.of(number)?.state_of(which, number, parameter)
    }

    fn steps(&self) -> u64 {
        self.groups[0].steps()
    }

    #[track_caller]
    fn read_steps(&mut self) -> Result<u64> {
        // A group without parameters does not count the launches of captured steps, so its number
        // may be too low.
        let mut most = 0;
        for own in &mut self.groups {
            most = most.max(own.read_steps()?);
        }
        Ok(most)
    }

    fn set_steps(&mut self, steps: u64) {
        self.groups.iter_mut().for_each(|own| own.set_steps(steps));
    }

    fn is_elementwise(&self) -> bool {
        self.groups.len() == 1 && self.groups[0].is_elementwise()
    }
}
