//! The costs of the driver's calls: points of a table, with linear interpolation between the
//! points.

use crate::error::{Error, ErrorKind, Result};
use crate::naming::{Named, names};

const TABLES: [(&str, &str); 1] = [("h100", include_str!("h100.csv"))];

/// The columns of a table. The last column, `source`, is for readers and may contain commas.
const COLUMNS: [&str; 6] = ["call", "bytes", "microseconds", "rule", "basis", "source"];

/// A memory call of the driver, with the driver's name without `cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DriverCall {
    /// Allocates a segment.
    MemAlloc,
    /// Frees a segment, and waits for the device.
    MemFree,
    /// Reserves a range of addresses.
    MemAddressReserve,
    /// Frees a range of addresses.
    MemAddressFree,
    /// Creates memory for a range.
    MemCreate,
    /// Maps memory into a range.
    MemMap,
    /// Grants access to the memory of a range.
    MemSetAccess,
    /// Unmaps memory from a range.
    MemUnmap,
    /// Releases memory of a range.
    MemRelease,
    /// Allocates a block from the driver's own pool.
    MemAllocAsync,
    /// Frees a block to the driver's own pool.
    MemFreeAsync,
}

names!(DriverCall {
    MemAlloc => "MemAlloc",
    MemFree => "MemFree",
    MemAddressReserve => "MemAddressReserve",
    MemAddressFree => "MemAddressFree",
    MemCreate => "MemCreate",
    MemMap => "MemMap",
    MemSetAccess => "MemSetAccess",
    MemUnmap => "MemUnmap",
    MemRelease => "MemRelease",
    MemAllocAsync => "MemAllocAsync",
    MemFreeAsync => "MemFreeAsync",
});

impl DriverCall {
    /// Returns every call once.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::DriverCall;
    ///
    /// assert!(DriverCall::iter().any(|call| call == DriverCall::MemCreate));
    /// ```
    pub fn iter() -> impl Iterator<Item = Self> {
        Self::NAMES.iter().map(|&(call, _)| call)
    }
}

/// The cost of one call as a function of its bytes.
#[derive(Clone, Debug, Default, PartialEq)]
struct CostLine {
    /// The points of the line: bytes and nanoseconds, sorted by bytes.
    points: Vec<(f64, f64)>,
    /// True if the line through the last two points continues above the last point. Otherwise the
    /// cost of the last point applies above it.
    is_linear: bool,
}

impl CostLine {
    fn nanos(&self, bytes: u64) -> f64 {
        let bytes = bytes as f64;
        let beyond = self.points.partition_point(|&(at, _)| at <= bytes);
        let (from, to) = match (beyond, self.points.len()) {
            (_, 0) => return 0.0,
            (0, _) => return self.points[0].1,
            (beyond, count) if beyond < count => (beyond - 1, beyond),
            (_, count) if self.is_linear && count > 1 => (count - 2, count - 1),
            (_, count) => return self.points[count - 1].1,
        };
        let ((x0, y0), (x1, y1)) = (self.points[from], self.points[to]);
        y0 + (y1 - y0) * (bytes - x0) / (x1 - x0)
    }
}

/// The costs of a driver's memory calls on one kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct DriverCosts {
    name: &'static str,
    memory_bytes: u64,
    lines: Vec<(DriverCall, CostLine)>,
}

