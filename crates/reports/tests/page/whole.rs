//! Tests of the whole page: its colours, incomplete recordings, and the speed for a long recording.

use cachescope_reports::{CallSite, Event, EventKind, Profile};
use programs::training;

use crate::browser::Browser;
use crate::soup::soup;
use crate::{html, pixels};

/// Runs the tests sequentially in one browser, because starting a browser takes longer than any
/// test.
#[test]
fn whole() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    both_colour_schemes(&mut browser);
    what_is_missing(&mut browser);
    events_without_sense(&mut browser);
    a_million_events(&mut browser);
}

fn both_colour_schemes(browser: &mut Browser) {
    browser.open("run.html", &html(&training(50, true)));
    // Zooms to a few steps, with an evaluation beside one of them. In the full view, the evaluation
    // has too few pixels.
    browser.evaluate("page.timeline.zoom(18e6, 27e6)");
    let mut papers = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        // Waits for two frames: one in which the views are redrawn, and one that the screenshot
        // captures.
        browser.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))",
        );
        let screenshot = browser.screenshot("page.timeline.plot()");
        let colours = pixels::colours(&screenshot);
        assert!(colours.len() >= 8, "{scheme}: {} colours", colours.len());
        for scope in 0..3 {
            let most = (0..5).map(|rank| {
                let colour = browser.evaluate(&format!("page.palette.shade({scope}, {rank})"));
                let colour = [0, 1, 2].map(|part| colour[part].as_u64().unwrap() as u8);
                colours.get(&colour).copied().unwrap_or(0)
            });
            let most = most.max().unwrap();
            assert!(most > 100, "{scheme}: scope {scope} has {most} pixels");
        }
        papers.push(browser.text("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(papers[0], papers[1]);
    browser.assert_no_errors();
}

fn what_is_missing(browser: &mut Browser) {
    browser.open("nothing.html", &html(&Profile::default()));
    let note = browser.text("document.getElementById('nothing').innerText");
    assert!(note.starts_with("Nothing was recorded"), "{note}");
    assert_eq!(
        browser.evaluate("document.querySelector('main').hidden"),
        true
    );

    browser.open("hostile.html", &html(&hostile()));
    let name = browser.text("document.querySelector('#sites td:nth-child(2)').innerText");
    assert_eq!(name, "</script><img src=x onerror=alert(1)>");
    assert_eq!(browser.number("document.images.length"), 0.0);
    let missing = browser.text("document.querySelector('#segments > .empty').innerText");
    assert!(missing.starts_with("No segment is known"), "{missing}");
    let missing = browser.text("document.querySelector('#entry > .empty').innerText");
    assert_eq!(missing, "No scope was entered.");
    browser.assert_no_errors();
}

fn events_without_sense(browser: &mut Browser) {
    for seed in 0..3 {
        browser.open(&format!("soup-{seed}.html"), &html(&soup(seed)));
        let (x, y) = browser.middle("#timeline canvas");
        for step in 0..5 {
            browser.hover((x + 20.0 * f64::from(step), y));
        }
        browser.click((x, y));
        browser.scroll((x, y), -200.0);
        let map = browser.middle("#segments canvas");
        browser.hover(map);
        browser.assert_no_errors();
    }
}

/// Returns a profile of one allocation, in which all names are markup.
fn hostile() -> Profile {
    let markup = "</script><img src=x onerror=alert(1)>";
    Profile {
        device: markup.into(),
        call_sites: vec![CallSite {
            file: "<!--<script>\u{2028}\"\\".into(),
            line: 1,
            column: 1,
        }],
        scopes: vec![markup.into()],
        events: vec![Event {
            scope: Some(0),
            call_site: Some(0),
            address: 4096,
            bytes: 100,
            block_bytes: 512,
            ..Event::new(EventKind::Miss, 0)
        }],
        ..Profile::default()
    }
}

fn a_million_events(browser: &mut Browser) {
    let mut profile = training(5400, false);
    assert!(profile.events.len() > 1_000_000, "{}", profile.events.len());
    profile.events.truncate(1_000_000);
    let html = html(&profile);
    let size_bytes = html.len();
    assert!(size_bytes < 10_000_000, "{size_bytes} bytes");
    // Uses the best of several attempts, because the machine runs other processes too.
    let mut times_ms = Vec::new();
    for attempt in 0..3 {
        browser.open(&format!("long-{attempt}.html"), &html);
        let ready: f64 = browser.text("document.body.dataset.ready").parse().unwrap();
        let complete: f64 = browser
            .text("document.body.dataset.complete")
            .parse()
            .unwrap();
        let zoomed = browser.number(
            "(() => { const { timeline } = page; const third = (timeline.to - timeline.from) / 3; \
             const began = performance.now(); timeline.zoom(timeline.from + third, timeline.to - third); \
             return performance.now() - began; })()",
        );
        times_ms.push((ready, complete, zoomed));
    }
    println!("{size_bytes} bytes; ms until the timeline, until all, to zoom: {times_ms:?}");
    assert!(times_ms.iter().any(|&(ready, _, _)| ready < 2000.0));
    assert!(times_ms.iter().any(|&(_, _, zoomed)| zoomed < 100.0));
    let addresses = browser.evaluate("[...page.recording.events.address.subarray(-100_000)]");
    let recorded = profile.events[900_000..].iter();
    let recorded = recorded.map(|event| event.address as f64);
    assert!(
        addresses
            .as_array()
            .unwrap()
            .iter()
            .map(|own| own.as_f64().unwrap())
            .eq(recorded)
    );
    browser.assert_no_errors();
}
