//! The benchmarked tasks, and their preparation.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Value, json};

use crate::allocations::{Churn, Entry, Hit, RandomBuffers};
use crate::driver::{Copies, DriverPairs, DriverRandom};
use crate::operations::{Assigned, OPERATIONS, Operands, Operation};
use crate::settings::Settings;
use crate::steps::{self, HIDDEN_UNITS, MANY_HIDDEN_UNITS};
use crate::{Outcome, Work};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) section: &'static str,
    pub(crate) name: String,
    /// The bytes of a buffer, the maximum bytes of a random buffer, or the number of elements or
    /// hidden units.
    pub(crate) size: u64,
}

impl Task {
    pub(crate) fn to_json(&self) -> Value {
        json!({ "section": self.section, "name": self.name, "size": self.size })
    }
}

/// Returns the tasks that fit into the device's memory and that the options include.
pub(crate) fn all(settings: &Settings) -> Vec<Task> {
    let mut tasks = Vec::new();
    let mut add = |section, name: &str, size| {
        tasks.push(Task {
            section,
            name: name.into(),
            size,
        });
    };
    let most = settings.options.most_elements;
    let has_driver = settings.ordinal.is_some();

    for bytes in [256, 4 * KIB, 64 * KIB, MIB, 64 * MIB] {
        add("W4", "hit", bytes);
        add("W4", "pool", bytes);
        if has_driver {
            add("W4", "driver", bytes);
        }
    }
    add("W4", "churn", 4 * KIB);
    add("W4", "scope", 0);
    let fitting = [MIB, 64 * MIB, KIB * MIB].into_iter();
    for bytes in fitting.filter(|bytes| bytes * 4 <= settings.live_bytes) {
        add("W1", "random", bytes);
        if has_driver {
            add("W1", "driver-random", bytes);
        }
    }
    for elements in [1 << 20, 1 << 24].into_iter().filter(|&n| n <= most) {
        for course in steps::unlimited(has_driver).chain(steps::limited()) {
            add("W5", &format!("chain-{course}"), elements);
        }
    }
    for course in steps::unlimited(has_driver) {
        add("W5", &format!("digits-{course}"), HIDDEN_UNITS as u64);
    }
    if has_driver {
        add("W5", "digits-graph", HIDDEN_UNITS as u64);
    }
    for course in steps::unlimited(has_driver).chain(steps::limited()) {
        add("W5", &format!("digits-{course}"), MANY_HIDDEN_UNITS as u64);
    }
    for elements in [10, 16, 22, 26].map(|log| 1 << log) {
        if elements <= most {
            add("W6", "copy", elements);
            add("W6", "assign", elements);
            for (_, name) in OPERATIONS {
                add("W6", name, elements);
            }
        }
    }
    tasks
}

/// The prepared tasks, by name and size.
#[derive(Default)]
pub(crate) struct Prepared {
    works: HashMap<(String, u64), Box<dyn Work>>,
    /// The operands of the last size. They take longer to create than to use.
    operands: Option<Rc<Operands>>,
}

impl Prepared {
    /// Returns the task with the given name and size. If the task is not prepared yet, prepares it.
    pub(crate) fn work(
        &mut self,
        settings: &Settings,
        name: &str,
        size: u64,
    ) -> Outcome<&mut Box<dyn Work>> {
        let key = (name.to_owned(), size);
        if !self.works.contains_key(&key) {
            let work = self.prepare(settings, name, size)?;
            self.works.insert(key.clone(), work);
        }
        Ok(self.works.get_mut(&key).expect("it was just put there"))
    }

    /// Drops all prepared tasks, and releases the idle memory.
    pub(crate) fn release(&mut self, settings: &Settings) {
        self.works.clear();
        settings.device.invalidate_all_caches();
        settings.device.trim(0);
    }

    fn prepare(&mut self, settings: &Settings, name: &str, size: u64) -> Outcome<Box<dyn Work>> {
        let device = &settings.device;
        let bytes = size as usize;
        Ok(match (name, settings.ordinal) {
            ("hit", _) => Box::new(Hit::new(device, bytes, true)),
            ("pool", _) => Box::new(Hit::new(device, bytes, false)),
            ("churn", _) => Box::new(Churn::new(device, bytes)),
            ("scope", _) => Box::new(Entry),
            ("random", _) => Box::new(RandomBuffers::new(settings, size)?),
            ("driver", Some(ordinal)) => Box::new(DriverPairs::new(ordinal, bytes)?),
            ("driver-random", Some(ordinal)) => {
                Box::new(DriverRandom::new(ordinal, settings.live_bytes, size)?)
            }
            ("copy", Some(ordinal)) => Box::new(Copies::new(ordinal, 4 * bytes)?),
            ("copy" | "assign", _) => Box::new(Assigned::new(device, self.operands(size)?)?),
            ("digits-graph", Some(_)) => Box::new(steps::graph(settings)?),
            _ => self.prepare_named(settings, name, size)?,
        })
    }

    fn prepare_named(
        &mut self,
        settings: &Settings,
        name: &str,
        size: u64,
    ) -> Outcome<Box<dyn Work>> {
        if let Some((operation, _)) = OPERATIONS.iter().find(|(_, own)| *own == name) {
            let operands = self.operands(size)?;
            return Ok(Box::new(Operation::new(
                &settings.device,
                *operation,
                operands,
            )));
        }
        let step = name.split_once('-').and_then(|(step, course)| {
            let mut known = steps::unlimited(true).chain(steps::limited());
            Some((step, known.find(|known| known.to_string() == course)?))
        });
        match step {
            Some(("chain", course)) => Ok(Box::new(steps::chain(settings, course, size as usize)?)),
            Some(("digits", course)) => {
                Ok(Box::new(steps::digits(settings, course, size as usize)?))
            }
            _ => Err(format!("no task \"{name}\" of {size}").into()),
        }
    }

    /// Returns the operands of `elements` elements. All operations use these operands.
    fn operands(&mut self, elements: u64) -> Outcome<Rc<Operands>> {
        let side = elements.isqrt() as usize;
        if let Some(operands) = &self.operands
            && operands.side == side
        {
            return Ok(Rc::clone(operands));
        }
        // The old operands are dropped first, because the old and the new operands together may
        // exceed the memory.
        self.operands = None;
        let operands = self.operands.insert(Rc::new(Operands::new(side)?));
        Ok(Rc::clone(operands))
    }
}
