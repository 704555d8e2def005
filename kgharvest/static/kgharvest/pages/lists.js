// Lists: live filters, sticky table headers, and URLs that store filters and expanded sections.
(() => {
  // Filters: the server filters the rows, and its response replaces the elements after the form.
  const urlOf = (form) => {
    const url = new URL(form.getAttribute("action") ?? "", location.href);
    url.search = "";
    for (const [name, value] of new FormData(form)) if (value.trim()) url.searchParams.append(name, value.trim());
    const sort = new URLSearchParams(location.search).get("sort");
    if (sort && !url.searchParams.has("sort")) url.searchParams.set("sort", sort);
    return url;
  };

  const siblingsAfter = (form) => {
    const siblings = [];
    for (let sibling = form.nextElementSibling; sibling; sibling = sibling.nextElementSibling) siblings.push(sibling);
    return siblings;
  };

  const filterLive = (form) => {
    let timer = 0;
    let request = null;
    form.querySelector(".count")?.setAttribute("role", "status");

    const apply = async () => {
      const url = urlOf(form);
      request?.abort();
      request = new AbortController();
      const response = await fetch(url, { signal: request.signal }).catch(() => null);
      if (!response?.ok) return; // aborted by the next request, incomplete date, or no response: the button still works
      const text = await response.text().catch(() => null);
      if (text === null) return; // aborted by the next request
      const page = new DOMParser().parseFromString(text, "text/html");
      const newForm = page.querySelector("form.filters[role=search]");
      if (!newForm) return location.assign(url);
      for (const sibling of siblingsAfter(form)) sibling.remove();
      form.after(...siblingsAfter(newForm));
      const head = page.querySelector(".page-head"); // title and buttons can depend on the filters
      if (head) document.querySelector(".page-head")?.replaceWith(head);
      document.title = page.title;
      const count = form.querySelector(".count");
      if (count) count.textContent = newForm.querySelector(".count")?.textContent ?? "";
      history.replaceState(history.state, "", url);
      observeTables();
    };

    form.addEventListener("input", ({ target }) => {
      clearTimeout(timer);
      timer = setTimeout(apply, target.matches("select") ? 0 : 250);
    });
  };

  // Table headers: sticky if the table fits its container and does not scroll horizontally.
  const sizeObserver = new ResizeObserver((entries) => {
    for (const { target } of entries) target.classList.toggle("fits", target.scrollWidth <= target.clientWidth);
  });
  const observeTables = () => {
    for (const container of document.querySelectorAll(".table-wrap:not(.tall)")) sizeObserver.observe(container);
  };

  // Expanded sections: stored in the URL.
  const openParts = () => (new URLSearchParams(location.search).get("open") ?? "").split(",").filter(Boolean);

  const storeOpenParts = ({ target }) => {
    const details = target.closest("details[data-part] > summary")?.parentElement;
    if (!details) return;
    const parts = new Set(openParts());
    parts[details.open ? "delete" : "add"](details.dataset.part); // the state before the click
    const url = new URL(location.href);
    if (parts.size) url.searchParams.set("open", [...parts].join(","));
    else url.searchParams.delete("open");
    history.replaceState(history.state, "", url);
  };

  document.querySelectorAll("form.filters[role=search][method=get]:not([data-table-section] form)").forEach(filterLive);
  observeTables();
  for (const part of openParts()) document.querySelector(`details[data-part="${CSS.escape(part)}"]`)?.setAttribute("open", "");
  document.addEventListener("click", storeOpenParts);
})();
