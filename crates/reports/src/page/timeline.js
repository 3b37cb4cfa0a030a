// The timeline: bands of live blocks, the line of reserved bytes, the lanes below, and how they are zoomed and asked.

const PLOT = { left: 76, right: 12, top: 12, height: 340, axis: 20 };

class Timeline {
  constructor(page) {
    this.page = page;
    this.section = document.getElementById("timeline");
    this.canvas = this.section.querySelector("canvas");
    this.layer = document.createElement("canvas");
    this.lanes = planLanes(page.recording);
    this.hovered = -1;
    this.pinned = -1;
    this.brush = null;
    this.axis = document.getElementById("axis");
    this.limit = document.getElementById("limit");
    this.axis.addEventListener("change", () => this.chooseAxis());
    document.getElementById("whole").addEventListener("click", () => this.zoom(0, this.end));
    this.limit.addEventListener("change", () => this.update());
    this.listen();
    this.chooseColours();
    this.chooseAxis();
  }

  listen() {
    const { canvas } = this;
    describeOnHover(canvas, (x, y) => this.brush === null && this.describe(x, y));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointerup", (event) => this.onUp(event));
    canvas.addEventListener("pointerleave", () => this.hover(-1));
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("dblclick", () => this.showActive());
    canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  // Positions of the moments on the axis: their times, or their numbers.
  chooseAxis() {
    const { timeOf, durationNs, events } = this.page.recording;
    const isTime = this.axis.value === "time";
    this.positions = isTime ? timeOf : Float64Array.from(timeOf, (_, moment) => moment);
    this.end = isTime ? Math.max(durationNs, timeOf[events.count], 1) : events.count + 1;
    this.showActive();
  }

  // Cuts the idle time at the ends, and what lost events leave incomplete.
  showActive() {
    const { timeOf, events, completeFromNs } = this.page.recording;
    const first = Math.max(1, firstBehind(timeOf, completeFromNs) - 1);
    const [from, to] = [this.positions[first] ?? 0, this.positions[events.count] ?? this.end];
    const margin = (to - from) / 50;
    this.zoom(from - margin, to + margin);
  }

  zoom(from, to) {
    const length = Math.min(this.end, Math.max(to - from, this.end * 1e-7, 1));
    this.from = Math.min(Math.max(0, from), this.end - length);
    this.to = this.from + length;
    this.lay();
    requestAnimationFrame(() => this.page.addresses?.update());
  }

  // For another filter, highlight, size or colour scheme.
  update() {
    this.chooseColours();
    this.lay();
  }

  // Lays out anew, such as for another part of the axis.
  lay() {
    const { recording, shown, lostBytes, live } = this.page;
    const isEmpty = recording.lifetimes.count === 0 && recording.events.count === 0;
    setEmpty(this.section, isEmpty ? "No events were recorded." : "");
    this.prepare();
    this.moments = momentsOfColumns(this.positions, live, this.from, this.to, this.columns);
    this.chooseScale();
    const { positions, moments, from, to, columns: width, rows: height, topBytes } = this;
    const limit = Number(this.limit.value);
    const laid = layBands({ recording, shown, lostBytes, moments, positions, from, to, width, height, topBytes, limit });
    Object.assign(this, laid);
    this.image = new ImageData(width, height);
    [this.layer.width, this.layer.height] = [width, height];
    this.draw();
  }

  prepare() {
    const height = PLOT.top + PLOT.height + PLOT.axis + this.lanes.height;
    Object.assign(this, prepareCanvas(this.canvas, height));
    this.plotWidth = this.width - PLOT.left - PLOT.right;
    this.columns = Math.max(1, Math.round(this.plotWidth * this.ratio));
    this.rows = Math.round(PLOT.height * this.ratio);
  }

  // By the live bytes; by the reserved ones too, unless they would leave less than a quarter to the bands.
  chooseScale() {
    let [live, reserved] = [0, 0];
    for (const moment of this.moments) {
      live = Math.max(live, this.page.live[moment]);
      reserved = Math.max(reserved, this.page.recording.reserved[moment]);
    }
    this.isReservedInside = reserved <= 4 * live || live === 0;
    this.topBytes = Math.max(1, 1.06 * (this.isReservedInside ? Math.max(live, reserved) : live));
  }

  draw() {
    const { context, width, height } = this;
    context.clearRect(0, 0, width, height);
    this.paint();
    this.drawGrid();
    // By way of a canvas, since putting the pixels themselves would erase the grid below.
    this.layer.getContext("2d").putImageData(this.image, 0, 0);
    context.drawImage(this.layer, PLOT.left, PLOT.top, this.columns / this.ratio, PLOT.height);
    this.drawReserved();
    this.drawAxis();
    this.drawMoment();
    this.drawBrush();
    const x = (moment) => this.x(moment);
    const frame = { x, left: PLOT.left, right: PLOT.left + this.plotWidth, top: this.lanesTop };
    drawLanes(context, this.lanes, this.page, frame);
  }

  get lanesTop() {
    return PLOT.top + PLOT.height + PLOT.axis;
  }

  // The colour of each band: of its scope and line, faded where others are highlighted.
  chooseColours() {
    const { recording, highlight } = this.page;
    const { lifetimes, scopes, shadeOf } = recording;
    const known = [];
    const paint = (colour, isFaded) => {
      const fill = mix(colour, palette.paper, isFaded ? 0.72 : 0);
      return [pixel(fill), pixel(mix(fill, palette.paper, 0.5))];
    };
    this.fills = new Uint32Array(lifetimes.count + scopes.length);
    this.edges = new Uint32Array(lifetimes.count + scopes.length);
    for (let own = 0; own < lifetimes.count; own++) {
      const [scope, rank] = [lifetimes.scope[own], shadeOf[lifetimes.site[own]] % palette.ranks];
      const isFaded = highlight !== null && !highlight[own];
      const key = (scope * palette.ranks + rank) * 2 + Number(isFaded);
      known[key] ??= paint(palette.shade(scope, rank), isFaded);
      [this.fills[own], this.edges[own]] = known[key];
    }
    scopes.forEach((_, scope) => {
      const band = lifetimes.count + scope;
      [this.fills[band], this.edges[band]] = paint(mix(palette.scope(scope), palette.paper, 0.44), highlight !== null);
    });
  }

  // The bands in the colours of their lines, except those at the pointer.
  paint() {
    const accented = [this.hovered, this.pinned].filter((own) => own >= 0);
    const fills = accented.map((own) => this.fills[own]);
    accented.forEach((own) => (this.fills[own] = pixel(palette.accent)));
    paintCells(this.image, this.cells, this.fills, this.edges);
    accented.forEach((own, at) => (this.fills[own] = fills[at]));
  }

  x(moment) {
    const position = this.positions[moment] ?? this.end;
    return PLOT.left + ((position - this.from) / (this.to - this.from)) * this.plotWidth;
  }

  y(sizeBytes) {
    return PLOT.top + PLOT.height * (1 - sizeBytes / this.topBytes);
  }

  positionAt(x) {
    return this.from + ((x - PLOT.left) / this.plotWidth) * (this.to - this.from);
  }

  drawGrid() {
    const { context } = this;
    context.textAlign = "right";
    for (const sizeBytes of ticks(0, this.topBytes, 6, byteBases, 1024).found) {
      const y = Math.round(this.y(sizeBytes)) + 0.5;
      context.fillStyle = css(palette.line);
      context.fillRect(PLOT.left, y, this.plotWidth, 1);
      context.fillStyle = css(palette.muted);
      context.fillText(formatBytes(sizeBytes), PLOT.left - 6, y);
    }
  }

  drawAxis() {
    const { context, from, to } = this;
    const y = PLOT.top + PLOT.height;
    const isTime = this.axis.value === "time";
    const { step, found } = ticks(from, to, this.plotWidth / 110);
    context.textAlign = "center";
    for (const at of found) {
      const x = PLOT.left + ((at - from) / (to - from)) * this.plotWidth;
      context.fillStyle = css(palette.line);
      context.fillRect(Math.round(x), y, 1, 5);
      context.fillStyle = css(palette.muted);
      const text = isTime ? formatMoment(at, step, to) : formatCount(at);
      context.fillText(text, Math.min(Math.max(x, PLOT.left + 20), this.width - 30), y + 12);
    }
    context.fillStyle = css(palette.muted);
    context.fillRect(PLOT.left, y, this.plotWidth, 1);
  }

  drawReserved() {
    const { context, columns, moments, plotWidth } = this;
    const { reserved } = this.page.recording;
    context.fillStyle = context.strokeStyle = css(palette.ink);
    context.textAlign = "left";
    if (!this.isReservedInside) {
      const most = moments.reduce((most, moment) => Math.max(most, reserved[moment]), 0);
      context.fillText(`↑ reserved ${formatBytes(most)}`, PLOT.left + 6, PLOT.top + 2);
      return;
    }
    context.beginPath();
    for (let column = 0; column < columns; column++) {
      const y = this.y(reserved[moments[column]]);
      context.lineTo(PLOT.left + (column * plotWidth) / columns, y);
      context.lineTo(PLOT.left + ((column + 1) * plotWidth) / columns, y);
    }
    context.lineWidth = 1.25;
    context.stroke();
    context.textAlign = "right";
    context.fillText("reserved", PLOT.left + plotWidth - 4, this.y(reserved[moments.at(-1)]) - 8);
  }

  drawMoment() {
    const x = this.x(this.page.moment);
    if (x >= PLOT.left && x <= PLOT.left + this.plotWidth) {
      this.context.fillStyle = css(palette.accent);
      this.context.fillRect(Math.round(x), PLOT.top - 6, 1, PLOT.height + 10);
    }
  }

  drawBrush() {
    if (this.brush?.isMoved) {
      const { from, to } = this.brush;
      this.context.fillStyle = css(palette.accent, 0.22);
      this.context.fillRect(Math.min(from, to), PLOT.top, Math.abs(to - from), PLOT.height);
    }
  }

  // The band at a point of the canvas, or -1: an allocation, or behind them a scope's small ones.
  bandAt(x, y) {
    const column = Math.floor((x - PLOT.left) * this.ratio);
    const row = Math.floor((y - PLOT.top) * this.ratio);
    const isInside = column >= 0 && column < this.columns && row >= 0 && row < this.rows;
    return isInside ? (this.cells[row * this.columns + column] >> 2) - 1 : -1;
  }

  // A point of the window in the middle of an allocation's band, or null where it has none that is seen.
  where(own) {
    const found = [];
    this.cells.forEach((cell, at) => cell >> 2 === own + 1 && found.push(at));
    if (found.length === 0) {
      return null;
    }
    const at = found[found.length >> 1];
    const { x, y } = this.plot();
    return { x: x + ((at % this.columns) + 0.5) / this.ratio, y: y + (Math.floor(at / this.columns) + 0.5) / this.ratio };
  }

  // Where in the window the plot is.
  plot() {
    const box = this.canvas.getBoundingClientRect();
    return { x: box.left + PLOT.left, y: box.top + PLOT.top, width: this.plotWidth, height: PLOT.height };
  }

  describe(x, y) {
    const { recording } = this.page;
    const band = this.bandAt(x, y);
    if (band >= recording.lifetimes.count) {
      return this.describeGathered(band - recording.lifetimes.count, x);
    }
    if (band >= 0) {
      return describeLifetime(recording, band);
    }
    const below = y - this.lanesTop;
    return below >= 0 && describeLanes(this.lanes, recording, { x: (moment) => this.x(moment), at: x, y: below });
  }

  describeGathered(scope, x) {
    const { recording, shown } = this.page;
    const { lifetimes } = recording;
    const moment = this.moments[Math.floor((x - PLOT.left) * this.ratio)];
    const bySite = new Map();
    let [count, sizeBytes] = [0, 0];
    for (let own = 0; own < lifetimes.count; own++) {
      if (shown[own] && !this.isOwn[own] && lifetimes.scope[own] === scope && isLive(lifetimes, own, moment)) {
        count += 1;
        sizeBytes += lifetimes.bytes[own];
        bySite.set(lifetimes.site[own], (bySite.get(lifetimes.site[own]) ?? 0) + lifetimes.bytes[own]);
      }
    }
    const largest = [...bySite].sort((a, b) => b[1] - a[1]).slice(0, 8);
    const title = sizeBytes > 0 ? "Small blocks" : "Blocks whose events were lost";
    return [
      [title],
      ["scope", recording.scopes[scope]],
      ["count", formatCount(count)],
      ["size", formatBytes(sizeBytes)],
      ...largest.map(([site, sizeBytes]) => [recording.sites[site], formatBytes(sizeBytes)]),
    ];
  }

  hover(band) {
    const own = band < this.page.recording.lifetimes.count ? band : -1;
    if (own !== this.hovered) {
      this.hovered = own;
      this.draw();
    }
  }

  onMove({ offsetX: x, offsetY: y }) {
    if (this.brush) {
      this.brush.to = Math.min(Math.max(x, PLOT.left), PLOT.left + this.plotWidth);
      this.brush.isMoved ||= Math.abs(this.brush.to - this.brush.from) > 4;
      this.draw();
      return;
    }
    this.hover(this.bandAt(x, y));
  }

  onDown({ offsetX: x, offsetY: y, pointerId, button }) {
    const isInside = x >= PLOT.left && x <= PLOT.left + this.plotWidth && y <= this.lanesTop;
    if (button === 0 && isInside) {
      this.canvas.setPointerCapture(pointerId);
      this.brush = { from: x, to: x, isMoved: false };
    }
  }

  onUp(event) {
    const { brush } = this;
    this.brush = null;
    if (brush?.isMoved) {
      const ends = [this.positionAt(brush.from), this.positionAt(brush.to)].sort((a, b) => a - b);
      this.zoom(...ends);
    } else if (brush) {
      this.click(event);
    }
  }

  click({ offsetX: x, offsetY: y, clientX, clientY }) {
    const band = this.bandAt(x, y);
    this.pin(band < this.page.recording.lifetimes.count ? band : -1);
    if (this.pinned >= 0) {
      tip.pin(this.describe(x, y), clientX, clientY);
    }
    const column = Math.min(Math.floor((x - PLOT.left) * this.ratio), this.columns - 1);
    this.page.setMoment(this.moments[column]);
  }

  // Pins the next block above or below the pinned one, of those that are drawn at the moment.
  pinNext(step) {
    const column = Math.min(Math.max(0, firstBehind(this.moments, this.page.moment) - 1), this.columns - 1);
    const cells = Array.from({ length: this.rows }, (_, row) => this.cells[(this.rows - 1 - row) * this.columns + column]);
    const bands = [...new Set(cells.map((cell) => (cell >> 2) - 1))].filter((band) => this.isOwn[band]);
    const at = bands.indexOf(this.pinned);
    const next = bands[at < 0 && step < 0 ? bands.length - 1 : at + step];
    const point = next !== undefined && this.where(next);
    if (point) {
      this.pin(next);
      tip.pin(describeLifetime(this.page.recording, next), point.x, point.y);
    }
  }

  pin(own) {
    this.pinned = own === this.pinned ? -1 : own;
    if (this.pinned < 0) {
      tip.unpin();
    }
    this.draw();
  }

  onWheel(event) {
    event.preventDefault();
    const length = this.to - this.from;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const distance = (length * (event.deltaX || event.deltaY)) / 1000;
      this.zoom(this.from + distance, this.to + distance);
      return;
    }
    this.scaleBy(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), this.positionAt(event.offsetX));
  }

  scaleBy(factor, fixed) {
    this.zoom(fixed - (fixed - this.from) * factor, fixed + (this.to - fixed) * factor);
  }

  onKey(event) {
    const length = this.to - this.from;
    const middle = (this.from + this.to) / 2;
    const actions = {
      ArrowLeft: () => this.zoom(this.from - length / 8, this.to - length / 8),
      ArrowRight: () => this.zoom(this.from + length / 8, this.to + length / 8),
      "+": () => this.scaleBy(0.7, middle),
      "=": () => this.scaleBy(0.7, middle),
      "-": () => this.scaleBy(1.4, middle),
      0: () => this.showActive(),
      Escape: () => this.pin(-1),
      ArrowUp: () => this.pinNext(1),
      ArrowDown: () => this.pinNext(-1),
      ".": () => this.page.setMoment(Math.min(this.page.moment + 1, this.page.recording.events.count)),
      ",": () => this.page.setMoment(Math.max(this.page.moment - 1, 0)),
    };
    if (actions[event.key] && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      actions[event.key]();
    }
  }
}

