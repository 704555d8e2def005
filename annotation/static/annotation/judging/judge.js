// Shows one statement at a time, with keyboard shortcuts. Without this script, the page works as a form.
import { openJudgingSession } from "./judging_session.js";
import { bindDialogs } from "./dialogs.js";
import { openTaskQueue } from "./task_queue.js";
import { listenToKeys } from "./keys.js";
import { labelElement, linkElement, partButtons, recentElement, referenceNodes, statementNodes, textOf, watchReferences } from "./elements.js";
import { startTimer } from "./timer.js";

const { root, url, saveState, outbox, kept, part } = openJudgingSession(undoRefused, (reply) => tasks.receive(reply));
const form = root.querySelector("form.answers-form");
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const timer = startTimer();
const { ahead: statements, answered: earlier, n: nKeptCounted } = kept.state ?? { ahead: read("statements"), answered: read("earlier"), n: 0 };
const tasks = openTaskQueue({ url, outbox, statements, answered: earlier, onStatement: show });
const { ahead, answered } = tasks;
const buttons = [...form.querySelectorAll(".answer"), part("skip"), part("report-button")];
const skips = new Map(); // skipped statements by task, in case the server rejects the skip
let isAwaitingMore = false;
let nCounted = 0; // answers since the page was loaded from the server
const dialogs = bindDialogs(() => ahead[0]?.task, (values) => {
  outbox.add("report/", values);
  part("report-sent").hidden = false;
  saveState.announce("Reported. You can still answer or skip.");
});

function countJudged(n) {
  nCounted += n;
  part("done").textContent = part("progress").value += n;
  part("left").textContent = Math.max(0, part("left").textContent - n);
}

function show() {
  const recent = answered.slice(-5).reverse();
  part("recent").replaceChildren(...recent.map((statement) => recentElement(statement, () => backTo(statement))));
  tasks.refillIfLow();
  kept.keep({ ahead, answered: answered.slice(-5), n: nCounted });
  buttons.forEach((button) => { button.disabled = !ahead.length; });
  if (!ahead.length) return showNothing();
  isAwaitingMore = false;
  const { parts, references, slots, label, comment = "" } = ahead[0];
  part("statement").replaceChildren(...statementNodes(parts));
  part("references")?.replaceChildren(...referenceNodes(references));
  if (slots) {
    part("parts").replaceChildren(...partButtons(slots));
    part("wrong-part").hidden = true;
  }
  part("given").hidden = !label;
  if (label) part("given").querySelector(".label").replaceWith(labelElement(label));
  part("back").hidden = !answered.length;
  part("report-sent").hidden = true;
  form.elements.comment.value = comment;
  form.querySelector("details").open = Boolean(comment);
  return timer.take();
}

function showWaitingText() {
  if (isAwaitingMore) part("statement").replaceChildren(navigator.onLine ? "Loading …" : "You are offline. More statements will load when you are back online.");
}

async function showNothing() {
  part("given").hidden = true;
  isAwaitingMore = true;
  showWaitingText();
  await tasks.refillIfLow();
  await outbox.empty(); // sends answers given in the meantime
  isAwaitingMore = false;
  if (ahead.length) return null; // new statements have arrived and are shown
  if (outbox.all().length) return part("statement").replaceChildren("Your answers are stored in this browser until they can be sent.");
  if (saveState.takeUnread()) return part("statement").replaceChildren(linkElement(url, "Continue"));
  return location.assign(url); // the server shows the final page
}

function answer(label, wrongPart = "") {
  if (!ahead.length) return;
  if (label === "false" && !wrongPart && ahead[0].slots) {
    part("wrong-part").hidden = false;
    part("parts").firstChild.focus();
    return;
  }
  const [seconds, comment, isFresh] = [timer.take(), form.elements.comment.value, !ahead[0].label];
  saveState.answered(seconds);
  if (isFresh) countJudged(1);
  answered.push({ ...ahead.shift(), label, comment, isFresh });
  const { task, parts, slots, references, hasOpened = false } = answered.at(-1);
  const added = { ...(slots && { wrong_part: wrongPart }), ...(references && { opened_reference: hasOpened }) };
  outbox.add("", { task, label, comment, seconds: seconds.toFixed(2), more: tasks.isLow() ? 1 : "", ...added }, textOf(parts));
  show();
}

function skip() {
  if (!ahead.length) return;
  const skipped = ahead.shift();
  if (skipped.label) answered.push(skipped); // an answered statement keeps its answer
  else {
    skips.set(skipped.task, skipped);
    outbox.add("skip/", { task: skipped.task });
  }
  show();
}

function backTo(statement) {
  tasks.moveToFront(statement);
  show();
}

function undoRefused(action) {
  if (action.path === "skip/" && skips.has(action.values.task)) {
    ahead.unshift(skips.get(action.values.task));
    return show();
  }
  const refused = answered.findLast((statement) => statement.task === action.values.task);
  if (action.path || !refused) return null;
  answered.splice(answered.indexOf(refused), 1);
  if (refused.isFresh) countJudged(-1);
  return show();
}

const openReport = () => { if (ahead.length) dialogs.openReport(ahead[0].task, part("statement")); };
const openComment = () => { form.querySelector("details").open = true; form.elements.comment.focus(); };
const isAskingPart = () => part("wrong-part")?.hidden === false;
const back = () => (isAskingPart() ? (part("wrong-part").hidden = true) : answered.length > 0 && backTo(answered.at(-1)));
const choosePart = (number) => isAskingPart() && part("parts").children[number - 1]?.click();

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const buttons = { "data-skip": skip, "data-report-button": openReport };
  const name = Object.keys(buttons).find((attribute) => event.submitter.hasAttribute(attribute));
  if (name) return buttons[name]();
  return event.submitter.name === "wrong_part" ? answer("false", event.submitter.value) : answer(event.submitter.value);
});
for (const change of ["online", "offline"]) addEventListener(change, showWaitingText);
part("keep").addEventListener("click", (event) => { event.preventDefault(); skip(); });
part("back").addEventListener("click", back);
watchReferences(root, () => { ahead[0].hasOpened = true; });
const answers = Object.fromEntries(["true", "false", "unjudgeable"].map((label) => [label, () => answer(label)]));
listenToKeys({ ...answers, choosePart, skip, back, left: back, comment: openComment, report: openReport, instructions: dialogs.openInstructions });
countJudged(kept.state ? nKeptCounted : tasks.nUnsaved);
show();
