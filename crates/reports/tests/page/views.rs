//! Tests of each view, with real mouse and keyboard events.

use programs::training;

use crate::browser::Browser;
use crate::html;

/// Opens the page of the invented run in a browser.
fn open() -> Option<Browser> {
    let mut browser = Browser::start()?;
    browser.open("run.html", &html(&training(50, true)));
    Some(browser)
}

/// Returns an expression for the first allocation of a line that is visible as a band of the
/// timeline.
fn first_of(line: &str) -> String {
    format!(
        "page.recording.lifetimes.site.findIndex((site, own) => \
         page.recording.sites[site] === '{line}' && page.timeline.where(own))"
    )
}

#[test]
fn timeline() {
    let Some(mut browser) = open() else { return };
    let band = browser.point(&format!(
        "page.timeline.where({})",
        first_of("src/model.rs:31")
    ));
    browser.hover(band);
    let tip = browser.text("document.getElementById('tip').innerText");
    for part in [
        "src/model.rs:31",
        "KiB in a block of",
        "(no scope)",
        "live at the end",
        "uncached",
    ] {
        assert!(tip.contains(part), "{part}: {tip}");
    }
    browser.click(band);
    assert_eq!(
        browser.evaluate("document.getElementById('pin').hidden"),
        false
    );
    browser.key("Escape");
    assert_eq!(
        browser.evaluate("document.getElementById('pin').hidden"),
        true
    );

    let all = browser.number("page.timeline.to - page.timeline.from");
    browser.scroll(band, -300.0);
    browser.wait_for(&format!(
        "page.timeline.to - page.timeline.from < {}",
        all * 0.9
    ));
    let scrolled = browser.number("page.timeline.to - page.timeline.from");
    let from = (band.0 + 100.0, band.1);
    let to = (band.0 + 300.0, band.1);
    browser.hover(from);
    browser.press(from, 1);
    browser.drag(to);
    browser.release(to, 1);
    let brushed = browser.number("page.timeline.to - page.timeline.from");
    assert!(brushed < scrolled / 3.0, "{brushed} of {scrolled}");
    for clicks in [1, 2] {
        browser.press(from, clicks);
        browser.release(from, clicks);
    }
    assert_eq!(browser.number("page.timeline.to - page.timeline.from"), all);

    let lanes = browser.point(
        "(() => { const box = page.timeline.canvas.getBoundingClientRect(); const lane = page.timeline.lanes; \
         const entry = page.recording.entriesOf[1][2]; const x = page.timeline.x(entry.from) + 2; \
         return { x: box.x + x, y: box.y + page.timeline.lanesTop + lane.threads[0].top + 4 }; })()",
    );
    browser.hover(lanes);
    let tip = browser.text("document.getElementById('tip').innerText");
    assert!(tip.contains("step") && tip.contains("3 of 50"), "{tip}");
    browser.assert_no_errors();
}

#[test]
fn filter_and_table() {
    let Some(mut browser) = open() else { return };
    let rows = "document.querySelectorAll('#sites tbody tr').length";
    assert_eq!(browser.number(rows), 10.0);
    let all = browser.text("document.getElementById('shown').value");
    assert!(all.starts_with("2,634 of 2,634 allocations"), "{all}");
    let text = browser.middle("#text");
    browser.click(text);
    browser.type_text("OPTIMIZER.rs");
    assert_eq!(browser.number(rows), 2.0);
    let shown = browser.text("document.getElementById('shown').value");
    assert!(shown.starts_with("612 of 2,634 allocations"), "{shown}");
    assert_eq!(
        browser.evaluate("page.timeline.where(0)"),
        serde_json::Value::Null
    );
    let weight = first_of("src/optimizer.rs:40");
    assert!(browser.number(&weight) > 0.0);

    browser.evaluate("document.getElementById('text').select()");
    browser.type_text("no line has this");
    assert_eq!(browser.number(rows), 0.0);
    let note = browser.text("document.querySelector('#sites > .empty').innerText");
    assert_eq!(note, "No line passes the filter.");
    browser.evaluate("document.getElementById('text').select()");
    browser.type_text("src");

    let scope = browser.middle("#scopes input[value=\"1\"]");
    browser.click(scope);
    assert_eq!(browser.number(rows), 4.0);
    browser.click(scope);

    let count = browser.middle("#sites th:nth-child(6) button");
    browser.click(count);
    let order = browser.text("document.querySelectorAll('#sites th')[5].ariaSort");
    assert_eq!(order, "descending");
    let first = "document.querySelector('#sites tbody td:nth-child(6)').innerText";
    assert_eq!(browser.text(first), "600");
    browser.click(count);
    assert_eq!(browser.text(first), "12");

    let row = browser.middle("#sites tbody tr:nth-child(2)");
    browser.click(row);
    assert_eq!(
        browser.number("page.highlight.reduce((sum, own) => sum + own)"),
        12.0
    );
    let pressed = "document.querySelectorAll('#sites [aria-pressed=true]').length";
    assert_eq!(browser.number(pressed), 1.0);
    let faded = "page.timeline.fills[page.highlight.indexOf(0)] !== page.timeline.fills[page.highlight.indexOf(1)]";
    assert_eq!(browser.evaluate(faded), true);
    browser.click(row);
    assert_eq!(browser.number(pressed), 0.0);
    browser.assert_no_errors();
}

