//! Tests of rejected input: the exit code 2, and the position of the error.

use std::fs;

use crate::{cachescope, file, place, refused, run, text};

const LIFETIMES: &str = "id,lower,upper,size";
const LOG: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// Asserts that a trace is rejected with the given message after the file name.
#[track_caller]
fn refuses(name: &str, content: impl AsRef<[u8]>, reason: &str) {
    let trace = file(&format!("refused-{name}.csv"), content);
    let errors = refused(&run(&["replay", &trace, "--pool", "all"]));
    assert_eq!(errors, format!("error: {trace}:{reason} [CS0801]\n"));
}

#[test]
fn a_header_must_be_there_and_name_each_column_once() {
    let lifetimes = "expected the columns id,lower,upper,size";
    let log = "expected the columns Thread,Time,Action,Pointer,Size,Stream";
    refuses("empty", "", " no header: the file is empty");
    refuses("blank", "\n\r\n  \n", " no header: the file is empty");
    refuses("mark", "\u{feff}", " no header: the file is empty");
    refuses(
        "no-id",
        "lower,upper,size\n1,2,3\n",
        &format!("1: no column id, {lifetimes}"),
    );
    refuses(
        "no-size",
        "id,lower,upper\n",
        &format!("1: no column size, {lifetimes}"),
    );
    refuses(
        "no-header",
        "0,0,1029,128\n",
        &format!("1: no column id, {lifetimes}"),
    );
    refuses(
        "case",
        "\nID,Lower,Upper,SIZE\n",
        &format!("2: no column id, {lifetimes}"),
    );
    refuses(
        "no-pointer",
        "Thread,Time,Action,Size,Stream\n",
        &format!("1: no column Pointer, {log}"),
    );
    refuses(
        "no-stream",
        "Thread,Time,Action,Pointer,Size\n",
        &format!("1: no column Stream, {log}"),
    );
    refuses(
        "twice",
        "id,lower,upper,size,lower\n",
        "1: column 5 (lower): a duplicate column",
    );
}

#[test]
fn rows_have_the_columns_of_the_header() {
    let first = format!("{LIFETIMES}\n0,1,2,3\n");
    refuses(
        "short",
        format!("{first}1,2,3\n"),
        "3: 3 columns, the header has 4",
    );
    refuses(
        "long",
        format!("{first}\n1,2,3,4,\n"),
        "4: 5 columns, the header has 4",
    );
    refuses(
        "words",
        format!("{first}the end\n"),
        "3: 1 columns, the header has 4",
    );
}

#[test]
fn numbers_are_whole_and_below_2_to_the_63() {
    let cases = [
        ("0,-1,2,3", "column 2 (lower): \"-1\" is negative"),
        ("0,1,-2,3", "column 3 (upper): \"-2\" is negative"),
        ("0,1,2,-3", "column 4 (size): \"-3\" is negative"),
        ("0,1,2,", "column 4 (size): \"\" is not a whole number"),
        ("0,1,2,x", "column 4 (size): \"x\" is not a whole number"),
        (
            "0,1,2,1.5",
            "column 4 (size): \"1.5\" is not a whole number",
        ),
        (
            "0,1,2,1e3",
            "column 4 (size): \"1e3\" is not a whole number",
        ),
        ("0,1,2,+3", "column 4 (size): \"+3\" is not a whole number"),
        (
            "0,1,2,1 0",
            "column 4 (size): \"1 0\" is not a whole number",
        ),
        (
            "0,1,2,0x10",
            "column 4 (size): \"0x10\" is not a whole number",
        ),
        (
            "0,1,2,9223372036854775808",
            "column 4 (size): \"9223372036854775808\" is 2^63 or more",
        ),
        (
            "0,1,99999999999999999999999,3",
            "column 3 (upper): \"99999999999999999999999\" is 2^63 or more",
        ),
    ];
    for (index, (row, reason)) in cases.into_iter().enumerate() {
        let content = format!("{LIFETIMES}\na,1,2,3\r\n{row}\nb,1,2,3\n");
        refuses(&format!("number-{index}"), content, &format!("3: {reason}"));
    }
    let content = format!("{LOG}\n1,x,allocate,0x1,9223372036854775808,0\n");
    refuses(
        "log-size",
        content,
        "2: column 5 (Size): \"9223372036854775808\" is 2^63 or more",
    );
    let content = format!("{LOG}\n1,x,free,0x1,-7,0\n");
    refuses(
        "log-negative",
        content,
        "2: column 5 (Size): \"-7\" is negative",
    );
}

