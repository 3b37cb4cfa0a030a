//! Tests of the model of PyTorch's allocator. Each test checks a documented rule on a small trace,
//! with figures that are computed by hand.

use serde_json::{Value, json};

use crate::snapshots::{FILES, pickle};
use crate::{Numbers, file, json, number, refused, replayed, run, succeeded};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A recording of two training steps of a small network (benches/peers/pytorch/record.py).
const TINY: &[u8] = include_bytes!("snapshots/tiny.pickle");

/// Writes lifetimes, given as lower, upper and size. Returns the path of the file.
fn trace(name: &str, lifetimes: &[(u64, u64, u64)]) -> String {
    let mut lines = String::from("id,lower,upper,size\n");
    for (id, (lower, upper, size)) in lifetimes.iter().enumerate() {
        lines += &format!("{id},{lower},{upper},{size}\n");
    }
    file(&format!("models-{name}.csv"), lines)
}

/// Returns the results of the models of plain and of expandable segments.
#[track_caller]
fn modelled(arguments: &[&str]) -> [Value; 2] {
    let report = json(&[&["replay"], arguments, &["--model", "all"]].concat());
    let models = report["models"].as_array().expect("an array");
    assert_eq!(models[2]["name"], "cuda-pool");
    models[..2]
        .to_vec()
        .try_into()
        .expect("two models of PyTorch")
}

/// Returns the peak of the reserved bytes with plain and with expandable segments.
#[track_caller]
fn reserved(name: &str, lifetimes: &[(u64, u64, u64)]) -> [u64; 2] {
    modelled(&[&trace(name, lifetimes)]).map(|model| number(&model, "peak_reserved_bytes"))
}

/// Returns the peaks like [`reserved`], for requests that are all live at once.
#[track_caller]
fn reserved_at_once(name: &str, sizes: &[u64]) -> [u64; 2] {
    let lifetimes: Vec<_> = (0..)
        .zip(sizes)
        .map(|(at, &size)| (at, 9999, size))
        .collect();
    reserved(name, &lifetimes)
}

#[test]
fn the_first_request_reserves_a_segment_by_its_size() {
    for (size, segment, pages) in [
        (1, 2 * MIB, 2 * MIB),
        (KIB, 2 * MIB, 2 * MIB),
        (MIB, 2 * MIB, 2 * MIB),
        // Requests above 1 MiB use the large pool. Below 10 MiB, its segments have 20 MiB.
        (MIB + 1, 20 * MIB, 20 * MIB),
        (3 * MIB, 20 * MIB, 20 * MIB),
        (10 * MIB - 512, 20 * MIB, 20 * MIB),
        // From 10 MiB on, a segment has the size of the request, rounded up to 2 MiB. An expandable
        // segment grows by pages of 20 MiB.
        (10 * MIB, 10 * MIB, 20 * MIB),
        (11 * MIB, 12 * MIB, 20 * MIB),
        (12 * MIB + 1, 14 * MIB, 20 * MIB),
        (21 * MIB, 22 * MIB, 40 * MIB),
    ] {
        let name = format!("first-{size}");
        assert_eq!(reserved(&name, &[(0, 1, size)]), [segment, pages], "{size}");
    }
}

#[test]
fn sizes_are_rounded_to_512_bytes() {
    // The 4096 requests are rounded up to 512 bytes each, so they fill a segment of 2 MiB.
    assert_eq!(reserved_at_once("units", &[1; 4096]), [2 * MIB; 2]);
    assert_eq!(
        reserved_at_once("one-unit-more", &[512; 4097]),
        [4 * MIB; 2]
    );
    assert_eq!(reserved_at_once("two-units", &[513; 2049]), [4 * MIB; 2]);
    // A request of 1 MiB minus 511 bytes is rounded up to 1 MiB, so it uses the small pool.
    let sizes = [MIB - 511, MIB - 511];
    assert_eq!(reserved_at_once("rounded", &sizes), [2 * MIB; 2]);
}

