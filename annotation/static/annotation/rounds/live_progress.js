// Updates the round page while the tab is visible: figures every few seconds, tables and charts less often.
(() => {
  const RENEW_AFTER_MS = 30000;
  const source = document.querySelector("[data-live]");
  const bar = source.querySelector("progress");
  const pace = source.querySelector("[data-pace]");
  const figureElements = [...document.querySelectorAll("[data-figure]")];
  let renewedAt = Date.now();
  let isRenewed = true;

  const show = ({ done, total, figures }) => {
    isRenewed &&= bar.value === done;
    [bar.max, bar.value] = [total, done];
    pace.hidden = figures.time_left === "–";
    for (const element of figureElements) {
      const text = figures[element.dataset.figure];
      if (text !== undefined && text !== element.textContent) element.textContent = text;
    }
  };

  const fetchOk = async (url) => {
    const response = await fetch(url).catch(() => null);
    return response?.ok && !response.redirected ? response : null;
  };

  // Requests the page again with the same filters and sorting, which the URL contains, and replaces its parts. A part
  // that has the focus or the pointer is not replaced.
  const renewRest = async () => {
    [renewedAt, isRenewed] = [Date.now(), true];
    const response = await fetchOk(location.href);
    if (!response) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of document.querySelectorAll("[data-fresh]")) {
      const renewed = page.querySelector(`[data-fresh="${part.dataset.fresh}"]`);
      if (renewed && !part.contains(document.activeElement) && !part.matches(":hover")) part.replaceWith(renewed);
    }
  };

  setInterval(async () => {
    if (document.hidden) return;
    const response = await fetchOk(source.dataset.live);
    if (!response) return;
    const progress = await response.json();
    if (progress.status !== source.dataset.status) return location.reload();
    show(progress);
    if (!isRenewed && Date.now() - renewedAt > RENEW_AFTER_MS) await renewRest();
  }, 5000);
})();
