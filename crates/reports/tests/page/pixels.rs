//! The colours of a screenshot.

use std::collections::HashMap;
use std::io::Cursor;

/// Returns the number of pixels per colour.
pub(crate) fn colours(png: &[u8]) -> HashMap<[u8; 3], u32> {
    let mut reader = png::Decoder::new(Cursor::new(png)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let mut counts = HashMap::new();
    for pixel in pixels[..info.buffer_size()].chunks_exact(info.color_type.samples()) {
        *counts.entry([pixel[0], pixel[1], pixel[2]]).or_default() += 1;
    }
    counts
}
