//! Tests of reports by line: allocations, growth, and their tables.

use cachescope_reports::{
    CallSite, Event, EventKind, Profile, SiteSummary, by_call_site, growth, perfetto, table,
};

use crate::bad_input::text;
use crate::toy::{record, tables};

#[derive(Default)]
struct Program {
    events: Vec<Event>,
    scope: Option<u32>,
    thread: u32,
}

impl Program {
    fn enter(&mut self, scope: u32) {
        self.scope = Some(scope);
        self.push(EventKind::Enter, 0, 0, 0);
    }

    fn exit(&mut self, live_bytes: u64) {
        self.push(EventKind::Exit, 0, 0, live_bytes);
        self.scope = None;
    }

    fn push(&mut self, kind: EventKind, call_site: u32, address: u64, bytes: u64) {
        self.events.push(Event {
            scope: self.scope,
            thread: self.thread,
            call_site: Some(call_site),
            address,
            bytes,
            block_bytes: bytes,
            ..Event::new(kind, 10 * self.events.len() as u64)
        });
    }

    fn profile(self) -> Profile {
        Profile {
            events: self.events,
            duration_ns: 2_500_000_000,
            ..tables("cuda:0")
        }
    }
}

/// Returns the profile of an entry that leaks one of its blocks, with events before and after the
/// entry.
fn small() -> Profile {
    let mut program = Program::default();
    program.push(EventKind::Free, 4, 0x9000, 10_000);
    program.enter(0);
    program.push(EventKind::Miss, 0, 0x1000, 2048);
    program.push(EventKind::Hit, 1, 0x2000, 1536);
    program.push(EventKind::CopyOnWrite, 1, 0x2000, 1536);
    program.push(EventKind::Free, 0, 0x1000, 2048);
    program.push(EventKind::Hit, 0, 0x1000, 100);
    program.push(EventKind::Free, 0, 0x1000, 100);
    program.exit(1536);
    program.push(EventKind::Uncached, 4, 0x3000, 700);
    program.profile()
}

#[test]
fn lines_have_their_peaks_and_counts() {
    let profile = small();
    let of = |call_site: usize, scope: Option<usize>| {
        let mut summary = SiteSummary::default();
        summary.call_site = Some(profile.call_sites[call_site].clone());
        summary.scope = scope.map(|number| profile.scopes[number].clone());
        summary
    };
    let mut expected = [of(4, None), of(0, Some(0)), of(1, Some(0))];
    let [uncached, freed, escaped] = &mut expected;
    uncached.live_bytes = 700;
    uncached.peak_bytes = 10_000;
    uncached.device_peak_bytes = 10_000;
    uncached.allocations = 1;
    uncached.uncached = 1;
    uncached.escaped = 1;
    uncached.total_bytes = 700;
    freed.peak_bytes = 2048;
    freed.allocations = 2;
    freed.hits = 1;
    freed.misses = 1;
    freed.total_bytes = 2148;
    escaped.live_bytes = 1536;
    escaped.peak_bytes = 1536;
    escaped.allocations = 1;
    escaped.hits = 1;
    escaped.escaped = 1;
    escaped.copies_on_write = 1;
    escaped.total_bytes = 1536;
    assert_eq!(by_call_site(&profile), expected);
}

#[test]
fn sums_over_lines_are_those_of_the_program() {
    for seed in 0..10 {
        let recorded = record(seed, 60, 400);
        let sites = by_call_site(&recorded.profile);
        let known = recorded.live.iter().filter(|block| block.is_known);
        let live: u64 = known.clone().map(|block| block.bytes).sum();
        assert_eq!(sites.iter().map(|own| own.live_bytes).sum::<u64>(), live);
        let kinds = recorded.profile.events.iter().map(|event| event.kind);
        let allocations = kinds.filter(|kind| kind.is_allocation()).count() as u64;
        assert_eq!(
            sites.iter().map(|own| own.allocations).sum::<u64>(),
            allocations
        );
        for own in &sites {
            assert_eq!(own.hits + own.misses + own.uncached, own.allocations);
            assert!(own.live_bytes.max(own.device_peak_bytes) <= own.peak_bytes);
            assert!(own.escaped <= own.allocations);
        }
        assert!(sites.is_sorted_by(|a, b| a.peak_bytes >= b.peak_bytes));
        assert!(sites.iter().map(|own| own.escaped).sum::<u64>() >= known.count() as u64);
    }
}

