// Active time in seconds. It is counted while the tab is visible, for at most a minute after the last activity.
const IDLE_MS = 60_000;
const ACTIVITIES = ["keydown", "pointerdown", "pointermove", "scroll", "focus"];

export function startTimer() {
  let [active, last, wasVisible] = [0, Date.now(), !document.hidden];
  const count = () => {
    const now = Date.now();
    if (wasVisible) active += Math.min(now - last, IDLE_MS);
    [last, wasVisible] = [now, !document.hidden];
  };
  for (const activity of ACTIVITIES) addEventListener(activity, count, { passive: true });
  document.addEventListener("visibilitychange", count);
  return {
    take() { // seconds since the last call
      count();
      const seconds = active / 1000;
      active = 0;
      return seconds;
    },
  };
}
