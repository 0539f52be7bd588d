// The page of sliders: what is set, how it is set, and five pictures of it drawn again at once.

const known = readData("known");
for (const format of known.formats) format.overflow = Number(format.overflow);
// Only what has a formula in rotary.js is offered.
const methods = Object.keys(known.methods).filter((name) => Object.hasOwn(METHODS, name));
const models = Object.entries(known.models).filter(([, model]) => methods.includes(model.method)).map(([name]) => name);
const LIMITS = { base: [100, 1e9], head_dim: [4, 1024], rotary_dim: [4, 1024], trained: [128, 1048576], target: [128, 16777216] };
const SCALE_POINTS = 240;
const state = { base: 10000, head_dim: 128, rotary_dim: 128, trained: 4096, target: 16384, method: methods.includes("yarn") ? "yarn" : methods[0], format: "bfloat16", parameters: {}, draw: 1 };
const plots = {};

// A slider on a logarithmic scale with a field for the exact number.
function slider(key, label, step, radix) {
  const [low, high] = LIMITS[key];
  const toSlide = (value) => Math.log(value) / Math.log(radix);
  const range = make("input", { type: "range", id: `slide-${key}`, min: toSlide(low), max: toSlide(high), step, "aria-label": label });
  const exact = make("input", { type: "number", id: `set-${key}`, min: low, max: high, step: "any", "aria-label": `${label}, exact` });
  const show = () => { exact.value = state[key]; range.value = toSlide(state[key]); };
  range.addEventListener("input", () => { state[key] = tidy(radix ** Number(range.value), key); exact.value = state[key]; recompute(); });
  exact.addEventListener("change", () => {
    const value = Number(exact.value);
    if (value >= low && value <= high) state[key] = tidy(value, key);
    show();
    recompute();
  });
  return { row: make("div", { class: "setting-row" }, make("span", {}, label), range, exact), show };
}

function tidy(value, key) {
  return key === "base" ? Number(value.toPrecision(4)) : Math.round(value);
}

function widthField(key, label) {
  const field = make("input", { type: "number", id: `set-${key}`, min: 2, max: 1024, step: 2, "aria-label": label });
  field.addEventListener("change", () => {
    const value = 2 * Math.round(Number(field.value) / 2);
    if (value >= 4 && value <= 1024) state[key] = value;
    if (key === "head_dim") state.rotary_dim = state.head_dim;
    state.rotary_dim = Math.min(state.rotary_dim, state.head_dim);
    showAll();
    recompute();
  });
  return { row: make("div", { class: "setting-row" }, make("span", {}, label), field), show: () => { field.value = state[key]; } };
}

function picker(key, label, options, change) {
  const select = make("select", { id: `set-${key}`, "aria-label": label, onchange: () => { state[key] = select.value; change(); } }, ...options.map((name) => make("option", { value: name }, name || "own settings")));
  return { row: make("div", { class: "setting-row" }, make("span", {}, label), select), show: () => { select.value = state[key]; } };
}

const settings = [
  picker("model", "model", ["", ...models], takeModel),
  slider("base", "base (rope_theta)", 0.01, 10),
  widthField("head_dim", "head_dim"),
  widthField("rotary_dim", "rotary_dim"),
  slider("trained", "trained length (tokens)", 0.25, 2),
  slider("target", "target length (tokens)", 0.25, 2),
  picker("format", "number format", known.formats.map((format) => format.name), () => recompute()),
  picker("method", "scaling method", methods, () => { resetParameters(); recompute(); }),
];

function resetParameters() {
  state.parameters = { ...known.methods[state.method].parameters };
  if ("factor" in state.parameters) state.parameters.factor = Math.max(1, state.target / state.trained);
  drawParameters();
}

function drawParameters() {
  const holder = document.getElementById("parameters");
  holder.replaceChildren(...Object.entries(state.parameters).map(([name, value]) => {
    if (typeof value === "boolean") return tick(name, value, (on) => { state.parameters[name] = on; recompute(); });
    const field = make("input", { type: "number", step: "any", id: `parameter-${name}`, "aria-label": name, placeholder: "computed", value: value ?? "" });
    field.addEventListener("change", () => {
      state.parameters[name] = field.value === "" ? known.methods[state.method].parameters[name] : Number(field.value);
      recompute();
    });
    return make("label", {}, `${name} `, field);
  }));
  document.getElementById("method-source").textContent = known.methods[state.method].source;
}

function showAll() {
  for (const setting of settings) setting.show();
  drawParameters();
}