fn escaped(profile: &Profile) -> Vec<(Option<u32>, u64)> {
    let sites = by_call_site(profile).into_iter();
    let mut escaped: Vec<_> = sites.map(|own| (line(&own), own.escaped)).collect();
    escaped.sort_unstable();
    escaped
}

fn line(own: &SiteSummary) -> Option<u32> {
    own.call_site.as_ref().map(|site| site.line)
}

#[test]
fn what_is_freed_after_the_exit_has_escaped() {
    // The entry began before the recording.
    let mut program = Program {
        scope: Some(0),
        ..Program::default()
    };
    program.push(EventKind::Hit, 0, 0x1000, 10);
    program.push(EventKind::Hit, 1, 0x2000, 10);
    program.push(EventKind::Free, 1, 0x2000, 10);
    program.exit(10);
    program.push(EventKind::Free, 0, 0x1000, 10);
    program.push(EventKind::Uncached, 2, 0x3000, 10);
    program.push(EventKind::Free, 2, 0x3000, 10);
    let escaped = escaped(&program.profile());
    assert_eq!(escaped, [(Some(1), 1), (Some(2), 0), (Some(3), 0)]);
}

#[test]
fn an_entry_inside_another_of_its_scope_is_part_of_that() {
    let mut program = Program::default();
    program.enter(0);
    program.enter(1);
    program.enter(0);
    program.push(EventKind::Hit, 0, 0x1000, 10);
    program.push(EventKind::Hit, 1, 0x2000, 10);
    program.exit(20);
    program.scope = Some(1);
    program.exit(0);
    program.push(EventKind::Free, 0, 0x1000, 10);
    program.scope = Some(0);
    program.exit(10);
    program.push(EventKind::Free, 1, 0x2000, 10);
    let escaped = escaped(&program.profile());
    assert_eq!(escaped, [(Some(1), 0), (Some(2), 1)]);
}

#[test]
fn operations_count_for_their_lines_with_what_they_call() {
    let mut program = Program::default();
    let mut push = |kind, call_site, thread| {
        program.thread = thread;
        program.push(kind, call_site, 0, 0);
    };
    // This operation began before the recording.
    push(EventKind::OperationEnd, 0, 0);
    push(EventKind::OperationBegin, 1, 0);
    push(EventKind::OperationBegin, 2, 0);
    push(EventKind::OperationBegin, 3, 1);
    push(EventKind::OperationEnd, 0, 0);
    push(EventKind::OperationBegin, 1, 0);
    push(EventKind::OperationEnd, 0, 0);
    push(EventKind::OperationEnd, 0, 1);
    push(EventKind::OperationEnd, 0, 0);
    // This operation does not end.
    push(EventKind::OperationBegin, 4, 0);
    let sites = by_call_site(&program.profile());
    let times = sites.iter().map(|own| (line(own), own.operation_ns));
    // Line 2 called two operations. The second ran inside of the first. A tick is 10 ns.
    let expected = [(Some(2), 70 + 10), (Some(4), 40), (Some(3), 20)];
    assert_eq!(times.collect::<Vec<_>>(), expected);
    assert!(sites.iter().all(|own| own.kernel_ns == own.operation_ns));
}

#[test]
fn a_device_behind_the_host_has_its_own_time() {
    let mut program = Program::default();
    program.push(EventKind::OperationBegin, 1, 0, 0);
    program.push(EventKind::OperationEnd, 0, 0, 0);
    program.push(EventKind::OperationBegin, 2, 0, 0);
    program.push(EventKind::OperationEnd, 0, 0, 0);
    program.push(EventKind::Kernel, 1, 0, 7_000);
    program.push(EventKind::Kernel, 1, 0, 500);
    let sites = by_call_site(&program.profile());
    let times = sites
        .iter()
        .map(|own| (line(own), own.operation_ns, own.kernel_ns));
    // The device time of the second operation is not recorded.
    assert_eq!(
        times.collect::<Vec<_>>(),
        [(Some(2), 10, 7_500), (Some(3), 10, 0)]
    );
}

