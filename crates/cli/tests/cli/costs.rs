//! Tests of `replay --costs`: the simulated driver calls of each pool and model.

use serde_json::Value;

use crate::{file, json, number, refused, run, succeeded};

const MIB: u64 = 1 << 20;

/// Writes a log of a program. Each repetition allocates a block of each size, and then frees all
/// blocks.
fn log(name: &str, sizes_mib: &[u64], repetitions: u64) -> String {
    let mut text = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    for _ in 0..repetitions {
        for action in ["allocate", "free"] {
            for (index, mib) in sizes_mib.iter().enumerate() {
                let pointer = 4096 * (index + 1);
                text += &format!("1,0,{action},{pointer:#x},{},0\n", mib * MIB);
            }
        }
    }
    file(&format!("costs-{name}.csv"), text)
}

#[track_caller]
fn simulated(arguments: &[&str]) -> Vec<Value> {
    let common = ["--pool", "all", "--model", "all", "--costs", "h100"];
    let report = json(&[&["replay"], arguments, &common].concat());
    assert_eq!(report["simulated"]["costs"], "h100");
    report["simulated"]["rows"].as_array().unwrap().clone()
}

#[track_caller]
fn row<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    let found = rows.iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("no row of {name}"))
}

#[test]
fn every_allocator_is_charged_for_its_driver_calls() {
    // The log has 1000 repetitions of two blocks. Its second half is warm.
    let log = log("repeated", &[30, 50], 1000);
    let rows = simulated(&[&log]);
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "best-fit",
            "binned",
            "direct",
            "pytorch",
            "pytorch-expandable",
            "cuda-pool"
        ]
    );
    let calls = |name| number(row(&rows, name), "calls");
    let warm = |name| number(row(&rows, name), "warm_calls");
    // The pool reserves a range, and creates, maps and enables the memory of each block.
    assert_eq!(calls("best-fit"), 1 + 3 + 3);
    // Each allocator reserves two segments.
    assert_eq!((calls("binned"), calls("pytorch")), (2, 2));
    // The model reserves a range, and creates and maps four pages of 20 MiB. It enables access
    // twice, once per growth.
    assert_eq!(calls("pytorch-expandable"), 1 + 8 + 2);
    assert_eq!(calls("direct"), 4000);
    for name in ["best-fit", "binned", "pytorch", "pytorch-expandable"] {
        assert_eq!(warm(name), 0, "{name}");
        assert_eq!(row(&rows, name)["warm_driver_us"], 0.0);
    }
    assert_eq!((warm("direct"), warm("cuda-pool")), (2000, 2000));
    assert_eq!(
        number(row(&rows, "best-fit"), "peak_reserved_bytes"),
        80 * MIB
    );
    // The cost table has 10 us per allocation, and 371 us per 2 GiB.
    let per_mib = 371.0 / 2048.0;
    let expected = 20.0 + 80.0 * per_mib;
    let told = row(&rows, "pytorch")["driver_us"].as_f64().unwrap();
    assert!((told - expected).abs() < 0.01, "{told}");
}

#[test]
fn a_device_has_an_end_and_a_limit_is_kept() {
    let too_much = log("too-much", &[50 << 10, 40 << 10], 1);
    for row in simulated(&[&too_much]) {
        assert_eq!(number(&row, "failures"), 1, "{row}");
    }
    let rows = simulated(&[&log("limited", &[30, 50], 2), "--memory-limit", "60MiB"]);
    for row in rows {
        assert!(number(&row, "peak_reserved_bytes") <= 60 * MIB, "{row}");
        assert_eq!(number(&row, "failures"), 2, "{row}");
    }
}

#[test]
fn the_table_is_marked_as_simulated() {
    let log = log("table", &[3], 1);
    let printed = succeeded(&run(&["replay", &log, "--costs", "h100"]));
    assert!(printed.contains("no GPU was run"), "{printed}");
    let bare = succeeded(&run(&["replay", &log]));
    assert!(!bare.contains("simulated"), "{bare}");
    assert!(json(&["replay", &log]).get("simulated").is_none());
    let errors = refused(&run(&["replay", &log, "--costs", "h1000"]));
    assert!(errors.contains("one of h100"), "{errors}");
}
