// One table that can be sorted, filtered and copied.

const ROWS_AT_FIRST = 50;

class TableView {
  constructor(holder, table, hidden = []) {
    this.table = table;
    this.names = [...table.columns.keys()].filter((name) => !hidden.includes(name));
    this.order = null;
    this.words = "";
    this.limit = ROWS_AT_FIRST;
    this.head = make("tr");
    this.body = make("tbody");
    this.said = make("output", { "aria-live": "polite", class: "note" });
    this.more = make("button", { type: "button", class: "quiet", onclick: () => { this.limit = Infinity; this.fill(); } }, "Show all rows");
    const search = make("input", { type: "search", autocomplete: "off", oninput: () => { this.words = search.value.toLowerCase(); this.fill(); } });
    const copy = make("button", { type: "button", class: "quiet", onclick: () => copyText(this.csv(), copy) }, "Copy as CSV");
    const bar = make("div", { class: "bar" }, make("label", {}, "Filter rows ", search), copy, this.said);
    const grid = make("table", {}, make("thead", {}, this.head), this.body);
    holder.replaceChildren(bar, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table ${table.title}` }, grid), this.more);
    this.drawHead();
    this.fill();
  }

  drawHead() {
    this.head.replaceChildren(...this.names.map((name) => {
      const sorted = this.order?.name === name ? (this.order.up ? "ascending" : "descending") : "none";
      const arrow = { ascending: " ▲", descending: " ▼", none: "" }[sorted];
      const button = make("button", { type: "button", title: name, onclick: () => this.sort(name) }, `${this.table.heading(name)}${arrow}`);
      return make("th", { scope: "col", "aria-sort": sorted, "data-column": name }, button);
    }));
  }

  sort(name) {
    const again = this.order?.name === name;
    this.order = { name, up: again ? !this.order.up : true };
    this.drawHead();
    this.fill();
    this.head.querySelector(`[data-column="${CSS.escape(name)}"] button`).focus();
  }

  rows() {
    const wanted = this.words.split(/\s+/).filter(Boolean);
    const text = (row) => this.names.map((name) => written(this.table.values(name)[row])).join(" ").toLowerCase();
    const rows = [...Array(this.table.rows).keys()].filter((row) => !wanted.length || wanted.every((word) => text(row).includes(word)));
    if (!this.order) return rows;
    const values = this.table.values(this.order.name);
    const sign = this.order.up ? 1 : -1;
    return rows.sort((a, b) => compared(values[a], values[b], sign) || a - b);
  }

  fill() {
    const rows = this.rows();
    const shown = rows.slice(0, this.limit);
    this.body.replaceChildren(...shown.map((row) => make("tr", {}, ...this.names.map((name) => {
      const value = this.table.values(name)[row];
      const text = written(value);
      const full = typeof value === "number" && String(value) !== text ? String(value) : null;
      return make("td", { class: this.table.numeric(name) ? "number" : null, title: full }, text);
    }))));
    this.said.textContent = `${rows.length} of ${this.table.rows} rows${shown.length < rows.length ? `, the first ${shown.length} shown` : ""}`;
    this.more.hidden = shown.length === rows.length;
  }

  csv() {
    const cell = (value) => {
      const text = value === null ? "" : value === Infinity ? "inf" : value === -Infinity ? "-inf" : String(value);
      return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = this.rows().map((row) => this.names.map((name) => cell(this.table.values(name)[row])).join(","));
    return `${[this.names.map(cell).join(","), ...lines].join("\n")}\n`;
  }
}

// Missing values last, whichever way; numbers as numbers, words as people order them.
function compared(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b || 0);
  return sign * String(a).localeCompare(String(b), "en", { numeric: true });
}
