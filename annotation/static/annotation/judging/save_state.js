// The save state of the answers: a quiet dot with a word or two; what goes wrong gets a sentence and is announced.
const LATE = "One answer came late: its statement had been taken back. It is kept, and counts only if nobody else has taken it.";
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
    if (isOffline) return `${waiting} waiting, ${navigator.onLine ? "trying again" : "offline"}`;
    return isRefused ? `${waiting} waiting` : "Saving";
  };
  const change = (waiting, problem) => {
    last = [waiting, problem];
    const isOffline = problem === "offline" || (wasOffline && waiting > 0 && !problem && !navigator.onLine);
    const isRefused = Boolean(problem) && !isOffline;
    saved.textContent = words(waiting, isOffline, isRefused);
    saved.className = `saved ${isOffline || isRefused || !navigator.onLine ? "is-waiting" : waiting ? "is-saving" : ""}`;
    if (isRefused && refusal !== problem) warn(problem);
    if (!waiting && refusal && trouble.textContent === refusal) trouble.hidden = true; // taken after all
    refusal = isRefused ? problem : waiting ? refusal : null;
    if (isOffline && !wasOffline) announce("Not connected. Your answers are kept in this browser until they are saved.");
    if (!isOffline && wasOffline && !waiting) announce("Connected again, all answers are saved.");
    wasOffline = isOffline;
  };
  for (const name of ["online", "offline"]) addEventListener(name, () => change(...last));
  saved.hidden = false;
  return {
    announce,
    warn,
    takeUnread() { // whether there is a warning that nobody may have read: going on to the next page would remove it
      const was = isUnread;
      isUnread = false;
      return was;
    },
    answered(secondsTaken) {
      [seconds, n] = [seconds + secondsTaken, n + 1];
      if (n >= PACE_FROM) pace.textContent = `${Math.max(1, Math.round(seconds / n))} s each`;
    },
    change,
    stored: (reply) => reply.late && warn(LATE),
  };
}