#[test]
fn the_pools_share_nothing() {
    assert_eq!(reserved_at_once("pools", &[KIB, 3 * MIB]), [22 * MIB; 2]);
    // The 20 MiB of the large pool are free, but the small pool cannot use them.
    let lifetimes = [(0, 1, 3 * MIB), (1, 9, MIB), (2, 9, MIB), (3, 9, MIB)];
    assert_eq!(reserved("pools-free", &lifetimes), [24 * MIB; 2]);
}

#[test]
fn a_block_is_split_while_the_rest_is_worth_it() {
    // Five blocks of 4 MiB fill one segment of 20 MiB.
    assert_eq!(reserved_at_once("split", &[4 * MIB; 5]), [20 * MIB; 2]);
    assert_eq!(reserved_at_once("split-more", &[4 * MIB; 6]), [40 * MIB; 2]);
    // The block of 19 MiB is in a segment of 20 MiB. A remainder is split off only if it exceeds 1
    // MiB, so this remainder stays in the block. An expandable segment splits the remainder off.
    // The block of 1.5 MiB then occupies the remainder and a part of a new page.
    let kept = [(0, 1, 9 * MIB), (1, 99, 19 * MIB), (2, 99, 3 * MIB / 2)];
    assert_eq!(reserved("rest-kept", &kept), [40 * MIB; 2]);
    // A remainder of 1.5 MiB is split off, and serves the next request.
    let taken = [(0, 1, 9 * MIB), (1, 99, 37 * MIB / 2), (2, 99, 3 * MIB / 2)];
    assert_eq!(reserved("rest-taken", &taken), [20 * MIB; 2]);
    // The blocks have 8, 7 and 5 MiB. The block of 6 MiB replaces the block of 7 MiB. If the
    // remainder of 1 MiB is split off, it merges with the freed 5 MiB. The second block of 6 MiB
    // then fits.
    let between = [
        (0, 99, 8 * MIB),
        (1, 4, 7 * MIB),
        (2, 6, 5 * MIB),
        (5, 99, 6 * MIB),
        (7, 99, 6 * MIB),
    ];
    assert_eq!(reserved("rest-between", &between), [40 * MIB, 20 * MIB]);
}

#[test]
fn an_expandable_segment_uses_the_rest_that_a_plain_one_keeps() {
    // The block of 21 MiB needs a segment of 22 MiB. An expandable segment adds a page of 20 MiB to
    // the remainder of 1 MiB.
    let lifetimes = [(0, 1, 9 * MIB), (1, 99, 19 * MIB), (2, 99, 21 * MIB)];
    assert_eq!(reserved("rest-grown", &lifetimes), [42 * MIB, 40 * MIB]);
}

#[test]
fn freed_neighbours_merge_within_a_segment_only() {
    // Four blocks of 5 MiB fill 20 MiB. After the middle blocks are freed, a block of 10 MiB fits
    // between the outer blocks.
    let within = [
        (0, 99, 5 * MIB),
        (1, 5, 5 * MIB),
        (2, 6, 5 * MIB),
        (3, 99, 5 * MIB),
        (7, 99, 10 * MIB),
    ];
    assert_eq!(reserved("merged", &within), [20 * MIB; 2]);
    // Two free segments of 12 MiB cannot serve 24 MiB, but an expandable segment can.
    let apart = [(0, 5, 12 * MIB), (1, 6, 12 * MIB), (7, 99, 24 * MIB)];
    assert_eq!(reserved("apart", &apart), [48 * MIB, 40 * MIB]);
}

#[test]
fn the_smallest_free_block_that_fits_is_taken() {
    // Segments of 14 and 12 MiB are free. The request of 12 MiB uses the smaller segment, so the
    // request of 14 MiB can use the other segment.
    let lifetimes = [
        (0, 5, 14 * MIB),
        (1, 5, 12 * MIB),
        (6, 99, 12 * MIB),
        (7, 99, 14 * MIB),
    ];
    assert_eq!(reserved("best", &lifetimes)[0], 26 * MIB);
    // If the request of 12 MiB used the segment of 14 MiB, the peak would be 40 MiB.
}

