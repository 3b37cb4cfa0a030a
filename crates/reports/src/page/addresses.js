// Where each block is over time: the addresses of a segment or a slab, below the time of the timeline.

const MAP = { height: 240, most: 20000 };

class Addresses {
  constructor(page) {
    this.page = page;
    this.section = document.getElementById("addresses");
    this.canvas = this.section.querySelector("canvas");
    this.segment = document.getElementById("segment");
    const name = ({ from, to }) => `${formatAddress(from)}, ${formatBytes(to - from)}`;
    this.rows = page.recording.neighbourhoods.slice(0, 100);
    this.rows.forEach((row, at) => this.segment.append(new Option(name(row), at)));
    this.segment.addEventListener("change", () => this.update());
    describeOnHover(this.canvas, (x, y) => this.describe(x, y));
    this.update();
  }

  update() {
    setEmpty(this.section, this.rows.length === 0 ? "No segment is known." : "");
    this.row = this.rows[Number(this.segment.value)];
    if (this.row) {
      this.draw();
    }
  }

  draw() {
    const { recording, shown, highlight, timeline } = this.page;
    const { lifetimes } = recording;
    const { context } = prepareCanvas(this.canvas, MAP.height);
    context.fillStyle = css(palette.idle);
    context.fillRect(PLOT.left, 0, timeline.plotWidth, MAP.height);
    let left = MAP.most;
    for (let at = 0; at < lifetimes.count && left > 0; at++) {
      const own = lifetimes.bySize[at];
      const box = shown[own] && this.boxOf(own);
      if (box) {
        const isFaded = highlight !== null && !highlight[own];
        context.fillStyle = css(mix(palette.of(recording, own), palette.paper, isFaded ? 0.7 : 0));
        context.fillRect(box.x, box.y, Math.max(0.5, box.width), Math.max(0.5, box.height));
        left -= 1;
      }
    }
    context.fillStyle = css(palette.muted);
    context.textAlign = "right";
    context.fillText(formatBytes(this.row.to - this.row.from), PLOT.left - 6, 8);
    context.fillText("0 B", PLOT.left - 6, MAP.height - 8);
  }

  // The part of the plot that a block takes, or null. Low addresses are below.
  boxOf(own) {
    const { lifetimes } = this.page.recording;
    const { timeline } = this.page;
    const { from, to } = this.row;
    const address = lifetimes.address[own];
    if (address < from || address >= to) {
      return null;
    }
    const right = PLOT.left + timeline.plotWidth;
    const x = Math.max(PLOT.left, timeline.x(lifetimes.born[own]));
    const width = Math.min(right, timeline.x(lifetimes.died[own])) - x;
    const scale = MAP.height / (to - from);
    const height = Math.max(lifetimes.block[own], lifetimes.bytes[own]) * scale;
    return x > right || width < 0 ? null : { x, y: MAP.height - (address - from) * scale - height, width, height };
  }

  describe(x, y) {
    const { recording, shown } = this.page;
    const isHere = (own) => {
      const box = shown[own] && this.boxOf(own);
      return box && box.x <= x && x <= box.x + box.width && box.y <= y && y <= box.y + box.height;
    };
    for (let own = recording.lifetimes.count - 1; own >= 0; own--) {
      if (isHere(own)) {
        return describeLifetime(recording, own);
      }
    }
    return null;
  }
}

