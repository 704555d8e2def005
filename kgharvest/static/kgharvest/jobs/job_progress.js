// Updates the progress of a job (harvest, probe, score evaluation) every second; reloads the page when its status changes.
(() => {
  const section = document.querySelector("[data-job]");
  if (!section) return;
  const text = section.querySelector(".progress > p");
  const bar = section.querySelector("progress");
  let latest = { total: null, done: 0 };
  let stageStart = { at: 0, done: 0 }; // first observation of this stage: time in ms, and progress

  const span = (label, className = "") => {
    const element = document.createElement("span");
    element.className = className;
    element.textContent = label;
    return element;
  };

  const duration = (seconds) => (seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`);

  const pace = (job) => {
    const perSecond = (job.done - stageStart.done) / ((Date.now() - stageStart.at) / 1000);
    if (!job.total || !(perSecond > 0) || !Number.isFinite(perSecond)) return [];
    const rate = perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond).toLocaleString("en");
    return [span(`${rate} per second`), span(`${duration((job.total - job.done) / perSecond)} left`)];
  };

  const show = (job) => {
    if (job.total !== latest.total || job.done < latest.done) stageStart = { at: Date.now(), done: job.done };
    latest = job;
    const parts = [span(job.stage || "waiting for a worker", "stage")];
    if (job.total) parts.push(span(`${job.done.toLocaleString("en")} of ${job.total.toLocaleString("en")}`), ...pace(job));
    text.replaceChildren(...parts.flatMap((element) => [element, " "]));
    if (job.total) [bar.max, bar.value] = [job.total, job.done];
    else bar.removeAttribute("value");
  };

  const poll = async () => {
    try {
      const response = await fetch(section.dataset.job, { headers: { Accept: "application/json" } });
      if (!response.ok) throw new Error(response.statusText);
      const job = await response.json();
      if (!job.is_unfinished || job.status !== section.dataset.status) return location.reload();
      show(job);
    } catch {
      text.replaceChildren(span("The server does not respond. Retrying.", "stage"));
    }
    setTimeout(poll, 1000);
  };
  poll();
})();
