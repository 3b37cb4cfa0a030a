//! Tables whose rows use more memory than their length justifies.

use std::fmt::Write;

use cachescope::record::EventKind;
use cachescope_tools::trace::{Trace, profiles};

use crate::bounds::snapshots::bounded;

#[test]
fn a_header_of_commas_is_refused() {
    let text = ",".repeat(1_000_000);
    let error = bounded(text.as_bytes(), |bytes| profiles("file", bytes)).unwrap_err();
    assert!(
        error.to_string().contains("file:1: more than 4096 columns"),
        "{error}"
    );
    let quoted = format!("{}\n", "\"\",".repeat(300_000));
    assert!(bounded(quoted.as_bytes(), |bytes| profiles("file", bytes)).is_err());
    let row = format!("id,lower,upper,size\n{text}");
    let error = bounded(row.as_bytes(), |bytes| profiles("file", bytes)).unwrap_err();
    assert!(error.to_string().contains("file:2"), "{error}");
}

#[test]
fn tables_of_short_rows_take_little_memory() {
    let mut lifetimes = String::from("id,lower,upper,size\n");
    let mut log = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    for number in 0..100_000 {
        writeln!(lifetimes, "{number:x},{},9,1", number % 9).unwrap();
        writeln!(log, ",,allocate,{number:x},1,").unwrap();
    }
    for text in [&lifetimes, &log] {
        let profile = bounded(text.as_bytes(), |bytes| profiles("file", bytes));
        let profile = profile.unwrap().remove(0);
        let count = profile.events.iter();
        let count = count
            .filter(|event| event.kind == EventKind::Allocate)
            .count();
        assert_eq!(count, 100_000);
        bounded(text.as_bytes(), |bytes| {
            let mut trace = Trace::new("file", bytes).unwrap();
            let mut batch = Vec::new();
            while !trace.read(&mut batch).unwrap() {}
        });
    }
}
