//! Tests of MiniMalloc's columns `alignment` and `gaps`, and of the old names of its columns.

use std::fs;

use crate::{file, json, missed, number, place, refused, run, succeeded, text};

/// Plans a file. Returns the slab and the offsets. Checks that the output can be planned again.
fn planned(name: &str, content: &str) -> (u64, Vec<u64>) {
    let input = file(&format!("{name}.csv"), content);
    let output = text(&place(&format!("{name}-out.csv")));
    let report = json(&["plan", &input, "--output", &output]);
    let slab = number(&report, "slab_bytes");
    let again = json(&["plan", &output]);
    assert_eq!(
        number(&again, "slab_bytes"),
        slab,
        "{name}: the output is read alike"
    );
    let plan = fs::read_to_string(output).unwrap();
    let offsets = plan
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().unwrap());
    (
        slab,
        offsets.map(|offset| offset.parse().unwrap()).collect(),
    )
}

/// The name, the content and the slab of each plan, and its sorted offsets if the optimum is
/// unique.
const PLANS: [(&str, &str, u64, Option<&[u64]>); 12] = [
    (
        "unaligned",
        "id,lower,upper,size\na,0,1,5\nb,0,1,5\n",
        10,
        Some(&[0, 5]),
    ),
    (
        "aligned",
        "id,lower,upper,size,alignment\na,0,1,5,8\nb,0,1,5,8\n",
        13,
        Some(&[0, 8]),
    ),
    (
        "mixed",
        "id,lower,upper,size,alignment\na,0,1,5,1\nb,0,1,3,8\n",
        8,
        Some(&[0, 3]),
    ),
    (
        "odd",
        "alignment,id,lower,upper,size\n3,a,0,1,4\n3,b,0,1,4\n",
        10,
        Some(&[0, 6]),
    ),
    (
        "ones",
        "id,lower,upper,size,alignment\na,0,1,5,1\nb,0,1,5,1\n",
        10,
        Some(&[0, 5]),
    ),
    (
        "gap",
        "id,lower,upper,size,gaps\na,0,9,8,2-4\nb,2,4,8,\n",
        8,
        Some(&[0, 0]),
    ),
    (
        "no-gap",
        "id,lower,upper,size,gaps\na,0,9,8,2-4\nb,2,5,8,\n",
        16,
        Some(&[0, 8]),
    ),
    (
        "window",
        "id,lower,upper,size,gaps\na,0,9,8,2-4@6:8\nb,2,4,6,\n",
        8,
        Some(&[0, 0]),
    ),
    (
        "hole",
        "id,lower,upper,size,gaps\na,0,9,8,2-3@0:2 3-4@6:8\nb,2,4,4,\n",
        8,
        Some(&[0, 2]),
    ),
    (
        "old-names",
        "buffer,start,end,size\na,0,1,8\nb,2,3,8\nc,1,2,4\n",
        12,
        None,
    ),
    (
        "inclusive",
        "buffer_id,begin,end,size\na,0,2,8\nb,2,3,8\n",
        16,
        Some(&[0, 8]),
    ),
    (
        "old-gaps",
        "buffer,start,end,size,gaps\na,0,8,8,2-3\nb,2,3,8,\n",
        8,
        Some(&[0, 0]),
    ),
];

#[test]
fn columns_that_change_the_meaning_are_honoured() {
    for (name, content, slab, expected) in PLANS {
        let (found, mut offsets) = planned(&format!("honoured-{name}"), content);
        assert_eq!(found, slab, "{name}");
        offsets.sort_unstable();
        if let Some(expected) = expected {
            assert_eq!(offsets, expected, "{name}");
        }
        let path = file(&format!("capacity-{name}.csv"), content);
        let exact = ["plan", &path, "--capacity", &slab.to_string()];
        assert_eq!(number(&json(&exact), "slab_bytes"), slab, "{name}");
        let errors = missed(&run(&[
            "plan",
            &path,
            "--capacity",
            &(slab - 1).to_string(),
        ]));
        assert!(errors.contains("no plan exists"), "{name}: {errors}");
    }
}

