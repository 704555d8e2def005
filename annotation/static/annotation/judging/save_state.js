// Save state of the answers: a dot with a short text. Problems are shown and announced as a sentence.
const LATE = "One answer was late: its statement had been released. The answer is stored but counts only if the statement still needed a judgment.";
const PACE_FROM = 5; // answers

export function showSaveState(root) {
  const [saved, pace, trouble, announcer] = ["saved", "pace", "trouble", "announce"].map((name) => root.querySelector(`[data-${name}]`));
  let [wasOffline, seconds, n, isUnread] = [false, 0, 0, false];
  let [last, refusal] = [[0, null], null];
  const announce = (text) => { announcer.textContent = text; };
  const warn = (sentence) => {
    trouble.textContent = sentence;
    trouble.hidden = !sentence;
    isUnread = true;
    announce(sentence);
  };
  const words = (waiting, isOffline, isRefused) => {
    if (!waiting) return navigator.onLine ? "Saved" : "Saved, offline";
    if (isOffline) return `${waiting} unsent, ${navigator.onLine ? "retrying" : "offline"}`;
    return isRefused ? `${waiting} unsent` : "Saving";
  };
  const change = (waiting, problem) => {
    last = [waiting, problem];
    const isOffline = problem === "offline" || (wasOffline && waiting > 0 && !problem && !navigator.onLine);
    const isRefused = Boolean(problem) && !isOffline;
    saved.textContent = words(waiting, isOffline, isRefused);
    saved.className = `saved ${isOffline || isRefused || !navigator.onLine ? "is-waiting" : waiting ? "is-saving" : ""}`;
    if (isRefused && refusal !== problem) warn(problem);
    if (!waiting && refusal && trouble.textContent === refusal) trouble.hidden = true; // the server accepted the action
    refusal = isRefused ? problem : waiting ? refusal : null;
    if (isOffline && !wasOffline) announce("You are offline. Your answers are stored in this browser until they can be sent.");
    if (!isOffline && wasOffline && !waiting) announce("You are back online. All answers are saved.");
    wasOffline = isOffline;
  };
  for (const name of ["online", "offline"]) addEventListener(name, () => change(...last));
  saved.hidden = false;
  return {
    announce,
    warn,
    takeUnread() { // returns whether there is a new warning, which would disappear with the next page
      const wasUnread = isUnread;
      isUnread = false;
      return wasUnread;
    },
    answered(secondsTaken) {
      [seconds, n] = [seconds + secondsTaken, n + 1];
      if (n >= PACE_FROM) pace.textContent = `${Math.max(1, Math.round(seconds / n))} s each`;
    },
    change,
    stored: (reply) => reply.late && warn(LATE),
  };
}
