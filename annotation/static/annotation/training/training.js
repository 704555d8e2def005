// Training by keys, as in judging. Without it, the buttons do the same.
import { listenToKeys } from "../judging/keys.js";

const press = (label) => () => document.querySelector(`button[value="${label}"]`).click();

listenToKeys({ true: press("true"), false: press("false"), unjudgeable: press("unjudgeable") });
