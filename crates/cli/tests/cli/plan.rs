//! Tests of `cachescope plan`.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{
    Numbers, cachescope, file, json, missed, number, place, refused, run, succeeded, text,
};

const HEADER: &str = "id,lower,upper,size\n";

/// Writes buffers, given as lower, upper and size. Returns the path of the file.
fn input(name: &str, buffers: &[(u64, u64, u64)]) -> String {
    let mut content = HEADER.to_owned();
    for (id, (lower, upper, size)) in buffers.iter().enumerate() {
        content += &format!("b{id},{lower},{upper},{size}\n");
    }
    file(name, content)
}

fn plan(arguments: &[&str]) -> Value {
    json(&[&["plan"], arguments].concat())
}

/// Reads a plan, and checks each pair of its buffers. Returns the highest end.
fn checked_slab(path: &str) -> u64 {
    let content = fs::read_to_string(path).unwrap();
    let mut lines = content.lines();
    assert_eq!(lines.next(), Some("id,lower,upper,size,offset"));
    let row = |line: &str| -> Vec<u64> {
        let fields = line.split(',').skip(1);
        fields.map(|field| field.parse().unwrap()).collect()
    };
    let rows: Vec<_> = lines.map(row).collect();
    for (index, a) in rows.iter().enumerate() {
        for b in &rows[..index] {
            let meet = a[0].max(b[0]) < a[1].min(b[1]);
            let overlap = a[3].max(b[3]) < (a[3] + a[2]).min(b[3] + b[2]);
            assert!(!(meet && overlap), "{a:?} and {b:?}");
        }
    }
    rows.iter().map(|row| row[3] + row[2]).max().unwrap_or(0)
}

#[test]
fn a_plan_is_printed_and_written() {
    let buffers = [(0, 2, 512), (1, 3, 256), (2, 4, 512), (0, 4, 64)];
    let input = input("plan_written.csv", &buffers);
    let output = text(&place("plan_written_out.csv"));
    let report = plan(&[&input, "--output", &output]);
    assert_eq!(number(&report, "buffers"), 4);
    assert_eq!(number(&report, "max_load_bytes"), 832);
    assert_eq!(number(&report, "slab_bytes"), 832);
    assert_eq!(report["ratio"].as_f64(), Some(1.0));
    assert!(report["seconds"].as_f64().unwrap() < 10.0);
    assert_eq!(report.as_object().unwrap().len(), 5);
    assert_eq!(checked_slab(&output), 832);

    // A plan is a valid input, because additional columns are ignored.
    assert_eq!(number(&plan(&[&output]), "slab_bytes"), 832);
}

