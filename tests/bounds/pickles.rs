//! A writer of pickles, including pickles that Python never writes.

use std::collections::HashMap;

/// The memo index of a value, by which the pickle refers to the value again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memo(u32);

/// A pickle that is being written.
pub(crate) struct Pickler {
    pub(crate) bytes: Vec<u8>,
    texts: HashMap<String, Memo>,
    remembered: u32,
}

impl Pickler {
    pub(crate) fn new() -> Self {
        Self {
            bytes: b"\x80\x04".to_vec(),
            texts: HashMap::new(),
            remembered: 0,
        }
    }

    /// Ends the pickle and returns its bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    /// Writes a text, or a reference if the text was written before.
    pub(crate) fn text(&mut self, text: &str) {
        if let Some(&memo) = self.texts.get(text) {
            return self.again(memo);
        }
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        let memo = self.remember();
        self.texts.insert(text.to_owned(), memo);
    }

    pub(crate) fn int(&mut self, number: u64) {
        match u8::try_from(number) {
            Ok(number) => self.bytes.extend([b'K', number]),
            Err(_) => {
                self.bytes.extend([0x8a, 8]);
                self.bytes.extend(number.to_le_bytes());
            }
        }
    }

    pub(crate) fn begin_list(&mut self) {
        self.bytes.extend(b"](");
    }

    pub(crate) fn end_list(&mut self) {
        self.bytes.push(b'e');
    }

    pub(crate) fn begin_dict(&mut self) {
        self.bytes.extend(b"}(");
    }

    pub(crate) fn end_dict(&mut self) {
        self.bytes.push(b'u');
    }

    /// Stores the last value in the memo and returns the memo index.
    pub(crate) fn remember(&mut self) -> Memo {
        let number = self.remembered;
        self.remembered += 1;
        self.bytes.push(b'r');
        self.bytes.extend(number.to_le_bytes());
        Memo(number)
    }

    /// Writes a reference to a value.
    pub(crate) fn again(&mut self, Memo(number): Memo) {
        match u8::try_from(number) {
            Ok(number) => self.bytes.extend([b'h', number]),
            Err(_) => {
                self.bytes.push(b'j');
                self.bytes.extend(number.to_le_bytes());
            }
        }
    }

    /// Writes a dictionary with texts and numbers as values.
    pub(crate) fn dict(&mut self, texts: &[(&str, &str)], numbers: &[(&str, u64)]) {
        self.begin_dict();
        for (key, text) in texts {
            self.text(key);
            self.text(text);
        }
        for (key, number) in numbers {
            self.text(key);
            self.int(*number);
        }
        self.end_dict();
    }

    /// Writes an event of a trace.
    pub(crate) fn event(&mut self, action: &str, address: u64, size: u64) {
        self.dict(&[("action", action)], &[("addr", address), ("size", size)]);
    }

    /// Writes a list of `count` references to a value.
    pub(crate) fn repeat(&mut self, memo: Memo, count: usize) {
        self.begin_list();
        for _ in 0..count {
            self.again(memo);
        }
        self.end_list();
    }
}

/// Returns a snapshot. `segments` and `traces` write its lists `segments` and `device_traces`.
pub(crate) fn snapshot(
    segments: impl FnOnce(&mut Pickler),
    traces: impl FnOnce(&mut Pickler),
) -> Vec<u8> {
    let mut pickler = Pickler::new();
    pickler.begin_dict();
    pickler.text("segments");
    segments(&mut pickler);
    pickler.text("device_traces");
    traces(&mut pickler);
    pickler.end_dict();
    pickler.finish()
}

/// Returns a snapshot of one device without segments. `entries` writes the entries of its trace.
pub(crate) fn trace(entries: impl FnOnce(&mut Pickler)) -> Vec<u8> {
    let none = |pickler: &mut Pickler| {
        pickler.begin_list();
        pickler.end_list();
    };
    snapshot(none, |pickler| {
        pickler.begin_list();
        pickler.begin_list();
        entries(pickler);
        pickler.end_list();
        pickler.end_list();
    })
}
