// A run's tables: choose one, draw it, choose what lies along and up, read and copy its rows.

class Explorer {
  constructor(holder, run, known) {
    this.run = run;
    this.known = known;
    this.tables = run.tables.map((raw) => new Table(raw));
    this.tabs = make("div", { class: "tabs", role: "group", "aria-label": "Tables of this run" });
    this.controls = make("div", { class: "controls" });
    this.folded = make("details", { class: "choices" }, make("summary", {}, "Axes, lines and rows"), this.controls);
    this.folded.open = window.innerWidth > 640;
    this.figure = make("div", { class: "plot" });
    this.drawn = make("details", { class: "drawn" }, make("summary", {}, "The table"));
    this.grid = make("div", { class: "grid-holder" });
    this.drawn.open = true;
    this.drawn.append(this.grid);
    holder.replaceChildren(this.tabs, this.folded, this.figure, this.drawn);
    if (this.tables.length) this.choose(this.tables.find((table) => table.name === run.opens && table.view) ?? this.tables.find((table) => table.view) ?? this.tables[0]);
  }

  choose(table) {
    this.table = table;
    this.tabs.replaceChildren(...this.tables.map((one) => make("button", { type: "button", "aria-pressed": String(one === table), onclick: () => this.choose(one) }, one.title)));
    this.view = table.view && { ...table.view, where: { ...table.view.where } };
    this.log = null;
    new TableView(this.grid, table, ["label"]);
    this.update();
  }

  update() {
    this.plot?.close();
    this.plot = null;
    this.controls.replaceChildren();
    this.figure.replaceChildren();
    this.folded.hidden = !this.view;
    if (!this.view) return;
    const { table, view } = this;
    const lines = linesOf(table, view);
    const all = lines.flatMap((line) => line.points);
    const ups = all.map((point) => point.y);
    this.log ??= { x: prefersLog(all.map((p) => p.x), table.unit(view.x)), y: prefersLog(ups, table.unit(view.y[0]), view.y[0]) };
    this.log.close ??= !this.log.y && ups.length > 0 && needsCloseUp(ups);
    this.drawControls();
    this.plot = new Plot(this.figure, lines, looksFor(lines.map((line) => line.name), this.known), plotText(table, view), this.log);
  }

  drawControls() {
    const { table, view } = this;
    const pairs = (names) => names.map((name) => [name, table.heading(name)]);
    const change = (part) => { Object.assign(view, part); this.log = null; this.update(); };
    const numbers = [...table.columns.keys()].filter((name) => table.numeric(name));
    const together = view.y.length > 1 ? [["", view.y.map((name) => table.heading(name)).join(", ")]] : [];
    const lines = table.named("key").filter((name) => name !== view.x);
    this.controls.append(
      choice("Along", pairs([...table.columns.keys()].filter((name) => table.columns.get(name).kind !== "words")), view.x, (x) => change({ x, series: view.series.filter((name) => name !== x) })),
      choice("Up", [...together, ...pairs(numbers)], together.length ? "" : view.y[0], (y) => change({ y: [y] })),
      choice("Lines", [["", "one line"], ...pairs(lines)], view.series[0] ?? "", (name) => change({ series: name ? [name] : [], where: without(view.where, name) })),
    );
    for (const name of table.named("key", "repeat")) {
      if ([view.x, ...view.series, "label"].includes(name) || [view.x, ...view.series].some((by) => decides(table, by, name))) continue;
      const values = table.distinct(name);
      if (values.length < 2 || values.length > 40) continue;
      const options = [["", "all"], ...values.map((value) => [String(value), written(value)])];
      this.controls.append(choice(table.heading(name), options, view.where[name] ?? "", (value) => change({ where: value ? { ...view.where, [name]: value } : without(view.where, name) })));
    }
    if (table.numeric(view.x)) this.controls.append(tick("Along: logarithmic", this.log.x, (x) => { this.log.x = x; this.update(); }));
    this.controls.append(tick("Up: logarithmic", this.log.y, (y) => { this.log.y = y; this.update(); }));
    if (!this.log.y) this.controls.append(tick("Close-up", this.log.close, (close) => { this.log.close = close; this.update(); }));
  }
}

// Whether the value of one column follows from that of another, so that choosing both is idle.
function decides(table, by, name) {
  const [from, to] = [table.values(by), table.values(name)];
  const seen = new Map();
  return from.every((value, row) => {
    if (!seen.has(value)) seen.set(value, to[row]);
    return seen.get(value) === to[row];
  });
}

function without(where, name) {
  return Object.fromEntries(Object.entries(where).filter(([key]) => key !== name));
}

function plotText(table, view) {
  const up = view.y.map((name) => table.heading(name)).join(", ");
  const [trained] = table.named("setting");
  const lengths = trained ? table.distinct(trained) : [];
  const mark = lengths.length === 1 && table.unit(view.x) === "tokens" ? { value: lengths[0], name: "trained length" } : null;
  return { title: `${up} by ${table.heading(view.x)}`, x: table.heading(view.x), y: up, xUnit: table.unit(view.x), yUnit: table.unit(view.y[0]), mark };
}
