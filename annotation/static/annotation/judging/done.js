// Sends what an earlier page could not; there is nothing to see of it if nothing waits. What a round that is over no
// longer takes is shown, to be copied or discarded; should the round be reopened, this page sends it after all.
import { openDesk } from "./judging_session.js";

const { root, queue } = openDesk(() => {});
const allStored = document.querySelector("[data-all-stored]");
const tooLate = document.querySelector("[data-too-late]"); // where the round is over
root.hidden = !queue.all().length;
if (allStored) allStored.hidden = !root.hidden; // what waits may never be taken here

const inWords = ({ task, label, comment }) => `Statement ${task}: ${label}${comment ? ` (${comment})` : ""}`;

async function showTooLate() {
  await queue.empty();
  const answers = queue.all().filter((act) => !act.path);
  root.hidden = true;
  tooLate.hidden = !answers.length;
  allStored.hidden = answers.length > 0;
  const these = answers.length === 1 ? "1 answer came too late: the round was over before it was sent. It is" :
    `${answers.length} answers came too late: the round was over before they were sent. They are`;
  tooLate.querySelector("[data-too-late-words]").textContent = `${these} not stored, only kept in this browser.`;
  tooLate.querySelector("textarea").value = answers.map((act) => inWords(act.values)).join("\n");
}

if (tooLate) {
  showTooLate();
  tooLate.querySelector("[data-discard]").addEventListener("click", () => { queue.discard(); showTooLate(); });
}
