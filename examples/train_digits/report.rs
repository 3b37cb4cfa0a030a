//! The text that is printed after training.

use std::io::{self, Write};

use cachescope::{Device, PoolKind, invalidate_cache};

use crate::compare::{Figures, STEPS};

const KIB: u64 = 1024;

/// Prints the comparison as a table, with an explanation of each column.
pub(crate) fn print_comparison(out: &mut dyn Write, figures: &[Figures]) -> io::Result<()> {
    // A step makes equal requests in every row. A row without a cache has no count, so the count of
    // another row is used.
    let requests = figures.iter().find_map(|row| row.requests).unwrap_or(0);
    let per_step = |count: u64| count as f64 / STEPS as f64;

    writeln!(
        out,
        "\nThe same step, {STEPS} times each way on a device of its own:\n"
    )?;
    writeln!(
        out,
        "{:10} {:>14} {:>14} {:>14} {:>14} {:>14} {:>14}",
        "cache",
        "median step",
        "requests",
        "to the pool",
        "to the device",
        "peak reserved",
        "on an H100"
    )?;
    for row in figures {
        let name = match (row.policy, row.pool) {
            _ if row.is_graph => "graph".into(),
            (Some(policy), _) => policy.to_string(),
            (None, PoolKind::Direct) => "no pool".into(),
            (None, _) => "none".into(),
        };
        let (requests, to_the_pool) = match (row.is_graph, row.policy) {
            (true, _) => (0, 0),
            (false, Some(_)) => (requests, row.misses),
            (false, None) => (requests, requests),
        };
        writeln!(
            out,
            "{name:10} {:>11} µs {:>14.2} {:>14.2} {:>14.2} {:>10} KiB {:>11} µs",
            row.step_time.as_micros(),
            per_step(requests),
            per_step(to_the_pool),
            per_step(row.reserves),
            row.peak_reserved_bytes / KIB,
            row.simulated.as_micros(),
        )?;
    }
    writeln!(
        out,
        "\nrequests: blocks of memory that a step asks for; to the pool: those that no cache served;\n\
         to the device: segments that the pool had to reserve; all three a step of a whole batch, after\n\
         the second. peak reserved: the most held from the device, data and model included.\n\
         Without a cache (none) the pool still stands between the arrays and the device; with no pool\n\
         every array is a reservation of its own. A graph, on CUDA, asks for nothing: it has the memory that\n\
         was planned before it was captured.\n\
         on an H100: simulated, not measured: the time that a GPU's driver would take for what goes to the\n\
         device in a step, by published costs of its calls. A scope, and a pool, make no such call."
    )
}

/// Invalidates the cache `train` of the training loop, and trims the idle pages. Prints the
/// released and the reserved bytes.
pub(crate) fn print_invalidation(out: &mut dyn Write, device: &Device) -> io::Result<()> {
    let before = device.memory_stats().reserved_bytes;
    let released = invalidate_cache("train");
    device.trim(0);
    let after = device.memory_stats().reserved_bytes;
    writeln!(
        out,
        "\ninvalidate_cache(\"train\"): {} blocks of {} KiB together went back to the pool;\n\
         reserved from the device: {} KiB before, {} KiB after a trim",
        released.blocks,
        released.bytes / KIB,
        before / KIB,
        after / KIB,
    )
}
