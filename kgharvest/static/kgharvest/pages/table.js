// Filters and sorts a table whose rows are all on the page, as one types and clicks; the address keeps what was asked.
(() => {
  const ROWS_A_FRAME = 100;
  const rowsOf = (section) => [...section.querySelectorAll("[data-table] tbody tr")];

  const remember = (name, value) => {
    const address = new URL(location.href);
    if (value) address.searchParams.set(name, value);
    else address.searchParams.delete(name);
    history.replaceState(history.state, "", address);
  };

  const namesOf = (row) => [...row.cells].filter((cell) => !cell.classList.contains("num")).map((cell) => cell.textContent).join(" ").toLowerCase();

  const matches = (row, words) => {
    const names = (row.names ??= namesOf(row));
    return words.every((word) => names.includes(word));
  };

  // What one sees changes at once, the rest in the frames that follow: laying out thousands of rows takes longer.
  const reveal = (section, rows) => {
    cancelAnimationFrame(section.frame);
    for (const row of rows.splice(0, ROWS_A_FRAME)) row.hidden = false;
    if (rows.length) section.frame = requestAnimationFrame(() => reveal(section, rows));
  };

  const show = (section) => {
    const words = section.querySelector("[data-filter]").value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = [];
    for (const row of rowsOf(section)) {
      if (matches(row, words)) fitting.push(row);
      else row.hidden = true;
    }
    section.querySelector("[data-n-shown]").textContent = fitting.length.toLocaleString("en");
    reveal(section, fitting);
  };

  // The second row of heads begins behind the column that both rows share.
  const columnOf = (head) => head.cellIndex + head.parentElement.rowIndex;

  const valueIn = (cell, isNumber) => {
    const text = cell?.dataset.value ?? cell?.textContent.trim() ?? "";
    return isNumber && text ? Number(text.replaceAll(",", "")) : text;
  };

  const sort = (section, link) => {
    const head = link.closest("th");
    const isNumber = head.classList.contains("num");
    const before = head.getAttribute("aria-sort");
    const isDescending = before ? before === "ascending" : isNumber;
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
    remember("sort", key);
  };

  document.addEventListener("input", ({ target }) => {
    if (!target.matches("[data-filter]")) return;
    show(target.closest("[data-table-section]"));
    remember("q", target.value.trim());
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
