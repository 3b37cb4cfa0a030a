//! The report on a device's memory.

use std::fmt;
use std::time::Duration;

use super::{MemoryStats, PhaseReport};
use crate::size::ByteSize;

/// The statistics of a device's memory and the time of its phases. `Display` writes a table.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, DeviceConfig};
///
/// let config = DeviceConfig { time_phases: true, ..Default::default() };
/// let device = Device::host_with(config)?;
/// let buffer = Buffer::new(&device, 1000)?;
/// let report = device.memory_report();
/// assert!(report.phases.iter().any(|phase| phase.name == "reserve" && phase.calls == 1));
/// println!("{report}");
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The name of the device: "host", "cuda:0".
    pub device: String,
    /// The statistics of the device's memory.
    pub stats: MemoryStats,
    /// The time of each phase, in the order of a request; empty if
    /// [`time_phases`](crate::DeviceConfig::time_phases) is off.
    pub phases: Vec<PhaseReport>,
}

impl MemoryReport {
    /// Returns the total time of all phases.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let config = DeviceConfig { time_phases: true, ..Default::default() };
    /// let device = Device::host_with(config)?;
    /// let _buffers = [Buffer::new(&device, 1000)?, Buffer::new(&device, 1000)?];
    /// let report = device.memory_report();
    /// let longest = report.phases.iter().map(|phase| phase.total).max().unwrap();
    /// assert!(!longest.is_zero() && report.total() >= longest);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn total(&self) -> Duration {
        self.phases.iter().map(|phase| phase.total).sum()
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.stats;
        writeln!(f, "memory of {}", self.device)?;
        let sizes = [
            ("live", stats.live_bytes),
            ("allocated", stats.allocated_bytes),
            ("cached", stats.cached_bytes),
            ("pending", stats.pending_bytes),
            ("reserved", stats.reserved_bytes),
            ("peak live", stats.peak_live_bytes),
            ("peak reserved", stats.peak_reserved_bytes),
            ("largest free block", stats.largest_free_block_bytes),
        ];
        for (name, bytes) in sizes {
            writeln!(f, "  {name:<28} {:>12}", ByteSize(bytes))?;
        }
        writeln!(
            f,
            "  {:<28} {:>11.1}%",
            "fragmentation",
            100.0 * stats.fragmentation()
        )?;
        let counts = [
            ("reserves", stats.reserves),
            ("releases", stats.releases),
            ("retries", stats.retries),
            ("out of memory", stats.out_of_memory),
        ];
        for (name, count) in counts {
            writeln!(f, "  {name:<28} {count:>12}")?;
        }
        if self.phases.is_empty() {
            return write!(
                f,
                "phases are not timed: set DeviceConfig::time_phases, or CACHESCOPE_TIME_PHASES=on"
            );
        }
        let whole = self.total().as_secs_f64();
        write!(
            f,
            "  {:<28} {:>12} {:>12} {:>8} {:>12}",
            "phase", "calls", "total", "share", "mean"
        )?;
        for phase in &self.phases {
            let total = phase.total.as_secs_f64();
            let share = if whole > 0.0 {
                100.0 * total / whole
            } else {
                0.0
            };
            write!(
                f,
                "\n  {:<28} {:>12} {:>12} {share:>7.1}% {:>12}",
                phase.name,
                phase.calls,
                DurationDisplay(phase.total).to_string(),
                DurationDisplay(phase.mean()).to_string(),
            )?;
        }
        Ok(())
    }
}

/// A duration in three or four digits: "512 ns", "1.25 ms".
struct DurationDisplay(Duration);

impl fmt::Display for DurationDisplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        match nanoseconds {
            0..1_000 => write!(f, "{nanoseconds} ns"),
            1_000..1_000_000 => write!(f, "{:.2} µs", nanoseconds as f64 / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} ms", nanoseconds as f64 / 1e6),
            _ => write!(f, "{:.2} s", nanoseconds as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(phases: Vec<PhaseReport>) -> MemoryReport {
        MemoryReport {
            device: "host".into(),
            stats: MemoryStats {
                live_bytes: 1000,
                reserved_bytes: 2 << 20,
                ..MemoryStats::default()
            },
            phases,
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_phase() {
        let phase = |name, calls, total_us| PhaseReport {
            name,
            calls,
            total: Duration::from_micros(total_us),
        };
        let text = report(vec![phase("pool take", 4, 1), phase("reserve", 1, 3)]).to_string();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0], ["memory", "of", "host"]);
        assert!(rows.contains(&vec!["live", "1000", "B"]), "{text}");
        assert!(rows.contains(&vec!["reserved", "2", "MiB"]), "{text}");
        assert!(
            rows.contains(&"pool take 4 1.00 µs 25.0% 250 ns".split(' ').collect()),
            "{text}"
        );
        assert!(
            rows.contains(&"reserve 1 3.00 µs 75.0% 3.00 µs".split(' ').collect()),
            "{text}"
        );
    }

    #[test]
    fn without_timing_the_report_names_the_switch() {
        let text = report(Vec::new()).to_string();
        assert!(text.ends_with("CACHESCOPE_TIME_PHASES=on"), "{text}");
        assert!(!text.contains("share"));
    }
}
