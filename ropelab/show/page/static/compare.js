// Runs of one experiment side by side: their lines in one plot, and their differences.

class Comparison {
  constructor(holder, runs, known, quantiles) {
    Object.assign(this, { holder, runs, known, quantiles });
    this.experiments = [...new Set(runs.map((run) => run.experiment))].filter((name) => runs.filter((run) => run.experiment === name).length > 1);
    if (!this.experiments.length) {
      holder.replaceChildren(make("p", {}, "There is only one run of each experiment here: nothing to compare."));
      return;
    }
    this.choices = make("div");
    this.figure = make("div", { class: "plot" });
    this.result = make("div");
    holder.replaceChildren(this.choices, this.figure, this.result);
    const seeded = (run) => run.tables.some((table) => table.columns.some((column) => column.kind === "repeat"));
    const many = (name) => runs.filter((run) => run.experiment === name && seeded(run)).length;
    this.chooseExperiment(this.experiments.reduce((a, b) => (many(b) > many(a) ? b : a)));
  }

  chooseExperiment(name) {
    this.experiment = name;
    this.offered = this.runs.filter((run) => run.experiment === name);
    this.picked = this.offered.slice(0, 2);
    this.name = null;
    this.update();
  }

  shared() {
    const names = this.picked.map((run) => run.tables.filter((table) => table.view).map((table) => table.name));
    return names.length ? names[0].filter((name) => names.every((others) => others.includes(name))) : [];
  }

  update() {
    const shared = this.shared();
    if (!shared.includes(this.name)) this.name = shared[0] ?? null;
    this.plot?.close();
    this.drawChoices(shared);
    this.figure.replaceChildren();
    this.result.replaceChildren();
    if (this.picked.length < 2 || !this.name) {
      this.result.append(make("p", { class: "note" }, this.picked.length < 2 ? "Pick two runs or more." : "These runs have no table in common that can be drawn."));
      return;
    }
    this.drawLines();
    this.drawDifferences();
  }

  drawChoices(shared) {
    const boxes = this.offered.map((run, at) => tick(`${letter(at)}: ${run.label}`, this.picked.includes(run), (on) => {
      this.picked = this.offered.filter((one) => (one === run ? on : this.picked.includes(one)));
      this.update();
    }));
    const controls = make("div", { class: "controls" },
      choice("Experiment", this.experiments.map((name) => [name, name]), this.experiment, (name) => this.chooseExperiment(name)),
      choice("Table", shared.map((name) => [name, this.picked[0].tables.find((table) => table.name === name).title]), this.name, (name) => { this.name = name; this.update(); }));
    this.choices.replaceChildren(controls, make("fieldset", { class: "picks" }, make("legend", {}, "Runs"), ...boxes));
  }

  // The picked runs, each with its letter and its table.
  sides() {
    return this.picked.map((run) => ({
      letter: letter(this.offered.indexOf(run)),
      table: new Table(run.tables.find((table) => table.name === this.name)),
    }));
  }

  drawLines() {
    const sides = this.sides();
    const { table, table: { view } } = sides[0];
    const [drawn, left] = splitByView(sides, view);
    if (left.length) {
      const missing = `Without lines, since the table has other columns there: ${left.map((side) => side.letter).join(", ")}.`;
      this.result.append(make("p", { class: "note" }, missing));
    }
    const lines = drawn.flatMap((side) => nameLines(side, view));
    const points = lines.flatMap((line) => line.points);
    const log = { x: prefersLog(points.map((p) => p.x), table.unit(view.x)), y: prefersLog(points.map((p) => p.y), table.unit(view.y[0]), view.y[0]) };
    log.close = !log.y && points.length > 0 && needsCloseUp(points.map((point) => point.y));
    lines.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    this.plot = new Plot(this.figure, lines, looksFor(lines.map((line) => line.name), this.known), plotText(table, view), log);
  }

