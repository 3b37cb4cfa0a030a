//! What is written, without a browser: the data decode to the events, and nothing breaks out of them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cachescope_reports::{Event, Frame, Profile, lifetimes};
use serde_json::Value;

use crate::recording::training;
use crate::soup::soup;

fn html(profile: &Profile) -> String {
    String::from_utf8(crate::html(profile)).unwrap()
}

/// The object that the page embeds, as a parser of HTML would find it.
fn embedded(html: &str) -> Value {
    let begin = r#"<script id="recording" type="application/json">"#;
    let (_, data) = html.split_once(begin).unwrap();
    let (data, _) = data.split_once("</script").unwrap();
    serde_json::from_str(data).unwrap()
}

/// Read without regard to how it is written.
fn decode(text: &str) -> Vec<u64> {
    let mut values = Vec::new();
    let (mut value, mut zigzag, mut shift) = (0i64, 0u64, 0);
    for byte in STANDARD.decode(text).unwrap() {
        zigzag |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            let magnitude = (zigzag >> 1) as i64;
            value += if zigzag & 1 == 0 {
                magnitude
            } else {
                -magnitude - 1
            };
            values.push(value as u64);
            (zigzag, shift) = (0, 0);
        }
    }
    values
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
fn the_embedded_data_are_the_events() {
    for seed in 0..20 {
        let profile = soup(seed);
        let data = embedded(&html(&profile));
        let events = &data["events"];
        let same = |name: &str, expected: &dyn Fn(&Event) -> u64| {
            let expected: Vec<u64> = profile.events.iter().map(expected).collect();
            assert_eq!(column(events, name), expected, "{name}");
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
        let kinds = column(events, "kind").into_iter().zip(&profile.events);
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
