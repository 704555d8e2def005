// Keyboard shortcuts for training, as in judging.
import { listenToKeys } from "../judging/keys.js";

const press = (label) => () => document.querySelector(`button[value="${label}"]`).click();

listenToKeys({ true: press("true"), false: press("false"), unjudgeable: press("unjudgeable") });
