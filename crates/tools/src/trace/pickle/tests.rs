use super::{Pickle, Refusal, Scalar, Value};

fn read(bytes: &[u8]) -> Result<Pickle<'_>, Refusal> {
    Pickle::read(bytes)
}

#[track_caller]
fn refused(bytes: &[u8], offset: usize, reason: &str) {
    let refusal = read(bytes).expect_err(reason);
    assert!(refusal.reason.contains(reason), "{refusal:?}");
    assert_eq!(refusal.offset, offset, "{refusal:?}");
}

/// The bytes that Python writes for `{'a': [1, -2, 300, 70000, 1 << 40, 1.5, None, True], 't':
/// ('x', ()), 'again': <the list>}`.
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
            Scalar::Int(1),
            Scalar::Int(-2),
            Scalar::Int(300),
            Scalar::Int(70_000),
            Scalar::Int(1 << 40),
            Scalar::Float(1.5),
            Scalar::None,
            Scalar::Bool(true),
        ];
        let list = pickle.list(at("a")).unwrap().iter();
        let list: Vec<_> = list.map(|&value| pickle.scalar(value).unwrap()).collect();
        assert_eq!(list, numbers);
        assert_eq!(at("again"), at("a"), "the same list, not a copy");
        let tuple = pickle.list(at("t")).unwrap();
        assert_eq!(pickle.text(tuple[0]), Some(&b"x"[..]));
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
    refused(b"\x80\x02\xff.", 2, "0xff is not an opcode");
    refused(b"\x80\x02.", 2, "no value on the stack");
    refused(b"\x80\x02(.", 3, "no value on the stack");
    refused(b"\x80\x02Ne.", 3, "no mark");
    refused(b"\x80\x02N(Ne.", 5, "used as a list");
    refused(b"\x80\x02}Na.", 4, "not a list");
    refused(b"\x80\x02]NNs.", 5, "not a dictionary");
    refused(b"\x80\x02}(Nu.", 5, "a key has no value");
    refused(b"\x80\x02h\x07.", 2, "number 7");
    refused(b"\x80\x02\x8a\x09\0\0\0\0\0\0\0\0.", 13, "cut short");
    refused(b"\x80\x04\x8f]a.", 4, "not a list");
    refused(b"\x80\x04](N\x90.", 5, "not a set");
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
    // If no value is above a mark, `POP` removes the mark.
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
    // The list contains itself.
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

#[test]
fn reads_integers_of_any_length() {
    let read = |digits: &[u8]| {
        let bytes = [b"\x80\x02\x8a", &[digits.len() as u8][..], digits, b"."].concat();
        let pickle = read(&bytes).unwrap();
        let is_unused = pickle.scalar(pickle.root()) == Some(Scalar::Unused);
        (pickle.number(pickle.root()), is_unused)
    };
    let number = |digits: &[u8]| read(digits).0.unwrap();
    assert_eq!(
        number(b"\xff\xff\xff\xff\xff\xff\xff\xff\0"),
        u64::MAX.into()
    );
    assert_eq!(number(b"\0\0\0\0\0\0\0\x80"), i64::MIN.into());
    assert_eq!(number(b"\0\0\0\0\0\0\0\x80\xff"), i64::MIN.into());
    assert_eq!(number(b"\xfe\xff\xff\xff\xff"), -2);
    assert_eq!(number(b"\0\0\0\0\x01"), 1 << 32);
    assert_eq!(number(b"\x01\0\0\0\0\0\0\0\0\0"), 1);
    assert_eq!(number(b""), 0);
    assert_eq!(read(&[0xff; 17]), (None, true));
}

#[test]
fn skips_bytes_and_sets() {
    // [b'ab', b'c', bytearray(b'd'), {1, 2}, frozenset({3}), 7]
    let pickle = read(
        b"\x80\x05](C\x02abB\x01\0\0\0c\x96\x01\0\0\0\0\0\0\0d\x8f(K\x01K\x02\x90(K\x03\x91K\x07e.",
    )
    .unwrap();
    let list = pickle.list(pickle.root()).unwrap();
    assert_eq!(list.len(), 6);
    assert_eq!(list[5], Value::Int(7));
    for &value in &list[..3] {
        assert_eq!(pickle.scalar(value), Some(Scalar::Unused));
        assert_eq!(pickle.text(value), None);
    }
    assert!(list[3..5].iter().all(|&set| pickle.list(set).is_none()));
}

#[test]
fn lists_grow_by_parts_through_every_reference() {
    // The root list contains another list. The two lists grow alternately.
    let pickle = read(b"\x80\x02]q\0]q\x01ah\x01K\x01a0h\0K\x05a0h\x01(K\x02K\x03e0.").unwrap();
    let list = |value| pickle.list(value).unwrap().to_vec();
    let [inner, last] = list(pickle.root())[..] else {
        panic!("{pickle:?}");
    };
    assert_eq!(last, Value::Int(5));
    assert_eq!(list(inner), [1, 2, 3].map(Value::Int));
}

/// Returns the pickle of a dictionary that maps the keys `k0`, `k1`, … to 0, 1, …. The dictionary
/// is filled in two steps, and `k0` is set twice.
fn dict_of(count: u32) -> Vec<u8> {
    let mut bytes = b"\x80\x02}(".to_vec();
    let entry = |key: u32, number: u32| {
        let key = format!("k{key}");
        let mut bytes = vec![0x8c, key.len() as u8];
        bytes.extend(key.into_bytes());
        bytes.push(b'J');
        bytes.extend(number.to_le_bytes());
        bytes
    };
    bytes.extend((0..count / 2).flat_map(|number| entry(number, number)));
    bytes.extend(b"u(");
    bytes.extend(
        (count / 2..count)
            .rev()
            .flat_map(|number| entry(number, number)),
    );
    bytes.extend(entry(0, 77));
    bytes.extend(b"K\x05K\x06u.");
    bytes
}

#[test]
fn the_last_value_of_a_key_is_found_in_dictionaries_of_any_size() {
    for count in [1, 2, 14, 15, 16, 17, 1000] {
        let bytes = dict_of(count);
        let pickle = read(&bytes).unwrap();
        let at = |key: u32| pickle.get(pickle.root(), &format!("k{key}"));
        assert_eq!(at(0), Some(Value::Int(77)), "of {count}");
        for key in 1..count {
            assert_eq!(at(key), Some(Value::Int(key as i32)), "of {count}");
        }
        assert_eq!(at(count), None);
        assert_eq!(pickle.get(pickle.root(), ""), None);
    }
}

#[test]
fn numbers_of_the_memo_may_be_in_any_order() {
    // The indices are 1, 0, 1 again and 70000. `MEMOIZE` uses the number of values, 3.
    let bytes = b"\x80\x04(K\x0aq\x01K\x0bq\0K\x0cq\x01K\x0dr\x70\x11\x01\0K\x0e\x94\
        h\0h\x01h\x03j\x70\x11\x01\0l.";
    let pickle = read(bytes).unwrap();
    let list = pickle.list(pickle.root()).unwrap();
    assert_eq!(list[5..], [11, 12, 14, 13].map(Value::Int));
}
