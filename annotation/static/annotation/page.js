// A page of statements: a key answers the row in focus and moves on. Without this script it is one plain form.
// Answers are saved as they are given, not when the page is submitted.
import { bindDialogs } from "./dialogs.js";
import { listenToKeys } from "./keys.js";
import { openQueue } from "./queue.js";
import { showState } from "./state.js";
import { startTimer } from "./timer.js";

const root = document.querySelector("[data-judge]");
const { url, queue: prefix } = root.dataset;
const form = root.querySelector("form.page-form");
const part = (name) => root.querySelector(`[data-${name}]`);
const rows = [...form.querySelectorAll("[data-row]")];
const nLeft = Number(part("left").textContent);

const state = showState(root);
const timer = startTimer();
const csrf = form.elements.csrfmiddlewaretoken.value;
const queue = openQueue({ url, prefix, csrf, on: { change: state.change, stored: state.stored, refused } });
const dialogs = bindDialogs(() => current().dataset.row, (values) => {
  queue.add("report/", values);
  state.announce("Reported. You can still answer or skip.");
});
const last = []; // rows in the order they were answered

const radios = (row) => [...row.querySelectorAll("input[type=radio]")];
const chosen = (row) => radios(row).find((radio) => radio.checked);
const isOpen = (row) => !chosen(row) && !row.disabled;
const current = () => document.activeElement.closest("[data-row]") ?? rows.find(isOpen) ?? rows[0];
const stateOf = (row, text) => { row.querySelector("[data-row-state]").textContent = text; };

function focus(row) {
  (row ? chosen(row) ?? radios(row)[0] : part("submit")).focus({ preventScroll: true });
  (row ?? part("submit")).scrollIntoView({ block: "center" });
}

function count() {
  const n = rows.filter(chosen).length;
  part("done").textContent = part("progress").value = n;
  part("left").textContent = Math.max(0, nLeft - n);
  part("missing").textContent = "";
}

function save(row) {
  const seconds = timer.take();
  state.answered(seconds);
  last.push(row);
  row.classList.remove("is-missing");
  queue.add("", { task: row.dataset.row, label: chosen(row).value, comment: row.querySelector("textarea").value, seconds: seconds.toFixed(2) });
  count();
}

function answer(label) {
  const row = current();
  if (row.disabled) return;
  radios(row).find((radio) => radio.value === label).checked = true;
  save(row);
  const after = rows.indexOf(row) + 1;
  focus([...rows.slice(after), ...rows.slice(0, after)].find(isOpen));
}

function skip(row = current()) {
  if (!isOpen(row)) return;
  queue.add("skip/", { task: row.dataset.row });
  row.disabled = true;
  stateOf(row, "Skipped");
  focus(rows.find(isOpen));
}

function refused(act, message) {
  state.tell(message);
  const row = rows.find((each) => each.dataset.row === String(act.values.task));
  if (!row || act.path) return;
  radios(row).forEach((radio) => { radio.checked = false; });
  stateOf(row, "Not stored");
  count();
}

async function submit() {
  const missing = rows.filter(isOpen);
  rows.forEach((row) => row.classList.toggle("is-missing", missing.includes(row)));
  if (missing.length) {
    part("missing").textContent = `${missing.length} unanswered: ${missing.map((row) => rows.indexOf(row) + 1).join(", ")}`;
    state.announce(part("missing").textContent);
    return focus(missing[0]);
  }
  part("missing").textContent = "The next page opens once all answers are saved.";
  await queue.empty();
  return queue.all().length || location.assign(url);
}

const step = (by) => focus(rows[Math.min(rows.length - 1, Math.max(0, rows.indexOf(current()) + by))]);
const back = () => last.length > 0 && focus(last.pop());
const openReport = (row = current()) => dialogs.openReport(row.dataset.row, row.querySelector("legend"));
const openComment = () => { current().querySelector("details").open = true; current().querySelector("textarea").focus(); };

form.addEventListener("change", ({ target }) => { if (chosen(target.closest("[data-row]"))) save(target.closest("[data-row]")); });
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const row = event.submitter.closest("[data-row]");
  if (!row) submit();
  else if (event.submitter.hasAttribute("data-skip")) skip(row);
  else openReport(row);
});
const answers = Object.fromEntries(["true", "false", "unjudgeable"].map((label) => [label, () => answer(label)]));
listenToKeys({
  ...answers, skip: () => skip(), report: () => openReport(), comment: openComment, instructions: dialogs.openInstructions,
  back, up: () => step(-1), down: () => step(1),
});
for (const { path, values } of queue.all()) {
  const row = rows.find((each) => each.dataset.row === String(values.task));
  if (row && path === "") radios(row).find((radio) => radio.value === values.label).checked = true;
  if (row && path === "skip/") row.disabled = true;
}
state.change(queue.all().length, null);
count();
if (rows.some(isOpen)) focus(rows.find(isOpen));
