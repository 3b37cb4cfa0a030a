// The recording as the page reads it, and what follows from it.
//
// Moment 0 is the beginning; moment m is that behind event m - 1. An allocation is live at the moments from `born` to
// before `died`, which is behind all moments where it was not freed. Scope 0 is memory of no cache, line 0 is unknown, stack 0 is none.

// Seven bits a byte, the sign lowest, each the difference to the one before. After 0 follows how many more are 0.
function decodeColumn(text, count) {
  const coded = atob(text);
  const values = new Float64Array(count);
  let [at, value] = [0, 0];
  const next = () => {
    let [number, scale, byte] = [0, 1, 128];
    for (; byte > 127; scale *= 128) {
      byte = coded.charCodeAt(at++);
      number += (byte & 127) * scale;
    }
    return number;
  };
  for (let i = 0; i < count; i++) {
    const zigzag = next();
    value += zigzag % 2 === 1 ? -(zigzag + 1) / 2 : zigzag / 2;
    const end = zigzag === 0 ? i + next() : i;
    values.fill(value, i, end + 1);
    i = end;
  }
  return values;
}

function decodeTable({ count, ...columns }) {
  const table = { count };
  for (const [name, text] of Object.entries(columns)) {
    table[name] = decodeColumn(text, count);
  }
  return table;
}

// The events, from the tables of what they repeat.
function eventsOf({ events, addresses, shapes }) {
  const table = decodeTable(events);
  const pick = (values, indices) => indices.map((index) => values[index]);
  table.address = pick(decodeTable(addresses).address, table.address);
  for (const [name, values] of Object.entries(decodeTable(shapes)).slice(1)) {
    table[name] = pick(values, table.shape);
  }
  return table;
}