#[test]
fn a_plan_reads_well_without_json() {
    let input = input("plan_text.csv", &[(0, 2, 512), (1, 3, 256)]);
    let printed = succeeded(&run(&["plan", &input]));
    let figure = |name: &str| {
        let line = printed.lines().find(|line| line.starts_with(name));
        line.unwrap().split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(figure("buffers"), "2");
    assert_eq!(figure("max load"), "768");
    assert_eq!(figure("slab  "), "768");
    assert_eq!(figure("slab / load"), "1.000000");
    assert!(figure("seconds").parse::<f64>().unwrap() < 10.0);
}

#[test]
fn what_takes_no_place_is_planned_too() {
    let nothing = file("plan_nothing.csv", HEADER);
    let report = plan(&[&nothing]);
    let expected = (Some(0), Some(1.0));
    assert_eq!(
        (report["slab_bytes"].as_u64(), report["ratio"].as_f64()),
        expected
    );
    let empty = input("plan_empty.csv", &[(5, 5, 512), (0, 9, 0)]);
    let output = text(&place("plan_empty_out.csv"));
    assert_eq!(
        number(&plan(&[&empty, "--output", &output]), "slab_bytes"),
        0
    );
    let expected = "id,lower,upper,size,offset\nb0,5,5,512,0\nb1,0,9,0,0\n";
    assert_eq!(fs::read_to_string(&output).unwrap(), expected);
    succeeded(&run(&["plan", &empty, "--capacity", "0"]));
}

#[test]
fn columns_may_be_in_any_order() {
    let content = "size,note,upper,id,lower\n512,x,2,a,0\n512,y,4,b,2\n";
    let report = plan(&[&file("plan_columns.csv", content)]);
    assert_eq!(number(&report, "slab_bytes"), 512);
}

#[test]
fn a_capacity_below_the_load_ends_with_1_at_once() {
    let input = input("plan_small.csv", &[(0, 2, 512), (1, 3, 512)]);
    let output = place("plan_small_out.csv");
    let _ = fs::remove_file(&output);
    let begin = Instant::now();
    let arguments = [
        "plan",
        &input,
        "--capacity",
        "1023",
        "--output",
        &text(&output),
    ];
    let errors = missed(&run(&arguments));
    assert!(errors.contains("no plan exists"), "{errors}");
    assert!(errors.contains("1024"), "{errors}");
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(!output.exists());
    succeeded(&run(&["plan", &input, "--capacity", "1024"]));
    succeeded(&run(&["plan", &input, "--capacity", "1KiB"]));
}

/// At most 13 bytes are live at any step, but no slab of 13 bytes exists.
const GAP: [(u64, u64, u64); 11] = [
    (3, 7, 3),
    (1, 4, 3),
    (0, 1, 4),
    (0, 3, 5),
    (6, 8, 3),
    (1, 5, 2),
    (3, 5, 4),
    (4, 6, 4),
    (5, 7, 5),
    (0, 2, 3),
    (6, 8, 2),
];

#[test]
fn that_there_is_no_plan_is_proved() {
    let input = input("plan_gap.csv", &GAP);
    let report = plan(&[&input]);
    assert_eq!(number(&report, "max_load_bytes"), 13);
    assert_eq!(number(&report, "slab_bytes"), 14);
    let errors = missed(&run(&["plan", &input, "--capacity", "13"]));
    assert!(errors.contains("no plan exists"), "{errors}");
    succeeded(&run(&["plan", &input, "--capacity", "14"]));
}

#[test]
fn the_time_limit_holds() {
    let mut numbers = Numbers(3);
    let mut buffers = Vec::new();
    for _ in 0..1500 {
        let lower = numbers.below(400);
        buffers.push((
            lower,
            lower + 1 + numbers.below(60),
            1 + numbers.below(1000),
        ));
    }
    let input = input("plan_time.csv", &buffers);
    let output = text(&place("plan_time_out.csv"));
    let arguments = [&input, "--time-limit", "0.3", "--output", &output];
    let report = plan(&arguments.map(|argument| -> &str { argument }));
    assert!(report["seconds"].as_f64().unwrap() < 3.0);
    assert_eq!(checked_slab(&output), number(&report, "slab_bytes"));
    assert!(report["ratio"].as_f64().unwrap() < 1.2);

    // The capacity equals the load, which the search without time cannot reach.
    let load = number(&report, "max_load_bytes").to_string();
    if number(&report, "slab_bytes").to_string() != load {
        let arguments = ["plan", &input, "--time-limit", "0", "--capacity", &load];
        let errors = missed(&run(&arguments));
        assert!(errors.contains("was found in"), "{errors}");
    }
}

#[test]
fn what_cannot_be_read_or_written_ends_with_2() {
    for (name, row, place) in [
        ("reversed", "a,4,2,512", ":2: column 3 (upper)"),
        ("negative", "a,-1,2,512", ":2: column 2 (lower)"),
        ("text", "a,0,2,big", ":2: column 4 (size)"),
        ("twice", "a,0,2,1\na,0,2,1", ":3: column 1 (id)"),
        (
            "sum",
            "a,0,1,9000000000000000000\nb,0,1,9000000000000000000",
            ":3: column 4 (size)",
        ),
    ] {
        let name = format!("plan_bad_{name}.csv");
        let errors = refused(&run(&["plan", &file(&name, format!("{HEADER}{row}\n"))]));
        assert!(errors.contains(&format!("{name}{place}")), "{errors}");
    }
    let errors = refused(&run(&[
        "plan",
        &file("plan_bad_header.csv", "id,lower,upper\n"),
    ]));
    assert!(errors.contains("size"), "{errors}");
    let errors = refused(&run(&["plan", "plan_absent.csv"]));
    assert!(errors.contains("plan_absent.csv"), "{errors}");

    let input = input("plan_unwritable.csv", &[(0, 1, 1)]);
    let output = text(&place("no_such_folder").join("out.csv"));
    let errors = refused(&run(&["plan", &input, "--output", &output]));
    assert!(errors.contains("no_such_folder"), "{errors}");
    for limit in ["-1", "nan", "inf", "soon"] {
        let limit = format!("--time-limit={limit}");
        refused(&run(&["plan", &input, &limit]));
    }
    refused(&run(&["plan", &input, "--capacity=-1"]));
    assert!(cachescope(&["plan"]).output().unwrap().status.code() == Some(2));
}
