//! The sizes of tiles, by pass and device.

use std::str::FromStr;
use std::sync::OnceLock;

use super::tiles::AttentionPass;
use crate::context::setting;
use crate::device::cuda::Cuda;
use crate::error::{Error, ErrorCode, Result};

/// The sizes of a block's tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TileSizes {
    /// The number of warps of a block. A warp has 16 rows of the block's own tile.
    pub(super) warps: usize,
    /// The number of rows of the tiles that a block iterates over.
    pub(super) columns: usize,
}

/// The passes that have sizes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizedPass {
    Forward,
    Queries,
    Keys,
}

impl SizedPass {
    fn of(pass: AttentionPass) -> Self {
        match pass {
            AttentionPass::Forward => Self::Forward,
            AttentionPass::OfQueries => Self::Queries,
            AttentionPass::OfKeys | AttentionPass::OfValues | AttentionPass::OfBoth => Self::Keys,
        }
    }

    fn named(name: &str) -> Option<Self> {
        match name {
            "forward" => Some(Self::Forward),
            "queries" => Some(Self::Queries),
            "keys" => Some(Self::Keys),
            _ => None,
        }
    }
}

/// The sizes of a pass for heads whose rows have at most a number of bytes.
struct TileRow {
    /// The device's compute capability, or `None` for every device.
    capability: Option<(u32, u32)>,
    pass: SizedPass,
    row_bytes: usize,
    sizes: TileSizes,
}

/// The sizes of all passes. The first row that fits is used, so measured rows of a device precede
/// the rows for every device. The registers of a thread hold `row_bytes / item bytes / 2` sums for
/// each gradient or result, and `columns / 2` scores and slopes.
static TILES: [TileRow; 10] = {
    const fn row(pass: SizedPass, row_bytes: usize, warps: usize, columns: usize) -> TileRow {
        TileRow {
            capability: None,
            pass,
            row_bytes,
            sizes: TileSizes { warps, columns },
        }
    }
    use SizedPass::{Forward, Keys, Queries};
    [
        row(Forward, 256, 4, 64),
        row(Forward, usize::MAX, 4, 32),
        row(Queries, 128, 4, 64),
        row(Queries, 384, 4, 32),
        row(Queries, 512, 4, 16),
        row(Queries, usize::MAX, 2, 16),
        row(Keys, 128, 4, 64),
        row(Keys, 384, 4, 32),
        row(Keys, 512, 4, 16),
        row(Keys, usize::MAX, 2, 16),
    ]
};

/// The choice of sizes on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileTable {
    capability: (u32, u32),
    set: TileSettings,
}

impl TileTable {
    /// Returns the table of a device. `CACHESCOPE_ATTENTION_TILES` replaces its rows.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the value of the variable has no
    /// sizes.
    #[track_caller]
    pub(super) fn of(gpu: &Cuda) -> Result<Self> {
        static OF_ENVIRONMENT: OnceLock<TileSettings> = OnceLock::new();
        let set = match OF_ENVIRONMENT.get() {
            Some(set) => *set,
            None => {
                let set = setting("CACHESCOPE_ATTENTION_TILES")?.unwrap_or_default();
                *OF_ENVIRONMENT.get_or_init(|| set)
            }
        };
        let capability = gpu.capability();
        Ok(Self { capability, set })
    }

    /// Returns the table of a device of compute capability `capability`, with `set` sizes.
    #[cfg(test)]
    pub(super) fn new(capability: (u32, u32), set: TileSettings) -> Self {
        Self { capability, set }
    }

    /// Returns the sizes of a pass for heads whose rows have `row_bytes`.
    pub(super) fn sizes(&self, pass: AttentionPass, row_bytes: usize) -> TileSizes {
        let pass = SizedPass::of(pass);
        let is_fitting = |row: &&TileRow| {
            let is_own = row.capability.is_none_or(|own| own == self.capability);
            is_own && row.pass == pass && row_bytes <= row.row_bytes
        };
        let listed = TILES.iter().find(is_fitting).map(|row| row.sizes);
        let set = self.set.0[pass as usize];
        set.or(listed).expect("each pass has sizes for every width")
    }
}

/// Sizes that replace the sizes of some passes, for heads of every width. The text is
/// `forward:8x64,queries:4x32,keys:4x32`: the number of warps, and the number of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TileSettings([Option<TileSizes>; 3]);

impl FromStr for TileSettings {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut settings = Self::default();
        for part in text.split(',') {
            let parsed = parsed(part).ok_or_else(|| {
                let reason = format!(
                    "\"{part}\" has no sizes: write `forward:8x64,queries:4x32,keys:4x32`, with 1, 2, 4 or 8 warps and \
                     16 to 128 columns, at most 32 for each warp"
                );
                Error::new(ErrorCode::Setting, reason)
            });
            let (pass, sizes) = parsed?;
            settings.0[pass as usize] = Some(sizes);
        }
        Ok(settings)
    }
}

fn parsed(part: &str) -> Option<(SizedPass, TileSizes)> {
    let (pass, sizes) = part.split_once(':')?;
    let (warps, columns) = sizes.split_once('x')?;
    let sizes = TileSizes {
        warps: warps.parse().ok()?,
        columns: columns.parse().ok()?,
    };
    // Each column's softmax is copied by one thread, so a block needs a thread for each column.
    let is_possible = [1, 2, 4, 8].contains(&sizes.warps)
        && [16, 32, 64, 128].contains(&sizes.columns)
        && sizes.columns <= sizes.warps * 32;
    is_possible.then_some((SizedPass::named(pass)?, sizes))
}
