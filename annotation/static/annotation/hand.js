// The statements in an annotator's hands: those ahead, of which [0] is in sight, and those answered, oldest first.
const ASK_AGAIN_MS = 2000;
const LOW = 4;

export function openHand({ url, queue, sent, earlier }) {
  const waiting = queue.all().filter((act) => act.path !== "report/");
  const isWaiting = ({ task }) => waiting.some((act) => act.values.task === task);
  const ahead = sent.filter((each) => each.label || !isWaiting(each));
  const known = new Set(sent.map((each) => each.task));
  const ask = () => fetch(url, { headers: { Accept: "application/json" } }).then((response) => response.json()).catch(() => null);
  let refilling = null;

  async function refill() {
    await queue.empty(); // the server gives new ones for those that it has answers to
    let reply = null;
    while (!(reply = await ask())) await new Promise((wake) => setTimeout(wake, ASK_AGAIN_MS));
    const fresh = (reply.tasks ?? []).filter((each) => !known.has(each.task));
    fresh.forEach((each) => known.add(each.task));
    ahead.push(...fresh);
  }

  return {
    ahead,
    behind: earlier,
    nAnsweredUnsaved: waiting.filter((act) => !act.path && known.has(act.values.task)).length,
    topUp() { // in the background; await it where nothing is ahead
      if (ahead.length < LOW) refilling ??= refill().finally(() => { refilling = null; });
      return refilling;
    },
    takeBack(each) {
      ahead.unshift(...earlier.splice(earlier.indexOf(each), 1));
    },
  };
}
