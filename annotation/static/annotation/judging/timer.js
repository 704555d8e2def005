// Seconds of active work: while the tab is in sight, and at most a minute after the last sign of life.
const IDLE_MS = 60_000;
const SIGNS = ["keydown", "pointerdown", "pointermove", "scroll", "focus"];

export function startTimer() {
  let [active, last, wasVisible] = [0, Date.now(), !document.hidden];
  const count = () => {
    const now = Date.now();
    if (wasVisible) active += Math.min(now - last, IDLE_MS);
    [last, wasVisible] = [now, !document.hidden];
  };
  for (const sign of SIGNS) addEventListener(sign, count, { passive: true });
  document.addEventListener("visibilitychange", count);
  return {
    take() { // the seconds since the last call
      count();
      const seconds = active / 1000;
      active = 0;
      return seconds;
    },
  };
}
