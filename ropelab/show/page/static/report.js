// The report: which part of the page is shown, a run's explorer when it is first opened, filters.

const drawing = readData("drawing");
const opened = new Map();
const data = new Map();
let drawings = {};

function showPart() {
  let wanted = location.hash.slice(1) || "overview";
  try { wanted = decodeURIComponent(wanted); } catch { /* a lone % names nothing */ }
  const target = document.getElementById(wanted);
  const view = target?.closest("section.view") ?? document.getElementById("overview");
  for (const section of document.querySelectorAll("section.view")) section.classList.toggle("open", section === view);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#${view.id}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const picture of view.querySelectorAll("img[data-picture]:not([src])")) picture.src = addressOf(drawings[picture.dataset.picture]);
  openRun(view);
  if (view.id === "compare" && !opened.has("compare")) {
    opened.set("compare", new Comparison(document.getElementById("comparison"), [...data.values()], drawing.looks, drawing.quantiles));
  }
  if (location.hash) {
    window.scrollTo(0, 0);
    if (target !== view) target?.scrollIntoView();
    view.querySelector("h2[tabindex]")?.focus({ preventScroll: true });
  }
}

// An SVG drawn for the page, or a stored picture, which is an address already.
function addressOf(picture) {
  return picture?.startsWith("data:") ? picture : `data:image/svg+xml,${encodeURIComponent(picture ?? "<svg xmlns='http://www.w3.org/2000/svg'/>")}`;
}

function openRun(section) {
  const holder = section.querySelector(".explorer");
  if (!holder || opened.has(section.id) || !data.has(section.id)) return;
  opened.set(section.id, new Explorer(holder, data.get(section.id), drawing.looks));
}

function setUpClaims() {
  const form = document.getElementById("claim-filters");
  if (!form) return;
  const claims = [...document.querySelectorAll(".ledger > li")];
  const filter = () => {
    const wanted = new FormData(form);
    const words = wanted.get("words").toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const claim of claims) {
      const fits = ["verdict", "evidence"].every((name) => !wanted.get(name) || claim.dataset[name] === wanted.get(name));
      claim.hidden = !(fits && words.every((word) => claim.textContent.toLowerCase().includes(word)));
      shown += claim.hidden ? 0 : 1;
    }
    form.querySelector("output").textContent = `${shown} of ${claims.length} claims`;
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}

async function start() {
  document.querySelector(".contents").open = window.innerWidth >= 1100;
  try {
    const { runs, pictures } = await readPacked("runs");
    for (const run of runs) data.set(run.key, run);
    drawings = pictures;
  } catch {
    for (const holder of document.querySelectorAll(".explorer, #comparison")) holder.textContent = "This browser cannot unpack the tables (DecompressionStream, in browsers since 2023).";
  }
  showPart();
  document.documentElement.classList.remove("starting");
}

for (const button of document.querySelectorAll("button.copy")) button.addEventListener("click", () => copyText(button.dataset.copy, button));
document.querySelector("a.skip").addEventListener("click", (event) => { event.preventDefault(); document.getElementById("main").focus(); });
window.addEventListener("hashchange", showPart);
setUpColours();
setUpClaims();
start();
