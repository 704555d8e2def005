// Lists of all pages: filtered as one types, with heads that stay in sight; addresses keep filters and opened parts.
(() => {
  // -- filters: the server filters, however many rows there are; what stands below the form is replaced
  const addressOf = (form) => {
    const address = new URL(form.getAttribute("action") ?? "", location.href);
    address.search = "";
    for (const [name, value] of new FormData(form)) if (value.trim()) address.searchParams.append(name, value.trim());
    const sort = new URLSearchParams(location.search).get("sort");
    if (sort && !address.searchParams.has("sort")) address.searchParams.set("sort", sort);
    return address;
  };

  const after = (form) => {
    const parts = [];
    for (let part = form.nextElementSibling; part; part = part.nextElementSibling) parts.push(part);
    return parts;
  };

  const live = (form) => {
    let timer = 0;
    let request = null;
    form.querySelector(".count")?.setAttribute("role", "status");

    const apply = async () => {
      const address = addressOf(form);
      request?.abort();
      request = new AbortController();
      const response = await fetch(address, { signal: request.signal }).catch(() => null);
      if (!response?.ok) return; // asked anew meanwhile, half a date, no answer: the button is there
      const text = await response.text().catch(() => null);
      if (text === null) return; // asked anew while it came
      const page = new DOMParser().parseFromString(text, "text/html");
      const renewed = page.querySelector("form.filters[role=search]");
      if (!renewed) return location.assign(address);
      for (const part of after(form)) part.remove();
      form.after(...after(renewed));
      const head = page.querySelector(".page-head"); // its title and buttons may be of what is filtered
      if (head) document.querySelector(".page-head")?.replaceWith(head);
      document.title = page.title;
      const count = form.querySelector(".count");
      if (count) count.textContent = renewed.querySelector(".count")?.textContent ?? "";
      history.replaceState(history.state, "", address);
      keepHeads();
    };

    form.addEventListener("input", ({ target }) => {
      clearTimeout(timer);
      timer = setTimeout(apply, target.matches("select") ? 0 : 250);
    });
  };

  // -- heads: sticky where the table is not wider than its frame, which would have to scroll
  const fits = new ResizeObserver((entries) => {
    for (const { target } of entries) target.classList.toggle("fits", target.scrollWidth <= target.clientWidth);
  });
  const keepHeads = () => {
    for (const frame of document.querySelectorAll(".table-wrap:not(.tall)")) fits.observe(frame);
  };

  // -- parts: what is unfolded is in the address
  const openParts = () => (new URLSearchParams(location.search).get("open") ?? "").split(",").filter(Boolean);

  const remember = ({ target }) => {
    const fold = target.closest("details[data-part] > summary")?.parentElement;
    if (!fold) return;
    const parts = new Set(openParts());
    parts[fold.open ? "delete" : "add"](fold.dataset.part); // it is about to change
    const address = new URL(location.href);
    if (parts.size) address.searchParams.set("open", [...parts].join(","));
    else address.searchParams.delete("open");
    history.replaceState(history.state, "", address);
  };

  document.querySelectorAll("form.filters[role=search][method=get]:not([data-table-section] form)").forEach(live);
  keepHeads();
  for (const part of openParts()) document.querySelector(`details[data-part="${CSS.escape(part)}"]`)?.setAttribute("open", "");
  document.addEventListener("click", remember);
})();
