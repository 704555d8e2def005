// Evidence page: shows the rows behind every number of a report. The URL fragment selects the rows:
// #relation=...&model=...&setting=...&verdict=...
"use strict";

const AT_ONCE = 100;
const PARTS = ["relation", "model", "setting"];
const { labels, verdicts, annotators, judge, cells, tasks, draws } = JSON.parse(document.getElementById("evidence").textContent);
const form = document.getElementById("filters");
const heading = document.getElementById("rows");
const recount = document.getElementById("recount");
const listed = document.getElementById("listed");
const more = document.getElementById("more");
const back = document.getElementById("back");
const body = listed.querySelector("tbody");
const panel = document.querySelector(".statements");
const isWide = matchMedia("(min-width: 1500px)"); // as in the stylesheet: wide windows show rows next to the numbers

const nameOf = (value) => value ?? "not named";
const capital = (word) => word[0].toUpperCase() + word.slice(1);
// Exact ties (.125 and .625) are rounded to even, as in the numbers of the report; toFixed rounds them up.
const rounded = (value) => (value - ((value * 8) % 4 === 1 ? 0.001 : 0)).toFixed(2);
const share = (value) => (value === null ? "–" : rounded(value).replace(/^0(?=\.)/, "").replace("-", "−"));
const thousands = (n) => n.toLocaleString("en");

function element(name, text = "", className = "") {
  const created = document.createElement(name);
  created.textContent = text;
  if (className) created.className = className;
  return created;
}

// View: parsed from and written to the URL fragment

// Each part is a set of values ("" for unnamed), or null for any value.
function viewOf(hash) {
  const named = new URLSearchParams(hash.slice(1));
  const view = Object.fromEntries(PARTS.map((part) => [part, named.has(part) ? new Set(named.getAll(part)) : null]));
  const verdict = verdicts.indexOf(named.get("verdict"));
  return { ...view, verdict: verdict < 0 ? null : verdict, text: named.get("text") ?? "" };
}

function addressOf(view) {
  const named = new URLSearchParams();
  for (const part of PARTS) for (const value of view[part] ?? []) named.append(part, value);
  if (view.verdict !== null) named.set("verdict", verdicts[view.verdict]);
  if (view.text) named.set("text", view.text);
  return `#${named.toString() || "verdict="}`;
}

const isView = (hash) => hash.includes("=");
const isIn = (cell, view) => PARTS.every((part) => !view[part] || view[part].has(cell[part] ?? ""));

// Row selection

let lowered = null;
let shown = [];
let view = viewOf("");

function matching() {
  const inView = cells.map((cell) => isIn(cell, view));
  const counts = verdicts.map(() => 0);
  const text = view.text.trim().toLowerCase();
  if (text) lowered ??= tasks.statement.map((statement) => (statement ?? "").toLowerCase());
  shown = [];
  for (let row = 0; row < draws.task.length; row++) {
    if (!inView[draws.cell[row]]) continue;
    const task = draws.task[row];
    const verdict = tasks.verdict[task];
    if (text && !lowered[task].includes(text)) continue;
    counts[verdict]++;
    if (view.verdict === null || view.verdict === verdict) shown.push(row);
  }
  return { counts, inView: cells.filter((_, number) => inView[number]) };
}

// Recomputed numbers

// Returns the accepted share of a cell from its rows, with strata weighted by population. Returns null if the rows do
// not determine the share, because incomplete statements contribute probabilities.
function accuracyOf(cell) {
  if (cell.incomplete || !cell.n) return null;
  const number = cells.indexOf(cell);
  const [hits, n] = [cell.strata.map(() => 0), cell.strata.map(() => 0)];
  for (let row = 0; row < draws.task.length; row++) {
    if (draws.cell[row] !== number) continue;
    n[draws.stratum[row]]++;
    if (tasks.verdict[draws.task[row]] === 0) hits[draws.stratum[row]]++;
  }
  const sizes = cell.strata.map(({ population }) => (cell.strata.length === 1 ? 1 : population));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  return n.every(Boolean) ? sizes.reduce((sum, size, part) => sum + (size * hits[part]) / n[part], 0) / total : null;
}

