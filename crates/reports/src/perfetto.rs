//! A trace for <https://ui.perfetto.dev>, in Chrome's JSON format.
//!
//! Live bytes are a counter with one series per scope. Reserved bytes are a separate counter. Scope
//! entries and operations are slices on their threads. Lifetimes of allocations, and operations of
//! an asynchronous device, are asynchronous slices, because they may overlap.

use std::fmt;
use std::io::{self, BufWriter, Write};

use crate::json::Quoted;
use crate::lifetimes::{AllocationLifetime, lifetimes};
use crate::nesting::{Activity, Nesting, SliceMark};
use crate::place::{Lines, scope_name};
use crate::profile::{Event, EventKind, Profile};
use crate::timeline::{changes, times_ns};

/// Writes a profile as a trace for Perfetto.
///
/// # Errors
///
/// Returns the errors of `out`.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{Profile, perfetto};
///
/// let mut file = Vec::new();
/// perfetto::write(&Profile::default(), &mut file)?;
/// assert!(file.starts_with(br#"{"displayTimeUnit":"ns""#));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let out = BufWriter::with_capacity(1 << 16, out);
    let mut trace = PerfettoTrace {
        profile,
        lines: Lines::of(profile),
        times_ns: times_ns(profile),
        lifetimes: lifetimes(profile),
        out,
    };
    trace.begin()?;
    trace.live_bytes()?;
    trace.reserved_bytes()?;
    trace.slices()?;
    trace.lifetimes()?;
    trace.instants()?;
    trace.kernels()?;
    trace.out.write_all(b"\n]}\n")?;
    trace.out.flush()
}

/// A time in nanoseconds that is displayed in microseconds, the unit of the format.
struct Microseconds(u64);

impl fmt::Display for Microseconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

struct PerfettoTrace<'a, W> {
    profile: &'a Profile,
    lines: Lines<'a>,
    times_ns: Vec<u64>,
    lifetimes: Vec<AllocationLifetime>,
    out: W,
}

