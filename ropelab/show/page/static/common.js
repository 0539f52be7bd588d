"use strict";
// Small things that every part of the page uses: making elements, writing numbers, copying, colours.

document.documentElement.classList.add("scripted", "starting");

const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

function readData(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

// What the page has as compressed JSON.
async function readPacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

// Four significant digits, whole numbers whole, missing as a dash: as on the terminal.
function written(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e5) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

// A number of tokens as people say it: 2k, 1M.
function tokens(value) {
  for (const [size, letter] of [[1048576, "M"], [1024, "k"]]) {
    if (value >= size && (value * 8) % size === 0) return `${value / size}${letter}`;
  }
  return written(value);
}

async function copyText(text, button) {
  const before = button.textContent;
  let copied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", { class: "offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    copied = document.execCommand("copy");
    area.remove();
  }
  button.textContent = copied ? "Copied" : "Could not copy";
  setTimeout(() => { button.textContent = before; }, 1500);
}

function choice(label, options, value, change) {
  const select = make("select", { "aria-label": label, onchange: () => change(select.value) });
  for (const [key, text] of options) {
    select.append(make("option", { value: key, selected: key === value }, text));
  }
  return make("label", {}, `${label} `, select);
}

function tick(label, value, change) {
  const box = make("input", { type: "checkbox", onchange: () => change(box.checked) });
  box.checked = value;
  return make("label", { class: "tick" }, box, ` ${label}`);
}

const THEMES = ["automatic", "light", "dark"];

function setUpColours() {
  const button = document.getElementById("theme");
  let at = 0;
  try { at = Math.max(0, THEMES.indexOf(localStorage.getItem("ropelab-colours"))); } catch { at = 0; }
  const show = () => {
    document.documentElement.dataset.theme = THEMES[at];
    button.textContent = `Colours: ${THEMES[at]}`;
  };
  button.addEventListener("click", () => {
    at = (at + 1) % THEMES.length;
    show();
    try { localStorage.setItem("ropelab-colours", THEMES[at]); } catch { /* a private window keeps nothing */ }
  });
  show();
}
