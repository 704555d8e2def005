// Outbox of the annotator's actions. Each action stays in localStorage until the server has processed it, so it survives
// reloads, closed tabs, and offline periods. Its UUID makes resending idempotent.
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
const REFUSED = ["BadAnswer", "Invalid", "NotAssigned", "SkipLimit", "UuidReused"]; // permanent errors; all others are retried

const uuid = () => "10000000-1000-4000-8000-100000000000".replace(/[018]/g, (digit) =>
  (digit ^ (crypto.getRandomValues(new Uint8Array(1))[0] & (15 >> (digit / 4)))).toString(16));

function openStore(prefix) {
  const memory = new Map(); // without storage, actions last until the page is closed
  try {
    localStorage.setItem(`${prefix}test`, "");
    localStorage.removeItem(`${prefix}test`);
  } catch {
    return { put: (action) => memory.set(action.id, action), drop: (action) => memory.delete(action.id), all: () => [...memory.values()] };
  }
  const isAction = (key) => key.startsWith(prefix);
  return {
    put: (action) => localStorage.setItem(prefix + action.id, JSON.stringify(action)),
    drop: (action) => localStorage.removeItem(prefix + action.id),
    all: () => Object.keys(localStorage).filter(isAction).map((key) => JSON.parse(localStorage[key]))
      .sort((a, b) => a.at - b.at),
  };
}

// Returns {add, all, empty, discard}. on: callbacks change(n, problem), stored(reply), and refused(action, message).
// problem: null, "offline" during retries, or the error message of a server that temporarily rejects actions.
export function openOutbox({ url, prefix, csrf, on }) {
  const store = openStore(`kgharvest/${prefix}/`);
  let [sending, wake, lastAt] = [null, () => {}, 0];

  async function send(action) {
    const body = new URLSearchParams({ ...action.values, csrfmiddlewaretoken: csrf });
    const response = await fetch(url + action.path, { method: "POST", body, headers: { Accept: "application/json" }, keepalive: true });
    if (response.status === 429 || response.status >= 500) throw new Error(response.status);
    const reply = await response.json().catch(() => null);
    return reply ?? { error: { code: "", message: "Your session has expired. Log in or open your return link, then return to this page." } };
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
    empty, // resolves when every action that can be sent has been sent
    discard: () => store.all().forEach(store.drop),
    add(path, values, statement) { // statement: text, shown if the server rejects the action
      const id = uuid();
      lastAt = Math.max(Date.now(), lastAt + 1); // keeps the order of actions within a millisecond
      store.put({ id, at: lastAt, path, statement, values: { ...values, client_uuid: id } });
      on.change(store.all().length, null);
      empty();
    },
  };
}
