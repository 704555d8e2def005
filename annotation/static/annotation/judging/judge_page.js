// A page of statements: a key answers the row in focus and moves on. Without this script it is one plain form.
// Answers are saved as they are given, not when the page is submitted.
import { openDesk } from "./judging_session.js";
import { bindDialogs } from "./dialogs.js";
import { listenToKeys } from "./keys.js";
import { readRows } from "./rows.js";
import { startTimer } from "./timer.js";

const { root, url, state, queue, part } = openDesk(takeBackRefused);
const form = root.querySelector("form.page-form");
const nLeft = Number(part("left").textContent);

const timer = startTimer();
const { rows, chosen, isOpen, current, focus, focusNextOpen, ofTask, choose, step } = readRows(form, part("submit"));
const dialogs = bindDialogs(() => current().dataset.row, (values) => {
  queue.add("report/", values);
  ofTask(values.task).querySelector("[data-row-state]").textContent = "Reported";
  state.announce("Reported. You can still answer or skip.");
});
const answered = []; // rows, in the order of their answers

function count() {
  const n = rows.filter(chosen).length;
  part("done").textContent = part("progress").value = n;
  part("left").textContent = Math.max(0, nLeft - n);
  part("missing").textContent = "";
}

function save(row) {
  const [seconds, comment] = [timer.take(), row.querySelector("textarea").value];
  state.answered(seconds);
  answered.push(row);
  row.classList.remove("is-missing");
  queue.add("", { task: Number(row.dataset.row), label: chosen(row).value, comment, seconds: seconds.toFixed(2) });
  count();
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
  queue.add("skip/", { task: Number(row.dataset.row) });
  close(row);
  focusNextOpen(row);
}

function takeBackRefused(act) {
  const row = ofTask(act.values.task);
  if (row && !act.path) choose(row, null);
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
  if (queue.all().length) return null;
  if (!state.takeUnread()) return location.assign(url);
  part("missing").textContent = "All answers are sent. Submit again for the next page.";
  return null;
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
for (const { path, values } of queue.all()) {
  const row = ofTask(values.task);
  if (row && path === "") choose(row, values.label);
  if (row && path === "skip/") close(row);
}
count();
if (rows.some(isOpen)) focus(rows.find(isOpen));
