// Numbers, colours and the tooltip: what all views write and paint with.

function formatBytes(sizeBytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = sizeBytes;
  while (Math.abs(value) >= 1023.5 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return `${formatDigits(value, unit > 0)} ${units[unit]}`;
}

// Three digits where there is a fraction.
function formatDigits(value, hasFraction) {
  const digits = value >= 99.95 || !hasFraction ? 0 : value >= 9.995 ? 1 : 2;
  return value.toFixed(digits);
}

function formatTime(timeNs) {
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
  const [unit, name] = units.find(([unit]) => timeNs >= unit) ?? [1, "ns"];
  return `${formatDigits(timeNs / unit, unit > 1)} ${name}`;
}

// In milliseconds, or in seconds if the span is long, with as many digits as `stepNs` needs.
function formatMoment(timeNs, stepNs, spanNs = timeNs) {
  const [power, unit] = spanNs >= 1e9 ? [9, "s"] : [6, "ms"];
  const digits = Math.min(power, Math.max(0, Math.ceil(power - Math.log10(Math.max(stepNs, 1)))));
  return `${(timeNs / 10 ** power).toFixed(digits)} ${unit}`;
}

function formatCount(count) {
  return count.toLocaleString("en-US");
}

function formatShare(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "–";
}

// Line 0 is that of a name which is no file.
const formatLine = (file, line) => (line > 0 ? `${file}:${line}` : file);

function formatAddress(address) {
  return `0x${address.toString(16)}`;
}

// About `count` round numbers from `from` to `to`, one of `bases` times a power of `power` apart.
function ticks(from, to, count, bases = [1, 2, 5], power = 10) {
  const rough = Math.max((to - from) / count, Number.MIN_VALUE);
  const magnitude = power ** Math.floor(Math.log(rough) / Math.log(power));
  const step = bases.map((base) => base * magnitude).find((step) => step >= rough) ?? power * magnitude;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to && found.length < 50; at += step) {
    found.push(at);
  }
  return { step, found };
}

const byteBases = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

// An element with text, never with markup: names come from the recording.
function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

// Colours of the style sheet, which differ by the colour scheme, as [red, green, blue].
const palette = {
  // Lines whose ranks differ by this many look alike.
  ranks: 120,

  read() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["paper", "ink", "muted", "line", "idle", "pending", "accent", "alarm", "warn", "uncached"]) {
      this[name] = parseColour(style.getPropertyValue(`--${name}`));
    }
    this.scopes = [];
    for (let i = 1; i <= 8; i++) {
      this.scopes.push(parseColour(style.getPropertyValue(`--scope-${i}`)));
    }
  },

  // That of memory of no cache for 0, else of a scope; those beyond the palette are darker or lighter ones of it.
  scope(scope) {
    if (scope === 0) {
      return this.uncached;
    }
    const round = Math.floor((scope - 1) / this.scopes.length);
    return mix(this.scopes[(scope - 1) % this.scopes.length], this.ink, Math.min(0.6, 0.25 * round));
  },

  // Lines of one scope differ in lightness, neighbours by rank the most. Without scopes, they differ in colour.
  shade(scope, rank) {
    if (this.isByLine && scope === 0) {
      return this.scope(1 + (rank % 24));
    }
    return mix(this.scope(scope), this.paper, ((rank * 2) % 5) * 0.11);
  },

  // That of an allocation.
  of({ lifetimes, shadeOf }, own) {
    return this.shade(lifetimes.scope[own], shadeOf[lifetimes.site[own]]);
  },
};

function parseColour(text) {
  const digits = text.trim().slice(1);
  return [0, 2, 4].map((at) => Number.parseInt(digits.slice(at, at + 2), 16));
}

function mix(colour, other, share) {
  return colour.map((part, i) => Math.round(part + (other[i] - part) * share));
}

function css(colour, opacity = 1) {
  return `rgb(${colour.join(" ")} / ${opacity})`;
}

// A pixel of an ImageData, on the little-endian machines that browsers run on.
function pixel([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

// Sizes a canvas in CSS pixels, and gives its context in them.
function prepareCanvas(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(200, canvas.parentElement.clientWidth);
  canvas.style.height = `${height}px`;
  const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) {
    [canvas.width, canvas.height] = pixels;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px ui-monospace, Menlo, Consolas, monospace";
  context.textBaseline = "middle";
  return { context, width, height, ratio };
}

// Two boxes: one at the pointer, and one that stays where it was pinned, and moves with the page.
const tip = {
  // Pairs of a name and a value; a title has no value.
  show(pairs, x, y) {
    placeBox(document.getElementById("tip"), pairs, x, y);
  },

  hide() {
    document.getElementById("tip").hidden = true;
  },

  pin(pairs, x, y) {
    this.hide();
    const box = document.getElementById("pin");
    placeBox(box, pairs, x, y);
    box.style.top = `${Number.parseFloat(box.style.top) + scrollY}px`;
  },

  unpin() {
    document.getElementById("pin").hidden = true;
  },
};

// Beside the point, on the side that has space for it.
function placeBox(box, pairs, x, y) {
  const rows = pairs.map(([name, value]) => {
    const row = element("div", "", value === undefined ? "title" : "");
    row.append(element("span", name), ...(value === undefined ? [] : [element("b", value)]));
    return row;
  });
  box.replaceChildren(...rows);
  box.hidden = false;
  const right = x + 14 + box.offsetWidth < innerWidth - 8 ? x + 14 : x - 14 - box.offsetWidth;
  const below = y + 14 + box.offsetHeight < innerHeight - 8 ? y + 14 : y - 14 - box.offsetHeight;
  box.style.left = `${Math.max(8, right)}px`;
  box.style.top = `${Math.max(8, below)}px`;
}

// Shows what a view says of the point under the pointer, and nothing where it says nothing.
function describeOnHover(canvas, describe) {
  canvas.addEventListener("pointermove", (event) => {
    const pairs = describe(event.offsetX, event.offsetY);
    if (pairs) {
      tip.show(pairs, event.clientX, event.clientY);
    } else {
      tip.hide();
    }
  });
  canvas.addEventListener("pointerleave", () => tip.hide());
}

// Shows a section's content, or what it lacks.
function setEmpty(section, text) {
  const note = section.querySelector(":scope > .empty");
  note.textContent = text;
  note.hidden = text === "";
  for (const content of section.querySelectorAll(":scope > :not(h2, .empty)")) {
    content.hidden = text !== "";
  }
}

