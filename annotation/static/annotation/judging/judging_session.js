// Judging session, shared by all judging pages: outbox, save state, and offline copy.
import { followConnection } from "./connection.js";
import { openKeptPage } from "./kept_page.js";
import { openOutbox } from "./outbox.js";
import { showSaveState } from "./save_state.js";

// onRefused(action): called if the server permanently rejects an action. onStored(reply): called if it accepts one.
export function openJudgingSession(onRefused, onStored = () => {}) {
  const root = document.querySelector("[data-judging]");
  const { url, outbox: prefix } = root.dataset;
  const saveState = showSaveState(root);
  const refused = (action, message) => { saveState.warn(message); onRefused(action); };
  const stored = (reply) => { saveState.stored(reply); onStored(reply); };
  const csrf = root.querySelector("[name=csrfmiddlewaretoken]").value;
  const outbox = openOutbox({ url, prefix, csrf, on: { change: saveState.change, stored, refused } });
  saveState.change(outbox.all().length, null);
  followConnection(root);
  return { root, url, saveState, outbox, kept: openKeptPage(root.dataset), part: (name) => root.querySelector(`[data-${name}]`) };
}
