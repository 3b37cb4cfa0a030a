// The table of lines: what each allocated, in which scope, and what it holds.

const MOST_SITES = 500;
const COLUMNS = [
  { key: "name", title: "line", text: (row) => row.name, isText: true },
  { key: "scope", title: "scope", text: (row) => row.scopeName, isText: true },
  { key: "atEnd", title: "live at end", text: (row) => formatBytes(row.atEnd) },
  { key: "peak", title: "peak of line", text: (row) => formatBytes(row.peak) },
  { key: "atPeak", title: "share at peak", text: (row, whole) => formatShare(row.atPeak, whole) },
  { key: "allocations", title: "count", text: (row) => formatCount(row.allocations) },
  { key: "hits", title: "hits", text: (row) => formatCount(row.hits) },
  { key: "misses", title: "misses", text: (row) => formatCount(row.misses) },
  { key: "escaped", title: "escaped", text: (row) => formatCount(row.escaped) },
  { key: "copies", title: "copies on write", text: (row) => formatCount(row.copies) },
  { key: "kernelNs", title: "kernel time", text: (row) => (row.kernelNs > 0 ? formatTime(row.kernelNs) : "–") },
];

class Sites {
  constructor(page) {
    this.page = page;
    this.section = document.getElementById("sites");
    const { rows, sites, scopes } = page.recording;
    this.rows = rows.map((row) => ({ ...row, name: sites[row.site], scopeName: scopes[row.scope] }));
    const hasKernels = this.rows.some((row) => row.kernelNs > 0);
    this.columns = COLUMNS.filter(({ key }) => key !== "kernelNs" || hasKernels);
    this.order = { key: "atPeak", isAscending: false };
    this.section.querySelector("tbody").addEventListener("click", (event) => this.onClick(event));
    this.update();
  }

  update() {
    this.shown = this.rows.filter((row) => this.page.passes(row.scope, row.site));
    const lacks = this.rows.length === 0 ? "No allocations were recorded." : "No line passes the filter.";
    setEmpty(this.section, this.shown.length === 0 ? lacks : "");
    this.sort();
    this.drawHead();
    this.drawBody();
  }

  sort() {
    const { key, isAscending } = this.order;
    const sign = isAscending ? 1 : -1;
    const value = (row) => (key === "scope" ? row.scopeName : row[key]);
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    this.shown.sort((a, b) => sign * compare(value(a), value(b)) || b.peak - a.peak);
  }

  drawHead() {
    const cells = this.columns.map(({ key, title, isText }) => {
      const cell = element("th", "", isText ? "text" : "");
      const button = element("button", title);
      button.addEventListener("click", () => this.orderBy(key, isText));
      if (key === this.order.key) {
        cell.ariaSort = this.order.isAscending ? "ascending" : "descending";
      }
      cell.append(button);
      return cell;
    });
    const row = element("tr");
    row.append(...cells);
    this.section.querySelector("thead").replaceChildren(row);
  }

  orderBy(key, isText = false) {
    const isSame = this.order.key === key;
    this.order = { key, isAscending: isSame ? !this.order.isAscending : isText };
    this.update();
    const at = this.columns.findIndex((column) => column.key === key);
    this.section.querySelectorAll("th button")[at].focus();
  }

  drawBody() {
    const rows = this.shown.slice(0, MOST_SITES).map((row) => this.drawRow(row));
    if (this.shown.length > MOST_SITES) {
      const note = element("tr");
      note.append(element("td", `and ${formatCount(this.shown.length - MOST_SITES)} more; filter for them`, "text"));
      rows.push(note);
    }
    this.section.querySelector("tbody").replaceChildren(...rows);
  }

  drawRow(row) {
    const made = element("tr");
    made.dataset.row = this.rows.indexOf(row);
    made.classList.toggle("selected", this.page.selected === row);
    for (const { key, text, isText } of this.columns) {
      const cell = element("td", "", isText ? "text" : "");
      if (key === "name") {
        const button = element("button", text(row));
        button.ariaPressed = String(this.page.selected === row);
        cell.append(button);
      } else {
        cell.textContent = text(row, this.page.recording.peak.bytes);
      }
      if (key === "scope") {
        cell.prepend(swatch(row.scope, palette.shade(row.scope, this.page.recording.shadeOf[row.site])));
      }
      made.append(cell);
    }
    return made;
  }

  onClick({ target }) {
    const number = target.closest("tr")?.dataset.row;
    if (number === undefined) {
      return;
    }
    const row = this.rows[number];
    this.page.select(this.page.selected === row ? null : row);
    this.section.querySelector(`tr[data-row="${number}"] button`)?.focus();
  }
}

// A little square in the colour of a scope, or of one of its lines.
function swatch(scope, colour = palette.scope(scope)) {
  const made = element("i", "", "swatch");
  made.style.background = css(colour);
  return made;
}