#[test]
fn constraints_are_written_to_the_output() {
    let input = file(
        "kept-constraints.csv",
        "buffer,start,end,size,alignment,gaps\na,0,8,8,4,2-3 5-5@0:4\nb,0,1,4,1,\n",
    );
    let output = text(&place("kept-constraints-out.csv"));
    succeeded(&run(&["plan", &input, "--output", &output]));
    let plan = fs::read_to_string(output).unwrap();
    let rows: Vec<&str> = plan.lines().collect();
    assert_eq!(rows[0], "id,lower,upper,size,alignment,gaps,offset");
    assert!(rows[1].starts_with("a,0,9,8,4,2-4 5-6@0:4,"), "{plan}");
    assert!(rows[2].starts_with("b,0,2,4,1,,"), "{plan}");
}

#[test]
fn malformed_constraints_are_refused_with_their_place() {
    let cases = [
        ("alignment", "0", "column 5 (alignment): \"0\""),
        ("alignment", "", "column 5 (alignment)"),
        ("alignment", "-4", "negative"),
        ("alignment", "4.0", "not a whole number"),
        ("gaps", "2", "column 5 (gaps): \"2\" is not a gap"),
        ("gaps", "1-2-3", "is not a gap"),
        ("gaps", "A-B", "is not a gap"),
        ("gaps", "2-4@1", "is not a gap"),
        ("gaps", "2-4@1:x", "is not a gap"),
        ("gaps", "+2-4", "is not a gap"),
        ("gaps", "4-2", "outside of the lifetime"),
        ("gaps", "0-2", "outside of the lifetime"),
        ("gaps", "2-10", "outside of the lifetime"),
        ("gaps", "2-9223372036854775808", "is not a gap"),
        ("gaps", "2-4@0:9", "outside of the buffer"),
        ("gaps", "2-4@5:3", "outside of the buffer"),
        ("gaps", "2-4 3-5", "two gaps overlap at step 3"),
    ];
    for (column, value, reason) in cases {
        let content = format!("id,lower,upper,size,{column}\na,1,9,8,{value}\n");
        let path = file("malformed-constraint.csv", content);
        let errors = refused(&run(&["plan", &path]));
        assert!(
            errors.contains(&format!("{path}:2: column 5")),
            "{value}: {errors}"
        );
        assert!(errors.contains(reason), "{value}: {errors}");
    }
    for header in [
        "id,buffer,lower,upper,size",
        "id,lower,start,upper,size",
        "id,lower,upper,end,size",
    ] {
        let path = file("two-names.csv", format!("{header}\na,0,1,2,3\n"));
        let errors = refused(&run(&["plan", &path]));
        assert!(errors.contains("a duplicate column"), "{errors}");
    }
}

#[test]
fn commands_that_place_whole_buffers_refuse_gaps() {
    let gaps = file(
        "replayed-gaps.csv",
        "id,lower,upper,size,gaps\na,0,9,8,2-4\n",
    );
    let errors = refused(&run(&["replay", &gaps]));
    assert!(
        errors.contains(&format!("{gaps}:2: column 5 (gaps)")),
        "{errors}"
    );
    // Rows without gaps are replayed, because a pool aligns its blocks to its unit.
    let plain = "id,lower,upper,size,alignment,gaps,colour\na,0,1,5,1,,red\n";
    succeeded(&run(&["replay", &file("replayed-plain.csv", plain)]));
    succeeded(&run(&[
        "replay",
        &file("replayed-old.csv", "buffer,start,end,size\na,0,1,5\n"),
    ]));
    // A plan is displayed even if its offsets are not multiples of its alignments.
    let plan = "id,lower,upper,size,alignment,offset\na,0,1,5,8,0\nb,0,1,5,8,8\n";
    let page = text(&place("aligned-plan.html"));
    succeeded(&run(&[
        "view",
        &file("aligned-plan.csv", plan),
        "--output",
        &page,
    ]));
}
