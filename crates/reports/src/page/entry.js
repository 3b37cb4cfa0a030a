// The lifetimes of one entry of a scope: a bar for each allocation, over the allocations and frees of the entry.

const BAR = { height: 17, bar: 12, left: 230, right: 84, axis: 20 };
const MOST_BARS = 500;

class Entry {
  constructor(page) {
    this.page = page;
    this.section = document.getElementById("entry");
    this.canvas = this.section.querySelector("canvas");
    this.scope = document.getElementById("entry-scope");
    this.number = document.getElementById("entry-number");
    this.offerScopes();
    this.scope.addEventListener("change", () => this.update());
    this.number.addEventListener("input", () => this.update());
    describeOnHover(this.canvas, (_, y) => this.describe(y));
    this.update();
  }

  offerScopes() {
    const { entriesOf, scopes } = this.page.recording;
    entriesOf.forEach((own, scope) => {
      if (own.length > 0) {
        const option = element("option", scopes[scope]);
        option.value = scope;
        this.scope.append(option);
      }
    });
    // The first allocates from below; the second is what the others look like.
    this.number.value = Math.min(2, entriesOf[Number(this.scope.value)]?.length ?? 1);
  }

  update() {
    const { recording } = this.page;
    const entries = recording.entriesOf[Number(this.scope.value)] ?? [];
    this.section.querySelector(".controls").hidden = entries.length === 0;
    this.number.max = Math.max(1, entries.length);
    document.getElementById("entry-count").textContent = `of ${formatCount(entries.length)}`;
    const number = Math.min(Math.max(1, Math.round(this.number.value) || 1), Math.max(1, entries.length));
    this.entry = entries[number - 1] ?? null;
    this.bars = this.entry ? barsOf(recording, this.entry) : [];
    this.bars = this.bars.filter(({ own }) => this.page.shown[own]);
    setEmpty(this.section, this.lacks(entries));
    this.draw();
  }

  lacks(entries) {
    if (entries.length === 0) {
      return "No scope was entered.";
    }
    return this.bars.length === 0 ? "This entry has no allocations that pass the filter." : "";
  }

  draw() {
    const bars = this.bars.slice(0, MOST_BARS);
    const height = bars.length * BAR.height + BAR.axis + 4;
    const { context, width } = prepareCanvas(this.canvas, height);
    this.end = bars.reduce((most, { to }) => Math.max(most, to), 1);
    this.scale = Math.max(1, width - BAR.left - BAR.right) / this.end;
    this.drawAxis(context, bars.length * BAR.height);
    bars.forEach((bar, i) => this.drawBar(context, bar, i * BAR.height));
    const hidden = this.bars.length - bars.length;
    if (hidden > 0) {
      context.textAlign = "left";
      context.fillText(`and ${formatCount(hidden)} more`, 0, height - BAR.axis / 2);
    }
  }

  drawAxis(context, bottom) {
    context.textAlign = "center";
    for (const step of ticks(0, this.end, 10).found.filter(Number.isInteger)) {
      const x = BAR.left + step * this.scale;
      context.fillStyle = css(palette.line);
      context.fillRect(Math.round(x), 0, 1, bottom + 4);
      context.fillStyle = css(palette.muted);
      context.fillText(`${step}`, x, bottom + 13);
    }
    context.textAlign = "right";
    context.fillText("allocations and frees", BAR.left - 12, bottom + 13);
  }

  drawBar(context, { own, from, to, hasEscaped }, top) {
    const { lifetimes, sites } = this.page.recording;
    const { highlight } = this.page;
    const isFaded = highlight !== null && !highlight[own];
    const middle = top + BAR.height / 2;
    context.fillStyle = css(palette.ink, isFaded ? 0.4 : 1);
    context.textAlign = "right";
    context.fillText(shortened(sites[lifetimes.site[own]], 30), BAR.left - 12, middle);
    const [left, right] = [BAR.left + from * this.scale, BAR.left + to * this.scale];
    const colour = palette.of(this.page.recording, own);
    context.fillStyle = css(mix(colour, palette.paper, isFaded ? 0.7 : 0));
    const y = top + (BAR.height - BAR.bar) / 2;
    context.fillRect(left, y, Math.max(2, right - left), BAR.bar);
    if (hasEscaped) {
      context.fill(new Path2D(`M${right} ${y}l7 ${BAR.bar / 2}l-7 ${BAR.bar / 2}z`));
    }
    context.fillStyle = css(palette.muted);
    context.textAlign = "left";
    context.fillText(formatBytes(lifetimes.bytes[own]), right + (hasEscaped ? 12 : 6), middle);
  }

  describe(y) {
    const bar = this.bars.slice(0, MOST_BARS)[Math.floor(y / BAR.height)];
    if (!bar) {
      return null;
    }
    const end = bar.hasEscaped ? "escaped" : `${bar.to}`;
    return [...describeLifetime(this.page.recording, bar.own), ["steps", `${bar.from} to ${end}`]];
  }
}

// Bars over the steps of an entry, which are the allocations in it, and the frees of these until its exit.
function barsOf({ lifetimes, entries, events }, entry) {
  // What is live at the end has escaped, also where the entry was never left.
  const end = Math.min(entry.to, events.count);
  const moments = [];
  const allocations = [];
  lifetimes.entry.forEach((number, own) => entries[number - 1] === entry && allocations.push(own));
  for (const own of allocations) {
    moments.push(lifetimes.born[own]);
    if (lifetimes.died[own] <= end) {
      moments.push(lifetimes.died[own]);
    }
  }
  moments.sort((a, b) => a - b);
  const steps = new Map(moments.map((moment, step) => [moment, step]));
  return allocations.map((own) => ({
    own,
    from: steps.get(lifetimes.born[own]),
    to: steps.get(lifetimes.died[own]) ?? moments.length,
    hasEscaped: !steps.has(lifetimes.died[own]),
  }));
}

// The end of a path says more than its beginning.
function shortened(text, length) {
  return text.length > length ? `…${text.slice(1 - length)}` : text;
}

