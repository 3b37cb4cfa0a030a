// What entries leave: the live bytes of each scope at the exits of its entries, and the lines that grow.

const CHART = { height: 56, most: 12 };

class Growth {
  constructor(page) {
    this.page = page;
    this.section = document.getElementById("growth");
    this.update();
  }

  update() {
    const { recording, hiddenScopes } = this.page;
    const grown = recording.growth.filter(({ scope }) => !hiddenScopes.has(scope)).slice(0, CHART.most);
    setEmpty(this.section, grown.length === 0 ? "No scope was entered and left." : "");
    const box = this.section.querySelector(".charts");
    box.replaceChildren(...grown.map((own) => this.chart(own)));
    grown.forEach((own, at) => this.draw(box.children[at].querySelector("canvas"), own));
  }

  // An exit records the live bytes of the scope's cache on its thread.
  exitsOf({ scope, thread }) {
    const { events, entriesOf } = this.page.recording;
    const left = entriesOf[scope].filter((entry) => entry.thread === thread && entry.to <= events.count);
    return left.map(({ to }) => events.bytes[to - 1]);
  }

  chart({ scope, thread, left, sites }) {
    const { recording } = this.page;
    const made = element("div");
    const title = element("b", ` ${recording.scopes[scope]}`);
    title.prepend(swatch(scope));
    const rate = left > 0 ? `grows by ${formatBytes(left)} an entry on thread ${thread}` : "does not grow";
    const lines = sites.map(([site, left]) => element("div", `${formatBytes(left)} ${recording.sites[site]}`));
    made.append(title, element("small", ` ${rate}`), element("canvas"), ...lines);
    return made;
  }

  draw(canvas, own) {
    const exits = this.exitsOf(own);
    const { context, width } = prepareCanvas(canvas, CHART.height);
    const most = exits.reduce((most, own) => Math.max(most, own), 1);
    context.strokeStyle = css(palette.scope(own.scope));
    context.lineWidth = 1.5;
    context.beginPath();
    exits.forEach((own, at) => {
      const x = 1 + (at * (width - 2)) / Math.max(1, exits.length - 1);
      context.lineTo(x, CHART.height - 2 - (own * (CHART.height - 4)) / most);
    });
    context.stroke();
    describeOnHover(canvas, (x) => {
      const at = Math.min(exits.length - 1, Math.max(0, Math.round(((x - 1) * (exits.length - 1)) / (width - 2))));
      return [["entry", `${at + 1} of ${exits.length}`], ["live at its exit", formatBytes(exits[at] ?? 0)]];
    });
  }
}