function numberInWords(viewCells) {
  if (view.verdict !== null || view.text || !viewCells.length) return "";
  if (viewCells.length === 1) {
    const [cell] = viewCells;
    const reported = `Report: ${share(cell.accuracy)} accepted (${share(cell.accuracy_low)} to ${share(cell.accuracy_high)})`;
    const recomputed = accuracyOf(cell);
    const weighted = cell.strata.length > 1 ? ", weighted by the size of strata" : "";
    return recomputed === null ? ` ${reported}.` : ` ${reported}; from these rows: ${share(recomputed)}${weighted}.`;
  }
  const isSide = !view.relation && view.model?.size === 1 && view.setting?.size === 1;
  const accuracies = viewCells.map(({ accuracy }) => accuracy).filter((accuracy) => accuracy !== null);
  if (!isSide || !accuracies.length) return "";
  const mean = accuracies.reduce((sum, value) => sum + value, 0) / accuracies.length;
  return ` The mean of ${accuracies.length} relations is ${share(mean)}.`;
}

function title() {
  const parts = PARTS.filter((part) => view[part]).map((part) => [...view[part]].map((value) => nameOf(value || null)).join(", "));
  return parts.length ? parts.join(" · ") : "All statements";
}

// Rows

function statementOf(task) {
  const cell = element("td");
  const text = tasks.statement[task];
  if (text === null) {
    cell.append(element("span", "Text hidden by curation.", "soft"));
    return cell;
  }
  const [points, spans] = [[...text], tasks.spans[task]];
  let reached = 0;
  for (let place = 0; place < spans.length; place += 2) {
    cell.append(points.slice(reached, spans[place]).join(""), element("b", points.slice(spans[place], spans[place + 1]).join("")));
    reached = spans[place + 1];
  }
  cell.append(points.slice(reached).join(""));
  return cell;
}

function labelsOf(task) {
  const cell = element("td");
  const list = element("ul", "", "labels");
  const judgments = tasks.labels[task];
  for (let place = 0; place < judgments.length; place += 2) {
    const entry = element("li");
    const label = labels[judgments[place + 1]];
    entry.append(element("span", capital(label), `is-${label}`), ` ${annotators[judgments[place]]}`);
    const comment = tasks.comments[task]?.[judgments[place]];
    if (comment) entry.append(" ", element("q", comment));
    list.append(entry);
  }
  cell.append(judgments.length ? list : element("span", "none", "soft"));
  return cell;
}

function cellOf(text, name, className = "") {
  const cell = element("td", text, className);
  cell.dataset.label = name;
  return cell;
}

function rowOf(row) {
  const [task, cell] = [draws.task[row], cells[draws.cell[row]]];
  const rowElement = element("tr");
  const verdict = element("td");
  verdict.append(element("span", capital(verdicts[tasks.verdict[task]]), `is-${verdicts[tasks.verdict[task]]}`));
  rowElement.append(statementOf(task), verdict, labelsOf(task));
  if (judge) {
    const label = judge.label[task];
    rowElement.append(cellOf(label ? capital(label) : label === "" ? "unparsable" : "no answer", judge.model));
  }
  const score = draws.score[row];
  rowElement.append(
    cellOf(cell.relation, "Relation", "of-relation"),
    cellOf(`${nameOf(cell.model)} · ${nameOf(cell.setting)}`, "LM and setting", "of-side"),
    cellOf(draws.rank[row] === null ? "–" : thousands(draws.rank[row]), "Rank", "num"),
    cellOf(score === null ? "–" : String(score).replace("-", "−"), "Score", "num"),
  );
  return rowElement;
}