#[test]
fn the_end_of_an_expandable_segment_is_kept_for_what_fits_nowhere_else() {
    // The page has 8 MiB free, 10 MiB used, and 2 MiB free at its end. The request of 2 MiB uses
    // the first free part. The request of 22 MiB uses the end and another page, 40 MiB in all.
    let lifetimes = [
        (0, 5, 8 * MIB),
        (1, 99, 10 * MIB),
        (6, 99, 2 * MIB),
        (7, 99, 22 * MIB),
    ];
    assert_eq!(reserved("end", &lifetimes)[1], 40 * MIB);
    // If only the size of free parts counted, the request of 2 MiB would use the end. Then the
    // request of 22 MiB would need two more pages.
}

#[test]
fn releases_nothing_before_memory_is_short() {
    // Each request follows the previous free, and fits into no earlier segment.
    let lifetimes = [(0, 1, 12 * MIB), (2, 3, 14 * MIB), (4, 5, 16 * MIB)];
    let trace = trace("pressure", &lifetimes);
    let reserved_below = |limit: &str| {
        let models = modelled(&[&trace, "--memory-limit", limit]);
        assert_eq!(
            models.each_ref().map(|model| number(model, "failures")),
            [0; 2]
        );
        models.map(|model| number(&model, "peak_reserved_bytes"))
    };
    assert_eq!(reserved_below("1GiB"), [42 * MIB, 20 * MIB]);
    assert_eq!(reserved_below("41MiB"), [26 * MIB, 20 * MIB]);
    assert_eq!(reserved_below("20MiB"), [16 * MIB, 20 * MIB]);
    // A page of 20 MiB exceeds the limit.
    let [plain, expandable] = modelled(&[&trace, "--memory-limit", "15MiB"]);
    assert_eq!(number(&plain, "failures"), 1);
    assert_eq!(number(&plain, "peak_live_bytes"), 14 * MIB);
    assert_eq!(number(&expandable, "failures"), 3);
    assert_eq!(number(&expandable, "peak_reserved_bytes"), 0);
}

#[test]
fn requests_of_no_bytes_take_nothing() {
    let models = modelled(&[&trace("empty", &[(0, 9, 0), (3, 3, MIB)])]);
    for model in models {
        assert_eq!(number(&model, "events"), 4);
        assert_eq!(number(&model, "peak_reserved_bytes"), 0);
        assert_eq!(model["ratio"], 1.0);
    }
}

#[test]
fn no_less_is_reserved_than_is_live() {
    let mut numbers = Numbers(11);
    for round in 0..6 {
        let lifetimes: Vec<_> = (0..600)
            .map(|_| {
                let (lower, magnitude) = (numbers.below(1000), 4 + numbers.below(22));
                (
                    lower,
                    lower + numbers.below(200),
                    numbers.below(1 << magnitude),
                )
            })
            .collect();
        let trace = trace(&format!("random-{round}"), &lifetimes);
        let pool = replayed(&[&trace]).remove(0);
        for limit in ["1GiB", "40MiB"] {
            for model in modelled(&[&trace, "--memory-limit", limit]) {
                let live = number(&model, "peak_live_bytes");
                let reserved = number(&model, "peak_reserved_bytes");
                assert!(
                    live <= reserved && reserved.is_multiple_of(2 * MIB),
                    "{model}"
                );
                assert!(limit == "1GiB" || reserved <= 40 * MIB, "{model}");
                assert_eq!(number(&model, "events"), number(&pool, "events"));
                let whole = number(&model, "failures") == 0;
                assert_eq!(whole, live == number(&pool, "peak_live_bytes"), "{model}");
            }
        }
    }
}

