#!/usr/bin/env bash
# Builds the wheel of the Python package, with the C library in it. Prints the path of the wheel.
#
# Usage: crates/capi/python/build_wheel.sh [FOLDER]     FOLDER is crates/capi/python/dist by default.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
folder="${1:-$here/dist}"
root="$here/../../.."
cargo build --locked --release --manifest-path "$root/Cargo.toml" --package cachescope-capi >&2
target="${CARGO_TARGET_DIR:-$root/target}"
case "$(uname -s)" in
Darwin) ending=dylib ;;
*) ending=so ;;
esac
"${PYTHON:-python3}" "$here/build_wheel.py" "$target/release/libcachescope_capi.$ending" "$folder"
