//! `cachescope replay --costs`: counts the calls of a simulated driver.

use cachescope_tools::PoolKind;
use cachescope_tools::models::ModelReplay;
use cachescope_tools::simulation::{DeviceReplay, DriverCosts, DriverLedger};
use cachescope_tools::trace::TraceEvent;
use serde::Serialize;

use crate::failure::ExitFailure;

pub(crate) fn parse(name: &str) -> Result<DriverCosts, String> {
    DriverCosts::named(name).map_err(|error| error.to_string())
}

/// All pools, each on its own simulated device.
#[derive(Debug)]
pub(crate) struct DeviceRuns(Vec<(PoolKind, DeviceReplay)>);

impl DeviceRuns {
    /// Creates the pools. If `costs` is `None`, creates no pools.
    pub(crate) fn new(
        pools: &[PoolKind],
        costs: Option<&DriverCosts>,
        limit_bytes: Option<u64>,
    ) -> Result<Self, ExitFailure> {
        let runs = costs.into_iter().flat_map(|costs| {
            let run = |&pool| Ok((pool, DeviceReplay::new(pool, costs, limit_bytes)?));
            pools.iter().map(run)
        });
        let runs: cachescope_tools::Result<_> = runs.collect();
        Ok(Self(runs?))
    }

    pub(crate) fn apply(&mut self, batch: &[TraceEvent]) {
        for (_, run) in &mut self.0 {
            run.apply(batch);
        }
    }

    /// Returns the driver calls of all pools, and then of all models.
    pub(crate) fn rows(&self, models: &[ModelReplay]) -> Vec<DeviceRow> {
        let pools = self.0.iter();
        let pools = pools.map(|(pool, run)| {
            let own = run.outcome();
            let peaks = (own.peak_reserved_bytes, own.peak_live_bytes);
            DeviceRow::new(pool.to_string(), &own.ledger, peaks, own.failures)
        });
        let models = models.iter().filter_map(|model| {
            let own = model.outcome();
            let peaks = (own.peak_reserved_bytes, own.peak_live_bytes);
            let (name, ledger) = (own.kind.name().into(), own.ledger?);
            Some(DeviceRow::new(name, &ledger, peaks, own.failures))
        });
        pools.chain(models).collect()
    }
}

/// The driver calls of a pool or a model. The times are simulated.
#[derive(Debug, Serialize)]
pub(crate) struct DeviceRow {
    name: String,
    calls: u64,
    driver_us: f64,
    /// The number of calls in the second half of the events.
    warm_calls: u64,
    warm_driver_us: f64,
    peak_reserved_bytes: u64,
    ratio: f64,
    failures: u64,
}

impl DeviceRow {
    fn new(
        name: String,
        ledger: &DriverLedger,
        (reserved, live): (u64, u64),
        failures: u64,
    ) -> Self {
        let (warm_calls, warm_driver_us) = ledger.second_half();
        let ratio = if live == 0 {
            1.0
        } else {
            reserved as f64 / live as f64
        };
        Self {
            name,
            calls: ledger.calls(),
            driver_us: ledger.microseconds(),
            warm_calls,
            warm_driver_us,
            peak_reserved_bytes: reserved,
            ratio,
            failures,
        }
    }
}

/// Returns a table with one row per pool and per model.
pub(crate) fn table(costs: &DriverCosts, rows: &[DeviceRow]) -> String {
    let mut text = format!(
        "\n\nsimulated driver with the costs of {}; no GPU was run\n{:<20} {:>10} {:>14} {:>11} {:>14} {:>20} {:>8} \
         {:>10}",
        costs.name(),
        "memory",
        "calls",
        "driver us",
        "warm calls",
        "warm us",
        "peak reserved",
        "ratio",
        "failures"
    );
    for row in rows {
        text += &format!(
            "\n{:<20} {:>10} {:>14.1} {:>11} {:>14.1} {:>20} {:>8.4} {:>10}",
            row.name,
            row.calls,
            row.driver_us,
            row.warm_calls,
            row.warm_driver_us,
            row.peak_reserved_bytes,
            row.ratio,
            row.failures
        );
    }
    text
}