/// Returns a program whose entries leak. Each entry leaks a block of 64 bytes, and replaces one
/// block of the previous entry. Each entry of the first half also leaks a large block.
fn growing(entries: u64) -> Program {
    let mut program = Program::default();
    for number in 0..entries {
        program.enter(0);
        if number < entries / 2 {
            program.push(EventKind::Miss, 2, 0x500_0000 + (number << 20), 1 << 20);
        }
        program.enter(0);
        program.push(EventKind::Miss, 0, 0x1_0000 + number * 64, 64);
        program.exit(0);
        program.scope = Some(0);
        program.push(EventKind::Miss, 1, 0x9_0000 + number % 2 * 4096, 4096);
        if number > 0 {
            program.push(EventKind::Free, 1, 0x9_0000 + (number + 1) % 2 * 4096, 4096);
        }
        program.push(EventKind::Hit, 3, 0x70_0000, 5);
        program.push(EventKind::Free, 3, 0x70_0000, 5);
        program.exit((1 << 20) + 4096 + (number + 1) * 64);
    }
    program
}

#[test]
fn growth_is_what_entries_leave_once_they_are_warm() {
    let growths = growth(&growing(9).profile());
    let [own] = &growths[..] else {
        panic!("{growths:?}");
    };
    let place = (own.scope, own.thread);
    assert_eq!(place, (Some(0), 0));
    assert_eq!((own.entries, own.rising_entries), (9, 8));
    assert_eq!(
        own.left_bytes_per_entry, 64,
        "and no block that replaces another"
    );
    let sites = own.sites.iter();
    let sites: Vec<_> = sites
        .map(|site| (site.call_site, site.left_bytes_per_entry))
        .collect();
    assert_eq!(sites, [(Some(0), 64)]);
}

#[test]
fn growth_is_less_what_is_freed_of_earlier_entries() {
    // Four entries each leave 100 bytes. From the third entry on, an entry frees a block of an
    // earlier entry if `frees` selects it.
    let growths = |frees: fn(u64) -> bool| {
        let mut program = Program::default();
        for number in 0..4 {
            program.enter(0);
            program.push(EventKind::Miss, 1, 0x1000 * (number + 1), 100);
            if number >= 2 && frees(number) {
                program.push(EventKind::Free, 1, 0x1000 * (number - 1), 100);
            }
            program.exit(100);
        }
        growth(&program.profile()).remove(0)
    };
    let none = growths(|_| true);
    assert_eq!((none.left_bytes_per_entry, &none.sites[..]), (0, &[][..]));
    // The two counted entries leave one block of 100 bytes.
    assert_eq!(growths(|number| number == 2).left_bytes_per_entry, 50);
    assert_eq!(growths(|_| false).left_bytes_per_entry, 100);
}

#[test]
fn growth_leaves_out_what_is_inside_an_entry_from_before() {
    let mut program = growing(3);
    program.scope = Some(0);
    program.exit(0);
    assert_eq!(growth(&program.profile()), []);
}

#[test]
fn growth_counts_threads_and_whole_entries_alone() {
    // This scope has an Exit but no Enter.
    let mut program = Program {
        scope: Some(0),
        ..Program::default()
    };
    program.push(EventKind::Hit, 0, 0x1000, 10);
    program.exit(10);
    program.thread = 1;
    for live_bytes in [50, 60, 40, 70, 80] {
        program.enter(2);
        program.exit(live_bytes);
    }
    // This scope has an Enter but no Exit.
    program.enter(2);
    let growths = growth(&program.profile());
    assert_eq!(growths.len(), 1);
    assert_eq!(
        (
            growths[0].thread,
            growths[0].entries,
            growths[0].rising_entries
        ),
        (1, 5, 2)
    );
    assert_eq!(
        (growths[0].left_bytes_per_entry, growths[0].sites.len()),
        (0, 0)
    );
}

