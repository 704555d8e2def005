// Filters and sorts a table in the browser. The page contains all rows. The URL stores the filter and the sort key.
(() => {
  const ROWS_PER_FRAME = 100;
  const rowsOf = (section) => [...section.querySelectorAll("[data-table] tbody tr")];

  const storeInUrl = (name, value) => {
    const url = new URL(location.href);
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
    history.replaceState(history.state, "", url);
  };

  const namesOf = (row) => [...row.cells].filter((cell) => !cell.classList.contains("num")).map((cell) => cell.textContent).join(" ").toLowerCase().replaceAll("_", " ");

  const matches = (row, words) => {
    const names = (row.names ??= namesOf(row));
    return words.every((word) => names.includes(word));
  };

  // Shows the first rows immediately and the others in later frames, because layout of thousands of rows is slow.
  const reveal = (section, rows) => {
    cancelAnimationFrame(section.frame);
    for (const row of rows.splice(0, ROWS_PER_FRAME)) row.hidden = false;
    if (rows.length) section.frame = requestAnimationFrame(() => reveal(section, rows));
  };

  const show = (section) => {
    const words = section.querySelector("[data-filter]").value.toLowerCase().replaceAll("_", " ").split(/\s+/).filter(Boolean);
    const matchingRows = [];
    for (const row of rowsOf(section)) {
      if (matches(row, words)) matchingRows.push(row);
      else row.hidden = true;
    }
    section.querySelector("[data-n-shown]").textContent = matchingRows.length.toLocaleString("en");
    reveal(section, matchingRows);
  };

  // The second header row starts after the column that spans both rows.
  const columnOf = (head) => head.cellIndex + head.parentElement.rowIndex;

  const valueIn = (cell, isNumber) => {
    const text = cell?.dataset.value ?? cell?.textContent.trim() ?? "";
    return isNumber && text ? Number(text.replaceAll(",", "")) : text;
  };

  const sort = (section, link) => {
    const head = link.closest("th");
    const isNumber = head.classList.contains("num");
    const currentOrder = head.getAttribute("aria-sort");
    const isDescending = currentOrder ? currentOrder === "ascending" : isNumber;
    const column = columnOf(head);
    const sign = isDescending ? -1 : 1;
    const valued = rowsOf(section).map((row) => [valueIn(row.cells[column], isNumber), row]);
    valued.sort(([a], [b]) => (a === "") - (b === "") || sign * (isNumber ? a - b : a.localeCompare(b)));
    for (const [, row] of valued) row.hidden = true;
    section.querySelector("[data-table] tbody").append(...valued.map(([, row]) => row));
    show(section);
    section.querySelector("[data-table] [aria-sort]")?.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
    const key = (isDescending ? "-" : "") + link.dataset.key;
    const field = section.querySelector("input[name=sort]");
    if (field) field.value = key;
    storeInUrl("sort", key);
  };

  document.addEventListener("input", ({ target }) => {
    if (!target.matches("[data-filter]")) return;
    show(target.closest("[data-table-section]"));
    storeInUrl("q", target.value.trim());
  });
  document.addEventListener("submit", (event) => {
    if (event.target.querySelector("[data-filter]")) event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-table] .sort");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    sort(link.closest("[data-table-section]"), link);
  });
})();
