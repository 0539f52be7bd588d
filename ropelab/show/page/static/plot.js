// One plot, drawn as SVG: axes, lines with markers and dashes, intervals, a legend that switches
// lines on and off, and a point that can be reached by pointer and by keyboard.

const DASH_LENGTHS = { "-": "none", "--": "7 4", "-.": "8 3 2 3", ":": "2 3" };
const SHOWN_AT_FIRST = 10;

function markPath(mark, x, y, r) {
  const at = (points) => `M${points.map(([a, b]) => `${(x + a * r).toFixed(2)},${(y + b * r).toFixed(2)}`).join("L")}Z`;
  const star = () => at([...Array(10).keys()].map((i) => {
    const size = i % 2 ? 0.55 : 1.35;
    return [size * Math.sin((i * Math.PI) / 5), -size * Math.cos((i * Math.PI) / 5)];
  }));
  switch (mark) {
    case "s": return at([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]);
    case "^": return at([[0, -1.15], [1.1, 0.85], [-1.1, 0.85]]);
    case "v": return at([[0, 1.15], [1.1, -0.85], [-1.1, -0.85]]);
    case "D": return at([[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]]);
    case "P": return at([[-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4]]);
    case "X": return at([[-1.1, -0.6], [-0.6, -1.1], [0, -0.5], [0.6, -1.1], [1.1, -0.6], [0.5, 0], [1.1, 0.6], [0.6, 1.1], [0, 0.5], [-0.6, 1.1], [-1.1, 0.6], [-0.5, 0]]);
    case "*": return star();
    default: return `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`;
  }
}

// An axis: from values to pixels, with ticks. `kind` is words, log or linear.
function makeAxis(values, unit, log, from, to, room, last = false) {
  if (values.some((value) => typeof value === "string")) return wordAxis(values, from, to);
  const usable = log ? values.filter((value) => value > 0) : values;
  let low = Math.min(...usable);
  let high = Math.max(...usable);
  if (!usable.length) [low, high] = log ? [1, 10] : [0, 1];
  return log ? logAxis(low, high, unit, from, to, room, last) : linearAxis(low, high, unit, from, to, room);
}

function wordAxis(values, from, to) {
  const words = [...new Set(values.map(String))];
  const step = (to - from) / words.length;
  return {
    place: (value) => from + step * (words.indexOf(String(value)) + 0.5),
    ticks: words.map((word) => ({ value: word, text: word })),
    words: true,
  };
}

function logAxis(low, high, unit, from, to, room, last) {
  const radix = unit === "tokens" ? 2 : 10;
  const slack = high > low ? 1 : radix;
  const [a, b] = [Math.log(low / slack) / Math.log(radix), Math.log(high * slack) / Math.log(radix)];
  const margin = 0.03 * (b - a);
  const place = (value) => from + ((Math.log(value) / Math.log(radix) - a + margin) / (b - a + 2 * margin)) * (to - from);
  const top = Math.floor(b + 1e-9);
  const first = Math.ceil(a - 1e-9);
  const step = Math.max(1, Math.ceil((top - first + 1) / room));
  const ticks = [];
  for (let power = top; power >= first; power -= step) {
    const value = radix ** power;
    ticks.push({ value, text: unit === "tokens" ? tokens(value) : power >= -3 && power <= 4 ? written(value) : `1e${power}` });
  }
  if (last && unit === "tokens") ticks.push({ value: high, text: tokens(high) });
  if (ticks.length < 2) for (const value of [low, high]) ticks.push({ value, text: unit === "tokens" ? tokens(value) : written(value) });
  return { place, ticks, log: true };
}

function linearAxis(low, high, unit, from, to, room) {
  const span = high - low || Math.abs(high) || 1;
  const [a, b] = [low - 0.04 * span, high + 0.04 * span];
  const place = (value) => from + ((value - a) / (b - a)) * (to - from);
  const rough = span / Math.max(2, room - 1);
  const ten = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * ten).find((size) => size >= rough);
  const ticks = [];
  for (let at = Math.ceil(a / step); at * step <= b; at += 1) {
    const value = Number((at * step).toPrecision(12));
    ticks.push({ value, text: unit === "tokens" && value > 0 ? tokens(value) : written(value) });
  }
  return { place, ticks };
}

