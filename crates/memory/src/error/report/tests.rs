//! Tests of the remedies in out-of-memory reports.

use super::*;

#[test]
fn an_advised_limit_is_printed_exactly() {
    let number = |text: String| text.split(' ').next().unwrap().parse::<f64>();
    for power in 0..50 {
        for bytes in [1 << power, (1 << power) + 1, (5 << power) / 4 + 1] {
            let advised = enough(bytes);
            assert!(advised.0 >= bytes);
            let exact = number(format!("{advised:.9}"));
            assert_eq!(number(advised.to_string()), exact);
        }
    }
}

#[test]
fn a_limit_that_has_room_is_not_to_be_raised() {
    let report = OutOfMemoryReport {
        requested_bytes: 4 << 20,
        rounded_bytes: 4 << 20,
        limit_bytes: Some(16 << 20),
        total_bytes: 1 << 30,
        reserved_bytes: 14 << 20,
        kept_bytes: 2 << 20,
        ..OutOfMemoryReport::default()
    };
    let remedy = report.remedy();
    assert!(remedy.contains("the device refused"), "{remedy}");
}

#[test]
fn the_advice_is_not_to_record_what_is_recorded() {
    let cache = CacheUse {
        name: "train".into(),
        live_bytes: 64 << 20,
        grown_bytes: 64 << 20,
        grown_entries: 10,
        ..CacheUse::default()
    };
    let mut report = OutOfMemoryReport {
        requested_bytes: 4 << 20,
        rounded_bytes: 4 << 20,
        limit_bytes: Some(64 << 20),
        total_bytes: 1 << 30,
        live_bytes: 64 << 20,
        caches: vec![cache],
        ..OutOfMemoryReport::default()
    };
    let record = "record: true";
    assert!(report.remedy().contains(record), "{report}");
    report.is_recorded = true;
    let remedy = report.remedy();
    assert!(
        remedy.ends_with("; a report of the recording shows the lines"),
        "{remedy}"
    );
    report.profile = Some("run-out-of-memory.html".into());
    let text = report.to_string();
    assert!(
        text.contains("\n  profile             run-out-of-memory.html\n"),
        "{text}"
    );
    assert!(
        text.ends_with("; run-out-of-memory.html shows the lines"),
        "{text}"
    );
    assert!(!text.contains(record), "{text}");
}