// Whole distances, evenly spaced on a logarithmic scale.
function distances(length) {
  const all = Array.from({ length: SCALE_POINTS }, (_, i) => Math.round(length ** (i / (SCALE_POINTS - 1))));
  return [...new Set(all)];
}

const points = (xs, f) => xs.map((x) => ({ x, y: f(x), low: null, high: null, said: "", counts: "" }));
const lineOf = (name, xs, f) => ({ name, points: points(xs, f), scattered: false });

function redraw(name, lines, text, log) {
  const holder = document.getElementById(`plot-${name}`);
  const hidden = plots[name]?.lines.length === lines.length ? plots[name].hidden : null;
  plots[name]?.close();
  plots[name] = new Plot(holder, lines, looksFor(lines.map((line) => line.name), known.looks), text, log);
  if (hidden) { plots[name].hidden = hidden; plots[name].drawLegend(); plots[name].draw(); }
}

function problem() {
  const parameters = state.parameters;
  // Some released models have equal ends, a step; NTK-by-parts needs a ramp.
  const order = [["beta_slow", "beta_fast", true], ["alpha", "beta", false], ["low_freq_factor", "high_freq_factor", true]];
  for (const [low, high, step] of order) {
    const apart = parameters[low] < parameters[high] || (step && parameters[low] === parameters[high]);
    if (low in parameters && !(parameters[low] > 0 && apart)) return `${state.method} needs 0 < ${low} < ${high}.`;
  }
  if ("factor" in parameters && !(parameters.factor >= 1)) return "factor must be at least 1.";
  if ("base" in parameters && !(parameters.base > 1)) return "base must be above 1.";
  if ("p" in parameters && !(parameters.p >= 0 && parameters.p <= 1)) return "p must be between 0 and 1.";
  if ("n" in parameters && !(Number.isInteger(parameters.n) && parameters.n >= 0)) return "n must be a whole number of pairs.";
  if (parameters.attention_factor !== undefined && parameters.attention_factor !== null && !(parameters.attention_factor > 0)) return "attention_factor must be positive.";
  return "";
}

// Settings of a known model stay its own until one is changed.
function matches(name) {
  return Boolean(name) && Object.entries(known.models[name]).every(([key, value]) => JSON.stringify(state[key]) === JSON.stringify(value));
}

function takeModel() {
  if (state.model) Object.assign(state, structuredClone(known.models[state.model]));
  showAll();
  recompute();
}

// The address keeps what is set; a parameter of the method has a dot before its name.
function writeAddress() {
  const { parameters, model, draw: _, ...set } = state;
  const all = [...Object.entries(set), ...Object.entries(parameters).filter(([, value]) => value !== null).map(([name, value]) => [`.${name}`, value])];
  history.replaceState(null, "", `#${new URLSearchParams(all)}`);
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [key, [low, high]] of Object.entries(LIMITS)) {
    const value = Number(given.get(key) ?? NaN);
    if (value >= low && value <= high) state[key] = key.endsWith("_dim") ? 2 * Math.round(value / 2) : tidy(value, key);
  }
  state.rotary_dim = Math.min(state.rotary_dim, state.head_dim);
  if (methods.includes(given.get("method"))) state.method = given.get("method");
  if (known.formats.some((format) => format.name === given.get("format"))) state.format = given.get("format");
  resetParameters();
  for (const [name, value] of Object.entries(state.parameters)) {
    const text = given.get(`.${name}`);
    if (typeof value === "boolean" && text) state.parameters[name] = text === "true";
    else if (text && Number.isFinite(Number(text))) state.parameters[name] = Number(text);
  }
  showAll();
  recompute();
}

let pending = 0;

function recompute() {
  state.model = matches(state.model) ? state.model : models.find(matches) ?? "";
  document.getElementById("set-model").value = state.model;
  document.getElementById("in-short").textContent = `${state.model || state.method}: base ${written(state.base)}, ${tokens(state.trained)} to ${tokens(state.target)} tokens`;
  const said = document.getElementById("said");
  const wrong = problem();
  said.classList.toggle("wrong", Boolean(wrong));
  clearTimeout(pending); // a browser takes only so many addresses a second
  pending = setTimeout(writeAddress, 200);
  if (wrong) { said.textContent = wrong; return; }
  const geometry = { rotaryDim: state.rotary_dim, base: state.base, trained: state.trained };
  const before = frequencies(state.rotary_dim, state.base);
  const plan = planOf(geometry, state.method, state.parameters, state.target);
  sayPlan(said, before, plan);
  drawWavelengths(before, plan.theta);
  drawPhases(plan.theta);
  drawSums(before, plan.theta);
  drawScores(plan.theta);
  drawErrors(plan.theta);
}

