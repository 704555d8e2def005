// Brings a launch's page up to date every two seconds until it is over; then the page is loaded anew.
(() => {
  const part = document.querySelector("[data-launch]");
  if (!part) return;
  const url = part.dataset.launch + location.search;
  const text = part.querySelector(".progress > p");
  const bar = part.querySelector("progress");
  const number = (n) => n.toLocaleString("en");

  const span = (words, className = "") => {
    const element = document.createElement("span");
    element.className = className;
    element.textContent = words;
    return element;
  };

  const showProgress = (launch) => {
    const said = [span("harvests over", "stage"), span(`${number(launch.n_over)} of ${number(launch.n_jobs)}`)];
    if (launch.rate) said.push(span(launch.rate));
    if (launch.left) said.push(span(`${launch.left} left`));
    text.replaceChildren(...said.flatMap((element) => [element, " "]));
    [bar.max, bar.value] = [launch.n_jobs, launch.n_over];
    for (const [status, n] of Object.entries(launch.counts)) {
      part.querySelector(`[data-count="${status}"]`).textContent = number(n);
    }
    for (const form of document.querySelectorAll("[data-retry-all]")) {
      const n = launch.counts[form.dataset.retryAll];
      form.hidden = !n;
      form.querySelector("[data-n]").textContent = number(n);
    }
  };

  const stageOf = (job) => {
    if (job.status !== "running") return "";
    return job.total ? `${job.stage} ${number(job.done)} of ${number(job.total)}` : job.stage;
  };

  const showJob = (job) => {
    const row = document.querySelector(`tr[data-job="${job.id}"]`);
    if (!row) return; // it came onto the page since it was loaded
    const badge = row.querySelector(".badge");
    badge.className = `badge is-${job.status}`;
    badge.textContent = job.status_name;
    row.querySelector("[data-stage]").textContent = stageOf(job);
    row.querySelector("[data-tuples]").textContent = number(job.n_tuples);
    row.querySelector("[data-cancel]").hidden = !["queued", "running"].includes(job.status);
    row.querySelector("[data-retry]").hidden = !["failed", "cancelled"].includes(job.status);
  };

  const look = async () => {
    try {
      const response = await fetch(url, { headers: { Accept: "application/json" } });
      if (!response.ok) throw new Error(response.statusText);
      const launch = await response.json();
      if (!launch.is_unfinished) return location.reload();
      showProgress(launch);
      launch.jobs.forEach(showJob);
    } catch {
      text.replaceChildren(span("The server does not answer; trying again.", "stage"));
    }
    setTimeout(look, 2000);
  };
  setTimeout(look, 2000);
})();
