// A page of statements. Keyboard shortcuts answer the focused row and move the focus to the next row. Answers are saved
// immediately, not when the page is submitted. Without this script, the page works as a form.
import { openJudgingSession } from "./judging_session.js";
import { bindDialogs } from "./dialogs.js";
import { watchReferences } from "./elements.js";
import { listenToKeys } from "./keys.js";
import { readRows } from "./rows.js";
import { startTimer } from "./timer.js";

const { root, url, saveState, outbox, kept, part } = openJudgingSession(undoRefused);
const form = root.querySelector("form.page-form");
const nLeft = Number(part("left").textContent);

const timer = startTimer();
const { rows, chosen, wrongPart, isAskingPart, partRadios, isOpen, current, focus, focusNextOpen, ofTask, choose, step } = readRows(form, part("submit"));
const dialogs = bindDialogs(() => current().dataset.row, (values) => {
  outbox.add("report/", values);
  ofTask(values.task).querySelector("[data-row-state]").textContent = "Reported";
  saveState.announce("Reported. You can still answer or skip.");
});
const answered = []; // rows in order of their answers
const references = (row) => row.querySelector("[data-references]");
const opened = new Set(); // rows with an opened reference

function showCounts() {
  const complete = rows.filter((row) => chosen(row) && !isAskingPart(row));
  const n = complete.length;
  kept.keep(Object.fromEntries(complete.map((row) => [row.dataset.row, `${chosen(row).value} ${wrongPart(row)}`.trim()])));
  part("done").textContent = part("progress").value = n;
  part("left").textContent = Math.max(0, nLeft - n);
  part("missing").textContent = "";
}

function save(row) {
  const [seconds, comment] = [timer.take(), row.querySelector("textarea").value];
  saveState.answered(seconds);
  answered.push(row);
  row.classList.remove("is-missing");
  const added = { ...(partRadios(row).length && { wrong_part: wrongPart(row) }), ...(references(row) && { opened_reference: opened.has(row) }) };
  outbox.add("", { task: row.dataset.row, label: chosen(row).value, comment, seconds: seconds.toFixed(2), ...added }, row.querySelector("legend").textContent);
  showCounts();
}

function answer(label) {
  const row = current();
  if (row.disabled) return;
  choose(row, label);
  if (isAskingPart(row)) return partRadios(row)[0].focus();
  save(row);
  focusNextOpen(row);
}

function choosePart(number) {
  const row = current();
  const radio = isAskingPart(row) && partRadios(row)[number - 1];
  if (!radio) return false;
  radio.checked = true;
  save(row);
  return focusNextOpen(row);
}

function close(row, isClosed = true) {
  row.disabled = isClosed;
  row.querySelector("[data-row-state]").textContent = isClosed ? "Skipped" : "";
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
  if (row && action.path === "skip/") close(row, false);
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

form.addEventListener("change", ({ target }) => {
  const row = target.closest("[data-row]");
  if (chosen(row) && !isAskingPart(row)) save(row);
});
watchReferences(form, (link) => opened.add(link.closest("[data-row]")));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const row = event.submitter.closest("[data-row]");
  if (!row) submit();
  else if (event.submitter.hasAttribute("data-skip")) skip(row);
  else openReport(row);
});
const answers = Object.fromEntries(["true", "false", "unjudgeable"].map((label) => [label, () => answer(label)]));
const moves = { back: () => answered.length > 0 && focus(answered.pop()), up: () => step(-1), down: () => step(1) };
listenToKeys({ ...answers, ...moves, choosePart, skip: () => skip(), report: () => openReport(), comment: openComment, instructions: dialogs.openInstructions });
for (const row of rows) if (kept.state?.[row.dataset.row]) choose(row, ...kept.state[row.dataset.row].split(" "));
for (const { path, values } of outbox.all()) {
  const row = ofTask(values.task);
  if (row && path === "") choose(row, values.label, values.wrong_part);
  if (row && path === "skip/") close(row);
}
showCounts();
if (rows.some(isOpen)) focus(rows.find(isOpen));
