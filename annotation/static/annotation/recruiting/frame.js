// One statement in a frame of another site: keys as in judging, and the active time sent with the answer.
import { listenToKeys } from "../judging/keys.js";
import { startTimer } from "../judging/timer.js";

const form = document.querySelector("[data-frame-answer]");
const timer = startTimer();
const press = (name, value) => () => form.querySelector(`button[name="${name}"][value="${value}"]`).click();

form.addEventListener("submit", () => { form.elements.seconds.value = timer.take(); });
listenToKeys({
  true: press("label", "true"),
  false: press("label", "false"),
  unjudgeable: press("label", "unjudgeable"),
  skip: press("skip", "1"),
});
