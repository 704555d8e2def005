// What every judging page has: the queue that its answers go through, and the words about how they are.
import { openQueue } from "./outbox.js";
import { showState } from "./save_state.js";

export function openDesk(onRefused, onStored = () => {}) {
  const root = document.querySelector("[data-judge]");
  const { url, queue: prefix } = root.dataset;
  const state = showState(root);
  const refused = (act, message) => { state.tell(message); onRefused(act); };
  const stored = (reply) => { state.stored(reply); onStored(reply); };
  const csrf = root.querySelector("[name=csrfmiddlewaretoken]").value;
  const queue = openQueue({ url, prefix, csrf, on: { change: state.change, stored, refused } });
  state.change(queue.all().length, null);
  return { root, url, state, queue, part: (name) => root.querySelector(`[data-${name}]`) };
}
