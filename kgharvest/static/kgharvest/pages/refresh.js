// Refreshes a section of the page every few seconds (data-refreshed), unless one of its elements has the focus.
(() => {
  const section = document.querySelector("[data-refreshed]");
  const everyMs = 1000 * section.dataset.refreshed;
  const isIdle = () => !document.hidden && !section.contains(document.activeElement);

  const refresh = async () => {
    try {
      const response = isIdle() && (await fetch(location.href, { headers: { Accept: "text/html" } }));
      if (response?.ok && isIdle()) {
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        const newSection = page.querySelector("[data-refreshed]");
        if (newSection) section.replaceChildren(...newSection.childNodes);
        else return location.reload(); // logged out
      }
    } catch {
      // If the server does not respond, the page shows the last status until it does.
    }
    setTimeout(refresh, everyMs);
  };
  setTimeout(refresh, everyMs);
})();
