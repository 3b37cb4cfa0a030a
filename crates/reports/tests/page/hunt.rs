//! Tests of the search for a line, on the page of a recording without scopes, such as PyTorch's.

use cachescope_reports::{CallSite, Event, EventKind, Frame, OtherReport, Profile};

use crate::browser::Browser;
use crate::html;

const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// Returns a profile of two lines without a scope, with PyTorch's backtraces. The second line has
/// allocating call sites in two columns. A minute passes before the first event, and another after
/// the last. The first line has the most live bytes at the peak. The last allocation is on the
/// second line, which has few live bytes at the peak.
fn profile() -> Profile {
    let site = |file: &str, line, column| CallSite {
        file: file.into(),
        line,
        column,
    };
    let frame = |function: &str, file: &str, line| Frame {
        function: function.into(),
        file: file.into(),
        line,
    };
    let event = |time_ns, kind, line: u32, address: u64, bytes| Event {
        time_ns,
        kind,
        thread: 0,
        stream: 0,
        scope: None,
        call_site: Some(line),
        stack: Some(0).filter(|_| line == 0),
        address: address * MIB,
        bytes,
        block_bytes: bytes,
    };
    use EventKind::{Allocate, Free, Reserve};
    Profile {
        device: "cuda:0".into(),
        duration_ns: 121 * SECOND_NS,
        call_sites: vec![
            site("/home/user/train/model.py", 44, 0),
            site("src/deep/folder/train.rs", 7, 5),
            site("src/deep/folder/train.rs", 7, 31),
        ],
        stacks: vec![vec![
            frame("at::empty", "", 0),
            frame("forward", "/home/user/train/model.py", 44),
            frame("main", "/home/user/train/main.py", 9),
        ]],
        events: vec![
            event(60 * SECOND_NS, Reserve, 1, 0, 64 * MIB),
            event(60 * SECOND_NS, Allocate, 0, 0, 20 * MIB),
            event(60 * SECOND_NS + 1, Allocate, 1, 20, 3 * MIB),
            event(60 * SECOND_NS + 2, Allocate, 2, 24, MIB),
            event(60 * SECOND_NS + 1000, Free, 0, 0, 20 * MIB),
            event(61 * SECOND_NS, Free, 1, 20, 3 * MIB),
        ],
        others: vec![OtherReport {
            device: "cuda:1".into(),
            file: "run cuda1-2.html".into(),
        }],
        ..Profile::default()
    }
}

fn open(profile: &Profile) -> Option<Browser> {
    let mut browser = Browser::start()?;
    browser.open("hunt.html", &html(profile));
    Some(browser)
}

#[test]
fn head_colours_and_time() {
    let Some(mut browser) = open(&profile()) else {
        return;
    };
    let facts = browser.text("document.getElementById('facts').innerText");
    assert!(
        facts.contains("83.3 % by /home/user/train/model.py:44"),
        "{facts}"
    );
    let link = "document.querySelector('#others a')";
    assert_eq!(browser.text(&format!("{link}.innerText")), "cuda:1");
    let href = browser.text(&format!("{link}.getAttribute('href')"));
    assert_eq!(href, "run%20cuda1-2.html");

    // Each line has a colour other than the grey of uncached memory.
    let fills = browser.text("[...page.timeline.fills.subarray(0, 3)].join()");
    let mut colours: Vec<&str> = fills.split(',').collect();
    let grey = "(([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0)(page.palette.uncached)";
    let grey = browser.evaluate(grey).to_string();
    assert!(!colours.contains(&&*grey), "{fills}");
    colours.sort_unstable();
    colours.dedup();
    assert_eq!(colours.len(), 3, "{fills}");

    let (from, to) = (
        browser.number("page.timeline.from / 1e9"),
        browser.number("page.timeline.to / 1e9"),
    );
    assert!(
        59.9 < from && from < 60.0 && 61.0 < to && to < 61.1,
        "{from} to {to}"
    );
    browser.evaluate("document.getElementById('whole').click()");
    assert_eq!(browser.number("page.timeline.from"), 0.0);
    assert_eq!(browser.number("page.timeline.to"), 121e9);
    browser.assert_no_errors();
}