function sayPlan(said, before, plan) {
  const unfinished = rotationsOf(before, state.trained).filter((r) => r < 1).length;
  const unrotated = (state.head_dim - state.rotary_dim) / 2;
  const negative = distances(state.target).find((m) => sumOfCosines(plan.theta, unrotated, m) < 0);
  said.textContent = [
    `${unfinished} of ${before.length} pairs make less than one rotation in the trained length.`,
    plan.attention === 1 ? "" : `cos and sin are multiplied by ${written(plan.attention)}, every logit by ${written(plan.attention ** 2)}.`,
    negative === undefined ? "The sum of cosines stays positive at every distance drawn." : `The sum of cosines is first seen below 0 at distance ${written(negative)}.`,
  ].filter(Boolean).join(" ");
}

function drawWavelengths(before, after) {
  const pairs = before.map((_, i) => i);
  const [old, scaled] = [wavelengthsOf(before), wavelengthsOf(after)];
  const ends = [0, before.length - 1];
  const lines = [
    lineOf("unscaled", pairs, (i) => old[i]),
    lineOf(state.method === "unscaled" ? "in use" : state.method, pairs, (i) => scaled[i]),
    lineOf("trained length", ends, () => state.trained),
    lineOf("target length", ends, () => state.target),
  ];
  for (const line of lines) line.points = line.points.filter((point) => Number.isFinite(point.y)).map((point) => ({ ...point, said: `${written(state.target / point.y)} rotations in the target length` }));
  redraw("wavelengths", lines, { title: "Wavelength by pair", x: "pair", y: "wavelength (tokens)", xUnit: null, yUnit: "tokens", mark: null }, { x: false, y: true });
}

function drawSums(before, after) {
  const unrotated = (state.head_dim - state.rotary_dim) / 2;
  const pairs = state.head_dim / 2;
  const xs = distances(state.target);
  const lines = [
    lineOf("unscaled", xs, (m) => sumOfCosines(before, unrotated, m) / pairs),
    lineOf(state.method === "unscaled" ? "in use" : state.method, xs, (m) => sumOfCosines(after, unrotated, m) / pairs),
  ];
  redraw("sums", lines, distanceText("sum of cosines / pairs"), { x: true, y: false });
}

function distanceText(y) {
  return { title: `${y} by distance`, x: "distance (tokens)", y, xUnit: "tokens", yUnit: null, mark: { value: state.trained, name: "trained length" } };
}

// One random query against itself, m tokens away: pairs weigh by their squared length, |q_i|^2.
function drawScores(theta) {
  const xs = distances(state.target);
  const weights = randomWeights(theta.length, state.draw);
  const total = weights.reduce((a, b) => a + b, 0);
  const start = decayBound(theta, 0);
  const lines = [
    lineOf("mean over random q = k", xs, (m) => sumOfCosines(theta, 0, m) / theta.length),
    lineOf(`one random q = k (draw ${state.draw})`, xs, (m) => theta.reduce((sum, one, i) => sum + weights[i] * Math.cos(m * one), 0) / total),
    lineOf("bound of the RoFormer paper", xs, (m) => decayBound(theta, m) / start),
  ];
  redraw("scores", lines, distanceText("q·k relative to distance 0"), { x: true, y: false });
}

function randomWeights(count, seed) {
  let stateOf = seed * 2654435761 >>> 0;
  const uniform = () => {
    stateOf = (Math.imul(stateOf, 1664525) + 1013904223) >>> 0;
    return (stateOf + 1) / 4294967297;
  };
  return Array.from({ length: count }, () => -Math.log(uniform()));
}

function drawErrors(theta) {
  const format = known.formats.find((one) => one.name === state.format);
  const xs = distances(state.target);
  const lines = Object.keys(STAGES).map((stage) => lineOf(stage, xs, (m) => worstAngleError(theta, m, stage, format)));
  lines.push(lineOf(`tolerance ${written(known.tolerance)} rad`, [1, state.target], () => known.tolerance));
  redraw("errors", lines, { ...distanceText("largest angle error (rad)"), title: "Largest angle error by position and stage", x: "position (tokens)" }, { x: true, y: true });
}