  drawDifferences() {
    const [{ letter: reference, table: first }, ...others] = this.sides();
    const rows = others.flatMap((side) => differences(first, side.table, this.quantiles).map((row) => [side.letter, ...row]));
    const names = ["run", "line", first.heading(first.view.x), reference, "run's value", `minus ${reference}`, "low", "high", "n", "verdict"];
    this.result.append(make("h3", {}, `Differences from run ${reference}`));
    if (!rows.length) {
      this.result.append(make("p", { class: "note" }, "The runs share no line at the same place, so nothing is paired."));
      return;
    }
    this.result.append(make("p", { class: "note" }, "Paired by seed where both runs have the same seeds; the 95 % interval is Student's t over those pairs and needs two of them. A difference whose interval holds 0 is written ~. Whatever else differs between the settings of the runs, such as the texts read, is in the difference too."));
    const raw = { name: "differences", title: "differences", rows: rows.length, bounds: {}, view: null, columns: names.map((name, at) => column(name, rows.map((row) => row[at]))) };
    const grid = make("div");
    this.result.append(grid);
    new TableView(grid, new Table(raw));
  }
}

function letter(at) { return at < 26 ? String.fromCharCode(65 + at) : `run ${at + 1}`; }

function column(name, values) {
  const numeric = values.every((value) => value === null || typeof value === "number");
  if (numeric) return { name, title: name, unit: null, kind: "measure", values };
  const words = [...new Set(values.filter((value) => value !== null).map(String))];
  return { name, title: name, unit: null, kind: "key", words, codes: values.map((value) => (value === null ? -1 : words.indexOf(String(value)))) };
}

// The sides whose tables have all columns of a view, and the others.
function splitByView(sides, view) {
  return [sides.filter((side) => fits(side.table, view)), sides.filter((side) => !fits(side.table, view))];
}

// The lines of a run, each with the letter of the run behind its name.
function nameLines(side, view) {
  return linesOf(side.table, view).map((line) => ({ ...line, name: `${line.name} (${side.letter})` }));
}

function fits(table, view) {
  return [view.x, ...view.y, ...view.series, ...Object.keys(view.where)].every((name) => table.columns.has(name));
}

// For every line and place that both tables have: the values, the difference, its interval, n.
function differences(first, second, quantiles) {
  const view = first.view;
  if (!fits(second, view)) return [];
  const others = new Map(linesOf(second, view).map((line) => [line.name, line]));
  return linesOf(first, view).flatMap((line) => {
    const other = others.get(line.name);
    if (!other || line.scattered || other.scattered) return [];
    return line.points.flatMap((a) => {
      const b = other.points.find((point) => point.x === a.x);
      return b ? [[line.name, a.x, ...paired(first, second, view, a, b, quantiles)]] : [];
    });
  });
}

function paired(first, second, view, a, b, quantiles) {
  const [repeat] = first.named("repeat");
  if (view.y.length > 1 || !repeat || !second.columns.has(repeat)) return [a.y, b.y, b.y - a.y, null, null, null, "not paired"];
  const bySeed = (table, rows) => new Map(rows.map((row) => [table.values(repeat)[row], table.values(view.y[0])[row]]));
  const [left, right] = [bySeed(first, a.rows), bySeed(second, b.rows)];
  const gaps = [...left.keys()].filter((seed) => right.has(seed)).map((seed) => right.get(seed) - left.get(seed));
  if (!gaps.length) return [a.y, b.y, b.y - a.y, null, null, null, "not paired"];
  const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length;
  if (gaps.length < 2) return [a.y, b.y, mean, null, null, gaps.length, gaps[0] === 0 ? "equal" : "one seed: no interval"];
  const spread = Math.sqrt(gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / (gaps.length - 1));
  const half = (quantiles[Math.min(gaps.length - 1, quantiles.length) - 1] * spread) / Math.sqrt(gaps.length);
  const verdict = gaps.every((gap) => gap === 0) ? "equal" : mean - half > 0 ? "higher" : mean + half < 0 ? "lower" : "~";
  return [a.y, b.y, mean, mean - half, mean + half, gaps.length, verdict];
}
