// Brings the numbers of a round's page up to date every few seconds while the tab is in sight.
(() => {
  const source = document.querySelector("[data-live]");
  const bar = source.querySelector("progress");
  const pace = source.querySelector("[data-pace]");
  const figureElements = [...document.querySelectorAll("[data-figure]")];

  const show = ({ done, total, figures }) => {
    [bar.max, bar.value] = [total, done];
    pace.hidden = figures.time_left === "–";
    for (const element of figureElements) {
      const text = figures[element.dataset.figure];
      if (text !== undefined && text !== element.textContent) element.textContent = text;
    }
  };

  setInterval(async () => {
    if (document.hidden) return;
    const response = await fetch(source.dataset.live + location.search).catch(() => null);
    if (!response?.ok || response.redirected) return;
    const progress = await response.json();
    if (progress.status !== source.dataset.status) return location.reload();
    show(progress);
  }, 5000);
})();
