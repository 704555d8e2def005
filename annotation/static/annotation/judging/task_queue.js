// The task queue of an annotator: statements ahead, of which [0] is in sight, and those answered, oldest first.
// More come with the reply to an answer; they are asked for only where no answer is on its way.
const ASK_AGAIN_MS = 2000;
const LOW = 4;

// statements: those that the page came with; answered: the last ones before. onStatement: called when there is one ahead
// again.
export function openTaskQueue({ url, outbox, statements, answered, onStatement }) {
  const waiting = outbox.all().filter((action) => action.path !== "report/");
  const isWaiting = ({ task }) => waiting.some((action) => action.values.task === task);
  const ahead = statements.filter((statement) => statement.label || !isWaiting(statement));
  const known = new Set(statements.map((statement) => statement.task));
  const ask = () => fetch(url, { headers: { Accept: "application/json" } }).then((response) => response.json()).catch(() => null);
  let [refilling, nReplies] = [null, 0];

  const isLow = () => ahead.length < LOW;

  function receive({ tasks }) {
    if (!tasks) return;
    nReplies += 1;
    const wasEmpty = !ahead.length;
    const added = tasks.filter((statement) => !known.has(statement.task));
    added.forEach((statement) => known.add(statement.task));
    ahead.push(...added);
    if (wasEmpty && added.length) onStatement(); // at once: a key answers what is ahead, so it must be in sight
  }

  async function refill() {
    const before = nReplies;
    await outbox.empty(); // the server gives new ones for those that it has answers to
    if (nReplies > before) return;
    let reply = null;
    while (!(reply = await ask())) await new Promise((wake) => setTimeout(wake, ASK_AGAIN_MS));
    receive(reply);
  }

  return {
    ahead,
    answered,
    isLow,
    receive,
    nUnsaved: waiting.filter((action) => !action.path && known.has(action.values.task)).length,
    refillIfLow() { // in the background; await it where nothing is ahead
      if (isLow()) refilling ??= refill().finally(() => { refilling = null; });
      return refilling;
    },
    moveToFront(statement) {
      ahead.unshift(...answered.splice(answered.indexOf(statement), 1));
    },
  };
}
