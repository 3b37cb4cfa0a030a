//! Radix sort of lanes that are too long for the sorting network.
//!
//! One launch counts all digits of all lanes. Then one launch for each digit reads and writes each
//! element once. While a launch runs, each tile publishes its digit counts. Later tiles compute the
//! target positions of their elements from the published counts.

use super::*;
use crate::array::Buffer;

/// The kernels of a digit pass, and of the counts before the first pass, for each element type.
pub(super) struct DigitKernels;

/// The number of values of a digit of eight bits.
const DIGITS: usize = 256;

/// The maximum number of tiles of a lane that one block counts.
const TOGETHER: usize = 16;

/// The number of counting blocks below which each block counts one tile.
const COUNTING: usize = 1024;

/// The sizes of the integers in kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Widths {
    /// The size of a position in a lane, in bytes.
    pub(super) place: usize,
    /// The size, in bytes, of a word that a tile publishes: a count with a flag.
    pub(super) counts: usize,
}

impl Widths {
    /// Returns the sizes for lanes of `length` elements.
    pub(super) fn of(length: usize) -> Self {
        let bytes = |most: usize| if length <= most { 4 } else { 8 };
        Self {
            place: bytes(u32::MAX as usize),
            // Two bits are reserved for the flag.
            counts: bytes((1 << 30) - 1),
        }
    }

    /// Returns the key of the kernel of a pass. If `counts`, returns the key of the kernel that
    /// counts digits.
    pub(super) fn key(self, dtype: DType, counts: bool) -> KernelKey {
        let form = u32::from(self.place == 8) << 1 | u32::from(self.counts == 8) << 2;
        KernelKey::of::<DigitKernels>(form | u32::from(counts) | (dtype as u32) << 3)
    }
}

/// The memory for elements and for their positions between passes.
struct Row {
    values: Buffer,
    positions: Option<Buffer>,
}

impl Row {
    fn places(&self) -> u64 {
        self.positions.as_ref().map_or(0, Buffer::address)
    }
}

/// The memory and sizes that all passes share.
struct Passes {
    widths: Widths,
    /// The number of tiles of each lane.
    tiles: usize,
    /// The tickets of all passes, the counts of all digits, and the words of the tiles, in this
    /// order. The words are for passes with an even index.
    control: Buffer,
    /// The words of the tiles for passes with an odd index.
    between: Option<Buffer>,
    counts: u64,
    words: u64,
}

/// The destination of a pass, and the address of the positions for the next pass.
type PassTarget = (SortTarget, u64);

