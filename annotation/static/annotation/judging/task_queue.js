// The statements in an annotator's hands: those ahead, of which [0] is in sight, and those answered, oldest first.
// More come with the reply to an answer; they are asked for only where no answer is on its way.
const ASK_AGAIN_MS = 2000;
const LOW = 4;

// onFirst: called when there is something ahead again.
export function openHand({ url, queue, sent, earlier, onFirst }) {
  const waiting = queue.all().filter((act) => act.path !== "report/");
  const isWaiting = ({ task }) => waiting.some((act) => act.values.task === task);
  const ahead = sent.filter((each) => each.label || !isWaiting(each));
  const known = new Set(sent.map((each) => each.task));
  const ask = () => fetch(url, { headers: { Accept: "application/json" } }).then((response) => response.json()).catch(() => null);
  let [refilling, nReplies] = [null, 0];

  const isLow = () => ahead.length < LOW;

  function receive({ tasks }) {
    if (!tasks) return;
    nReplies += 1;
    const wasEmpty = !ahead.length;
    const fresh = tasks.filter((each) => !known.has(each.task));
    fresh.forEach((each) => known.add(each.task));
    ahead.push(...fresh);
    if (wasEmpty && fresh.length) onFirst(); // at once: a key answers what is ahead, so it must be in sight
  }

  async function refill() {
    const before = nReplies;
    await queue.empty(); // the server gives new ones for those that it has answers to
    if (nReplies > before) return;
    let reply = null;
    while (!(reply = await ask())) await new Promise((wake) => setTimeout(wake, ASK_AGAIN_MS));
    receive(reply);
  }

  return {
    ahead,
    behind: earlier,
    isLow,
    receive,
    nAnsweredUnsaved: waiting.filter((act) => !act.path && known.has(act.values.task)).length,
    topUp() { // in the background; await it where nothing is ahead
      if (isLow()) refilling ??= refill().finally(() => { refilling = null; });
      return refilling;
    },
    takeBack(each) {
      ahead.unshift(...earlier.splice(earlier.indexOf(each), 1));
    },
  };
}
