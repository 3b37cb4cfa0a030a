//! Tests of the page: its text, and its behaviour in a browser.

mod browser;
mod data;
mod decode;
mod hunt;
mod pixels;
mod soup;
mod views;
mod whole;

use cachescope_reports::{Profile, page};

fn html(profile: &Profile) -> Vec<u8> {
    let mut html = Vec::new();
    page::write(profile, &mut html).unwrap();
    html
}