#[test]
fn the_table_is_this() {
    let mut profile = small();
    profile.call_sites[1].file = format!("{}model.rs", "deep/".repeat(20));
    profile.lost_events = 3;
    profile.complete_from_ns = 1_250_000_000;
    profile.live_bytes = Some(700 + 1536 + 1000 * 1024);
    let expected = "\
cuda:0: 1009.8 KiB live at the peak, 2.500 s recorded, 3 older events lost: complete from 1.250 s on, and 1000.0 KiB of unknown lines

by line, the highest own peak first (escaped: outlived the entry, or live at the end)
   peak  at peak     live    total  count  hits  misses  uncached  escaped  copies  kernel time  scope       line
9.8 KiB  9.8 KiB    700 B    700 B      1     0       0         1        1       0     0.000 ms  <uncached>  /home/a b/tab here.rs:5
2.0 KiB      0 B      0 B  2.1 KiB      2     1       1         0        0       0     0.000 ms  loop        src/main.rs:1
1.5 KiB      0 B  1.5 KiB  1.5 KiB      1     1       0         0        1       1     0.000 ms  loop        …p/deep/deep/deep/deep/deep/deep/deep/model.rs:2

growth: bytes that an entry leaves, minus freed bytes of earlier entries, averaged over the second half
   left  entries  rising  thread  scope  line
1.5 KiB        1       0       0  loop
1.5 KiB                                  …p/deep/deep/deep/deep/deep/deep/deep/model.rs:2
";
    assert_eq!(text(table::write, &profile), expected);
}

/// Returns the profile of a program. The program allocates at columns 5 and 31 of line 1, and at
/// one column of line 2. Operations are called at other columns of the two lines.
fn of_two_columns() -> Profile {
    let mut profile = small();
    let first = profile.call_sites[0].clone();
    let site = |column| CallSite {
        column,
        ..first.clone()
    };
    profile.call_sites.truncate(3);
    profile.call_sites[2] = CallSite {
        column: 60,
        ..profile.call_sites[1].clone()
    };
    profile.call_sites.extend([site(31), site(77)]);
    let mut program = Program::default();
    // Growth counts the last three of the six entries.
    for (number, call_site) in (1..).zip([0, 3, 1, 0, 3, 1]) {
        program.enter(0);
        program.push(EventKind::Miss, call_site, number << 12, 1000);
        program.exit(0);
    }
    // An operation is not an allocation, so its column alone does not change the text of its line.
    for call_site in [2, 4] {
        program.push(EventKind::OperationBegin, call_site, 0, 0);
        program.push(EventKind::OperationEnd, call_site, 0, 0);
    }
    Profile {
        events: program.events,
        ..profile
    }
}

/// Returns the last word of each row of a table.
fn last_words(table: &str) -> Vec<&str> {
    let words = table
        .lines()
        .filter_map(|row| row.split_whitespace().last());
    words.collect()
}

#[test]
fn tables_name_the_column_where_two_allocations_share_a_line() {
    let profile = of_two_columns();
    let table = text(table::write, &profile);
    let words = last_words(&table);
    let count = |line: &str| words.iter().filter(|word| **word == line).count();
    // Each column with an allocating call site occurs in the table of lines, and in the table of
    // growth.
    assert_eq!(count("src/main.rs:1:5"), 2, "{table}");
    assert_eq!(count("src/main.rs:1:31"), 2, "{table}");
    assert_eq!(count("src/main.rs:1:77"), 1, "{table}");
    assert!(!words.contains(&"src/main.rs:1"), "{table}");
    assert!(!table.contains("here.rs:2:"), "{table}");

    let trace = text(perfetto::write, &profile);
    assert!(trace.contains(r#""src/main.rs:1:31""#), "{trace}");
    assert!(!trace.contains(r#""src/main.rs:1""#), "{trace}");
}

#[test]
fn one_allocation_of_a_line_keeps_its_text() {
    let mut profile = of_two_columns();
    let other = |event: &Event| event.call_site == Some(3);
    profile.events.retain(|event| !other(event));
    let table = text(table::write, &profile);
    assert!(last_words(&table).contains(&"src/main.rs:1"), "{table}");
    assert!(!table.contains("src/main.rs:1:"), "{table}");
}
