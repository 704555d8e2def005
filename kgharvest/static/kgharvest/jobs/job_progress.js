// Shows how far a harvest, a probe or an evaluation of scores is, once a second, until it is over; then the page is loaded anew.
(() => {
  const section = document.querySelector("[data-job]");
  if (!section) return;
  const text = section.querySelector(".progress > p");
  const bar = section.querySelector("progress");
  let counted = { total: null, done: 0 }; // as seen last
  let since = 0; // when this count was first seen, in ms
  let doneThen = 0;

  const part = (words, className = "") => {
    const span = document.createElement("span");
    span.className = className;
    span.textContent = words;
    return span;
  };

  const duration = (seconds) => (seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`);

  const pace = (job) => {
    const perSecond = (job.done - doneThen) / ((Date.now() - since) / 1000);
    if (!job.total || !(perSecond > 0) || !Number.isFinite(perSecond)) return [];
    const rate = perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond).toLocaleString("en");
    return [part(`${rate} a second`), part(`${duration((job.total - job.done) / perSecond)} left`)];
  };

  const show = (job) => {
    if (job.total !== counted.total || job.done < counted.done) [since, doneThen] = [Date.now(), job.done];
    counted = job;
    const parts = [part(job.stage || "waiting for a worker", "stage")];
    if (job.total) parts.push(part(`${job.done.toLocaleString("en")} of ${job.total.toLocaleString("en")}`), ...pace(job));
    text.replaceChildren(...parts.flatMap((span) => [span, " "]));
    if (job.total) [bar.max, bar.value] = [job.total, job.done];
    else bar.removeAttribute("value");
  };

  const look = async () => {
    try {
      const response = await fetch(section.dataset.job, { headers: { Accept: "application/json" } });
      if (!response.ok) throw new Error(response.statusText);
      const job = await response.json();
      if (!job.is_unfinished || job.status !== section.dataset.status) return location.reload();
      show(job);
    } catch {
      text.replaceChildren(part("The server does not answer; trying again.", "stage"));
    }
    setTimeout(look, 1000);
  };
  look();
})();
