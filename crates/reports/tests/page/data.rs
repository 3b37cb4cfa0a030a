//! Tests of the written page without a browser. The data decode to the events, and hostile names
//! stay inside of the data.

use cachescope_reports::{Event, EventKind, Frame, Profile, SiteSummary, by_call_site, lifetimes};
use programs::training;
use serde_json::Value;

use crate::decode::decode;
use crate::soup::soup;

fn html(profile: &Profile) -> String {
    String::from_utf8(crate::html(profile)).unwrap()
}

/// Extracts the object that the page embeds, like an HTML parser.
fn embedded(html: &str) -> Value {
    let begin = r#"<script id="recording" type="application/json">"#;
    let (_, data) = html.split_once(begin).unwrap();
    let (data, _) = data.split_once("</script").unwrap();
    serde_json::from_str(data).unwrap()
}

fn column(table: &Value, name: &str) -> Vec<u64> {
    let values = decode(table[name].as_str().unwrap());
    assert_eq!(
        values.len() as u64,
        table["count"].as_u64().unwrap(),
        "{name}"
    );
    values
}

#[test]
fn columns_decode() {
    const LARGEST: u64 = (1 << 52) - 1;
    let times = |values: &[u64]| {
        let mut profile = Profile::default();
        let events = values.iter().map(|&time| Event::new(EventKind::Hit, time));
        profile.events.extend(events);
        embedded(&html(&profile))["events"].take()
    };
    let decoded = |values: &[u64]| column(&times(values), "time");
    let values = [0, 1, 63, 64, 8191, 8192, 5, LARGEST, 0, LARGEST, 1 << 47, 3];
    assert_eq!(decoded(&values), values);
    assert_eq!(times(&[])["time"], "");
    assert_eq!(decoded(&[u64::MAX, 1]), [LARGEST, 1]);
    for length in 0..9 {
        let values: Vec<u64> = (0..length).collect();
        assert_eq!(decoded(&values), values);
    }
}

#[test]
fn the_embedded_data_are_the_events() {
    for seed in 0..20 {
        let profile = soup(seed);
        let data = embedded(&html(&profile));
        let indexed = |table: &str, index: &str, name: &str| -> Vec<u64> {
            let values = column(&data[table], name);
            let indices = column(&data["events"], index).into_iter();
            indices.map(|index| values[index as usize]).collect()
        };
        let column_of = |name: &str| match name {
            "time" => column(&data["events"], name),
            "address" => indexed("addresses", "address", name),
            _ => indexed("shapes", "shape", name),
        };
        let same = |name: &str, expected: &dyn Fn(&Event) -> u64| {
            let expected: Vec<u64> = profile.events.iter().map(expected).collect();
            assert_eq!(column_of(name), expected, "{name}");
        };
        let known = |number: Option<u32>, length: u64| {
            number
                .map(u64::from)
                .filter(|&number| number < length)
                .map_or(0, |number| number + 1)
        };
        same("time", &|event| event.time_ns);
        same("thread", &|event| event.thread.into());
        same("stream", &|event| event.stream.into());
        same("scope", &|event| known(event.scope, 2));
        same("site", &|event| known(event.call_site, 1));
        same("stack", &|event| known(event.stack, 1));
        same("address", &|event| event.address);
        same("bytes", &|event| event.bytes);
        same("block", &|event| event.block_bytes);
        let kinds = column_of("kind").into_iter().zip(&profile.events);
        for (kind, event) in kinds {
            assert_eq!(data["kinds"][kind as usize], format!("{:?}", event.kind));
        }
        let lifetimes = lifetimes(&profile);
        let died = column(&data["lifetimes"], "died");
        for (lifetime, died) in lifetimes.iter().zip(died) {
            assert_eq!(died, lifetime.freed.map_or(2001, |freed| freed as u64 + 1));
        }
    }
}

/// Returns the one-based index of a name in its table, or 0 if the table lacks the name.
fn number<T: PartialEq>(table: &[T], name: Option<&T>) -> u64 {
    let place = table.iter().position(|own| Some(own) == name);
    place.map_or(0, |place| place as u64 + 1)
}

#[test]
fn the_rows_are_those_of_the_table() {
    let profile = training(12, false);
    let mut sites = by_call_site(&profile);
    let site = |own: &SiteSummary| number(&profile.call_sites, own.call_site.as_ref());
    let scope = |own: &SiteSummary| number(&profile.scopes, own.scope.as_ref());
    sites.sort_by_key(|own| (site(own), scope(own)));
    let rows = &embedded(&html(&profile))["rows"];
    let same = |name: &str, expected: &dyn Fn(&SiteSummary) -> u64| {
        let expected: Vec<u64> = sites.iter().map(expected).collect();
        assert!(
            expected.iter().any(|&value| value > 0),
            "{name} shows nothing"
        );
        assert_eq!(column(rows, name), expected, "{name}");
    };
    same("site", &|own| site(own));
    same("scope", &|own| scope(own));
    same("atEnd", &|own| own.live_bytes);
    same("peak", &|own| own.peak_bytes);
    same("atPeak", &|own| own.device_peak_bytes);
    same("allocations", &|own| own.allocations);
    same("hits", &|own| own.hits);
    same("misses", &|own| own.misses);
    same("escaped", &|own| own.escaped);
    same("copies", &|own| own.copies_on_write);
    same("kernelNs", &|own| own.kernel_ns);
}

#[test]
fn an_empty_profile_is_a_page() {
    let data = embedded(&html(&Profile::default()));
    assert!(column(&data["events"], "time").is_empty());
    assert_eq!(data["peak"]["bytes"], 0);
}

#[test]
fn hostile_names_stay_in_the_data() {
    let names = [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "\"},\\\u{0}\u{1f}\n\u{2028}\u{1f980}",
        "*/ /* scripts */",
        "\u{7f}\u{85}\u{fdd0}\u{fffe}\u{ffff}\u{1fffe}\u{10ffff}",
    ];
    for name in names {
        let plain = html(&Profile::default());
        let mut profile = training(1, false);
        profile.device = name.into();
        profile.scopes[0] = name.into();
        profile.call_sites[0].file = name.into();
        profile.stacks = vec![vec![Frame {
            function: name.into(),
            file: name.into(),
            line: 0,
        }]];
        let html = html(&profile);
        assert_eq!(
            html.matches("<script").count(),
            plain.matches("<script").count()
        );
        assert_eq!(
            html.matches("</script").count(),
            plain.matches("</script").count()
        );
        assert_eq!(html.matches("<!--").count(), plain.matches("<!--").count());
        let forbids = |character: char| {
            let is_control = character.is_control() && character != '\n' && character != '\t';
            is_control || [0xfffe, 0xffff].contains(&(u32::from(character) & 0xffff))
        };
        assert_eq!(html.find(forbids), None);
        let data = embedded(&html);
        assert_eq!(data["device"], name);
        assert_eq!(data["scopes"][0], name);
        assert_eq!(data["sites"][0][0], name);
        assert_eq!(data["frames"][0][0], name);
        assert_eq!(data["frames"][0][1], name);
    }
}

#[test]
fn nothing_is_loaded() {
    let html = html(&Profile::default());
    for sign in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(sign), "{sign}");
    }
}