impl Sort<'_> {
    /// Sorts lanes of more than `ITEMS` elements by radix sort, from the least significant digit to
    /// the most significant digit. All passes except the last write to two rows alternately.
    #[track_caller]
    pub(super) fn by_digits(&self, lanes: SortLanes, target: SortTarget) -> Result<()> {
        let last = self.dtype.size_bytes() - 1;
        let wants_positions = target.positions != 0;
        let passes = self.passes(&lanes)?;
        let rows = (0..last.min(2))
            .map(|_| self.row(&lanes, passes.widths, wants_positions))
            .collect::<Result<Vec<_>>>()?;
        let [counts, moves] = [true, false].map(|counts| {
            let (widths, dtype) = (passes.widths, self.dtype);
            let source = move || digits_source(dtype, widths, counts);
            (widths.key(dtype, counts), source)
        });
        self.workspace
            .prepare(&[(counts.0, &counts.1), (moves.0, &moves.1)]);
        self.count(&lanes, &passes)?;
        let mut from = (lanes, 0);
        for pass in 0..last {
            let row = &rows[pass % 2];
            let between = SortTarget {
                kept: from.0.length,
                inner: 1,
                values: row.values.address(),
                positions: 0,
            };
            self.pass(&passes, pass, &from, (between, row.places()))?;
            from = (from.0.dense(row.values.address()), row.places());
        }
        self.pass(&passes, last, &from, (target, 0))
    }

    #[track_caller]
    fn row(&self, lanes: &SortLanes, widths: Widths, has_positions: bool) -> Result<Row> {
        let count = lanes.count().saturating_mul(lanes.length);
        let positions = has_positions.then(|| self.workspace.allocate(count, widths.place));
        Ok(Row {
            values: self.workspace.allocate(count, self.dtype.size_bytes())?,
            positions: positions.transpose()?,
        })
    }

    #[track_caller]
    fn passes(&self, lanes: &SortLanes) -> Result<Passes> {
        let widths = Widths::of(lanes.length);
        let element_bytes = self.dtype.size_bytes();
        let tiles = lanes.length.div_ceil(tile(element_bytes, widths));
        let bytes_of = |digits: usize| digits.saturating_mul(DIGITS * widths.counts);
        let tickets = element_bytes * size_of::<u64>();
        let counts = bytes_of(lanes.count().saturating_mul(element_bytes));
        let words = bytes_of(lanes.count().saturating_mul(tiles));
        let size = tickets.saturating_add(counts).saturating_add(words);
        let control = self.workspace.zeroed(size)?;
        let between = (element_bytes > 1).then(|| self.workspace.allocate(words, 1));
        let counts_at = control.address() + tickets as u64;
        Ok(Passes {
            widths,
            tiles,
            between: between.transpose()?,
            counts: counts_at,
            words: counts_at + counts as u64,
            control,
        })
    }

    #[track_caller]
    fn count(&self, lanes: &SortLanes, passes: &Passes) -> Result<()> {
        let together = (lanes.count().saturating_mul(passes.tiles) / COUNTING).clamp(1, TOGETHER);
        let parts = passes.tiles.div_ceil(together);
        let mut arguments = Arguments::default();
        lanes.push(&mut arguments);
        for argument in [self.turned, parts as u64, together as u64, passes.counts] {
            arguments.push(argument);
        }
        let key = passes.widths.key(self.dtype, true);
        let source = || digits_source(self.dtype, passes.widths, true);
        let grid = grid(lanes.count().saturating_mul(parts));
        self.workspace.launch(key, &source, grid, &arguments)
    }

    /// Orders lanes by digit `digit` of their keys. If `places` is not 0, it is the address of the
    /// positions of the elements.
    #[track_caller]
    fn pass(
        &self,
        passes: &Passes,
        digit: usize,
        (lanes, places): &(SortLanes, u64),
        (target, to_places): PassTarget,
    ) -> Result<()> {
        let between = passes.between.as_ref().map_or(0, Buffer::address);
        let (own, next) = if digit.is_multiple_of(2) {
            (passes.words, between)
        } else {
            (between, passes.words)
        };
        let is_last = digit + 1 == self.dtype.size_bytes();
        let ticket = passes.control.address() + (digit * size_of::<u64>()) as u64;
        let mut arguments = Arguments::default();
        lanes.push(&mut arguments);
        arguments.push_all([digit as u64, self.turned, passes.tiles as u64]);
        let next = if is_last { 0 } else { next };
        for address in [passes.counts, ticket, own, next, *places] {
            arguments.push(address);
        }
        target.push(&mut arguments);
        arguments.push(to_places);
        let key = passes.widths.key(self.dtype, false);
        let source = || digits_source(self.dtype, passes.widths, false);
        let grid = grid(lanes.count().saturating_mul(passes.tiles));
        self.workspace.launch(key, &source, grid, &arguments)
    }
}

/// Returns the source of the kernel of a pass. If `counts`, returns the source of the kernel that
/// counts digits.
pub(super) fn digits_source(dtype: DType, widths: Widths, counts: bool) -> KernelSource {
    let sizes = format!(
        "typedef u{} place_t;\ntypedef u{} told_t;\n#define CS_EACH {}\n#define CS_COUNTS {}\n",
        8 * widths.place,
        8 * widths.counts,
        elements_each(dtype.size_bytes(), widths.place),
        u8::from(counts)
    );
    let (tiles, digits) = (
        include_str!("../digit_tiles.cuh"),
        include_str!("../digits.cuh"),
    );
    let text = [&keys(dtype), KEYS, &sizes, tiles, digits].concat();
    source(format!("sort by a digit of {}", dtype.in_cuda()), &text)
}

/// Returns the number of elements that a thread moves in one pass. The elements of a block must fit
/// shared memory. Larger tiles publish fewer counts.
pub(super) fn elements_each(element_bytes: usize, place_bytes: usize) -> usize {
    if element_bytes + place_bytes <= 8 {
        16
    } else {
        8
    }
}

pub(super) fn tile(element_bytes: usize, widths: Widths) -> usize {
    THREADS as usize * elements_each(element_bytes, widths.place)
}
