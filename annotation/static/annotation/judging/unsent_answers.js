// Sends the answers that an earlier page could not, unseen if there are none. What a round that is over no
// longer takes is shown, to be copied or discarded; should the round be reopened, this page sends it after all.
import { openJudgingSession } from "./judging_session.js";

const { root, outbox } = openJudgingSession(() => {});
const allStored = document.querySelector("[data-all-stored]");
const tooLate = document.querySelector("[data-too-late]"); // where the round is over
root.hidden = !outbox.all().length;
if (allStored) allStored.hidden = !root.hidden; // what waits may never be taken here

const sentence = ({ statement, values: { label, comment } }) => `${label}: ${statement}${comment ? ` (${comment})` : ""}`;

async function showTooLate() {
  await outbox.empty();
  const answers = outbox.all().filter((action) => !action.path);
  root.hidden = true;
  tooLate.hidden = !answers.length;
  allStored.hidden = answers.length > 0;
  const count = answers.length === 1 ? "1 answer came too late: the round was over before it was sent. It is" :
    `${answers.length} answers came too late: the round was over before they were sent. They are`;
  tooLate.querySelector("[data-too-late-words]").textContent = `${count} not stored, only kept in this browser.`;
  tooLate.querySelector("textarea").value = answers.map(sentence).join("\n");
}

if (tooLate) {
  showTooLate();
  tooLate.querySelector("[data-discard]").addEventListener("click", () => { outbox.discard(); showTooLate(); });
}