// The phase of every pair at every position, as its cosine: one colour for 1, another for -1.
function drawPhases(theta) {
  const canvas = document.getElementById("phases");
  const columns = 320;
  canvas.width = columns;
  canvas.height = theta.length;
  const ink = canvas.getContext("2d");
  const picture = ink.createImageData(columns, theta.length);
  const [up, down] = [[0, 114, 178], [213, 94, 0]];
  theta.forEach((one, i) => {
    for (let column = 0; column < columns; column += 1) {
      const cosine = Math.cos(one * positionAt(column, columns));
      const color = cosine >= 0 ? up : down;
      const at = 4 * (i * columns + column);
      for (let part = 0; part < 3; part += 1) picture.data[at + part] = 255 + (color[part] - 255) * Math.abs(cosine);
      picture.data[at + 3] = 255;
    }
  });
  ink.putImageData(picture, 0, 0);
  canvas.setAttribute("aria-label", `Cosine of the phase of ${theta.length} pairs at positions 0 to ${tokens(state.target)}`);
  document.getElementById("phase-end").textContent = `position ${tokens(state.target)}`;
  canvas.dataset.theta = theta.length;
}

const positionAt = (column, columns) => Math.round((column * state.target) / columns);

function tellPhase(event) {
  const canvas = event.currentTarget;
  const frame = canvas.getBoundingClientRect();
  const pair = Math.min(canvas.height - 1, Math.max(0, Math.floor(((event.clientY - frame.top) / frame.height) * canvas.height)));
  const position = positionAt(((event.clientX - frame.left) / frame.width) * canvas.width, canvas.width);
  const geometry = { rotaryDim: state.rotary_dim, base: state.base, trained: state.trained };
  const angle = planOf(geometry, state.method, state.parameters, state.target).theta[pair] * position;
  document.getElementById("phase-said").textContent = `pair ${pair}, position ${position}: angle ${written(angle)} rad, ${written(angle / TWO_PI)} rotations, cosine ${written(Math.cos(angle))}`;
}

// A config.json as models have it: what was read is said, and what could not be.
const ROPE_TYPES = { default: "unscaled", linear: "pi", dynamic: "dynamic_ntk", yarn: "yarn", llama3: "llama3" };

// Keys beside the block from which some classes take what rotates, or the trained length. A file
// with one of them is not read here.
const OTHER_KEYS = ["qk_rope_head_dim", "rotary_dim", "rotary_pct", "rotary_emb_base", "rope_ratio", "rope_local_base_freq", "original_max_position_embeddings"];

function refuse(reason) {
  throw new Error(`${reason}; ropelab audit knows more classes and keys`);
}

// A number that the file states. At null some classes take their default, and others stop, so it
// is refused.
function stated(block, key, least) {
  if (!(key in block)) return undefined;
  const value = block[key];
  if (typeof value !== "number" || !(value >= least) || !Number.isFinite(value)) refuse(`${key} is ${JSON.stringify(value)}`);
  return value;
}

// The one block of a scaling that the file has, or none.
function ropeBlock(config) {
  const given = ["rope_parameters", "rope_scaling"].filter((key) => (config[key] ?? null) !== null);
  if (given.length > 1) refuse("both rope_parameters and rope_scaling");
  const rope = given.length ? config[given[0]] : {};
  if (typeof rope !== "object" || Array.isArray(rope)) refuse("a scaling that is no block");
  for (const [key, value] of Object.entries(rope)) {
    // The pairs of each axis of a position change no frequency.
    if (value !== null && typeof value === "object" && key !== "mrope_section") refuse(`${key} is not read on this page`);
  }
  if ("type" in rope && "rope_type" in rope && rope.type !== rope.rope_type) refuse("type and rope_type differ");
  return rope;
}

// A key that may stand beside the block or in it, but not with two values.
function beside(config, rope, key, least) {
  const [outer, inner] = [stated(config, key, least), stated(rope, key, least)];
  if (outer !== undefined && inner !== undefined && outer !== inner) refuse(`${key} has two values`);
  return inner ?? outer;
}

function headOf(config, rules) {
  const [hidden, heads] = [stated(config, "hidden_size", 1), stated(config, "num_attention_heads", 1)];
  const head = stated(config, "head_dim", 1);
  if (head === undefined && rules.stated.includes("head_dim")) refuse("no head_dim, which this class sets itself");
  const computed = head === undefined && hidden !== undefined && heads !== undefined;
  if (computed && hidden % heads !== 0) refuse("hidden_size is no multiple of num_attention_heads");
  const width = head ?? hidden / heads;
  if (!(width >= 4 && width % 2 === 0)) throw new Error("no head_dim, and no hidden_size with num_attention_heads to compute it from");
  return width;
}

