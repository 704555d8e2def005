// Brings the marked part of a round's page up to date every few seconds while the tab is in sight.
(() => {
  const part = (page) => page.querySelector("[data-live]");
  setInterval(async () => {
    if (document.hidden) return;
    const response = await fetch(location.href).catch(() => null);
    if (!response?.ok || response.redirected) return;
    const fresh = part(new DOMParser().parseFromString(await response.text(), "text/html"));
    if (fresh) part(document).replaceWith(fresh);
  }, 5000);
})();
