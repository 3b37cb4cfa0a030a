//! `cachescope replay --model`: the rows of models of other allocators.

use cachescope_tools::models::{ModelKind, ModelOutcome};
use serde::Serialize;

pub(crate) type Models = &'static [ModelKind];

/// Returns the models with the given name, or all models for `all`.
pub(crate) fn parse(name: &str) -> Result<Models, String> {
    const ALL: Models = &ModelKind::ALL;
    if name == "all" {
        return Ok(ALL);
    }
    let known = ALL.iter().position(|kind| kind.name() == name);
    known.map(|index| &ALL[index..=index]).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|kind| kind.name()).collect();
        format!("unknown model, expected one of {}, all", names.join(", "))
    })
}

#[derive(Debug, Serialize)]
pub(crate) struct ModelRow {
    name: &'static str,
    description: &'static str,
    events: u64,
    peak_live_bytes: u64,
    peak_reserved_bytes: u64,
    ratio: f64,
    failures: u64,
}

impl From<&ModelOutcome> for ModelRow {
    fn from(outcome: &ModelOutcome) -> Self {
        Self {
            name: outcome.kind.name(),
            description: outcome.kind.description(),
            events: outcome.events,
            peak_live_bytes: outcome.peak_live_bytes,
            peak_reserved_bytes: outcome.peak_reserved_bytes,
            ratio: outcome.ratio(),
            failures: outcome.failures,
        }
    }
}

impl ModelRow {
    /// Returns the model's row in the table of pools. The row has no time, because the run time of
    /// a model is meaningless.
    pub(crate) fn text(&self) -> String {
        format!(
            "{:<10} {:>12} {:>10} {:>20} {:>20} {:>8.4} {:>10}  {}",
            "model",
            self.events,
            "",
            self.peak_live_bytes,
            self.peak_reserved_bytes,
            self.ratio,
            self.failures,
            self.description
        )
    }
}