#[test]
fn segments_entry_and_flames() {
    let Some(mut browser) = open() else { return };
    let live = "page.segments.totals.live";
    let at_peak = browser.number(live);
    assert!((browser.number("page.recording.peak.bytes") - at_peak).abs() < 1e5);
    let slider = browser.middle("#slider");
    browser.click(slider);
    let moment = browser.number("page.moment");
    assert!((moment - 4670.0).abs() < 100.0, "{moment}");
    let before = browser.number(live);
    assert!(before < at_peak);
    browser.key("ArrowRight");
    // A key moves the slider by one event. Totals are not compared, because some events change no
    // total.
    assert_eq!(browser.number("page.moment"), moment + 1.0);
    let total =
        "page.segments.totals.live + page.segments.totals.idle + page.segments.totals.pending";
    let reserved = browser.number("page.segments.totals.reserved");
    assert_eq!(browser.number(total), reserved);
    let row = browser.middle("#segments canvas");
    browser.hover((row.0 - 130.0, row.1 - 10.0));
    let tip = browser.text("document.getElementById('tip').innerText");
    assert!(tip.contains("address"), "{tip}");

    let bars = "page.entry.bars.length";
    assert_eq!(browser.number(bars), 50.0);
    // Memory of this scope is allocated only in its entries. So the number of escaped bars equals
    // the number in the table.
    let escaped = browser.number(
        "page.recording.entriesOf[1].reduce((sum, _, i) => { page.entry.number.value = i + 1; page.entry.update(); \
         return sum + page.entry.bars.filter((bar) => bar.hasEscaped).length; }, 0)",
    );
    let counted = browser.number(
        "page.sites.rows.filter((row) => row.scope === 1).reduce((sum, row) => sum + row.escaped, 0)",
    );
    assert!(escaped > 0.0);
    assert_eq!(escaped, counted);
    let entry = browser.middle("#entry canvas");
    browser.hover(entry);
    let tip = browser.text("document.getElementById('tip').innerText");
    assert!(tip.contains("steps"), "{tip}");
    browser.evaluate(
        "page.entry.scope.value = 2; page.entry.scope.dispatchEvent(new Event('change'))",
    );
    assert_eq!(browser.number(bars), 12.0);

    let flames = "document.querySelectorAll('.flames button').length";
    let all = browser.number(flames);
    let frame = browser.middle(".flames button[aria-label*=\"model::forward\"]");
    browser.hover(frame);
    let tip = browser.text("document.getElementById('tip').innerText");
    assert!(
        tip.contains("digits::model::forward") && tip.contains("of the peak"),
        "{tip}"
    );
    browser.click(frame);
    assert!(browser.number(flames) < all);
    let root = browser.middle(".flames button");
    browser.click(root);
    assert_eq!(browser.number(flames), all);
    browser.assert_no_errors();
}

#[test]
fn addresses_and_growth() {
    let Some(mut browser) = open() else { return };
    let growth = browser.text("document.getElementById('growth').innerText");
    for part in [
        "step grows by 1.50 MiB an entry on thread 1",
        "1.50 MiB src/train.rs:112",
        "evaluate does not grow",
    ] {
        assert!(growth.contains(part), "{part}: {growth}");
    }
    let exits = "page.growth.exitsOf({ scope: 1, thread: 1 })";
    assert_eq!(browser.number(&format!("{exits}.length")), 50.0);
    let grown = browser.number(&format!("{exits}[49] - {exits}[48]"));
    assert_eq!(grown, 1.5 * f64::from(1 << 20));
    let chart = browser.middle("#growth canvas");
    browser.hover(chart);
    let tip = browser.text("document.getElementById('tip').innerText");
    assert!(
        tip.contains("of 50") && tip.contains("live at its exit"),
        "{tip}"
    );

    // A block of the longest segment is drawn at its address and its time.
    browser.evaluate("document.querySelector('#addresses').scrollIntoView()");
    let point = browser.point(&format!(
        "(() => {{ const own = {}; const box = page.addresses.boxOf(own); \
         const canvas = page.addresses.canvas.getBoundingClientRect(); \
         return {{ x: canvas.x + box.x + box.width / 2, y: canvas.y + box.y + box.height / 2 }}; }})()",
        first_of("src/model.rs:31")
    ));
    browser.hover(point);
    let tip = browser.text("document.getElementById('tip').innerText");
    assert!(tip.contains("src/model.rs:31"), "{tip}");
    browser.evaluate("page.addresses.segment.value = 1; page.addresses.update()");
    let elsewhere = format!("page.addresses.boxOf({})", first_of("src/model.rs:31"));
    assert_eq!(browser.evaluate(&elsewhere), serde_json::Value::Null);
    browser.assert_no_errors();
}
