//! Tests of reports by place: DHAT profiles and flame graphs.

use cachescope_reports::{CallSite, Event, EventKind, Profile, dhat, flame, folded};

use crate::bad_input::{json, text};
use crate::toy::{block, tables};

/// Returns a profile whose peak is at 300 ns: 1000 bytes of line 1, and 600 bytes without a scope.
fn profile() -> Profile {
    let uncached = Event {
        scope: None,
        call_site: Some(2),
        ..block(EventKind::Uncached, 300, 0x3000, 600)
    };
    let unknown = Event {
        scope: None,
        call_site: None,
        ..block(EventKind::Free, 250, 0x9000, 5)
    };
    Profile {
        events: vec![
            block(EventKind::Miss, 100, 0x1000, 700),
            block(EventKind::Hit, 200, 0x2000, 300),
            unknown,
            uncached,
            block(EventKind::Free, 400, 0x1000, 700),
            block(EventKind::Hit, 500, 0x1000, 50),
        ],
        duration_ns: 900,
        ..tables("cuda:0")
    }
}

fn with_stacks() -> Profile {
    let mut profile = profile();
    profile
        .events
        .iter_mut()
        .for_each(|event| event.stack = Some(4));
    profile
}

#[test]
fn dhat_has_totals_peaks_and_lifetimes() {
    let written = json(&text(dhat::write, &profile()));
    let expected = json(
        r##"{"dhatFileVersion":2,"mode":"cachescope","verb":"Allocated","bklt":true,"bkacc":false,
        "tu":"ns","Mtu":"ms","tuth":10000,"cmd":"cuda:0","pid":0,"tg":300,"te":900,"pps":[
        {"tb":5,"tbk":1,"tl":250,"mb":5,"mbk":1,"gb":0,"gbk":0,"eb":0,"ebk":0,"fs":[1,2]},
        {"tb":1050,"tbk":3,"tl":1400,"mb":1000,"mbk":2,"gb":1000,"gbk":2,"eb":350,"ebk":2,"fs":[3,4]},
        {"tb":600,"tbk":1,"tl":600,"mb":600,"mbk":1,"gb":600,"gbk":1,"eb":600,"ebk":1,"fs":[5,2]}],
        "ftbl":["[root]","<unknown>","<uncached>","src/main.rs:1","loop","src/attention.rs:3"]}"##,
    );
    assert_eq!(written, expected);
}

#[test]
fn dhat_has_the_first_of_equal_peaks() {
    let mut profile = profile();
    profile.events.extend([
        block(EventKind::Free, 600, 0x2000, 300),
        block(EventKind::Free, 650, 0x1000, 50),
        block(EventKind::Hit, 700, 0x4000, 1000),
    ]);
    let written = json(&text(dhat::write, &profile));
    let point = &written["pps"][1];
    assert_eq!([&point["mb"], &point["mbk"], &point["eb"]], [1000, 2, 1000]);
}

#[test]
fn dhat_lists_backtraces_from_the_innermost_out() {
    let written = json(&text(dhat::write, &with_stacks()));
    assert_eq!(written["pps"].as_array().map(Vec::len), Some(1));
    assert_eq!(written["pps"][0]["fs"], json("[1,2]"));
    assert_eq!(written["ftbl"][1], "step<[u8; 4]>");
    assert_eq!(written["ftbl"][2], "step<[u8; 51]> (src/step.rs:3)");
}