function showMore() {
  const first = body.rows.length;
  body.append(...shown.slice(first, first + AT_ONCE).map(rowOf));
  const left = shown.length - body.rows.length;
  more.hidden = !left;
  more.textContent = `Show ${Math.min(left, AT_ONCE)} more of ${thousands(left)} rows`;
  return body.rows[first];
}

// Page

function fillForm(counts) {
  for (const part of PARTS) {
    const select = form.elements[part];
    select.querySelector("[data-several]")?.remove();
    const values = [...(view[part] ?? [])];
    if (values.length > 1) {
      const several = new Option(values.map((value) => nameOf(value || null)).join(", "), "+");
      several.dataset.several = "";
      select.append(several);
    }
    select.value = values.length > 1 ? "+" : values.length ? values[0] : "*";
  }
  for (const [number, verdict] of verdicts.entries()) {
    form.elements.verdict.options[number + 1].textContent = `${verdict} (${thousands(counts[number])})`;
  }
  form.elements.verdict.value = view.verdict === null ? "*" : verdicts[view.verdict];
  if (form.elements.text.value !== view.text) form.elements.text.value = view.text;
}

function render() {
  const { counts, inView } = matching();
  heading.textContent = title();
  const all = counts.reduce((sum, n) => sum + n, 0);
  const each = verdicts.map((verdict, number) => `${thousands(counts[number])} ${verdict}`).join(", ");
  recount.textContent = `${thousands(all)} ${all === 1 ? "row" : "rows"}: ${each}.${numberInWords(inView)}${shown.length < all ? ` Shown: ${thousands(shown.length)}.` : ""}`;
  fillForm(counts);
  body.replaceChildren();
  listed.hidden = !shown.length;
  listed.classList.toggle("one-relation", view.relation?.size === 1);
  listed.classList.toggle("one-side", view.model?.size === 1 && view.setting?.size === 1);
  showMore();
  for (const link of document.querySelectorAll("a[aria-current]")) link.removeAttribute("aria-current");
  for (const link of document.querySelectorAll(".numbers a")) {
    if (isView(location.hash) && link.hash === location.hash) link.setAttribute("aria-current", "true");
  }
}

let opened = null;

function follow() {
  if (!isView(location.hash)) return;
  view = viewOf(location.hash);
  render();
  back.hidden = !opened;
  heading.focus({ preventScroll: true });
  panel.scrollTop = 0;
  heading.scrollIntoView({ block: isWide.matches ? "nearest" : "start" });
}

function goBack() {
  opened?.focus();
  opened?.scrollIntoView({ block: "center" });
}

function choose() {
  const chosen = { ...view, text: form.elements.text.value };
  for (const part of PARTS) {
    const value = form.elements[part].value;
    if (value !== "+") chosen[part] = value === "*" ? null : new Set([value]);
  }
  const verdict = verdicts.indexOf(form.elements.verdict.value);
  view = { ...chosen, verdict: verdict < 0 ? null : verdict };
  history.replaceState(null, "", addressOf(view));
  render();
}

for (const part of PARTS) {
  const values = [...new Set(cells.map((cell) => cell[part] ?? ""))].sort();
  form.elements[part].append(...values.map((value) => new Option(nameOf(value || null), value)));
}
form.elements.verdict.append(...verdicts.map((verdict) => new Option(verdict, verdict)));

document.querySelector(".numbers").addEventListener("click", (event) => {
  const link = event.target.closest("a[href*='=']");
  if (!link) return;
  opened = link;
  if (link.hash === location.hash) follow();
});
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", choose);
form.addEventListener("reset", () => setTimeout(choose));
back.addEventListener("click", goBack);
panel.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target !== form.elements.text) goBack();
});
more.addEventListener("click", () => {
  const first = showMore();
  first.tabIndex = -1;
  first.focus();
});
addEventListener("hashchange", follow);

form.hidden = false;
render();
follow();