// A log axis is the first choice for lengths, and for what spans more than two orders of magnitude;
// not for shares.
function prefersLog(values, unit, name = "") {
  const numbers = values.filter((value) => typeof value === "number" && Number.isFinite(value));
  const positive = numbers.filter((value) => value > 0);
  if (positive.length < 2 || numbers.some((value) => value < 0)) return false;
  if (/accuracy|fraction|share|^value$/.test(name) && numbers.every((value) => value <= 1)) return false;
  const ratio = Math.max(...positive) / Math.min(...positive);
  return ratio >= (unit === "tokens" ? 8 : 100);
}

let plotsMade = 0;

// Where a close-up ends: far above the upper quartile lie values that would flatten all others.
function ceilingOf(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share) => sorted[Math.floor(share * (sorted.length - 1))];
  const limit = at(0.75) + 1.5 * (at(0.75) - at(0.05));
  return Math.max(...sorted.filter((value) => value <= limit));
}

function needsCloseUp(values) {
  const ceiling = ceilingOf(values);
  const lowest = Math.min(...values);
  return Number.isFinite(ceiling) && Math.max(...values) - lowest > 2.5 * (ceiling - lowest);
}

class Plot {
  // lines: as linesOf makes them; looks: one per line; text: {title, x, y, xUnit, yUnit, mark}.
  constructor(holder, lines, looks, text, log) {
    Object.assign(this, { holder, lines, looks, text, log });
    this.hidden = new Set(lines.map((_, at) => at).filter((at) => at >= SHOWN_AT_FIRST));
    this.at = null;
    plotsMade += 1;
    this.clip = `clip-${plotsMade}`;
    this.canvas = make("div", { class: "canvas" });
    this.tip = make("div", { class: "tip", role: "status", hidden: true });
    this.legend = make("div", { class: "legend", role: "group", "aria-label": "Lines; press to hide or show" });
    this.notes = make("p", { class: "note" });
    holder.replaceChildren(this.canvas, this.legend, this.notes);
    this.drawLegend();
    this.draw();
    this.watcher = new ResizeObserver(() => { if (this.canvas.clientWidth !== this.width) this.draw(); });
    this.watcher.observe(this.canvas);
  }

  close() { this.watcher.disconnect(); }

  shown() { return this.lines.map((line, at) => ({ line, look: this.looks[at], at })).filter(({ at }) => !this.hidden.has(at)); }

  drawLegend() {
    const buttons = this.lines.map((line, at) => {
      const look = this.looks[at];
      const sample = draw("svg", { width: 34, height: 14, class: `c${look.color}`, "aria-hidden": "true" });
      if (!line.scattered && line.points.every((point) => typeof point.x === "number")) sample.append(draw("path", { d: "M1,7H33", class: "line", "stroke-dasharray": DASH_LENGTHS[look.dash] }));
      sample.append(draw("path", { d: markPath(look.mark, 17, 7, 4.5), class: "mark" }));
      return make("button", { type: "button", "aria-pressed": String(!this.hidden.has(at)), onclick: (event) => this.toggle(at, event.currentTarget) }, sample, line.name);
    });
    this.legend.replaceChildren(...buttons);
    if (this.lines.length > SHOWN_AT_FIRST) {
      const all = (text, hide) => make("button", { type: "button", class: "quiet", onclick: () => this.toggleAll(hide) }, text);
      this.legend.append(all("Show all", false), all("Hide all", true));
    }
  }

  toggle(at, button) {
    if (this.hidden.has(at)) this.hidden.delete(at); else this.hidden.add(at);
    button.setAttribute("aria-pressed", String(!this.hidden.has(at)));
    this.draw();
  }

  toggleAll(hide) {
    this.hidden = new Set(hide ? this.lines.map((_, at) => at) : []);
    this.drawLegend();
    this.draw();
  }

