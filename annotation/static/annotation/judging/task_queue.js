// Task queue of an annotator: upcoming statements and answered statements, oldest first. The page shows the first
// upcoming statement. Replies to answers contain more statements. The queue requests statements separately only if no
// answer is pending.
const RETRY_MS = 2000;
const LOW = 4;

// statements: upcoming statements included in the page. answered: recently answered statements. onStatement: called
// when an empty queue receives statements.
export function openTaskQueue({ url, outbox, statements, answered, onStatement }) {
  const waiting = outbox.all().filter((action) => action.path !== "report/");
  const isWaiting = ({ task }) => waiting.some((action) => action.values.task === task);
  const ahead = statements.filter((statement) => statement.label || !isWaiting(statement));
  const seenTasks = new Set(statements.map((statement) => statement.task));
  const ask = () => fetch(url, { headers: { Accept: "application/json" } }).then((response) => response.json()).catch(() => null);
  let [refilling, nReplies] = [null, 0];

  const isLow = () => ahead.length < LOW;

  function receive({ tasks }) {
    if (!tasks) return;
    nReplies += 1;
    const wasEmpty = !ahead.length;
    const added = tasks.filter((statement) => !seenTasks.has(statement.task));
    added.forEach((statement) => seenTasks.add(statement.task));
    ahead.push(...added);
    if (wasEmpty && added.length) onStatement(); // show it immediately, because keys answer the first statement
  }

  async function refill() {
    const nRepliesBefore = nReplies;
    await outbox.empty(); // stored answers make room for new statements
    if (nReplies > nRepliesBefore) return;
    let reply = null;
    while (!(reply = await ask())) await new Promise((wake) => setTimeout(wake, RETRY_MS));
    receive(reply);
  }

  return {
    ahead,
    answered,
    isLow,
    receive,
    nUnsaved: waiting.filter((action) => !action.path && seenTasks.has(action.values.task)).length,
    refillIfLow() { // runs in the background; callers await it if the queue is empty
      if (isLow()) refilling ??= refill().finally(() => { refilling = null; });
      return refilling;
    },
    moveToFront(statement) {
      ahead.unshift(...answered.splice(answered.indexOf(statement), 1));
    },
  };
}
