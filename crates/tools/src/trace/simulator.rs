//! A simulated pool with an arbitrary unit of block sizes.

use super::engine::TraceAllocator;
use crate::PoolKind;
use crate::error::{Error, ErrorKind, Result};
use crate::pool::{SimulatedBlock, SimulatedPool};

/// The size of an unlimited address range. Offsets below it fit in any 64-bit integer type.
const MAX_BYTES: u64 = 1 << 63;

/// A simulated pool.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_tools as cachescope;
/// use cachescope::PoolKind;
/// use cachescope::trace::Simulator;
///
/// let mut simulator = Simulator::new(PoolKind::BestFit, 512, None)?;
/// let first = simulator.allocate(1000).unwrap();
/// let second = simulator.allocate(1).unwrap();
/// assert_eq!((first.offset, second.offset), (0, 1024));
/// simulator.free(first);
/// assert_eq!(simulator.allocate(1024).unwrap().offset, 0);
/// assert_eq!(simulator.peak_reserved_bytes(), 1536);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Debug)]
pub struct Simulator {
    pool: SimulatedPool,
    unit_bytes: u64,
    /// The binary logarithm of `unit_bytes`; `None` if `unit_bytes` is not a power of two.
    unit_shift: Option<u32>,
}

/// A block of a [`Simulator`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Allocation {
    /// The offset of the block; 0 for a request of 0 bytes.
    pub offset: u64,
    block: SimulatedBlock,
}

impl Simulator {
    /// The pools that can be simulated. The driver's pool cannot be simulated.
    pub const POOLS: [PoolKind; 3] = SimulatedPool::KINDS;

    /// Creates a pool whose blocks begin and end at multiples of `unit_bytes`, below `limit_bytes`.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::PoolKind;
    /// use cachescope::trace::Simulator;
    ///
    /// assert!(Simulator::new(PoolKind::Direct, 512, Some(1 << 20)).is_ok());
    /// assert!(Simulator::new(PoolKind::Direct, 0, None).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`Unsupported`](ErrorKind::Unsupported) for [`PoolKind::StreamOrdered`], which is
    /// the driver's pool. Returns [`InvalidArgument`](ErrorKind::InvalidArgument) for a unit of 0
    /// or above 2⁶³.
    pub fn new(kind: PoolKind, unit_bytes: u64, limit_bytes: Option<u64>) -> Result<Self> {
        if unit_bytes == 0 || unit_bytes > MAX_BYTES {
            let text = format!("a unit of {unit_bytes} bytes is not in 1..=2^63");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let units = limit_bytes.unwrap_or(MAX_BYTES).min(MAX_BYTES) / unit_bytes;
        Ok(Self {
            pool: SimulatedPool::new(kind, units)?,
            unit_bytes,
            unit_shift: unit_bytes
                .is_power_of_two()
                .then(|| unit_bytes.trailing_zeros()),
        })
    }

    /// Allocates a block of at least `bytes` bytes. Returns `None` if the limit is exceeded.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::PoolKind;
    /// use cachescope::trace::Simulator;
    ///
    /// let mut simulator = Simulator::new(PoolKind::BestFit, 512, Some(1024))?;
    /// assert_eq!(simulator.allocate(1000).unwrap().offset, 0);
    /// assert!(simulator.allocate(1).is_none()); // The limit leaves no room.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[inline]
    pub fn allocate(&mut self, bytes: u64) -> Option<Allocation> {
        if bytes == 0 {
            return Some(Allocation::NOTHING);
        }
        let (block, begin) = self.pool.take(self.units(bytes))?;
        Some(Allocation {
            offset: begin * self.unit_bytes,
            block,
        })
    }

    /// Frees a block.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::PoolKind;
    /// use cachescope::trace::Simulator;
    ///
    /// let mut simulator = Simulator::new(PoolKind::BestFit, 512, Some(1024))?;
    /// let block = simulator.allocate(1024).unwrap();
    /// simulator.free(block);
    /// assert!(simulator.allocate(1024).is_some());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[inline]
    pub fn free(&mut self, allocation: Allocation) {
        self.pool.give(allocation.block);
    }

    /// Returns the highest end of any block up to now.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::PoolKind;
    /// use cachescope::trace::Simulator;
    ///
    /// let mut simulator = Simulator::new(PoolKind::BestFit, 512, None)?;
    /// let block = simulator.allocate(1000).unwrap();
    /// simulator.free(block);
    /// assert_eq!(simulator.peak_reserved_bytes(), 1024);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn peak_reserved_bytes(&self) -> u64 {
        self.pool.peak_units() * self.unit_bytes
    }

    /// Returns the number of units that contain `bytes` bytes.
    #[inline]
    fn units(&self, bytes: u64) -> u64 {
        match self.unit_shift {
            // `bytes` is not 0.
            Some(shift) => ((bytes - 1) >> shift) + 1,
            None => bytes.div_ceil(self.unit_bytes),
        }
    }
}

impl TraceAllocator for Simulator {
    type Block = Allocation;

    #[inline]
    fn allocate(&mut self, bytes: u64) -> Option<(Allocation, u64)> {
        let block = Self::allocate(self, bytes)?;
        let offset = block.offset;
        Some((block, offset))
    }

    #[inline]
    fn free(&mut self, block: Allocation) {
        Self::free(self, block);
    }
}

impl Allocation {
    /// The block of a request of 0 bytes.
    const NOTHING: Self = Self {
        offset: 0,
        block: SimulatedBlock::EMPTY,
    };
}
