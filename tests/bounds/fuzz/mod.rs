//! Random files for the readers of recorded programs. A grammar of snapshots, random opcodes and
//! repetition generate the files. The files are then damaged. Each file is read or refused. The
//! file's length bounds memory and time. If the profiles are short, their reports are written in
//! every format.
//!
//! The test runs for `CACHESCOPE_FUZZ_SECONDS` (3 by default). A failure names its seed.
//! `CACHESCOPE_FUZZ_SEED` sets the first seed. If the seconds are set, progress is written to
//! standard error. The progress shows the last seed before an abort.

mod files;

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use cachescope::PoolKind;
use cachescope::record::{Format, Profile};
use cachescope_tools::trace::{Replay, ReplayOptions, Snapshot, Trace, profiles};

use self::files::{Random, file};
use crate::bounds::snapshots::bounded;

const SECONDS: &str = "CACHESCOPE_FUZZ_SECONDS";
const SEED: &str = "CACHESCOPE_FUZZ_SEED";

/// The maximum number of events in a profile whose reports are written.
const MAX_REPORTED_EVENTS: usize = 500;

/// Returns the value of an environment variable. If the variable is set, its value must be a
/// number.
fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

#[test]
fn random_files_are_read_or_refused() {
    let first = number(SEED).unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let seconds = number(SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(3));
    let mut counts = Counts::default();
    let mut seed = first;
    let mut reported = Instant::now();
    while Instant::now() < end {
        let file = file(&mut Random(seed));
        let checked = catch_unwind(AssertUnwindSafe(|| check(&file, &mut counts)));
        if let Err(panic) = checked {
            let length = file.len();
            eprintln!(
                "{SEED}={seed}: a file of {length} bytes: {:?}",
                file.get(..2000)
            );
            resume_unwind(panic);
        }
        seed = seed.wrapping_add(1);
        if seconds.is_some() && reported.elapsed() > Duration::from_secs(10) {
            reported = Instant::now();
            let _ = writeln!(io::stderr(), "before {SEED}={seed}: {counts:?}");
        }
    }
    println!("from {SEED}={first} to {seed}: {counts:?}");
    assert!(counts.read > 0 && counts.refused > 0, "{counts:?}");
}

#[derive(Debug, Default)]
struct Counts {
    read: u64,
    refused: u64,
    reports: u64,
}

fn check(file: &[u8], counts: &mut Counts) {
    let snapshot = bounded(file, |bytes| Snapshot::read("file", bytes));
    let profiles = bounded(file, |bytes| profiles("file", bytes));
    match profiles {
        Ok(profiles) => {
            counts.read += 1;
            profiles.iter().for_each(|profile| report(profile, counts));
        }
        Err(_) => counts.refused += 1,
    }
    if let Ok(snapshot) = snapshot {
        for device in snapshot.devices {
            replay(Trace::<&[u8]>::of(device.lifetimes));
        }
    }
    bounded(file, |bytes| {
        if let Ok(trace) = Trace::new("file", bytes) {
            replay(trace);
        }
    });
}

fn report(profile: &Profile, counts: &mut Counts) {
    if profile.events.len() > MAX_REPORTED_EVENTS {
        return;
    }
    for ending in Format::ENDINGS {
        let format = Format::of(Path::new(&format!("run{ending}"))).unwrap();
        format.write(profile, &mut io::sink()).unwrap();
        counts.reports += 1;
    }
}

fn replay<R: io::BufRead>(mut trace: Trace<R>) {
    let options = ReplayOptions {
        pool: PoolKind::BestFit,
        unit_bytes: 512,
        limit_bytes: None,
    };
    let (mut replay, mut batch) = (Replay::new(options).unwrap(), Vec::new());
    while let Ok(is_last) = trace.read(&mut batch) {
        replay.apply(&batch);
        if is_last {
            break;
        }
    }
}
