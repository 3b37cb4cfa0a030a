//! Tests that attachments are dropped before their segments are released.

use super::*;

fn attach(memory: &DeviceMemory, block: &Block, key: u64, ends: &Arc<()>) -> bool {
    let inside = block.address.offset(block.bytes() / 2);
    let attached = memory.attach(inside, key, |first, bytes| {
        assert!(first <= block.address && block.address.0 + block.bytes() <= first.0 + bytes);
        Ok(Some(Box::new(Arc::clone(ends))))
    });
    attached.unwrap()
}

#[test]
fn what_is_attached_ends_before_its_segment() {
    let memory = without_ranges(None, None);
    let ends = Arc::new(());
    let (first, second) = (memory.take_of(40 * MIB), memory.take_of(50 * MIB));
    for key in [1, 2, 1] {
        assert!(attach(&memory, &first, key, &ends));
    }
    assert_eq!(Arc::strong_count(&ends), 3, "once for each key");
    assert!(attach(&memory, &second, 1, &ends));
    memory.free([first]);
    assert_eq!(
        Arc::strong_count(&ends),
        4,
        "an idle segment keeps what is attached"
    );
    memory.trim(0, WaitMode::Wait);
    memory.check();
    assert_eq!(Arc::strong_count(&ends), 2, "one that goes does not");
    memory.detach_all(1);
    assert_eq!(Arc::strong_count(&ends), 1);
    assert!(attach(&memory, &second, 3, &ends));
    memory.free([second]);
    drop(memory);
    assert_eq!(Arc::strong_count(&ends), 1, "nor does the whole memory");
}

#[test]
fn a_failed_attachment_is_an_error() {
    let memory = memory(None, None);
    let block = memory.take_of(MIB);
    let never = |_, _| -> Result<_> { unreachable!("pages come and go") };
    assert!(!memory.attach(block.address, 1, never).unwrap());
    let beyond = DevicePtr(block.address.0.wrapping_sub(1 << 40));
    assert!(!memory.attach(beyond, 1, never).unwrap());
    memory.free([block]);

    let memory = without_ranges(None, None);
    let block = memory.take_of(MIB);
    let text = "no more of them";
    let failed = memory.attach(block.address, 1, |_, _| {
        Err(Error::new(ErrorKind::Driver, text))
    });
    assert!(failed.unwrap_err().to_string().contains(text));
    assert!(!memory.attach(block.address, 1, |_, _| Ok(None)).unwrap());
    memory.free([block]);
    memory.check();
}
