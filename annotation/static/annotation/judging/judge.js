// One statement at a time, one key each. Without this script the page works as a plain form, one page per answer.
import { openDesk } from "./judging_session.js";
import { bindDialogs } from "./dialogs.js";
import { openHand } from "./task_queue.js";
import { listenToKeys } from "./keys.js";
import { labelMark, linkTo, marked, recentRow } from "./marks.js";
import { startTimer } from "./timer.js";

const { root, url, state, queue, part } = openDesk(takeBackRefused, (reply) => hand.receive(reply));
const form = root.querySelector("form.answers-form");
const read = (id) => JSON.parse(document.getElementById(id).textContent);

const timer = startTimer();
const hand = openHand({ url, queue, sent: read("statements"), earlier: read("earlier"), onFirst: show });
const { ahead, behind } = hand;
const dialogs = bindDialogs(() => ahead[0]?.task, (values) => {
  queue.add("report/", values);
  part("report-sent").hidden = false;
  state.announce("Reported. You can still answer or skip.");
});

function count(n) {
  part("done").textContent = part("progress").value += n;
  part("left").textContent = Math.max(0, part("left").textContent - n);
}

function show() {
  part("recent").replaceChildren(...behind.slice(-5).reverse().map((each) => recentRow(each, () => backTo(each))));
  hand.topUp();
  if (!ahead.length) return showNothing();
  const { parts, label, comment = "" } = ahead[0];
  part("statement").replaceChildren(...marked(parts));
  part("given").hidden = !label;
  if (label) part("given").querySelector(".label").replaceWith(labelMark(label));
  part("back").hidden = !behind.length;
  part("report-sent").hidden = true;
  form.elements.comment.value = comment;
  form.querySelector("details").open = Boolean(comment);
  return timer.take();
}

async function showNothing() {
  part("given").hidden = true;
  part("statement").replaceChildren(navigator.onLine ? "One moment …" : "More statements come when you are connected again.");
  await hand.topUp();
  await queue.empty(); // of what was answered meanwhile
  if (ahead.length) return null; // in sight by now
  if (queue.all().length) return part("statement").replaceChildren("Your answers wait in this browser.");
  if (state.takeUnread()) return part("statement").replaceChildren(linkTo(url, "Go on"));
  return location.assign(url); // nothing is left; the server says so
}

function answer(label) {
  if (!ahead.length) return;
  const [seconds, comment, isFresh] = [timer.take(), form.elements.comment.value, !ahead[0].label];
  state.answered(seconds);
  if (isFresh) count(1);
  behind.push({ ...ahead.shift(), label, comment, isFresh });
  queue.add("", { task: behind.at(-1).task, label, comment, seconds: seconds.toFixed(2), more: hand.isLow() ? 1 : "" });
  show();
}

function skip() {
  if (!ahead.length) return;
  const skipped = ahead.shift();
  if (skipped.label) behind.push(skipped); // it has an answer, and keeps it
  else queue.add("skip/", { task: skipped.task });
  show();
}

function backTo(each) {
  hand.takeBack(each);
  show();
}

function takeBackRefused(act) {
  const answered = behind.findLast((each) => each.task === act.values.task);
  if (act.path || !answered) return;
  behind.splice(behind.indexOf(answered), 1);
  if (answered.isFresh) count(-1);
  show();
}

const openReport = () => { if (ahead.length) dialogs.openReport(ahead[0].task, part("statement")); };
const openComment = () => { form.querySelector("details").open = true; form.elements.comment.focus(); };
const back = () => behind.length > 0 && backTo(behind.at(-1));

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const act = { "data-skip": skip, "data-report-button": openReport };
  const name = Object.keys(act).find((attribute) => event.submitter.hasAttribute(attribute));
  return name ? act[name]() : answer(event.submitter.value);
});
part("keep").addEventListener("click", (event) => { event.preventDefault(); skip(); });
part("back").addEventListener("click", back);
const answers = Object.fromEntries(["true", "false", "unjudgeable"].map((label) => [label, () => answer(label)]));
listenToKeys({ ...answers, skip, back, left: back, comment: openComment, report: openReport, instructions: dialogs.openInstructions });
count(hand.nAnsweredUnsaved);
show();