impl DriverCosts {
    /// Returns the names of the known tables.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::DriverCosts;
    ///
    /// assert!(DriverCosts::names().any(|name| name == "h100"));
    /// ```
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLES.iter().map(|&(name, _)| name)
    }

    /// Returns the table `name`. The only table is `h100`. The file of the table cites the source
    /// of each cost.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::DriverCosts;
    ///
    /// assert_eq!(DriverCosts::named("h100")?.name(), "h100");
    /// assert!(DriverCosts::named("abacus").is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for an unknown name. The message lists the
    /// known names.
    #[track_caller]
    pub fn named(name: &str) -> Result<Self> {
        let found = TABLES.iter().find(|(known, _)| *known == name);
        let Some((name, text)) = found else {
            let names = Vec::from_iter(Self::names()).join(", ");
            let text = format!("unknown costs \"{name}\", expected one of {names}");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        };
        Self::parse(name, text)
    }

    fn parse(name: &'static str, text: &str) -> Result<Self> {
        let mut costs = Self {
            name,
            memory_bytes: 0,
            lines: Vec::new(),
        };
        let rows = text
            .lines()
            .zip(1..)
            .filter(|(row, _)| !row.starts_with('#'));
        for (row, number) in rows.skip(1) {
            let unreadable = |what: &str| {
                let text = format!("costs of {name}, line {number}: {what}: {row}");
                Error::new(ErrorKind::InvalidArgument, text)
            };
            let fields: Vec<_> = row.splitn(COLUMNS.len(), ',').collect();
            let [call, bytes, microseconds, rule, ..] = fields[..] else {
                return Err(unreadable("too few columns"));
            };
            let bytes: u64 = bytes.parse().map_err(|_| unreadable("no bytes"))?;
            let microseconds: f64 = microseconds.parse().map_err(|_| unreadable("no time"))?;
            if call == "memory" {
                costs.memory_bytes = bytes;
            }
            // The table also has rows for calls that are not memory calls.
            let Some(call) = call.strip_prefix("cu").and_then(|call| call.parse().ok()) else {
                continue;
            };
            let line = costs.line_mut(call);
            if line
                .points
                .last()
                .is_some_and(|&(last, _)| last >= bytes as f64)
            {
                return Err(unreadable("the bytes of a call must increase"));
            }
            line.points.push((bytes as f64, microseconds * 1e3));
            line.is_linear = rule.split(' ').any(|word| word == "linear");
        }
        Ok(costs)
    }

    fn line_mut(&mut self, call: DriverCall) -> &mut CostLine {
        let known = self.lines.iter().position(|&(of, _)| of == call);
        let index = known.unwrap_or_else(|| {
            self.lines.push((call, CostLine::default()));
            self.lines.len() - 1
        });
        &mut self.lines[index].1
    }

    /// Returns the table's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::DriverCosts;
    ///
    /// for name in DriverCosts::names() {
    ///     assert_eq!(DriverCosts::named(name)?.name(), name);
    /// }
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the memory of the GPU that the table describes, in bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::DriverCosts;
    ///
    /// assert_eq!(DriverCosts::named("h100")?.memory_bytes() >> 30, 79);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Returns the host's time for a call for `bytes` bytes, in nanoseconds.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::{DriverCall, DriverCosts};
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// let of = |bytes| costs.nanos(DriverCall::MemCreate, bytes);
    /// assert!(of(2 << 20) < of(1 << 30));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn nanos(&self, call: DriverCall, bytes: u64) -> f64 {
        let line = self.lines.iter().find(|&&(of, _)| of == call);
        line.map_or(0.0, |(_, line)| line.nanos(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn every_call_has_its_cost_and_points_are_joined_by_lines() {
        let costs = DriverCosts::named("h100").unwrap();
        for call in DriverCall::iter() {
            assert!(costs.nanos(call, 2 * MIB) > 100.0, "{call}");
        }
        assert_eq!(costs.nanos(DriverCall::MemSetAccess, 1), 36_000.0);
        assert_eq!(costs.nanos(DriverCall::MemSetAccess, 128 * MIB), 195_000.0);
        assert_eq!(costs.nanos(DriverCall::MemSetAccess, 64 * GIB), 133_000.0);
        let between = costs.nanos(DriverCall::MemSetAccess, 65 * MIB);
        assert!((between - 115_500.0).abs() < 1.0, "{between}");
        // The rule of `MemAlloc` is linear, so its line continues above the last point.
        let [one, two, three] = [2, 4, 6].map(|gib| costs.nanos(DriverCall::MemAlloc, gib * GIB));
        assert!((two - one - (three - two)).abs() < 1.0 && two > one);
        assert!(costs.memory_bytes() > 79 * GIB);
        let unknown = DriverCosts::named("h1000").unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::InvalidArgument);
        assert!(unknown.to_string().contains("h100"), "{unknown}");
    }
}
