//! The value cannot borrow from a temporary of the block, which dies inside.

use cachescope::cache_scope;

fn main() {
    let text = cache_scope!("loop", { String::from("text").as_str() });
    println!("{text}");
}
