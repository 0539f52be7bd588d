// From a table and a view of it to lines: rows chosen, grouped, and averaged over seeds.

class Table {
  constructor(raw) {
    this.name = raw.name;
    this.title = raw.title;
    this.rows = raw.rows;
    this.view = raw.view;
    this.bounds = raw.bounds;
    this.columns = new Map(raw.columns.map((column) => [column.name, column]));
    this.read = new Map();
  }

  values(name) {
    if (!this.read.has(name)) {
      const { values, codes, words } = this.columns.get(name);
      this.read.set(name, codes ? codes.map((code) => (code < 0 ? null : words[code])) : values.map(numberOf));
    }
    return this.read.get(name);
  }

  numeric(name) { return !this.columns.get(name).codes; }

  unit(name) { return this.columns.get(name).unit; }

  heading(name) { return this.columns.get(name).title; }

  named(...kinds) { return [...this.columns.values()].filter((c) => kinds.includes(c.kind)).map((c) => c.name); }

  distinct(name) { return [...new Set(this.values(name))].filter((value) => value !== null); }

  chosen(where) {
    const wanted = Object.entries(where).map(([name, value]) => [this.values(name), value]);
    const rows = [];
    for (let row = 0; row < this.rows; row += 1) {
      if (wanted.every(([values, value]) => String(values[row]) === value)) rows.push(row);
    }
    return rows;
  }
}

function numberOf(value) {
  if (value === "inf") return Infinity;
  return value === "-inf" ? -Infinity : value;
}

// Lines of {name, points}; a point is {x, y, low, high, rows, said}. Rows that differ only in their
// seed become one point, the mean, with the range of the seeds; rows that differ in anything else
// stay points of their own, and the line is not drawn through them.
function linesOf(table, view) {
  const rows = table.chosen(view.where);
  const repeats = table.named("repeat");
  const lines = new Map();
  for (const up of view.y) {
    const ys = table.values(up);
    const xs = table.values(view.x);
    for (const row of rows) {
      if (ys[row] === null || xs[row] === null || !Number.isFinite(ys[row])) continue;
      const parts = view.series.map((name) => `${view.series.length > 1 || table.numeric(name) ? `${table.heading(name)} ` : ""}${written(table.values(name)[row])}`);
      if (view.y.length > 1) parts.push(table.heading(up));
      const name = parts.join(", ") || table.heading(up);
      if (!lines.has(name)) lines.set(name, { name, up, groups: new Map() });
      const { groups } = lines.get(name);
      if (!groups.has(xs[row])) groups.set(xs[row], []);
      groups.get(xs[row]).push(row);
    }
  }
  return [...lines.values()].map((line) => finished(table, line, repeats));
}

function finished(table, line, repeats) {
  const ys = table.values(line.up);
  const points = [];
  let scattered = false;
  for (const [x, rows] of line.groups) {
    const seeds = repeats.length ? new Set(rows.map((row) => repeats.map((name) => table.values(name)[row]).join())) : null;
    if (rows.length === 1) points.push(single(table, line.up, x, rows[0]));
    else if (seeds && seeds.size === rows.length) points.push(averaged(ys, x, rows));
    else {
      scattered = true;
      points.push(...rows.map((row) => single(table, line.up, x, row)));
    }
  }
  if (points.length && points.every((point) => typeof point.x === "number")) points.sort((a, b) => a.x - b.x);
  return { name: line.name, points: points.map((point) => ({ ...point, counts: countsOf(table, point.rows) })), scattered };
}

function single(table, up, x, row) {
  const bounds = table.bounds[up];
  const [low, high] = bounds ? bounds.map((name) => table.values(name)[row]) : [null, null];
  const interval = low !== null && high !== null ? `95 % interval ${written(low)} to ${written(high)}` : "";
  return { x, y: table.values(up)[row], low, high, rows: [row], said: interval };
}

function averaged(ys, x, rows) {
  const values = rows.map((row) => ys[row]);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  return { x, y: mean, low, high, rows, said: `mean of ${rows.length} seeds, from ${written(low)} to ${written(high)}` };
}

function countsOf(table, rows) {
  return table.named("count").filter((name) => table.numeric(name)).map((name) => {
    const counts = [...new Set(rows.map((row) => table.values(name)[row]))].filter((count) => count !== null);
    return counts.length === 1 ? `${table.heading(name)} ${written(counts[0])}` : "";
  }).filter(Boolean).join(", ");
}

// The same name looks the same in every plot; a look that is taken gives way to the next free one.
const MARKS = ["o", "s", "^", "D", "v", "P", "X", "*"];
const DASHES = ["-", "--", "-.", ":"];

function looksFor(names, known) {
  const taken = new Set();
  let unknown = 0;
  return names.map((name) => {
    const plain = name.split(/[ (,]/)[0];
    const own = Object.hasOwn(known, plain); // every object has a `constructor`
    let [color, mark, dash] = own ? known[plain] : [unknown % 8, MARKS[unknown % 8], DASHES[Math.floor(unknown / 8) % 4]];
    if (!own) unknown += 1;
    for (let step = 1; taken.has(`${color}${mark}${dash}`) && step < 256; step += 1) {
      mark = MARKS[(MARKS.indexOf(mark) + 1) % MARKS.length];
      dash = DASHES[(DASHES.indexOf(dash) + 1) % DASHES.length];
      if (step % 8 === 0) color = (color + 1) % 8;
    }
    taken.add(`${color}${mark}${dash}`);
    return { color, mark, dash };
  });
}