// The rows of a table as objects.
function objectsOf({ count, ...columns }) {
  const names = Object.keys(columns);
  return Array.from({ length: count }, (_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
}

function readRecording() {
  const data = JSON.parse(document.getElementById("recording").textContent);
  const recording = {
    ...data,
    scopes: ["(no scope)", ...data.scopes],
    files: ["(unknown file)", ...data.sites.map(([file]) => file)],
    stacks: [null, ...data.stacks],
    events: eventsOf(data),
    lifetimes: decodeTable(data.lifetimes),
    entries: objectsOf(decodeTable(data.entries)),
    rows: objectsOf(decodeTable(data.rows)),
    changes: objectsOf(decodeTable(data.changes)),
    growth: data.growth.map(([scope, thread, left, sites]) => ({ scope, thread, left, sites })),
    neighbourhoods: objectsOf(decodeTable(data.neighbourhoods)),
  };
  recording.sites = ["(unknown line)", ...lineNames(data.sites, recording.rows)];
  recording.timeOf = timesOf(recording);
  recording.reserved = reservedOverTime(recording);
  // What the views count and offer: an entry inside another of its scope is part of that.
  recording.entriesOf = recording.scopes.map(() => []);
  for (const entry of recording.entries.filter((entry) => entry.isOutermost)) {
    entry.number = recording.entriesOf[entry.scope].push(entry);
  }
  recording.shadeOf = shadesOf(recording);
  palette.isByLine = recording.rows.every((row) => row.scope === 0);
  completeLifetimes(recording);
  return recording;
}

// Names of lines, with the column where the table has several columns of a line.
function lineNames(sites, rows) {
  const columnsOf = new Map();
  for (const { site } of rows.filter((row) => row.site > 0)) {
    const [file, line, column] = sites[site - 1];
    const name = formatLine(file, line);
    columnsOf.set(name, (columnsOf.get(name) ?? new Set()).add(column));
  }
  return sites.map(([file, line, column]) => {
    const name = formatLine(file, line);
    return columnsOf.get(name)?.size > 1 ? `${name}:${column}` : name;
  });
}

// By lines: 0 for the one that holds the most in its scope, 1 for the next.
function shadesOf({ rows, scopes, sites }) {
  const shades = new Int32Array(sites.length);
  const next = scopes.map(() => 0);
  for (const { scope, site } of [...rows].sort((a, b) => b.peak - a.peak)) {
    shades[site] = next[scope]++;
  }
  return shades;
}

// By moments. A clock that ran backwards stands still here.
function timesOf({ events }) {
  const times = new Float64Array(events.count + 1);
  for (let event = 0; event < events.count; event++) {
    times[event + 1] = Math.max(times[event], events.time[event]);
  }
  return times;
}

// Copies what the events tell of each allocation, and notes at each moment which began and which ended.
function completeLifetimes({ events, lifetimes }) {
  const copied = ["bytes", "block", "address", "scope", "site", "stack", "thread", "stream"];
  copied.forEach((name) => (lifetimes[name] = new Float64Array(lifetimes.count)));
  lifetimes.bornAt = new Int32Array(events.count + 1).fill(-1);
  lifetimes.diedAt = new Int32Array(events.count + 2).fill(-1);
  lifetimes.before = [];
  for (let own = 0; own < lifetimes.count; own++) {
    const [born, died] = [lifetimes.born[own], lifetimes.died[own]];
    copied.forEach((name) => (lifetimes[name][own] = events[name][(born || died) - 1]));
    lifetimes.diedAt[died] = own;
    if (born > 0) {
      lifetimes.bornAt[born] = own;
    } else {
      lifetimes.before.push(own);
    }
  }
  lifetimes.bySize = largestFirst(lifetimes.bytes);
}

// Indices by falling size. Programs have few sizes, so each has a list.
function largestFirst(sizes) {
  const lists = new Map();
  sizes.forEach((size, own) => lists.get(size)?.push(own) ?? lists.set(size, [own]));
  return Uint32Array.from([...lists.keys()].sort((a, b) => b - a).flatMap((size) => lists.get(size)));
}

// Raised to what the device counted at the end, or as far as releases show that more was reserved before.
function reservedOverTime({ events, changes, reservedAtEnd }) {
  const reserved = new Float64Array(events.count + 1);
  changes.forEach(({ moment, from, to, isReserve }) => (reserved[moment] += isReserve ? to - from : from - to));
  for (let moment = 1; moment <= events.count; moment++) {
    reserved[moment] += reserved[moment - 1];
  }
  const least = reserved.reduce((least, own) => Math.min(least, own), 0);
  const missing = reservedAtEnd === null ? -least : reservedAtEnd - reserved[events.count];
  return reserved.map((own) => Math.max(0, own + missing));
}

// Live bytes by moments, of the allocations that are shown, and of those that were lost.
function liveOverTime({ events, lifetimes }, shown, lostBytes) {
  const { bornAt, diedAt, bytes } = lifetimes;
  const live = new Float64Array(events.count + 1);
  const bytesOf = (own) => (own >= 0 && shown[own] ? bytes[own] : 0);
  live[0] = lifetimes.before.reduce((sum, own) => sum + bytesOf(own), lostBytes);
  for (let moment = 1; moment <= events.count; moment++) {
    live[moment] = live[moment - 1] + bytesOf(bornAt[moment]) - bytesOf(diedAt[moment]);
  }
  return live;
}

function isLive(lifetimes, own, moment) {
  return lifetimes.born[own] <= moment && moment < lifetimes.died[own];
}

// How an allocation was served, by name.
function servedHow(recording, own) {
  const { born } = recording.lifetimes;
  return born[own] > 0 ? recording.kinds[recording.events.kind[born[own] - 1]] : "before the recording";
}

// What the tooltip says of an allocation.
function describeLifetime(recording, own) {
  const { lifetimes, timeOf, sites, scopes, events } = recording;
  const [born, died] = [lifetimes.born[own], lifetimes.died[own]];
  const endNs = died <= events.count ? timeOf[died] : recording.durationNs;
  const lengthMs = (Math.max(0, endNs - timeOf[born]) / 1e6).toFixed(3);
  const end = died <= events.count ? `${formatMoment(endNs, 1e3)}` : "live at the end";
  return [
    [sites[lifetimes.site[own]]],
    ["size", `${formatBytes(lifetimes.bytes[own])} in a block of ${formatBytes(lifetimes.block[own])}`],
    ["scope", scopes[lifetimes.scope[own]]],
    ["lifetime", `${born > 0 ? "" : "more than "}${lengthMs} ms`],
    ["from, to", `${born > 0 ? formatMoment(timeOf[born], 1e3) : "before"}, ${end}`],
    ["stream, thread", `${lifetimes.stream[own]}, ${lifetimes.thread[own]}`],
    ["served", servedHow(recording, own).toLowerCase()],
    ["copy on write", lifetimes.copied[own] ? "yes" : "no"],
    ["address", formatAddress(lifetimes.address[own])],
    ...(recording.stacks[lifetimes.stack[own]] ?? []).slice(0, 16).map((frame) => [frameName(recording.frames[frame])]),
  ];
}

function frameName([name, file, line]) {
  return file === "" ? name : `${name} (${formatLine(file, line)})`;
}

