use super::{Pickle, Refusal, Value};

fn read(bytes: &[u8]) -> Result<Pickle, Refusal> {
    Pickle::read(bytes)
}

#[track_caller]
fn refused(bytes: &[u8], offset: usize, reason: &str) {
    let refusal = read(bytes).expect_err(reason);
    assert!(refusal.reason.contains(reason), "{refusal:?}");
    assert_eq!(refusal.offset, offset, "{refusal:?}");
}

/// What Python writes for `{'a': [1, -2, 300, 70000, 1 << 40, 1.5, None, True], 't': ('x', ()), 'again': <the list>}`.
const EACH: [&[u8]; 2] = [
    // Protocol 2.
    b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM\x2c\x01J\x70\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01G?\xf8\x00\x00\x00\x00\x00\x00N\x88eX\x01\x00\x00\x00tq\x03X\x01\x00\x00\x00xq\x04)\x86q\x05X\x05\x00\x00\x00againq\x06h\x02u.",
    // Protocol 4.
    b"\x80\x04\x95\x40\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffM\x2c\x01J\x70\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01G?\xf8\x00\x00\x00\x00\x00\x00N\x88e\x8c\x01t\x94\x8c\x01x\x94)\x86\x94\x8c\x05again\x94h\x02u.",
];

#[test]
fn plain_data_of_two_protocols_are_the_same() {
    for bytes in EACH {
        let pickle = read(bytes).unwrap();
        let at = |key| pickle.get(pickle.root(), key).unwrap();
        let numbers = [
            Value::Int(1),
            Value::Int(-2),
            Value::Int(300),
            Value::Int(70_000),
            Value::Int(1 << 40),
            Value::Float(1.5),
            Value::None,
            Value::Bool(true),
        ];
        assert_eq!(pickle.list(at("a")).unwrap(), numbers);
        assert_eq!(at("again"), at("a"), "the same list, not a copy");
        let tuple = pickle.list(at("t")).unwrap();
        assert_eq!(pickle.text(tuple[0]), Some("x"));
        assert_eq!(pickle.list(tuple[1]), Some(&[][..]));
        assert_eq!(pickle.get(pickle.root(), "b"), None);
        assert_eq!(pickle.get(at("a"), "a"), None, "no dictionary");
    }
}

#[test]
fn opcodes_that_run_code_are_refused_by_name() {
    let cases: [(&[u8], usize, &str); 10] = [
        (b"\x80\x02cos\nsystem\n.", 2, "GLOBAL"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", 14, "STACK_GLOBAL"),
        (b"\x80\x02NNR.", 4, "REDUCE"),
        (b"\x80\x02}}b.", 4, "BUILD"),
        (b"\x80\x02(ios\nsystem\n.", 3, "INST"),
        (b"\x80\x02)\x81.", 3, "NEWOBJ"),
        (b"\x80\x04\x92.", 2, "NEWOBJ_EX"),
        (b"\x80\x02\x82\x01.", 2, "EXT1"),
        (b"\x80\x02Pid\n.", 2, "PERSID"),
        (b"\x80\x05\x97.", 2, "NEXT_BUFFER"),
    ];
    for (bytes, offset, name) in cases {
        refused(bytes, offset, &format!("the opcode {name},"));
    }
}

#[test]
fn what_is_no_pickle_is_refused_with_its_place() {
    refused(b"", 0, "cut short");
    refused(b"\x80", 1, "cut short");
    refused(b"\x80\x02", 2, "cut short");
    refused(b"\x80\x06N.", 0, "protocol 6");
    refused(b"\x80\x01N.", 0, "protocol 1");
    refused(b"id,lower,upper,size\n", 0, "INST");
    refused(b"\x80\x02\xff.", 2, "0xff is no opcode");
    refused(b"\x80\x02.", 2, "no value on the stack");
    refused(b"\x80\x02(.", 3, "no value on the stack");
    refused(b"\x80\x02Ne.", 3, "no mark");
    refused(b"\x80\x02N(Ne.", 5, "used as a list");
    refused(b"\x80\x02}Na.", 4, "no list");
    refused(b"\x80\x02]NNs.", 5, "no dictionary");
    refused(b"\x80\x02}(Nu.", 5, "a key has no value");
    refused(b"\x80\x02h\x07.", 2, "number 7");
    refused(b"\x80\x02\x8a\x09\0\0\0\0\0\0\0\0\0.", 2, "9 bytes");
    refused(
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffx.",
        13,
        "cut short",
    );
    for length in 0..EACH[1].len() {
        assert!(read(&EACH[1][..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn marks_hide_what_is_below() {
    // A mark without anything above is taken off by itself.
    assert_eq!(read(b"\x80\x02N(0.").unwrap().root(), Value::None);
    assert_eq!(read(b"\x80\x02N(K\x01K\x021.").unwrap().root(), Value::None);
    refused(b"\x80\x02N(00.", 6, "no value on the stack");
}

#[test]
fn deep_nests_and_cycles_are_only_values() {
    let depth = 1_000_000;
    let mut bytes = b"\x80\x02".to_vec();
    bytes.extend(std::iter::repeat_n(b']', depth));
    bytes.extend(std::iter::repeat_n(b'a', depth - 1));
    bytes.push(b'.');
    let pickle = read(&bytes).unwrap();
    assert_eq!(pickle.list(pickle.root()).unwrap().len(), 1);
    // A list that holds itself.
    let pickle = read(b"\x80\x02]q\0h\0a.").unwrap();
    assert_eq!(pickle.list(pickle.root()), Some(&[pickle.root()][..]));
}

#[test]
fn damaged_bytes_are_refused_or_read_but_never_panic() {
    for at in 0..EACH[1].len() {
        for bit in 0..8 {
            let mut bytes = EACH[1].to_vec();
            bytes[at] ^= 1 << bit;
            if let Ok(pickle) = read(&bytes) {
                let _ = pickle.get(pickle.root(), "a");
            }
        }
    }
}
