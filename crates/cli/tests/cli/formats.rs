//! Tests of the two trace formats.

use crate::oracle;
use crate::{file, number, place, replayed, replayed_once, text};

const LIFETIMES: &str = "id,lower,upper,size\n";
const LOG: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

/// Returns the events, the peak of the live bytes, and the highest end of a block.
#[track_caller]
fn figures(name: &str, content: impl AsRef<[u8]>) -> [u64; 3] {
    let pool = replayed_once(&[&file(name, content)]);
    assert_eq!(number(&pool, "failures"), 0);
    ["events", "peak_live_bytes", "peak_reserved_bytes"].map(|name| number(&pool, name))
}

#[test]
fn a_header_alone_is_a_program_that_did_nothing() {
    for (name, content) in [
        ("header.csv", LIFETIMES.to_owned()),
        ("header-log.csv", LOG.to_owned()),
        ("header-no-end.csv", LOG.trim_end().to_owned()),
        ("header-blank.csv", format!("{LIFETIMES}\n\r\n  \n")),
    ] {
        for pool in replayed(&[&file(name, content), "--pool", "all"]) {
            for figure in [
                "events",
                "peak_live_bytes",
                "peak_reserved_bytes",
                "failures",
            ] {
                assert_eq!(number(&pool, figure), 0);
            }
            assert_eq!(pool["ns_per_event"], 0.0);
            assert_eq!(pool["ratio"], 1.0);
        }
    }
}

#[test]
fn columns_are_in_any_order_and_more_are_ignored() {
    let content = "size,alignment,id,upper,lower,name\n100,64,a,5,0,x\n513,64,b,7,1,\n";
    assert_eq!(figures("order.csv", content), [4, 613, 1536]);
    let content = "Size,Pointer,Stream,Action,Note,Time,Thread\n\
                   7,0x1,0,allocate,,,1\n7,0x1,0,free,,,1\n";
    assert_eq!(figures("order-log.csv", content), [2, 7, 512]);
}

#[test]
fn line_ends_blank_lines_spaces_and_a_byte_order_mark_do_not_matter() {
    let plain = format!("{LIFETIMES}a,0,5,100\nb,1,7,513\n");
    let expected = figures("plain.csv", &plain);
    assert_eq!(expected, [4, 613, 1536]);
    let variants = [
        ("windows", plain.replace('\n', "\r\n")),
        ("mark", format!("\u{feff}{plain}")),
        ("blank", format!("\n{}\n\n", plain.replace('\n', "\n \n\n"))),
        ("spaces", plain.replace(',', " ,\t")),
        ("no-end", plain.trim_end().to_owned()),
        (
            "quotes",
            plain
                .replace("a,0,", "\"a\",\"0\" , ")
                .replace("id", "\"id\""),
        ),
        (
            "all",
            format!("\u{feff}{}", plain.replace('\n', "\r\n\r\n")),
        ),
    ];
    for (name, content) in variants {
        let name = format!("variant-{name}.csv");
        assert_eq!(figures(&name, content), expected, "{name}");
    }
}

#[test]
fn quoted_ids_are_written_as_they_were_read() {
    let content =
        format!("{LIFETIMES}\"a,1\",0,5,100\n\"say \"\"b\"\"\",1,7,513\n\" c \",1,7,1\nö,1,2,3\n");
    let out = place("quoted-out.csv");
    replayed_once(&[&file("quoted.csv", content), "--output", &text(&out)]);
    let expected = "id,lower,upper,size,offset\n\"a,1\",0,5,100,0\n\"say \"\"b\"\"\",1,7,513,512\n\
                    \" c \",1,7,1,1536\nö,1,2,3,2048\n";
    assert_eq!(std::fs::read_to_string(out).unwrap(), expected);
}

#[test]
fn a_log_is_replayed_in_the_order_of_its_lines_whatever_the_thread_time_and_stream() {
    // The second line is the free of another thread's allocation, on another stream, at an earlier
    // time.
    let content = format!(
        "{LOG}1,10:00:02.0,allocate,0xA0,512,0x0\n2,10:00:01.0,free,0xa0,512,per-thread\n\
         2,09:00:00.0,allocate,A0,512,default\n1,,free,0x00000000000000a0,512,0x7f00\n"
    );
    assert_eq!(figures("threads.csv", content), [4, 512, 512]);
}

#[test]
fn what_failed_when_it_was_recorded_is_passed_over() {
    let content = format!(
        "{LOG}1,x,allocate,0x10,512,0\n1,x,allocate failure,(nil),99999999,0\n\
         1,x,allocate failure,0x0,7,0\n1,x,free,0x10,512,0\n"
    );
    assert_eq!(figures("failure.csv", content), [2, 512, 512]);
}

#[test]
fn null_pointers_of_nothing_are_passed_over() {
    let content = format!(
        "{LOG}1,x,allocate,(nil),0,0\n1,x,allocate,0x0,0,0\n1,x,free,(nil),0,0\n1,x,free,0x0,0,0\n\
         1,x,free,0x0,0,0\n1,x,allocate,0x10,0,0\n1,x,free,0x10,0,0\n"
    );
    assert_eq!(figures("null.csv", content), [2, 0, 0]);
}

#[test]
fn a_free_ends_the_block_of_its_pointer_whatever_its_size() {
    let content =
        format!("{LOG}1,x,allocate,0x10,4096,0\n1,x,free,0x10,1,0\n1,x,allocate,0x10,4096,0\n");
    assert_eq!(figures("mismatch.csv", content), [3, 4096, 4096]);
}

#[test]
fn the_largest_sizes_are_read_and_fail_where_they_cannot_be_placed() {
    let largest = i64::MAX.to_string();
    let content = format!(
        "{LOG}1,x,allocate,0x10,{largest},0\n1,x,allocate,0x20,{largest},0\n1,x,free,0x20,1,0\n"
    );
    let trace = file("largest.csv", content);
    let out = place("largest-out.csv");
    for pool in ["best-fit", "binned", "direct"] {
        let pool = replayed_once(&[&trace, "--pool", pool, "--output", &text(&out)]);
        assert_eq!(number(&pool, "failures"), 1);
        assert_eq!(number(&pool, "peak_live_bytes"), i64::MAX as u64);
        assert_eq!(number(&pool, "peak_reserved_bytes"), 1 << 63);
        let offsets: Vec<_> = oracle::read(&out).iter().map(|row| row.offset).collect();
        assert_eq!(offsets, [None, Some(0)]);
    }
}
