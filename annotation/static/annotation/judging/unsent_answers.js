// Sends answers that an earlier page could not send. Answers to a closed round are shown, so that they can be copied or
// discarded. If the round is reopened, this page sends them.
import { openJudgingSession } from "./judging_session.js";

const { root, outbox } = openJudgingSession(() => {});
const allStored = document.querySelector("[data-all-stored]");
const tooLate = document.querySelector("[data-too-late]"); // exists only if the round is closed
root.hidden = !outbox.all().length;
if (allStored) allStored.hidden = !root.hidden; // unsent answers may be rejected

const sentence = ({ statement, values: { label, comment } }) => `${label}: ${statement}${comment ? ` (${comment})` : ""}`;

async function showTooLate() {
  await outbox.empty();
  const answers = outbox.all().filter((action) => !action.path);
  root.hidden = true;
  tooLate.hidden = !answers.length;
  allStored.hidden = answers.length > 0;
  const count = answers.length === 1 ? "1 answer was not sent before the round closed. It is" :
    `${answers.length} answers were not sent before the round closed. They are`;
  tooLate.querySelector("[data-too-late-words]").textContent = `${count} stored only in this browser.`;
  tooLate.querySelector("textarea").value = answers.map(sentence).join("\n");
}

if (tooLate) {
  showTooLate();
  tooLate.querySelector("[data-discard]").addEventListener("click", () => { outbox.discard(); showTooLate(); });
}