function scalingOf(rope, rules) {
  const type = rope.rope_type ?? rope.type ?? "default";
  if (!Object.hasOwn(ROPE_TYPES, type)) throw new Error(`rope type '${type}' is not computed on this page`);
  const method = ROPE_TYPES[type];
  if (method !== "unscaled" && !rules.scaled) refuse("a scaling, which this class may refuse");
  const parameters = { ...known.methods[method].parameters };
  for (const name of Object.keys(parameters)) {
    if (typeof parameters[name] === "boolean" && name in rope) {
      if (typeof rope[name] !== "boolean") refuse(`${name} is ${JSON.stringify(rope[name])}`);
      parameters[name] = rope[name];
    } else if ((rope[name] ?? null) !== null) parameters[name] = stated(rope, name, 0);
  }
  if ("factor" in parameters && !(rope.factor >= 1)) refuse("a scaling without a factor of at least 1");
  return { method, parameters };
}

function readConfig(text) {
  const whole = JSON.parse(text);
  if (whole === null || typeof whole !== "object" || Array.isArray(whole)) throw new Error("a config.json is an object");
  const config = whole.text_config ?? whole;
  if (config === null || typeof config !== "object" || Array.isArray(config)) throw new Error("text_config is no object");
  const model = config.model_type ?? "llama";
  const outer = config === whole ? [] : ["rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"];
  for (const key of outer) if (key in whole) refuse(`${key} beside text_config`);
  const rules = Object.hasOwn(known.types, model) ? known.types[model] : refuse(`files of type '${model}' are not read on this page`);
  const rope = ropeBlock(config);
  for (const key of OTHER_KEYS) if (key in config) refuse(`${key} is not read on this page`);
  const head = headOf(config, rules);
  const base = beside(config, rope, "rope_theta", 1);
  if (base === undefined && rules.stated.includes("rope_theta")) refuse("no rope_theta, which this class sets itself");
  const share = beside(config, rope, "partial_rotary_factor", 0);
  if (share === undefined && rules.stated.includes("share")) refuse("no partial_rotary_factor, which this class sets itself");
  if (share !== undefined && share !== 1 && !rules.share) refuse("a partial_rotary_factor, which this class may pass over");
  const width = head * (share ?? 1);
  if (!(width >= 2 && width <= head && width % 2 === 0)) refuse(`${width} of ${head} features rotate`);
  const { method, parameters } = scalingOf(rope, rules);
  const longest = stated(config, "max_position_embeddings", 1) ?? refuse("no max_position_embeddings");
  const original = stated(rope, "original_max_position_embeddings", 1);
  const trained = ["yarn", "llama3"].includes(method) ? original ?? longest : longest;
  const stretched = trained * (parameters.factor ?? 1);
  return {
    said: config.model_type ? "" : " The file has no model_type and was read as a Llama's.",
    settings: {
      base: base ?? 10000,
      head_dim: head,
      rotary_dim: width,
      trained,
      target: Math.max(trained, longest, method === "unscaled" ? 0 : stretched),
      method,
      parameters,
    },
  };
}

function takeConfig() {
  const said = document.getElementById("config-said");
  try {
    const { said: note, settings } = readConfig(document.getElementById("config").value);
    Object.assign(state, settings);
    said.textContent = `Read: base ${written(state.base)}, head_dim ${state.head_dim}, rotary_dim ${state.rotary_dim}, trained length ${state.trained}, method ${state.method}.${note}`;
    showAll();
    recompute();
  } catch (error) {
    said.textContent = `Not read: ${error.message}.`;
  }
}

document.getElementById("settings").prepend(...settings.map((setting) => setting.row));
document.getElementById("phases").addEventListener("pointermove", tellPhase);
document.getElementById("draw-again").addEventListener("click", () => { state.draw += 1; recompute(); });
document.getElementById("read-config").addEventListener("click", takeConfig);
document.getElementById("config").addEventListener("paste", () => setTimeout(takeConfig));
document.getElementById("copy-address").addEventListener("click", (event) => { writeAddress(); copyText(location.href, event.currentTarget); });
window.addEventListener("hashchange", () => { if (location.hash.includes("=")) readAddress(); else writeAddress(); });
document.getElementById("panel").open = window.innerWidth >= 1100;
setUpColours();
readAddress();
document.documentElement.classList.remove("starting");
