// The outbox: what an annotator did, on its way to the server. Each action stays in localStorage under a key of its own
// until the server has it, so that it survives a reload, a closed tab and a day offline. Sent twice it counts once: its
// UUID goes with it.
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
const REFUSED = ["BadAnswer", "Invalid", "NotAssigned", "UuidReused"]; // of the action; all else may pass later

const uuid = () => "10000000-1000-4000-8000-100000000000".replace(/[018]/g, (digit) =>
  (digit ^ (crypto.getRandomValues(new Uint8Array(1))[0] & (15 >> (digit / 4)))).toString(16));

function openStore(prefix) {
  const memory = new Map(); // where storage is forbidden, actions live as long as the page
  try {
    localStorage.setItem(`${prefix}test`, "");
    localStorage.removeItem(`${prefix}test`);
  } catch {
    return { put: (action) => memory.set(action.id, action), drop: (action) => memory.delete(action.id), all: () => [...memory.values()] };
  }
  const isOurs = (key) => key.startsWith(prefix);
  return {
    put: (action) => localStorage.setItem(prefix + action.id, JSON.stringify(action)),
    drop: (action) => localStorage.removeItem(prefix + action.id),
    all: () => Object.keys(localStorage).filter(isOurs).map((key) => JSON.parse(localStorage[key]))
      .sort((a, b) => a.at - b.at),
  };
}

// Returns {add, all, empty, discard}. on: {change(n, trouble), stored(reply), refused(action, message)}; trouble is null, or
// "offline" while it is retried, or the sentence that says why the server takes nothing for now.
export function openOutbox({ url, prefix, csrf, on }) {
  const store = openStore(`kgharvest/${prefix}/`);
  let [sending, wake, lastAt] = [null, () => {}, 0];

  async function send(action) {
    const body = new URLSearchParams({ ...action.values, csrfmiddlewaretoken: csrf });
    const response = await fetch(url + action.path, { method: "POST", body, headers: { Accept: "application/json" }, keepalive: true });
    if (response.status === 429 || response.status >= 500) throw new Error(response.status);
    const reply = await response.json().catch(() => null);
    return reply ?? { error: { code: "", message: "The server no longer knows you; log in or open your return link, then come back here." } };
  }

  async function flush() {
    for (let [action] = store.all(), wait = FIRST_WAIT_MS; action; [action] = store.all()) {
      try {
        const { error, ...reply } = await send(action);
        if (error && !REFUSED.includes(error.code)) return on.change(store.all().length, error.message);
        store.drop(action);
        if (error) on.refused(action, error.message);
        else on.stored(reply);
        wait = FIRST_WAIT_MS;
        on.change(store.all().length, null);
      } catch {
        on.change(store.all().length, "offline");
        await new Promise((resolve) => { wake = resolve; setTimeout(resolve, wait); });
        wait = Math.min(2 * wait, LONGEST_WAIT_MS);
      }
    }
  }

  const empty = () => (sending ??= flush().finally(() => { sending = null; }));
  addEventListener("online", () => { wake(); empty(); });
  if (store.all().length) empty();
  return {
    all: store.all,
    empty, // resolves once all that can be sent is
    discard: () => store.all().forEach(store.drop),
    add(path, values, statement) { // statement: its text, for a person to read should the server never take it
      const id = uuid();
      lastAt = Math.max(Date.now(), lastAt + 1); // in the order of actions, within a millisecond too
      store.put({ id, at: lastAt, path, statement, values: { ...values, client_uuid: id } });
      on.change(store.all().length, null);
      empty();
    },
  };
}
