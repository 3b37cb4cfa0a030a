//! Sorting longer lanes digit by digit.
//!
//! One launch counts all digits of all lanes. Then there is a launch for each digit, which reads
//! and writes each element once: where a tile's elements go is told from tile to tile while it
//! runs.

use super::*;
use crate::array::Buffer;

/// The kernels of a pass by a digit, and of the counts before the first.
pub(super) struct Digits<T>(PhantomData<T>);

/// The digits of eight bits.
const DIGITS: usize = 256;

/// The most tiles of a lane that a block counts.
const TOGETHER: usize = 16;

/// So many blocks count before each has several tiles.
const COUNTING: usize = 1024;

/// The integers that kernels reckon with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Widths {
    /// The bytes of a position in a lane.
    pub(super) place: usize,
    /// Those of a number of elements with a mark, as tiles tell each other.
    pub(super) told: usize,
}

impl Widths {
    /// For lanes of so many elements.
    pub(super) fn of(length: usize) -> Self {
        let bytes = |most: usize| if length <= most { 4 } else { 8 };
        Self {
            place: bytes(u32::MAX as usize),
            // Two bits are the mark.
            told: bytes((1 << 30) - 1),
        }
    }

    /// The key of the kernel of a pass, or of the counts before the first.
    fn key<T: Element>(self, counts: bool) -> KernelKey {
        let form = u32::from(self.place == 8) << 1 | u32::from(self.told == 8) << 2;
        KernelKey::of::<Digits<T>>(form | u32::from(counts))
    }
}

/// Memory of elements and of their positions.
struct Row {
    values: Buffer,
    positions: Option<Buffer>,
}

impl Row {
    fn places(&self) -> u64 {
        self.positions.as_ref().map_or(0, Buffer::address)
    }
}

/// What the passes over some lanes have in common.
struct Passes {
    widths: Widths,
    /// Of each lane.
    tiles: usize,
    /// For each pass the tickets of its tiles, then the counts of all digits, then the words of the
    /// tiles for the first pass, and every other after it.
    control: Buffer,
    /// The words for the passes between.
    between: Option<Buffer>,
    counts: u64,
    words: u64,
}

/// Where a pass writes: elements and final positions, and positions for the next pass.
type PassTarget = (Target, u64);

impl<T: Element> Sort<'_, T> {
    /// Sorts longer lanes, from the least digit of keys to the greatest. Each pass but the last one
    /// writes to one of two rows by turns.
    #[track_caller]
    pub(super) fn by_digits(&self, lanes: Lanes, target: Target) -> Result<()> {
        let last = size_of::<T>() - 1;
        let wants_positions = target.positions != 0;
        let passes = self.passes(&lanes)?;
        let rows = (0..last.min(2))
            .map(|_| self.row(&lanes, passes.widths, wants_positions))
            .collect::<Result<Vec<_>>>()?;
        let [counts, moves] = [true, false].map(|counts| {
            let source = move || digits_source::<T>(passes.widths, counts);
            (passes.widths.key::<T>(counts), source)
        });
        self.workspace
            .prepare(&[(counts.0, &counts.1), (moves.0, &moves.1)]);
        self.count(&lanes, &passes)?;
        let mut from = (lanes, 0);
        for pass in 0..last {
            let row = &rows[pass % 2];
            let between = Target {
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
    fn row(&self, lanes: &Lanes, widths: Widths, has_positions: bool) -> Result<Row> {
        let count = lanes.count().saturating_mul(lanes.length);
        let positions = has_positions.then(|| self.workspace.allocate(count, widths.place));
        Ok(Row {
            values: self.workspace.allocate(count, size_of::<T>())?,
            positions: positions.transpose()?,
        })
    }

    #[track_caller]
    fn passes(&self, lanes: &Lanes) -> Result<Passes> {
        let widths = Widths::of(lanes.length);
        let tiles = lanes.length.div_ceil(tile::<T>(widths));
        let bytes_of = |digits: usize| digits.saturating_mul(DIGITS * widths.told);
        let tickets = size_of::<T>() * size_of::<u64>();
        let counts = bytes_of(lanes.count().saturating_mul(size_of::<T>()));
        let words = bytes_of(lanes.count().saturating_mul(tiles));
        let size = tickets.saturating_add(counts).saturating_add(words);
        let control = self.workspace.zeroed(size)?;
        let between = (size_of::<T>() > 1).then(|| self.workspace.allocate(words, 1));
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

    /// Counts the digits of the keys of all lanes.
    #[track_caller]
    fn count(&self, lanes: &Lanes, passes: &Passes) -> Result<()> {
        let together = (lanes.count().saturating_mul(passes.tiles) / COUNTING).clamp(1, TOGETHER);
        let parts = passes.tiles.div_ceil(together);
        let mut arguments = Arguments::default();
        lanes.push(&mut arguments);
        for argument in [self.turned, parts as u64, together as u64, passes.counts] {
            arguments.push(argument);
        }
        let key = passes.widths.key::<T>(true);
        let source = || digits_source::<T>(passes.widths, true);
        let grid = grid(lanes.count().saturating_mul(parts));
        self.workspace.launch(key, &source, grid, &arguments)
    }

    /// Orders lanes, whose elements come from places where these are not 0, by the digit of their
    /// keys that has this number.
    #[track_caller]
    fn pass(
        &self,
        passes: &Passes,
        digit: usize,
        (lanes, places): &(Lanes, u64),
        (target, to_places): PassTarget,
    ) -> Result<()> {
        let between = passes.between.as_ref().map_or(0, Buffer::address);
        let (own, next) = if digit.is_multiple_of(2) {
            (passes.words, between)
        } else {
            (between, passes.words)
        };
        let is_last = digit + 1 == size_of::<T>();
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
        let key = passes.widths.key::<T>(false);
        let source = || digits_source::<T>(passes.widths, false);
        let grid = grid(lanes.count().saturating_mul(passes.tiles));
        self.workspace.launch(key, &source, grid, &arguments)
    }
}

/// The source of the kernel of a pass by a digit, or of the counts before the first.
pub(super) fn digits_source<T: Element>(widths: Widths, counts: bool) -> KernelSource {
    let sizes = format!(
        "typedef u{} place_t;\ntypedef u{} told_t;\n#define CS_EACH {}\n#define CS_COUNTS {}\n",
        8 * widths.place,
        8 * widths.told,
        elements_each(size_of::<T>(), widths.place),
        u8::from(counts)
    );
    let (tiles, digits) = (
        include_str!("../digit_tiles.cuh"),
        include_str!("../digits.cuh"),
    );
    let text = [&keys::<T>(), KEYS, &sizes, tiles, digits].concat();
    source(format!("sort by a digit of {}", T::DTYPE.in_cuda()), &text)
}

/// The elements that a thread moves in one pass: so many that a block has room for them, and few
/// counts.
pub(super) fn elements_each(element_bytes: usize, place_bytes: usize) -> usize {
    if element_bytes + place_bytes <= 8 {
        16
    } else {
        8
    }
}

/// The elements of a tile.
pub(super) fn tile<T>(widths: Widths) -> usize {
    THREADS as usize * elements_each(size_of::<T>(), widths.place)
}