#[test]
fn dhat_has_every_stack_once() {
    let mut profile = profile();
    // Adds another call on the first line, and a backtrace without frames.
    profile.call_sites[2] = CallSite {
        column: 50,
        ..profile.call_sites[0].clone()
    };
    profile.stacks.push(Vec::new());
    profile.events[2].stack = Some(40);
    profile.events[3].scope = Some(0);
    let written = json(&text(dhat::write, &profile));
    let points = written["pps"].as_array().expect("points");
    let stacks: Vec<_> = points.iter().map(|point| &point["fs"]).collect();
    assert_eq!(stacks, [&json("[1]"), &json("[2,3]")]);
    assert_eq!(
        written["ftbl"],
        json(r#"["[root]","<unknown>","src/main.rs:1","loop"]"#)
    );
    assert_eq!(
        (&points[1]["tbk"], &points[1]["gb"]),
        (&json("4"), &json("1600"))
    );
}

#[test]
fn folded_stacks_are_those_of_the_peak() {
    let written = text(folded::write, &profile());
    assert_eq!(
        written,
        "<uncached>;src/attention.rs:3 600\nloop;src/main.rs:1 1000\n"
    );
    // The frames are in order from the outermost inwards. Separators in names are replaced, so they
    // divide no frame.
    let written = text(folded::write, &with_stacks());
    assert_eq!(
        written,
        "step<[u8, 51]> (src/step.rs:3);step<[u8, 4]> 1600\n"
    );
}

#[test]
fn a_flame_graph_names_the_device_and_the_peak() {
    let mut profile = profile();
    // The name of this scope begins with `#`, which begins a comment in folded stacks.
    profile
        .events
        .iter_mut()
        .for_each(|event| event.scope = Some(2));
    let graph = text(flame::write, &profile);
    assert!(graph.contains("cuda:0: 1.6 KiB live at the peak"));
    assert!(graph.contains("<title>src/main.rs:1 (1,000 bytes, 62.50%)</title>"));
    assert!(graph.contains("<title>_ hash (1,600 bytes, 100.00%)</title>"));
    assert_eq!(graph, text(flame::write, &profile), "it is deterministic");
}

/// Returns a profile in which the names of devices, scopes, files and functions contain
/// `characters`.
fn named(characters: &str) -> Profile {
    let name = format!("a{characters}z");
    let mut profile = profile();
    profile.device.clone_from(&name);
    profile.scopes.fill(name.clone());
    for site in &mut profile.call_sites {
        site.file.clone_from(&name);
    }
    let frames = profile.stacks.iter_mut().flatten();
    for frame in frames {
        frame.function.clone_from(&name);
        frame.file.clone_from(&name);
    }
    profile
}

fn is_char(character: char) -> bool {
    match u32::from(character) {
        0x9 | 0xa | 0xd => true,
        0..=0x1f | 0xfffe | 0xffff => false,
        _ => true,
    }
}

/// Asserts that a text is well-formed XML: it has no forbidden characters, `<` and `&` begin
/// markup, and tags nest.
#[track_caller]
fn check_xml(text: &str) {
    let forbidden = text.chars().find(|&character| !is_char(character));
    assert_eq!(forbidden, None);
    let mut open = Vec::new();
    let mut rest = text;
    while let Some((content, markup)) = rest.split_once('<') {
        for reference in content.split('&').skip(1) {
            let (name, _) = reference.split_once(';').expect("a reference ends");
            assert!(
                ["lt", "gt", "amp", "quot", "apos"].contains(&name) || name.starts_with('#'),
                "{name}"
            );
        }
        assert!(!content.contains("]]>"), "{content}");
        if let Some(section) = markup.strip_prefix("![CDATA[") {
            rest = section.split_once("]]>").expect("a section ends").1;
            continue;
        }
        if let Some(comment) = markup.strip_prefix("!--") {
            rest = comment.split_once("-->").expect("a comment ends").1;
            continue;
        }
        let (tag, after) = markup.split_once('>').expect("a tag ends");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.trim_end()), "{tag}");
        } else if !tag.ends_with('/') && !tag.starts_with(['?', '!']) {
            open.extend(tag.split_whitespace().next());
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn flame_graphs_are_xml_whatever_the_names() {
    let controls: String = (0..0x20).filter_map(char::from_u32).collect();
    let all = format!(
        "{controls}\u{7f}\u{85}<>&'\"]]>\u{d7ff}\u{e000}\u{fffd}\u{fffe}\u{ffff}\u{10ffff}"
    );
    for characters in [&*all, "\u{fffe}", "\u{ffff}", "\0", "\u{1b}", "]]>", "<!--"] {
        let mut profile = named(characters);
        let graph = text(flame::write, &profile);
        check_xml(&graph);
        let of_stacks = profile.clone();
        for event in &mut profile.events {
            event.stack = Some(4);
        }
        check_xml(&text(flame::write, &profile));
        profile.events.clear();
        check_xml(&text(flame::write, &profile));
        json(&text(dhat::write, &of_stacks));
    }
    let graph = text(flame::write, &named("\u{fffe}"));
    assert!(graph.contains("a\u{fffd}z:1"), "the rest of a name stays");
}

#[test]
fn live_bytes_beyond_64_bits_are_cut() {
    let mut profile = profile();
    for event in &mut profile.events {
        (event.bytes, event.block_bytes) = (u64::MAX - 3, u64::MAX - 3);
    }
    let stacks = text(folded::write, &profile);
    let sum: u128 = (stacks.lines())
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u128>().unwrap())
        .sum();
    assert_eq!(sum, u64::MAX.into());
    check_xml(&text(flame::write, &profile));
}
