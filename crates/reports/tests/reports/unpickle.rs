//! A parser of pickles with only the opcodes that PyTorch's viewer supports.

use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Int(u64),
    True,
    Text(Rc<str>),
    List(Rc<Vec<Value>>),
    Dict(Rc<BTreeMap<Rc<str>, Value>>),
}

impl Value {
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Dict(dict) = self else {
            panic!("{self:?} is not a dictionary");
        };
        dict.get(key)
    }

    pub(crate) fn int(&self, key: &str) -> u64 {
        let value = self.get(key).unwrap_or_else(|| panic!("{key} in {self:?}"));
        let Self::Int(number) = value else {
            panic!("{key} is {value:?}");
        };
        *number
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        let value = self.get(key).unwrap_or_else(|| panic!("{key} in {self:?}"));
        let Self::Text(text) = value else {
            panic!("{key} is {value:?}");
        };
        text
    }

    pub(crate) fn list(&self, key: &str) -> &[Self] {
        let value = self.get(key).unwrap_or_else(|| panic!("{key} in {self:?}"));
        value.items()
    }

    pub(crate) fn items(&self) -> &[Self] {
        let Self::List(items) = self else {
            panic!("{self:?} is no list");
        };
        items
    }
}

struct Machine<'a> {
    input: &'a [u8],
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Value>,
}

/// Returns the value of a pickle, which must have no further bytes.
pub(crate) fn unpickle(input: &[u8]) -> Value {
    let mut machine = Machine {
        input,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
    };
    while machine.step() {}
    assert!(machine.input.is_empty() && machine.marks.is_empty());
    assert_eq!(machine.stack.len(), 1);
    machine.stack.remove(0)
}

impl Machine<'_> {
    fn step(&mut self) -> bool {
        match self.take(1)[0] {
            0x80 => assert_eq!(self.take(1), [4]),
            b'(' => self.marks.push(self.stack.len()),
            b'}' => self.stack.push(Value::Dict(Rc::default())),
            b']' => self.stack.push(Value::List(Rc::default())),
            b'u' => self.set_items(),
            b'e' => self.append(),
            b'K' => self.int(1),
            b'M' => self.int(2),
            b'J' => self.int(4),
            0x8a => self.long(),
            0x88 => self.stack.push(Value::True),
            0x8c => self.text(1),
            b'X' => self.text(4),
            0x94 => self.memo.push(self.stack.last().expect("a value").clone()),
            b'h' => self.again(1),
            b'j' => self.again(4),
            b'.' => return false,
            opcode => panic!("opcode {opcode:#x}"),
        }
        true
    }

    fn take(&mut self, bytes: usize) -> &[u8] {
        let (taken, rest) = self.input.split_at(bytes);
        self.input = rest;
        taken
    }

    fn number(&mut self, bytes: usize) -> u64 {
        let digits = self.take(bytes).iter().rev();
        digits.fold(0, |number, digit| number << 8 | u64::from(*digit))
    }

    fn int(&mut self, bytes: usize) {
        let number = self.number(bytes);
        assert!(bytes < 4 || number < 1 << 31, "it would be negative");
        self.stack.push(Value::Int(number));
    }

    fn long(&mut self) {
        let bytes = self.number(1) as usize;
        assert!(
            bytes <= 8,
            "the viewer counts with numbers of 8 bytes at most"
        );
        let number = self.number(bytes);
        assert!(number >> (8 * bytes - 1) == 0, "it would be negative");
        self.stack.push(Value::Int(number));
    }

    fn text(&mut self, bytes: usize) {
        let length = self.number(bytes) as usize;
        let text = str::from_utf8(self.take(length)).expect("UTF-8").into();
        self.stack.push(Value::Text(text));
    }

    fn again(&mut self, bytes: usize) {
        let number = self.number(bytes) as usize;
        self.stack.push(self.memo[number].clone());
    }

    fn append(&mut self) {
        let items = self.stack.split_off(self.marks.pop().expect("a mark"));
        // The viewer passes the items as arguments of one call, and the number of arguments is
        // limited.
        assert!(items.len() <= 1000);
        let Some(Value::List(list)) = self.stack.last_mut() else {
            panic!("no list");
        };
        Rc::get_mut(list)
            .expect("it is memoised when it is whole")
            .extend(items);
    }

    fn set_items(&mut self) {
        let items = self.stack.split_off(self.marks.pop().expect("a mark"));
        let Some(Value::Dict(dict)) = self.stack.last_mut() else {
            panic!("no dictionary");
        };
        let dict = Rc::get_mut(dict).expect("it is memoised when it is whole");
        for pair in items.chunks(2) {
            let [Value::Text(key), value] = pair else {
                panic!("{pair:?}");
            };
            let former = dict.insert(key.clone(), value.clone());
            assert!(former.is_none(), "{key} stands twice");
        }
    }
}
