//! Reports that must be inspected by hand, and measurements.

use std::fs::{File, create_dir_all};
use std::path::Path;
use std::time::Instant;

use cachescope_reports::{Profile, dhat, flame, folded, page, perfetto, snapshot, table};

use crate::bad_input::{Report, bytes};
use crate::toy::record;
use crate::unpickle::unpickle;

const REPORTS: [(&str, Report); 7] = [
    ("page.html", page::write),
    ("snapshot.pickle", snapshot::write),
    ("perfetto.json", perfetto::write),
    ("dhat.json", dhat::write),
    ("folded.txt", folded::write),
    ("flame.svg", flame::write),
    ("table.txt", table::write),
];

/// Returns a profile whose snapshot has about 100,000 entries, each with two frames. An allocation
/// becomes one entry, and a free two.
fn of_many_entries() -> Profile {
    let mut profile = record(1, 100, 140_000).profile;
    let mut entries = 0;
    let until = profile.events.iter().position(|event| {
        entries += u32::from(event.kind.is_allocation()) + 2 * u32::from(event.kind.is_free());
        entries > 100_000
    });
    profile.events.truncate(until.expect("more than so many"));
    profile
}

/// Prints the time and the length of each report: `cargo test -p cachescope-reports --release
/// --test reports -- --ignored --nocapture speed`
#[test]
#[ignore = "a measurement"]
fn speed() {
    let profile = of_many_entries();
    for (name, write) in REPORTS {
        let mut file = Vec::new();
        let mut times = Vec::new();
        for _ in 0..9 {
            file.clear();
            let began = Instant::now();
            write(&profile, &mut file).expect("a vector takes all");
            times.push(began.elapsed());
        }
        times.sort_unstable();
        println!("{name}: median {:?}, {} bytes", times[4], file.len());
    }
}

#[test]
#[ignore = "it takes long without optimization"]
fn snapshots_are_small() {
    let file = bytes(snapshot::write, &of_many_entries());
    let snapshot = unpickle(&file);
    let entries = snapshot.list("device_traces")[1].items().len();
    let bytes_per_entry = file.len() as f64 / entries as f64;
    println!("{entries} entries, {bytes_per_entry:.1} bytes each");
    assert!(bytes_per_entry < 60.0);
}

/// Writes all reports of a small program, for inspection in their viewers.
#[test]
#[ignore = "it leaves files"]
fn files() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reports");
    create_dir_all(&directory).expect("a directory");
    let profile = record(6, 100, 2_000).profile;
    for (name, write) in REPORTS {
        let mut file = File::create(directory.join(name)).expect("a file");
        write(&profile, &mut file).expect("space for it");
    }
    println!("{}", directory.display());
}