#[test]
fn names_and_the_chosen_moment() {
    let Some(mut browser) = open(&profile()) else {
        return;
    };
    let rows = browser.text("document.querySelector('#sites tbody').innerText");
    for line in ["train.rs:7:5", "train.rs:7:31"] {
        assert!(rows.contains(line), "{rows}");
    }
    let labels =
        "[...document.querySelectorAll('.flames button')].map((own) => own.innerText).join()";
    let flames = browser.text(labels);
    assert!(flames.contains("model.py:44 forward"), "{flames}");
    assert!(flames.contains("train.rs:7:31"), "{flames}");
    assert_eq!(
        browser.text("document.getElementById('flame-title').innerText"),
        "At the peak"
    );
    browser.evaluate("page.setMoment(5)");
    let later = browser.text(labels);
    assert!(
        !later.contains("model.py") && later.contains("train.rs:7:5"),
        "{later}"
    );
    assert_eq!(
        browser.text("document.getElementById('flame-title').innerText"),
        "At 60.000001 s"
    );

    browser.evaluate("page.setMoment(4); document.querySelector('#timeline canvas').focus()");
    let pin = "document.getElementById('pin').innerText";
    browser.key("ArrowUp");
    let lowest = browser.text(pin);
    for part in [
        "model.py:44",
        "at::empty",
        "main (/home/user/train/main.py:9)",
    ] {
        assert!(lowest.contains(part), "{lowest}");
    }
    browser.key("ArrowUp");
    assert!(browser.text(pin).contains("train.rs:7:5"));
    browser.key("ArrowDown");
    assert_eq!(browser.text(pin), lowest);
    browser.key(".");
    assert_eq!(browser.number("page.moment"), 5.0);
    browser.assert_no_errors();
}

#[test]
fn small_blocks_keep_their_lines() {
    let Some(mut browser) = open(&profile()) else {
        return;
    };
    browser.evaluate(
        "page.timeline.limit.append(new Option('1')); page.timeline.limit.value = 1; page.timeline.update()",
    );
    let band = "page.recording.lifetimes.count";
    let cell = format!("page.timeline.cells.findIndex((cell) => (cell >> 2) - 1 === {band})");
    let column = format!("{cell} % page.timeline.columns");
    let tip = browser.text(&format!(
        "page.timeline.describeGathered(0, 76.5 + ({column}) / page.timeline.ratio).join('; ')"
    ));
    assert!(tip.starts_with("Small blocks;"), "{tip}");
    assert!(
        tip.contains("train.rs:7:5,3.00 MiB; src/deep/folder/train.rs:7:31,1.00 MiB"),
        "{tip}"
    );
    browser.assert_no_errors();
}

#[test]
fn lost_events_are_counted_by_the_device() {
    let mut profile = profile();
    profile.events.remove(0);
    profile.lost_events = 3;
    profile.complete_from_ns = 60 * SECOND_NS + 1;
    profile.live_bytes = Some(11 * MIB);
    profile.reserved_bytes = Some(40 * MIB);
    let Some(mut browser) = open(&profile) else {
        return;
    };
    let facts = browser.text("document.getElementById('facts').innerText");
    for part in [
        "34.0 MiB",
        "85.0 % live at the peak",
        "complete from 60.000 s on, and 10.0 MiB of unknown lines",
    ] {
        assert!(facts.contains(part), "{facts}");
    }
    let most = browser.number("page.live.reduce((most, own) => Math.max(most, own), 0)");
    assert_eq!(most, 34.0 * MIB as f64);
    let is_above = "page.recording.reserved.every((own, moment) => own >= page.live[moment])";
    assert_eq!(browser.evaluate(is_above), true);
    browser.assert_no_errors();
}
