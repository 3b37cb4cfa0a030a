// The flame graph of what is live at the moment: by backtraces, or by scope, file and line where there is none.

const FLAME_HEIGHT = 19;
const SMALLEST_SHARE = 0.0008;
const MIXED = -1;

class Flame {
  constructor(page) {
    this.page = page;
    this.section = document.getElementById("flame");
    this.box = this.section.querySelector(".flames");
    this.zoomed = [];
    this.update();
  }

  update() {
    const { recording, moment } = this.page;
    const title = moment === recording.peak.moment ? "At the peak" : `At ${formatMoment(recording.timeOf[moment], 1e3)}`;
    document.getElementById("flame-title").textContent = title;
    this.root = flamesOf(this.page);
    const lacks = recording.peak.bytes > 0 ? "Nothing that passes the filter is live here." : "Nothing was live.";
    setEmpty(this.section, this.root.bytes === 0 ? lacks : "");
    this.draw();
  }

  // Its ancestors take the whole width, so that a click on one goes back.
  draw() {
    const path = followPath(this.root, this.zoomed);
    const focus = path.at(-1);
    const blocks = path.slice(0, -1).map((node, depth) => this.block(node, depth, 0, 1, path));
    this.depth = path.length - 1;
    this.place(focus, this.depth, 0, 1, path, blocks);
    this.box.style.height = `${(this.depth + 1) * FLAME_HEIGHT}px`;
    this.box.replaceChildren(...blocks);
  }

  place(node, depth, left, width, path, blocks) {
    if (width < SMALLEST_SHARE || node.bytes === 0) {
      return;
    }
    this.depth = Math.max(this.depth, depth);
    blocks.push(this.block(node, depth, left, width, path));
    const children = [...node.children.values()].sort((a, b) => b.bytes - a.bytes);
    for (const child of children) {
      const share = (width * child.bytes) / node.bytes;
      this.place(child, depth + 1, left, share, [...path.slice(0, depth + 1), child], blocks);
      left += share;
    }
  }

  block(node, depth, left, width, path) {
    const made = element("button", labelOf(node.name));
    const share = formatShare(node.bytes, this.page.recording.peak.bytes);
    made.style.left = `${100 * left}%`;
    made.style.width = `${100 * width}%`;
    made.style.top = `${depth * FLAME_HEIGHT}px`;
    const colour = this.colourOf(node);
    made.style.background = css(mix(colour, palette.paper, (depth % 2) * 0.2));
    made.ariaLabel = `${node.name}: ${formatBytes(node.bytes)}, ${share} of the peak`;
    made.addEventListener("click", () => this.zoom(path.slice(1, depth + 1).map((node) => node.name)));
    made.addEventListener("pointermove", ({ clientX, clientY }) =>
      tip.show([[node.name], ["size", formatBytes(node.bytes)], ["of the peak", share]], clientX, clientY),
    );
    made.addEventListener("pointerleave", () => tip.hide());
    return made;
  }

  colourOf({ scope, site }) {
    if (scope === MIXED || (palette.isByLine && site === MIXED)) {
      return palette.idle;
    }
    const { shadeOf } = this.page.recording;
    return mix(palette.isByLine ? palette.shade(scope, shadeOf[site]) : palette.scope(scope), palette.paper, 0.5);
  }

  zoom(names) {
    this.zoomed = names;
    tip.hide();
    this.draw();
    this.box.children[names.length]?.focus({ preventScroll: true });
  }
}

// Labels are cut at their end, so file name and line come first.
function labelOf(name) {
  const [, call, place] = name.match(/^(.*) \((.*)\)$/) ?? ["", "", name];
  return `${place.split(/[\\/]/).at(-1)} ${call}`.trim();
}

// From the root, as far as the names lead.
function followPath(root, names) {
  const path = [root];
  for (const name of names) {
    const next = path.at(-1).children.get(name);
    if (!next) {
      break;
    }
    path.push(next);
  }
  return path;
}

// A tree of { name, bytes, scope, site, children }; scope and site are `MIXED` where allocations are of several.
function flamesOf({ recording, shown, moment }) {
  const { lifetimes } = recording;
  const root = { name: "all", bytes: 0, scope: MIXED, site: MIXED, children: new Map() };
  for (let own = 0; own < lifetimes.count; own++) {
    if (shown[own] && isLive(lifetimes, own, moment)) {
      root.bytes += lifetimes.bytes[own];
      addFrames(root, framesOf(recording, own), lifetimes, own);
    }
  }
  return root;
}

function addFrames(node, names, lifetimes, own) {
  const [scope, site] = [lifetimes.scope[own], lifetimes.site[own]];
  for (const name of names) {
    if (!node.children.has(name)) {
      node.children.set(name, { name, bytes: 0, scope, site, children: new Map() });
    }
    node = node.children.get(name);
    node.bytes += lifetimes.bytes[own];
    node.scope = node.scope === scope ? scope : MIXED;
    node.site = node.site === site ? site : MIXED;
  }
}

// From the outermost frame in.
function framesOf({ lifetimes, stacks, frames, scopes, sites, files }, own) {
  const stack = stacks[lifetimes.stack[own]];
  if (!stack || stack.length === 0) {
    const site = lifetimes.site[own];
    return [scopes[lifetimes.scope[own]], files[site], sites[site]];
  }
  return [...stack].reverse().map((frame) => frameName(frames[frame]));
}

