// The map of segments at a moment: a row for each neighbourhood of addresses, with what its blocks are then.

const MOST_ROWS = 100;
const ROW = { height: 26, bar: 18, left: 200 };

class Segments {
  constructor(page) {
    this.page = page;
    this.section = document.getElementById("segments");
    this.canvas = this.section.querySelector("canvas");
    this.slider = document.getElementById("slider");
    this.slider.max = page.recording.events.count;
    this.slider.addEventListener("input", () => page.setMoment(Number(this.slider.value)));
    this.rows = page.recording.neighbourhoods;
    describeOnHover(this.canvas, (x, y) => this.describe(x, y));
    this.update();
  }

  update() {
    const { recording, moment } = this.page;
    const lacks = "No segment is known: nothing was reserved as the recording began, nor in it.";
    setEmpty(this.section, this.rows.length === 0 ? lacks : "");
    this.slider.value = moment;
    const timeText = formatMoment(recording.timeOf[moment], 1e3);
    document.getElementById("moment").textContent = `after ${formatCount(moment)} events, at ${timeText}`;
    this.reserved = reservedAt(recording.changes, moment);
    this.blocks = blocksAt(recording, moment);
    this.showTotals(totalsOf(this.reserved, this.blocks));
    this.draw();
  }

  showTotals(totals) {
    this.totals = totals;
    const names = { reserved: "reserved", live: "live", idle: "idle", pending: "pending", largest: "largest idle part" };
    const items = Object.entries(names).map(([key, name]) => {
      const item = element("div");
      item.append(element("dt", name), element("dd", formatBytes(totals[key])));
      return item;
    });
    document.getElementById("held").replaceChildren(...items);
  }

  draw() {
    const shownRows = this.rows.slice(0, MOST_ROWS);
    const hidden = this.rows.length - shownRows.length;
    const height = Math.max(1, shownRows.length) * ROW.height + (hidden > 0 ? ROW.height : 0);
    const { context, width } = prepareCanvas(this.canvas, height);
    this.longest = shownRows.reduce((most, { from, to }) => Math.max(most, to - from), 1);
    this.scale = Math.max(1, width - ROW.left - 8) / this.longest;
    shownRows.forEach((row, i) => this.drawRow(context, row, i * ROW.height));
    if (hidden > 0) {
      context.fillStyle = css(palette.muted);
      context.fillText(`and ${formatCount(hidden)} shorter segments`, 0, height - ROW.height / 2);
    }
  }

  drawRow(context, row, top) {
    context.fillStyle = css(palette.muted);
    context.textAlign = "left";
    context.fillText(formatAddress(row.from), 0, top + ROW.height / 2);
    context.textAlign = "right";
    context.fillText(formatBytes(row.to - row.from), ROW.left - 8, top + ROW.height / 2);
    const y = top + (ROW.height - ROW.bar) / 2;
    const fill = (from, to, gap) => {
      const [left, right] = [this.xOf(row, Math.max(from, row.from)), this.xOf(row, Math.min(to, row.to))];
      context.fillRect(left, y, Math.max(0.5, right - left - (right - left > 3 ? gap : 0)), ROW.bar);
    };
    const isInside = ({ from, to }) => from < row.to && to > row.from;
    context.fillStyle = css(palette.idle);
    this.reserved.filter(isInside).forEach(({ from, to }) => fill(from, to, 0));
    for (const block of this.blocks.filter(isInside)) {
      context.fillStyle = this.colourOf(block);
      fill(block.from, block.to, 1);
    }
    context.strokeStyle = css(palette.line);
    context.lineWidth = 1;
    context.strokeRect(ROW.left + 0.5, y - 0.5, (row.to - row.from) * this.scale, ROW.bar + 1);
  }

  colourOf({ own, isPending }) {
    const { shown, highlight, recording } = this.page;
    const colour = isPending ? palette.pending : palette.of(recording, own);
    const isFaded = !shown[own] || (highlight !== null && !highlight[own]);
    return css(mix(colour, palette.paper, isFaded ? 0.7 : 0));
  }

  xOf(row, address) {
    return ROW.left + (address - row.from) * this.scale;
  }

  describe(x, y) {
    const row = this.rows.slice(0, MOST_ROWS)[Math.floor(y / ROW.height)];
    const address = row && row.from + (x - ROW.left) / this.scale;
    if (!row || address < row.from || address >= row.to) {
      return null;
    }
    const isHere = ({ from, to }) => from <= address && address < to;
    const block = this.blocks.findLast(isHere);
    if (block) {
      const pairs = describeLifetime(this.page.recording, block.own);
      return [...pairs, ["now", block.isPending ? "pending" : "live"]];
    }
    const state = this.reserved.some(isHere) ? "Idle" : "Not committed";
    return [[state], ["address", formatAddress(Math.floor(address))]];
  }
}

// Spans in the order of their addresses; those that touch are one.
function joined(spans) {
  const result = [];
  for (const { from, to } of [...spans].sort((a, b) => a.from - b.from)) {
    const last = result.at(-1);
    if (last && from <= last.to) {
      last.to = Math.max(last.to, to);
    } else {
      result.push({ from, to });
    }
  }
  return result;
}

function reservedAt(changes, moment) {
  let spans = [];
  for (const change of changes.filter((change) => change.moment <= moment)) {
    if (change.isReserve) {
      spans.push(change);
    } else {
      spans = spans.flatMap((span) => without(span, change));
    }
  }
  return joined(spans);
}

// What a release leaves of a span.
function without(span, { from, to }) {
  const left = { from: span.from, to: Math.min(span.to, from) };
  const right = { from: Math.max(span.from, to), to: span.to };
  return [left, right].filter((part) => part.from < part.to);
}

// Live and pending blocks: { own, from, to, isPending }, the live ones last, so that they lie on top.
function blocksAt({ lifetimes }, moment) {
  const blocks = [];
  for (let own = 0; own < lifetimes.count; own++) {
    const isPending = lifetimes.died[own] <= moment && moment < lifetimes.pendingUntil[own];
    if (isPending || isLive(lifetimes, own, moment)) {
      const from = lifetimes.address[own];
      blocks.push({ own, from, to: from + Math.max(lifetimes.block[own], lifetimes.bytes[own]), isPending });
    }
  }
  return blocks.sort((a, b) => b.isPending - a.isPending);
}

// Bytes of what is reserved, each byte counted once.
function totalsOf(reserved, blocks) {
  const live = joined(blocks.filter(({ isPending }) => !isPending));
  const held = joined(blocks);
  const idle = reserved.flatMap((span) => gapsOf(span, held));
  const length = (spans) => spans.reduce((sum, { from, to }) => sum + to - from, 0);
  const liveBytes = length(live);
  return {
    reserved: length(reserved),
    live: liveBytes,
    pending: length(held) - liveBytes,
    idle: length(idle),
    largest: idle.reduce((most, { from, to }) => Math.max(most, to - from), 0),
  };
}

// What ascending `spans` leave of one.
function gapsOf({ from, to }, spans) {
  const gaps = [];
  let at = from;
  for (const span of spans) {
    if (span.from >= to) {
      break;
    }
    if (span.from > at) {
      gaps.push({ from: at, to: span.from });
    }
    at = Math.max(at, span.to);
  }
  return at < to ? [...gaps, { from: at, to }] : gaps;
}

