// The page: the figures at its head, the filter, and the views, which it tells of what changed.

class Page {
  constructor(recording) {
    this.recording = recording;
    this.moment = recording.peak.moment;
    this.selected = null;
    this.highlight = null;
    this.hiddenScopes = new Set();
    this.text = document.getElementById("text");
    this.palette = palette;
    palette.read();
    this.showHead();
    this.offerScopes();
    this.applyFilter();
  }

  // The timeline is what one waits for; the rest follows when it is painted.
  show() {
    this.timeline = new Timeline(this);
    requestAnimationFrame(() => {
      document.body.dataset.ready = performance.now().toFixed(0);
      setTimeout(() => this.showRest());
    });
  }

  showRest() {
    this.addresses = new Addresses(this);
    this.sites = new Sites(this);
    this.segments = new Segments(this);
    this.flame = new Flame(this);
    this.entry = new Entry(this);
    this.growth = new Growth(this);
    this.views = [this.timeline, this.addresses, this.segments, this.flame, this.sites, this.entry, this.growth];
    this.listen();
    document.body.dataset.complete = performance.now().toFixed(0);
  }

  listen() {
    this.text.addEventListener("input", () => this.onFilter());
    document.getElementById("scopes").addEventListener("change", () => this.onFilter());
    document.getElementById("filter").addEventListener("submit", (event) => event.preventDefault());
    addEventListener("resize", () => this.updateAll());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      palette.read();
      this.offerScopes();
      this.updateAll();
    });
  }

  updateAll() {
    this.views.forEach((view) => view.update());
  }

  onFilter() {
    this.hiddenScopes.clear();
    for (const box of document.querySelectorAll("#scopes input:not(:checked)")) {
      this.hiddenScopes.add(Number(box.value));
    }
    this.applyFilter();
    this.updateAll();
  }

  // Marks the allocations that pass, and says how many there are.
  applyFilter() {
    const { lifetimes } = this.recording;
    this.shown = new Uint8Array(lifetimes.count);
    let count = 0;
    for (let own = 0; own < lifetimes.count; own++) {
      this.shown[own] = Number(this.passes(lifetimes.scope[own], lifetimes.site[own]));
      count += this.shown[own];
    }
    this.lostBytes = this.passes(0, 0) ? this.recording.unknownBytes : 0;
    this.live = liveOverTime(this.recording, this.shown, this.lostBytes);
    const peakBytes = this.live.reduce((most, sizeBytes) => Math.max(most, sizeBytes), 0);
    document.getElementById("shown").textContent =
      `${formatCount(count)} of ${formatCount(lifetimes.count)} allocations, peak ${formatBytes(peakBytes)}`;
  }

  passes(scope, site) {
    const wanted = this.text.value.trim().toLowerCase();
    const { scopes, sites } = this.recording;
    const hasText = [scopes[scope], sites[site]].some((name) => name.toLowerCase().includes(wanted));
    return hasText && !this.hiddenScopes.has(scope);
  }

  setMoment(moment) {
    this.moment = moment;
    this.segments.update();
    this.flame.update();
    this.timeline.draw();
  }

  // Highlights the blocks of a row of the table, or of none.
  select(row) {
    const { lifetimes } = this.recording;
    this.selected = row;
    const isOf = (_, own) => Number(lifetimes.scope[own] === row.scope && lifetimes.site[own] === row.site);
    this.highlight = row && Uint8Array.from({ length: lifetimes.count }, isOf);
    this.updateAll();
  }

  // A box for each scope that has allocations, which also tells its colour.
  offerScopes() {
    const { scopes, lifetimes } = this.recording;
    const used = new Set(lifetimes.scope);
    const labels = scopes.flatMap((name, scope) => {
      if (!used.has(scope)) {
        return [];
      }
      const label = element("label");
      const box = element("input");
      Object.assign(box, { type: "checkbox", value: scope, checked: !this.hiddenScopes.has(scope) });
      label.append(box, swatch(scope), element("span", name));
      return [label];
    });
    document.getElementById("scopes").replaceChildren(...labels);
  }

  showHead() {
    const { recording } = this;
    const { device, beganUnixMs, events, lostEvents, durationNs, peak, completeFromNs, unknownBytes } = recording;
    document.title = `Memory of ${device || "a device"}`;
    document.getElementById("device").textContent = device || "a device without a name";
    const began = new Date(Math.min(beganUnixMs, 8.64e15)).toISOString().replace("T", " ").slice(0, 19);
    document.getElementById("began").textContent = beganUnixMs > 0 ? `recorded ${began} UTC` : "";
    const links = recording.others.map(([name, file]) => Object.assign(element("a", name), { href: encodeURIComponent(file) }));
    document.getElementById("others").replaceChildren(...links);
    const reservedBytes = recording.reserved.reduce((most, own) => Math.max(most, own), 0);
    const lost = `the oldest: complete from ${formatMoment(completeFromNs, 1e6)} on`;
    const facts = [
      ["peak live", formatBytes(peak.bytes), this.whoHoldsMost()],
      ["peak reserved", formatBytes(reservedBytes), reservedBytes > 0 ? `${formatShare(peak.bytes, reservedBytes)} live at the peak` : ""],
      ["length", formatTime(durationNs), ""],
      ["events", formatCount(events.count), ""],
      ["events lost", formatCount(lostEvents), lostEvents > 0 ? `${lost}, and ${formatBytes(unknownBytes)} of unknown lines` : ""],
    ];
    const items = facts.map(([name, value, note]) => {
      const item = element("div", "", name === "events lost" && lostEvents > 0 ? "alarm" : "");
      item.append(element("dt", name), element("dd", value), element("small", note));
      return item;
    });
    document.getElementById("facts").replaceChildren(...items);
  }

  // The line that holds the most at the peak.
  whoHoldsMost() {
    const { peak, rows, sites, scopes } = this.recording;
    const most = rows.reduce((most, row) => (row.atPeak > most.atPeak ? row : most), { atPeak: 0 });
    const scope = most.scope > 0 ? ` in ${scopes[most.scope]}` : "";
    return most.atPeak > 0 ? `${formatShare(most.atPeak, peak.bytes)} by ${sites[most.site]}${scope}` : "";
  }
}

function showNothing() {
  const note = document.getElementById("nothing");
  note.textContent = "Nothing was recorded: there are no events and no segments. Was anything allocated on this device between the begin and the end of the recording?";
  note.hidden = false;
  document.querySelector("main").hidden = true;
  document.body.dataset.ready = document.body.dataset.complete = performance.now().toFixed(0);
}

// Tests ask through `window.page` where something is drawn.
window.page = new Page(readRecording());
if (window.page.recording.events.count + window.page.recording.changes.length === 0) {
  showNothing();
} else {
  window.page.show();
}
