// A page of statements. Keyboard shortcuts answer the focused row and move the focus to the next row. Answers are saved
// immediately, not when the page is submitted. Without this script, the page works as a form.
import { openJudgingSession } from "./judging_session.js";
import { bindDialogs } from "./dialogs.js";
import { listenToKeys } from "./keys.js";
import { readRows } from "./rows.js";
import { startTimer } from "./timer.js";

const { root, url, saveState, outbox, kept, part } = openJudgingSession(undoRefused);
const form = root.querySelector("form.page-form");
const nLeft = Number(part("left").textContent);

const timer = startTimer();
const { rows, chosen, isOpen, current, focus, focusNextOpen, ofTask, choose, step } = readRows(form, part("submit"));
const dialogs = bindDialogs(() => current().dataset.row, (values) => {
  outbox.add("report/", values);
  ofTask(values.task).querySelector("[data-row-state]").textContent = "Reported";
  saveState.announce("Reported. You can still answer or skip.");
});
const answered = []; // rows in order of their answers

function showCounts() {
  const n = rows.filter(chosen).length;
  kept.keep(Object.fromEntries(rows.filter(chosen).map((row) => [row.dataset.row, chosen(row).value])));
  part("done").textContent = part("progress").value = n;
  part("left").textContent = Math.max(0, nLeft - n);
  part("missing").textContent = "";
}

function save(row) {
  const [seconds, comment] = [timer.take(), row.querySelector("textarea").value];
  saveState.answered(seconds);
  answered.push(row);
  row.classList.remove("is-missing");
  outbox.add("", { task: row.dataset.row, label: chosen(row).value, comment, seconds: seconds.toFixed(2) }, row.querySelector("legend").textContent);
  showCounts();
}

function answer(label) {
  const row = current();
  if (row.disabled) return;
  choose(row, label);
  save(row);
  focusNextOpen(row);
}

function close(row) {
  row.disabled = true;
  row.querySelector("[data-row-state]").textContent = "Skipped";
}

function skip(row = current()) {
  if (!isOpen(row)) return;
  outbox.add("skip/", { task: row.dataset.row });
  close(row);
  focusNextOpen(row);
}

function undoRefused(action) {
  const row = ofTask(action.values.task);
  if (row && !action.path) choose(row, null);
  showCounts();
}

async function submit() {
  const missing = rows.filter(isOpen);
  rows.forEach((row) => row.classList.toggle("is-missing", missing.includes(row)));
  if (missing.length) {
    part("missing").textContent = `${missing.length} unanswered: ${missing.map((row) => rows.indexOf(row) + 1).join(", ")}`;
    saveState.announce(part("missing").textContent);
    return focus(missing[0]);
  }
  part("missing").textContent = "Saving answers before the next page opens.";
  await outbox.empty();
  if (outbox.all().length) return null;
  if (!saveState.takeUnread()) return location.assign(url);
  return part("missing").replaceChildren("All answers are sent. Submit again to open the next page.");
}

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
const moves = { back: () => answered.length > 0 && focus(answered.pop()), up: () => step(-1), down: () => step(1) };
listenToKeys({ ...answers, ...moves, skip: () => skip(), report: () => openReport(), comment: openComment, instructions: dialogs.openInstructions });
for (const row of rows) if (kept.state?.[row.dataset.row]) choose(row, kept.state[row.dataset.row]);
for (const { path, values } of outbox.all()) {
  const row = ofTask(values.task);
  if (row && path === "") choose(row, values.label);
  if (row && path === "skip/") close(row);
}
showCounts();
if (rows.some(isOpen)) focus(rows.find(isOpen));
