// Shows the page of workers anew every three seconds, unless somebody is about to press one of its buttons.
(() => {
  const section = document.querySelector("[data-refreshed]");

  const refresh = async () => {
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (response.ok && !document.hidden && !section.contains(document.activeElement)) {
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        const fresh = page.querySelector("[data-refreshed]");
        if (fresh) section.replaceChildren(...fresh.childNodes);
        else return location.reload(); // logged out
      }
    } catch {
      // the server does not answer; the ages on the page stay as they are until it does
    }
    setTimeout(refresh, 3000);
  };
  setTimeout(refresh, 3000);
})();
