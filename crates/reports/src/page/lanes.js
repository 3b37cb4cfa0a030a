// What stands below the axis of the timeline: instants in one lane, then the scopes of each thread.

const LANE_HEIGHT = 11;
const INSTANTS_HEIGHT = 16;
const MOST_THREADS = 16;
const MOST_DEPTH = 6;
const INSTANTS = {
  Trim: { colour: "muted", shape: "tick" },
  Invalidate: { colour: "ink", shape: "diamond" },
  ReleaseIdle: { colour: "warn", shape: "tick" },
  ReclaimCaches: { colour: "warn", shape: "tick" },
  WaitPending: { colour: "warn", shape: "tick" },
  PressureCallbacks: { colour: "warn", shape: "tick" },
  Retry: { colour: "warn", shape: "triangle" },
  OutOfMemory: { colour: "alarm", shape: "cross" },
};

// The marked events, and a lane for each depth of each thread.
function planLanes(recording) {
  const instants = [];
  for (let event = 0; event < recording.events.count; event++) {
    const kind = recording.kinds[recording.events.kind[event]];
    if (INSTANTS[kind]) {
      instants.push({ event, kind });
    }
  }
  const threads = [];
  let height = instants.length > 0 ? INSTANTS_HEIGHT : 0;
  const byThread = Map.groupBy(recording.entries, (entry) => entry.thread);
  for (const number of [...byThread.keys()].sort((a, b) => a - b).slice(0, MOST_THREADS)) {
    const entries = byThread.get(number);
    const depth = Math.min(MOST_DEPTH, 1 + entries.reduce((most, entry) => Math.max(most, entry.depth), 0));
    height += 3;
    threads.push({ number, entries, top: height, depth });
    height += depth * LANE_HEIGHT;
  }
  return { instants, threads, height: height + 4 };
}

function drawLanes(context, lanes, page, { x, left, right, top }) {
  for (const thread of lanes.threads) {
    context.fillStyle = css(palette.muted);
    context.textAlign = "right";
    context.fillText(`thread ${thread.number}`, left - 6, top + thread.top + LANE_HEIGHT / 2);
    drawEntries(context, thread, page, { x, left, right, top: top + thread.top });
  }
  drawInstants(context, lanes.instants, { x, left, right, y: top + INSTANTS_HEIGHT / 2 });
}

// An entry that ends in the pixel of the one before is part of that.
function drawEntries(context, thread, { recording, hiddenScopes }, { x, left, right, top }) {
  const ends = [];
  context.textAlign = "left";
  for (const { scope, from, to, depth } of thread.entries.filter((entry) => !hiddenScopes.has(entry.scope))) {
    const [begin, end] = [Math.max(left, x(from)), Math.min(right, x(to))];
    if (end < left || begin > right || depth >= thread.depth || end < (ends[depth] ?? 0) + 0.5) {
      continue;
    }
    ends[depth] = end;
    const y = top + depth * LANE_HEIGHT;
    const width = Math.max(1, end - begin - 0.5);
    context.fillStyle = css(palette.scope(scope));
    context.fillRect(begin, y, width, LANE_HEIGHT - 1);
    const name = recording.scopes[scope];
    if (width > 7 * name.length + 8) {
      context.fillStyle = css(palette.paper);
      context.fillText(name, begin + 4, y + LANE_HEIGHT / 2);
    }
  }
}

// The worst of a pixel is drawn last, on top.
function drawInstants(context, instants, { x, left, right, y }) {
  const worst = Object.keys(INSTANTS);
  const drawn = new Set();
  const ordered = [...instants].sort((a, b) => worst.indexOf(a.kind) - worst.indexOf(b.kind));
  for (const { event, kind } of ordered) {
    const at = x(event + 1);
    const key = `${kind} ${Math.round(at)}`;
    if (at >= left && at <= right && !drawn.has(key)) {
      drawn.add(key);
      drawInstant(context, INSTANTS[kind], at, y);
    }
  }
}

function drawInstant(context, { colour, shape }, x, y) {
  const path = new Path2D(
    {
      tick: `M${x} ${y - 5}V${y + 5}`,
      diamond: `M${x} ${y - 5}l4 5l-4 5l-4 -5z`,
      triangle: `M${x} ${y - 5}l5 9h-10z`,
      cross: `M${x - 5} ${y - 5}l10 10M${x + 5} ${y - 5}l-10 10`,
    }[shape],
  );
  context.lineWidth = shape === "cross" ? 2.5 : 1.5;
  context.strokeStyle = context.fillStyle = css(palette[colour]);
  if (shape === "diamond" || shape === "triangle") {
    context.fill(path);
  }
  context.stroke(path);
}

// What the tooltip says of a point `y` below the top of the lanes.
function describeLanes(lanes, recording, { x, at, y }) {
  if (lanes.instants.length > 0 && y < INSTANTS_HEIGHT) {
    return describeInstants(lanes, recording, { x, at });
  }
  const thread = lanes.threads.find(({ top, depth }) => y >= top && y < top + depth * LANE_HEIGHT);
  const depth = thread && Math.floor((y - thread.top) / LANE_HEIGHT);
  const entry = thread?.entries.find(
    (entry) => entry.depth === depth && x(entry.from) - 1 <= at && at <= x(entry.to) + 1,
  );
  return entry && describeEntry(recording, entry);
}

function describeEntry(recording, entry) {
  const { timeOf, events, scopes, entriesOf } = recording;
  const endNs = entry.to <= events.count ? timeOf[entry.to] : recording.durationNs;
  return [
    [scopes[entry.scope]],
    ["entry", entry.isOutermost ? `${entry.number} of ${entriesOf[entry.scope].length}` : "inside of another"],
    ["thread", `${entry.thread}`],
    ["took", formatTime(endNs - timeOf[entry.from])],
    ["from", formatMoment(timeOf[entry.from], 1e3)],
  ];
}

function describeInstants({ instants }, recording, { x, at }) {
  const near = instants.filter(({ event }) => Math.abs(x(event + 1) - at) <= 6);
  const { events, timeOf, scopes } = recording;
  const pairs = near.slice(0, 6).map(({ event, kind }) => {
    const scope = events.scope[event] > 0 ? ` in ${scopes[events.scope[event]]}` : "";
    return [kind, `${formatBytes(events.bytes[event])}${scope} at ${formatMoment(timeOf[event + 1], 1e3)}`];
  });
  if (near.length > pairs.length) {
    pairs.push([`and ${near.length - pairs.length} more`]);
  }
  return pairs.length > 0 && pairs;
}

