//! A naive oracle for replays.

use std::fs;
use std::path::Path;

/// A buffer with its offset, as written by `--output`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) id: String,
    pub(crate) lower: u64,
    pub(crate) upper: u64,
    pub(crate) size: u64,
    pub(crate) offset: Option<u64>,
}

/// A function that rounds a request, in units, like a pool.
pub(crate) type Round = fn(u64) -> u64;

/// The names of the pools, with their rounding functions.
pub(crate) const POOLS: [(&str, Round); 3] = [
    ("best-fit", |units| units),
    ("binned", u64::next_power_of_two),
    ("direct", |units| units),
];

/// Reads the rows of a file that `--output` wrote.
pub(crate) fn read(path: &Path) -> Vec<Placed> {
    let content = fs::read_to_string(path).unwrap();
    let mut lines = content.lines();
    assert_eq!(lines.next(), Some("id,lower,upper,size,offset"));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let [id, lower, upper, size, offset] = fields[..] else {
                panic!("{line}");
            };
            Placed {
                id: id.to_owned(),
                lower: lower.parse().unwrap(),
                upper: upper.parse().unwrap(),
                size: size.parse().unwrap(),
                offset: (!offset.is_empty()).then(|| offset.parse().unwrap()),
            }
        })
        .collect()
}

impl Placed {
    fn occupies(&self) -> bool {
        self.offset.is_some() && self.size > 0 && self.lower < self.upper
    }

    /// Returns the number of bytes that the buffer occupies in the pool.
    fn bytes(&self, unit: u64, round: Round) -> u64 {
        round(self.size.div_ceil(unit)) * unit
    }
}

/// Asserts that buffers with overlapping lifetimes do not overlap in memory, and that offsets are
/// multiples of the unit.
#[track_caller]
pub(crate) fn check_disjoint(placed: &[Placed], unit: u64, round: Round) {
    let placed: Vec<_> = placed.iter().filter(|placed| placed.occupies()).collect();
    for (index, one) in placed.iter().enumerate() {
        let begin = one.offset.unwrap();
        assert_eq!(begin % unit, 0, "{one:?}");
        let end = begin + one.bytes(unit, round);
        for other in &placed[..index] {
            let other_begin = other.offset.unwrap();
            let other_end = other_begin + other.bytes(unit, round);
            let meet_in_time = one.lower < other.upper && other.lower < one.upper;
            let meet_in_space = begin < other_end && other_begin < end;
            assert!(!(meet_in_time && meet_in_space), "{one:?} and {other:?}");
        }
    }
}

pub(crate) fn peak_live(placed: &[Placed]) -> u64 {
    let placed: Vec<_> = placed.iter().filter(|placed| placed.occupies()).collect();
    let live_at = |step: u64| {
        let live = placed
            .iter()
            .filter(|one| one.lower <= step && step < one.upper);
        live.map(|one| one.size).sum()
    };
    // The load increases only at the beginning of a lifetime.
    let begins = placed.iter().map(|one| one.lower);
    begins.map(live_at).max().unwrap_or(0)
}

/// Returns the highest end of a buffer in the pool.
pub(crate) fn peak_reserved(placed: &[Placed], unit: u64, round: Round) -> u64 {
    let placed = placed.iter().filter(|placed| placed.occupies());
    let ends = placed.map(|one| one.offset.unwrap() + one.bytes(unit, round));
    ends.max().unwrap_or(0)
}
