// Which allocation each pixel of the timeline shows.
//
// A column of pixels stands for the moment of its time with the most live bytes, so that no peak is lost, and is filled
// with what is live then: scope upon scope, in each the oldest lowest. Bands shift by themselves when lower ones end,
// and the effort is bounded by the pixels rather than by the events.
//
// A cell of the result is 0 or 4 * (band + 1) plus edges. Bands are the allocations; behind them, one for each scope
// gathers those that are too small for one of their own.

const EDGE_ABOVE = 1;
const EDGE_LEFT = 2;

// The moment that each column shows, for positions from `from` to `to`. They ascend.
function momentsOfColumns(positions, live, from, to, width) {
  const moments = new Int32Array(width);
  let next = firstBehind(positions, from);
  let last = Math.max(0, next - 1);
  for (let column = 0; column < width; column++) {
    const end = from + ((column + 1) * (to - from)) / width;
    let highest = last;
    for (; next < positions.length && positions[next] < end; next++) {
      highest = live[next] > live[highest] ? next : highest;
      last = next;
    }
    moments[column] = highest;
  }
  return moments;
}

// The first index whose value is above `position`.
function firstBehind(positions, position) {
  let [low, high] = [0, positions.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (positions[middle] <= position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Marks the `limit` largest of the shown allocations that live between two moments.
function selectLargest({ lifetimes }, shown, first, last, limit) {
  const isOwn = new Uint8Array(lifetimes.count);
  let left = limit;
  for (let at = 0; at < lifetimes.count && left > 0; at++) {
    const own = lifetimes.bySize[at];
    if (shown[own] && lifetimes.born[own] <= last && lifetimes.died[own] > first) {
      isOwn[own] = 1;
      left -= 1;
    }
  }
  return isOwn;
}

// What is live at a moment that only advances: a ring for each scope, which its gathered band opens and closes, and
// the sum of what has no band.
class LiveStack {
  constructor({ lifetimes, scopes }, shown, isOwn, lostBytes) {
    Object.assign(this, { lifetimes, shown, isOwn, moment: 0 });
    this.next = Int32Array.from({ length: lifetimes.count + scopes.length }, (_, band) => band);
    this.previous = this.next.slice();
    this.gathered = new Float64Array(scopes.length);
    this.gathered[0] = lostBytes;
    lifetimes.before.forEach((own) => this.push(own));
  }

  advance(moment) {
    for (; this.moment < moment; this.moment++) {
      this.remove(this.lifetimes.diedAt[this.moment + 1]);
      this.push(this.lifetimes.bornAt[this.moment + 1]);
    }
  }

  push(own) {
    if (this.isOwn[own]) {
      const end = this.lifetimes.count + this.lifetimes.scope[own];
      this.link(this.previous[end], own);
      this.link(own, end);
    } else if (this.shown[own]) {
      this.gathered[this.lifetimes.scope[own]] += this.lifetimes.bytes[own];
    }
  }

  remove(own) {
    if (this.isOwn[own]) {
      this.link(this.previous[own], this.next[own]);
    } else if (this.shown[own]) {
      this.gathered[this.lifetimes.scope[own]] -= this.lifetimes.bytes[own];
    }
  }

  link(below, above) {
    this.next[below] = above;
    this.previous[above] = below;
  }
}

// Fills the cells of a plot of `width` by `height` pixels, whose height is `topBytes`.
function layBands({ recording, shown, lostBytes, moments, positions, from, to, width, height, topBytes, limit }) {
  const isOwn = selectLargest(recording, shown, moments[0], moments[width - 1], limit);
  const stack = new LiveStack(recording, shown, isOwn, lostBytes);
  const cells = new Int32Array(width * height);
  const edgeLength = (4 * (to - from)) / width;
  let previous = -1;
  for (let column = 0; column < width; column++) {
    if (moments[column] === previous) {
      copyColumn(cells, column, width);
      continue;
    }
    stack.advance(moments[column]);
    layColumn({ cells, column, width, height, topBytes, stack, positions, to, previous, edgeLength });
    previous = moments[column];
  }
  return { cells, isOwn };
}

// Edges on the left belong to the first column alone.
function copyColumn(cells, column, width) {
  for (let at = column; at < cells.length; at += width) {
    cells[at] = cells[at - 1] & ~EDGE_LEFT;
  }
}

function layColumn({ cells, column, width, height, topBytes, stack, positions, to, previous, edgeLength }) {
  const { lifetimes, gathered, next } = stack;
  let offset = 0;
  const lay = (band, sizeBytes, edge) => {
    const low = Math.round((offset * height) / topBytes);
    offset += sizeBytes;
    const high = Math.min(height, Math.round((offset * height) / topBytes));
    const isHigh = high - low >= 4;
    const cell = 4 * (band + 1) + (isHigh ? edge : 0);
    for (let y = low; y < high; y++) {
      cells[(height - 1 - y) * width + column] = cell + (isHigh && y === high - 1 ? EDGE_ABOVE : 0);
    }
  };
  const lasts = (own) => (positions[lifetimes.died[own]] ?? to) - positions[lifetimes.born[own]] >= edgeLength;
  for (let scope = 0; scope < gathered.length; scope++) {
    const end = lifetimes.count + scope;
    lay(end, gathered[scope], 0);
    for (let own = next[end]; own !== end; own = next[own]) {
      const begins = previous >= 0 && lifetimes.born[own] > previous;
      lay(own, lifetimes.bytes[own], begins && lasts(own) ? EDGE_LEFT : 0);
    }
  }
}

// Pixels of the cells, by the colours of the bands.
function paintCells(image, cells, fills, edges) {
  const pixels = new Uint32Array(image.data.buffer);
  for (let at = 0; at < cells.length; at++) {
    const cell = cells[at];
    if (cell === 0) {
      pixels[at] = 0;
    } else {
      pixels[at] = ((cell & 3) === 0 ? fills : edges)[(cell >> 2) - 1];
    }
  }
}

