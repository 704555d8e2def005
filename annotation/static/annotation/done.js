// Sends what an earlier page could not.
import { openQueue } from "./queue.js";
import { showState } from "./state.js";

const root = document.querySelector("[data-judge]");
const { url, queue: prefix } = root.dataset;
const state = showState(root);
const csrf = root.querySelector("[name=csrfmiddlewaretoken]").value;
const on = { change: state.change, stored: state.stored, refused: (act, message) => state.tell(message) };
const queue = openQueue({ url, prefix, csrf, on });
state.change(queue.all().length, null);
root.hidden = !queue.all().length;
