// Updates the launch page every two seconds while harvests are unfinished, then reloads the page.
(() => {
  const section = document.querySelector("[data-launch]");
  if (!section) return;
  const url = section.dataset.launch + location.search;
  const text = section.querySelector(".progress > p");
  const bar = section.querySelector(".state-bar");
  const number = (n) => n.toLocaleString("en");

  const span = (label, className = "") => {
    const element = document.createElement("span");
    element.className = className;
    element.textContent = label;
    return element;
  };

  const showProgress = (launch) => {
    const parts = [span("harvested", "stage"), span(`${number(launch.counts.succeeded)} of ${number(launch.n_jobs)}`)];
    if (launch.rate) parts.push(span(launch.rate));
    if (launch.left) parts.push(span(`${launch.left} left`));
    text.replaceChildren(...parts.flatMap((element) => [element, " "]));
    const summary = Object.entries(launch.counts).filter(([, n]) => n).map(([status, n]) => `${number(n)} ${status.replace("cancelled", "canceled")}`);
    bar.setAttribute("aria-label", `${bar.getAttribute("aria-label").split(":")[0]}: ${summary.join(" ")}`);
    for (const [status, start, width] of launch.bar) {
      const segment = bar.querySelector(`.is-${status}`);
      segment.setAttribute("x", start);
      segment.setAttribute("width", width);
    }
    for (const [status, n] of Object.entries(launch.counts)) {
      section.querySelector(`[data-count="${status}"]`).textContent = number(n);
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
    const row = document.querySelector(`tr[data-job="${job.pk}"]`);
    if (!row) return; // the row is on another page of the table
    const badge = row.querySelector(".badge");
    badge.className = `badge is-${job.noise_warning ? "warning" : job.status}`;
    badge.textContent = job.status_name + (job.noise_warning ? ", warning" : "");
    row.querySelector("[data-stage]").textContent = stageOf(job);
    row.querySelector("[data-tuples]").textContent = number(job.n_tuples);
    row.querySelector("[data-cancel]").hidden = !["queued", "running"].includes(job.status);
    row.querySelector("[data-retry]").hidden = !["failed", "cancelled"].includes(job.status);
  };

  const poll = async () => {
    try {
      const response = await fetch(url, { headers: { Accept: "application/json" } });
      if (!response.ok) throw new Error(response.statusText);
      const launch = await response.json();
      if (!launch.is_unfinished) return location.reload();
      showProgress(launch);
      launch.jobs.forEach(showJob);
    } catch {
      text.replaceChildren(span("The server does not respond. Retrying.", "stage"));
    }
    setTimeout(poll, 2000);
  };
  setTimeout(poll, 2000);
})();