impl<W: Write> PerfettoTrace<'_, W> {
    fn begin(&mut self) -> io::Result<()> {
        let Profile {
            device,
            lost_events,
            ..
        } = self.profile;
        let name = Quoted(device);
        write!(
            self.out,
            r#"{{"displayTimeUnit":"ns","otherData":{{"device":{name},"lost_events":{lost_events}}},"traceEvents":["#
        )?;
        // The first event has no comma before it.
        write!(
            self.out,
            "\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{{\"name\":{name}}}}}"
        )?;
        let mut threads: Vec<u32> = self.profile.events.iter().map(|own| own.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        for thread in threads {
            let name = Quoted(format_args!("thread {thread}"));
            let tid = tid(thread);
            self.event(
                "M",
                format_args!(r#""name":"thread_name","tid":{tid},"args":{{"name":{name}}}"#),
            )?;
        }
        Ok(())
    }

    /// Writes one sample of all scopes at the beginning, and then samples of the scopes that
    /// change.
    fn live_bytes(&mut self) -> io::Result<()> {
        let scopes = self.profile.scopes.len();
        // The last series contains the memory without a scope.
        let mut live_bytes = vec![0u64; scopes + 1];
        let series = |event: &Event| event.scope.map_or(scopes, |scope| scope as usize);
        let changes = changes(&self.lifetimes);
        let (before, during) =
            changes.split_at(changes.partition_point(|change| change.event.is_none()));
        for change in before {
            let lifetime = self.lifetimes[change.lifetime];
            let series = series(lifetime.event(self.profile));
            change.apply(&mut live_bytes[series], lifetime.bytes);
        }
        let at_first = (0..).zip(&live_bytes).map(|(series, &bytes)| {
            let scope = (series < scopes as u32).then_some(series);
            format!("{}:{bytes}", Quoted(scope_name(self.profile, scope)))
        });
        let at_first: Vec<String> = at_first.collect();
        self.counter("live bytes", 0, format_args!("{}", at_first.join(",")))?;
        for change in during {
            let lifetime = self.lifetimes[change.lifetime];
            let event = lifetime.event(self.profile);
            let live_bytes = &mut live_bytes[series(event)];
            change.apply(live_bytes, lifetime.bytes);
            let name = Quoted(scope_name(self.profile, event.scope));
            let time_ns = change.event.map_or(0, |event| self.times_ns[event]);
            self.counter("live bytes", time_ns, format_args!("{name}:{live_bytes}"))?;
        }
        Ok(())
    }

    fn reserved_bytes(&mut self) -> io::Result<()> {
        let at_first = self.profile.segments.iter().map(|segment| segment.bytes);
        let mut reserved_bytes = at_first.fold(0, u64::saturating_add);
        let args = format_args!(r#""bytes":{reserved_bytes}"#);
        self.counter("reserved bytes", 0, args)?;
        for (index, event) in self.profile.events.iter().enumerate() {
            reserved_bytes = match event.kind {
                EventKind::Reserve => reserved_bytes.saturating_add(event.bytes),
                EventKind::Release => reserved_bytes.saturating_sub(event.bytes),
                _ => continue,
            };
            let args = format_args!(r#""bytes":{reserved_bytes}"#);
            self.counter("reserved bytes", self.times_ns[index], args)?;
        }
        Ok(())
    }

    /// Writes scope entries and operations as slices. The slices of a thread must nest.
    fn slices(&mut self) -> io::Result<()> {
        let nesting = Nesting::of(self.profile);
        for mark in &nesting.marks {
            let slice = &nesting.slices[mark.slice];
            let tid = tid(slice.thread);
            let time = Microseconds(self.time_ns(mark));
            let phase = if mark.begins { "B" } else { "E" };
            let (category, name) = match slice.activity {
                Activity::Scope(scope) => ("scope", scope_name(self.profile, scope).to_owned()),
                Activity::Operation(call_site) => {
                    ("operation", self.lines.line(call_site).to_string())
                }
            };
            let name = Quoted(name);
            self.event(
                phase,
                format_args!(r#""cat":"{category}","name":{name},"tid":{tid},"ts":{time}"#),
            )?;
        }
        Ok(())
    }

    fn lifetimes(&mut self) -> io::Result<()> {
        for number in 0..self.lifetimes.len() {
            let lifetime = self.lifetimes[number];
            let Event {
                call_site,
                scope,
                thread,
                ..
            } = *lifetime.event(self.profile);
            let tid = tid(thread);
            let name = Quoted(self.lines.line(call_site));
            let scope = Quoted(scope_name(self.profile, scope));
            let bytes = lifetime.bytes;
            let identity =
                format!(r#""cat":"allocation","id":"{number:#x}","name":{name},"tid":{tid}"#);
            let begin = lifetime.allocated.map_or(0, |event| self.times_ns[event]);
            let begin = Microseconds(begin);
            self.event(
                "b",
                format_args!(
                    r#"{identity},"ts":{begin},"args":{{"bytes":{bytes},"scope":{scope}}}"#
                ),
            )?;
            let end = lifetime.freed.unwrap_or(self.profile.events.len());
            let end = Microseconds(self.times_ns[end]);
            self.event("e", format_args!(r#"{identity},"ts":{end}"#))?;
        }
        Ok(())
    }

    fn instants(&mut self) -> io::Result<()> {
        for (index, event) in self.profile.events.iter().enumerate() {
            let name = match event.kind {
                EventKind::Retry => "retry",
                EventKind::OutOfMemory => "out of memory",
                EventKind::Invalidate => "invalidate",
                EventKind::Trim => "trim",
                EventKind::StreamWait => "stream wait",
                EventKind::ReleaseIdle => "release idle memory",
                EventKind::ReclaimCaches => "reclaim from caches",
                EventKind::WaitPending => "wait for pending memory",
                EventKind::PressureCallbacks => "pressure callbacks",
                _ => continue,
            };
            let (tid, time) = (tid(event.thread), Microseconds(self.times_ns[index]));
            let (bytes, scope) = (event.bytes, Quoted(scope_name(self.profile, event.scope)));
            let args = format_args!(r#"{{"bytes":{bytes},"scope":{scope}}}"#);
            self.event(
                "i",
                format_args!(r#""name":"{name}","tid":{tid},"ts":{time},"s":"t","args":{args}"#),
            )?;
        }
        Ok(())
    }

    /// Writes the operations of an asynchronous device. The operations become asynchronous slices,
    /// because all other slices must nest. Two operations of a stream may overlap by the rounding
    /// error of the device's clock.
    fn kernels(&mut self) -> io::Result<()> {
        let kernels = (self.profile.events.iter()).filter(|event| event.kind == EventKind::Kernel);
        for (number, event) in kernels.enumerate() {
            let name = Quoted(format_args!(
                "stream {}: {}",
                event.stream,
                self.lines.line(event.call_site)
            ));
            let tid = tid(event.thread);
            let identity =
                format!(r#""cat":"kernel","id":"{number:#x}","name":{name},"tid":{tid}"#);
            let end_ns = event.time_ns.saturating_add(event.bytes);
            let [begin, end] = [event.time_ns, end_ns].map(Microseconds);
            self.event("b", format_args!(r#"{identity},"ts":{begin}"#))?;
            self.event("e", format_args!(r#"{identity},"ts":{end}"#))?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, time_ns: u64, args: fmt::Arguments<'_>) -> io::Result<()> {
        let time = Microseconds(time_ns);
        self.event(
            "C",
            format_args!(r#""name":"{name}","ts":{time},"args":{{{args}}}"#),
        )
    }

    fn event(&mut self, phase: &str, fields: fmt::Arguments<'_>) -> io::Result<()> {
        write!(self.out, ",\n{{\"ph\":\"{phase}\",\"pid\":1,{fields}}}")
    }

    fn time_ns(&self, mark: &SliceMark) -> u64 {
        let at_border = if mark.begins {
            0
        } else {
            self.times_ns[self.profile.events.len()]
        };
        mark.event.map_or(at_border, |event| self.times_ns[event])
    }
}

/// Returns the ID of a thread in the trace. Perfetto treats thread 0 as the idle thread.
fn tid(thread: u32) -> u64 {
    u64::from(thread) + 1
}