  draw() {
    this.width = Math.max(260, this.canvas.clientWidth || 640);
    const drawn = this.shown();
    const points = drawn.flatMap(({ line }) => line.points);
    const xs = points.map((point) => point.x);
    const words = xs.some((x) => typeof x === "string");
    const narrow = this.width < 480;
    this.height = Math.round(Math.min(430, Math.max(270, this.width * 0.52))) + (words ? 70 : 0);
    this.box = { left: narrow ? 50 : 62, right: this.width - 14, top: 26, bottom: this.height - (words ? 118 : 46) };
    const { left, right, top, bottom } = this.box;
    const ys = points.flatMap(({ y, low, high }) => [y, low, high]).filter((y) => typeof y === "number" && Number.isFinite(y));
    if (points.length && ys.every((y) => y >= 0 && y <= 1) && Math.max(...ys) > 0.5 && !this.log.y) ys.push(0, 1);
    this.ceiling = this.log.close ? ceilingOf(ys) : Infinity;
    this.xAxis = makeAxis(xs, this.text.xUnit, this.log.x, left, right, narrow ? 5 : 9, true);
    this.yAxis = makeAxis(ys.filter((y) => y <= this.ceiling), this.text.yUnit, this.log.y, bottom, top, 6);
    this.svg = draw("svg", { width: this.width, height: this.height, viewBox: `0 0 ${this.width} ${this.height}`, role: "img", tabindex: "0", "aria-label": `${this.text.title}. ${this.lines.length} lines; the arrow keys go from point to point, and the numbers are in the table below.` });
    this.drawAxes();
    Object.assign(this, { places: [], outside: [], unplaced: 0 });
    this.lineClip();
    for (const item of drawn) this.drawLine(item);
    this.focus = draw("path", { class: "focus", d: "" });
    this.svg.append(this.focus);
    this.canvas.replaceChildren(this.svg, this.tip);
    this.tip.hidden = true;
    this.listen();
    this.sayNotes(drawn);
  }