#[test]
fn lifetimes_must_be_possible() {
    let cases = [
        (
            "reversed",
            "a,5,4,1",
            "2: column 3 (upper): \"4\" is below the lower end, 5",
        ),
        (
            "again",
            "a,0,4,1\nb,0,1,1\na,9,9,1",
            "4: column 1 (id): \"a\" is a duplicate id",
        ),
        (
            "sum",
            "a,0,4,9223372036854775807\nb,9,9,0\nc,5,6,1",
            "4: column 4 (size): the sizes up to here sum to 2^63 or more",
        ),
    ];
    for (name, rows, reason) in cases {
        refuses(name, format!("{LIFETIMES}\n{rows}\n"), reason);
    }
}

#[test]
fn a_log_must_be_possible() {
    let cases = [
        (
            "unknown",
            "free,0x10,1",
            "2: column 4 (Pointer): \"0x10\" is not allocated, or freed already",
        ),
        (
            "twice-freed",
            "allocate,0x10,1\nfree,0x10,1\nfree,0x10,1",
            "4: column 4 (Pointer): \"0x10\" is not allocated, or freed already",
        ),
        (
            "twice-allocated",
            "allocate,0x20,1\nallocate,0x10,1\nallocate,0x020,1",
            "4: column 4 (Pointer): \"0x020\" is alive since line 2",
        ),
        (
            "null",
            "free,(nil),8",
            "2: column 4 (Pointer): \"(nil)\" is not allocated, or freed already",
        ),
        (
            "action",
            "reallocate,0x10,1",
            "2: column 3 (Action): \"reallocate\" is not an action, expected allocate, allocate \
             failure or free",
        ),
        (
            "no-action",
            ",0x10,1",
            "2: column 3 (Action): \"\" is not an action, expected allocate, allocate failure or \
             free",
        ),
        (
            "pointer",
            "allocate,here,1",
            "2: column 4 (Pointer): \"here\" is not a hexadecimal pointer",
        ),
        (
            "no-pointer",
            "allocate,,1",
            "2: column 4 (Pointer): \"\" is not a hexadecimal pointer",
        ),
        (
            "sign",
            "allocate,+1,1",
            "2: column 4 (Pointer): \"+1\" is not a hexadecimal pointer",
        ),
        (
            "wide",
            "allocate,0x10000000000000000,1",
            "2: column 4 (Pointer): \"0x10000000000000000\" is not a hexadecimal pointer",
        ),
    ];
    for (name, rows, reason) in cases {
        let rows: String = rows.lines().map(|row| format!("1,x,{row},0\n")).collect();
        refuses(&format!("log-{name}"), format!("{LOG}\n{rows}"), reason);
    }
}

#[test]
fn refuses_bytes_that_are_no_text_with_their_position() {
    refuses(
        "utf8",
        b"id,lower,upper,size\na,1,2,3\nb,1,\xff,3\n",
        "3: column 3 (upper): not UTF-8",
    );
    refuses(
        "utf8-header",
        b"id,low\xc3,upper,size\n",
        "1: column 2: not UTF-8",
    );
    refuses("utf16", b"\xff\xfei\0d\0\n\0", "1: column 1: not UTF-8");
    refuses(
        "quote",
        format!("{LIFETIMES}\n\"a,1,2,3\n"),
        "2: column 1 (id): an unclosed quote",
    );
    refuses(
        "after-quote",
        format!("{LIFETIMES}\na,\"1\"0,2,3\n"),
        "2: column 2 (lower): text after the closing quote",
    );
    let endless = format!("{LIFETIMES}\n{}", "x".repeat(3 << 20));
    refuses("endless", endless, "2: a line of more than 1 MiB");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let missing = text(&place("no-such-trace.csv"));
    let errors = refused(&run(&["replay", &missing]));
    assert!(
        errors.starts_with(&format!("error: {missing}: ")),
        "{errors}"
    );
    let folder = place("a-folder.csv");
    fs::create_dir_all(&folder).unwrap();
    let errors = refused(&run(&["replay", &text(&folder)]));
    assert!(
        errors.starts_with(&format!("error: {}", folder.display())),
        "{errors}"
    );
}

#[test]
fn refusals_survive_a_closed_error_stream() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = cachescope(&["replay", "no-such-trace.csv"]);
    let status = command.stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