#[test]
fn only_the_option_adds_rows_and_a_key_below() {
    let trace = trace("rows", &[(0, 1, KIB)]);
    let pools = |text: &str| -> Vec<String> {
        let lines = text.lines().skip(1);
        let first = lines.map(|line| line.split_whitespace().next().unwrap().into());
        first.collect()
    };
    let bare = succeeded(&run(&["replay", &trace, "--pool", "all"]));
    assert_eq!(pools(&bare), ["best-fit", "binned", "direct"]);
    assert!(json(&["replay", &trace]).get("models").is_none());
    let printed = succeeded(&run(&["replay", &trace, "--pool", "all", "--model", "all"]));
    assert_eq!(
        pools(&printed),
        ["best-fit", "binned", "direct", "model", "model", "model"]
    );
    let rows: Vec<&str> = printed.lines().skip(4).collect();
    assert!(
        rows[0].ends_with("model of PyTorch's allocator"),
        "{printed}"
    );
    assert!(rows[1].ends_with("expandable segments"), "{printed}");
    assert!(rows[2].contains("CUDA's stream-ordered pool"), "{printed}");
    for name in ["pytorch", "pytorch-expandable", "cuda-pool"] {
        let report = json(&["replay", &trace, "--model", name]);
        assert_eq!(report["models"][0]["name"], name);
        assert_eq!(number(&report["models"][0], "events"), 2);
        let segment = if name == "cuda-pool" {
            32 * MIB
        } else {
            2 * MIB
        };
        assert_eq!(number(&report["models"][0], "peak_reserved_bytes"), segment);
        assert!(report["models"].get(1).is_none());
    }
    let errors = refused(&run(&["replay", &trace, "--model", "jemalloc"]));
    assert!(
        errors.contains("one of pytorch, pytorch-expandable, cuda-pool, all"),
        "{errors}"
    );
}

#[test]
fn a_model_is_shown_beside_the_recorded_figures() {
    let snapshot = file("models-recorded.pickle", FILES[0].1);
    let report = json(&["replay", &snapshot, "--model", "pytorch"]);
    assert!(report.get("models").is_none());
    let second = &report["devices"][1];
    // The recording and the model have one request of 4 KiB.
    assert_eq!(number(&second["pytorch"], "peak_reserved_bytes"), 2 * MIB);
    assert_eq!(number(&second["models"][0], "peak_reserved_bytes"), 2 * MIB);
    let printed = succeeded(&run(&["replay", &snapshot, "--model", "pytorch"]));
    let names = ["pool", "best-fit", "PyTorch", "model"];
    for (line, name) in printed.lines().skip(1).zip(names) {
        assert!(line.starts_with(name), "{printed}");
    }
}

#[test]
fn omits_figures_that_were_not_recorded() {
    let snapshot = file("models-tiny.pickle", TINY);
    let device = &json(&["replay", &snapshot, "--pool", "all", "--model", "all"])["devices"][0];
    let pytorch = &device["pytorch"];
    assert_eq!(pytorch["peak_reserved_bytes"], Value::Null);
    assert_eq!(pytorch["ratio"], Value::Null);
    let live = number(pytorch, "peak_live_bytes");
    assert!(live > MIB);
    for row in device["pools"].as_array().unwrap() {
        assert_eq!(number(row, "peak_live_bytes"), live);
    }
    // No request exceeds 1 MiB, and two segments contain the peak.
    for model in &device["models"].as_array().unwrap()[..2] {
        assert_eq!(number(model, "peak_live_bytes"), live);
        assert_eq!(number(model, "peak_reserved_bytes"), 4 * MIB);
    }
    let printed = succeeded(&run(&["replay", &snapshot]));
    let row = printed.lines().find(|line| line.starts_with("PyTorch"));
    assert!(row.unwrap().contains("not recorded"), "{printed}");
    // Without live memory, nothing was reserved.
    let empty = json!({"segments": [], "device_traces": [[
        {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": 1, "frames": []},
    ]]});
    let empty = file("models-nothing.pickle", pickle(&empty));
    let device = &json(&["replay", &empty])["devices"][0];
    assert_eq!(number(&device["pytorch"], "peak_reserved_bytes"), 0);
}