  drawAxes() {
    const { left, right, top, bottom } = this.box;
    const axes = draw("g", { class: "axes" });
    const used = [];
    for (const { value, text } of this.yAxis.ticks) {
      const y = this.yAxis.place(value);
      if (y < top - 1 || y > bottom + 1 || used.some((other) => Math.abs(other - y) < 15)) continue;
      used.push(y);
      axes.append(draw("path", { d: `M${left},${y}H${right}`, class: "grid" }), draw("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, text));
    }
    let free = -Infinity;
    const ticks = this.xAxis.words ? this.xAxis.ticks : [...this.xAxis.ticks].sort((a, b) => a.value - b.value);
    for (const { value, text } of ticks) {
      const x = this.xAxis.place(value);
      if (x < left - 1 || x > right + 1) continue;
      axes.append(draw("path", { d: `M${x},${bottom}v4`, class: "grid" }));
      if (this.xAxis.words) axes.append(this.slanted(text, x, bottom, free));
      else if (x - 3.6 * text.length > free) axes.append(draw("text", { x: Math.min(x, right - 3 * text.length), y: bottom + 18, "text-anchor": "middle" }, text));
      else continue;
      free = this.xAxis.words ? free : x + 3.6 * text.length;
    }
    axes.append(draw("path", { d: `M${left},${top}V${bottom}H${right}`, class: "frame" }));
    axes.append(draw("text", { x: (left + right) / 2, y: this.height - 6, "text-anchor": "middle", class: "name" }, this.text.x));
    axes.append(draw("text", { x: 4, y: 14, class: "name" }, this.text.y));
    this.svg.append(axes);
    this.drawMark();
  }

  slanted(text, x, bottom) {
    const short = text.length > 18 ? `${text.slice(0, 17)}…` : text;
    const label = draw("text", { x, y: bottom + 14, "text-anchor": "end", transform: `rotate(-40 ${x} ${bottom + 14})` }, short);
    label.append(draw("title", {}, text));
    return label;
  }

  drawMark() {
    const mark = this.text.mark;
    const { left, right, top, bottom } = this.box;
    if (mark && !this.xAxis.words) {
      const x = this.xAxis.place(mark.value);
      if (x >= left && x <= right) {
        const late = x > (left + right) / 2;
        this.svg.append(draw("path", { d: `M${x},${top}V${bottom}`, class: "setting" }));
        this.svg.append(draw("text", { x: x + (late ? -5 : 5), y: top + 11, "text-anchor": late ? "end" : "start", class: "setting-name" }, mark.name));
      }
    }
    const zero = this.yAxis.words || this.yAxis.log ? NaN : this.yAxis.place(0);
    if (zero > top && zero < bottom) this.svg.append(draw("path", { d: `M${left},${zero}H${right}`, class: "zero" }));
  }

  drawLine({ line, look, at }) {
    const group = draw("g", { class: `series c${look.color}`, "data-line": at, "clip-path": `url(#${this.clip})` });
    const usable = line.points.filter((point) => (!this.log.y || point.y > 0) && (!this.log.x || this.xAxis.words || point.x > 0));
    this.unplaced += line.points.length - usable.length;
    const placed = usable.map((point) => ({ point, line, at, x: this.xAxis.place(point.x), y: this.yAxis.place(point.y) }));
    for (const { point, x } of placed) {
      if (typeof point.low !== "number" || typeof point.high !== "number" || point.low === point.high) continue;
      const bound = (value) => (this.log.y && value <= 0 ? this.box.bottom : this.yAxis.place(value));
      const [a, b] = [bound(point.low), bound(point.high)];
      group.append(draw("path", { d: `M${x},${a}V${b}M${x - 3},${a}h6M${x - 3},${b}h6`, class: "interval" }));
    }
    if (!line.scattered && !this.xAxis.words) {
      const path = placed.map(({ x, y }, step) => `${step ? "L" : "M"}${x.toFixed(2)},${y.toFixed(2)}`).join("");
      group.append(draw("path", { d: path, class: "line", "stroke-dasharray": DASH_LENGTHS[look.dash] }));
    }
    const size = placed.length > 80 ? 1.8 : 4;
    const inside = placed.filter(({ point }) => point.y <= this.ceiling);
    for (const { x, y } of inside) group.append(draw("path", { d: markPath(look.mark, x, y, size), class: "mark" }));
    this.places.push(...inside);
    if (placed.length > inside.length) this.outside.push(`${line.name} (${written(Math.max(...line.points.map((point) => point.y)))})`);
    this.svg.append(group);
  }

  lineClip() {
    const { left, right, top, bottom } = this.box;
    const path = draw("clipPath", { id: this.clip });
    path.append(draw("rect", { x: left - 8, y: top - 8, width: right - left + 16, height: bottom - top + 16 }));
    this.svg.append(path);
  }

  listen() {
    this.svg.addEventListener("pointermove", (event) => {
      const frame = this.svg.getBoundingClientRect();
      this.show(this.nearest(event.clientX - frame.left, event.clientY - frame.top));
    });
    this.svg.addEventListener("pointerleave", () => this.show(null));
    this.svg.addEventListener("blur", () => this.show(null));
    this.svg.addEventListener("keydown", (event) => this.move(event));
  }

  nearest(x, y) {
    let best = null;
    let least = 60 ** 2;
    for (const place of this.places) {
      const distance = (place.x - x) ** 2 + (place.y - y) ** 2;
      if (distance < least) [best, least] = [place, distance];
    }
    return best;
  }

  move(event) {
    const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (event.key === "Escape") { this.show(null); return; }
    if (!steps[event.key] || !this.places.length) return;
    event.preventDefault();
    const lines = [...new Set(this.places.map((place) => place.at))];
    const [along, across] = steps[event.key];
    const now = this.at ?? this.places[0];
    const line = lines[Math.min(lines.length - 1, Math.max(0, lines.indexOf(now.at) + across))];
    const own = this.places.filter((place) => place.at === line);
    const here = line === now.at ? own.indexOf(now) : own.findIndex((place) => place.x >= now.x);
    const step = this.at ? along : 0;
    this.show(own[Math.min(own.length - 1, Math.max(0, (here < 0 ? own.length - 1 : here) + step))]);
  }

  show(place) {
    this.at = place;
    this.tip.hidden = !place;
    this.svg.classList.toggle("pointed", Boolean(place));
    for (const group of this.svg.querySelectorAll(".series")) group.classList.toggle("near", Boolean(place) && Number(group.dataset.line) === place.at);
    this.focus.setAttribute("d", place ? markPath("o", place.x, place.y, 7) : "");
    if (!place) return;
    const { point, line } = place;
    const x = this.text.xUnit === "tokens" && typeof point.x === "number" ? tokens(point.x) : written(point.x);
    const lines = [`${this.text.x}: ${x}`, `${this.text.y}: ${written(point.y)}`, point.said, point.counts].filter(Boolean);
    this.tip.replaceChildren(make("b", {}, line.name), ...lines.map((text) => make("div", {}, text)));
    const width = this.tip.offsetWidth;
    const left = place.x + 14 + width > this.width ? place.x - 14 - width : place.x + 14;
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${Math.max(0, place.y - this.tip.offsetHeight - 8)}px`;
  }

  sayNotes(drawn) {
    const notes = [];
    if (this.outside.length) notes.push(`Beyond the close-up: ${this.outside.join(", ")}.`);
    if (this.unplaced) notes.push(`Not on a logarithmic axis: ${this.unplaced} of 0 or less.`);
    if (drawn.some(({ line }) => line.scattered)) notes.push("Points that differ in more than is chosen here are not joined by lines.");
    if (this.hidden.size) notes.push(`${drawn.length} of ${this.lines.length} lines are shown.`);
    if (!this.places.length) notes.push("Nothing to draw with this choice.");
    this.notes.textContent = notes.join(" ");
  }
}
