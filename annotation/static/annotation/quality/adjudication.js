// Keyboard shortcuts for adjudication, as on the judging page. Without JavaScript, use the buttons.
import { listenToKeys } from "../judging/keys.js";

const press = (selector) => () => document.querySelector(selector).click();
const answers = Object.fromEntries(["true", "false", "unjudgeable"].map((label) => [label, press(`button[value="${label}"]`)]));

listenToKeys({ ...answers, skip: press("[data-skip]"), comment: () => document.querySelector("#comment").focus() });
