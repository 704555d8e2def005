// Column selection for wide tables. The selection and the switches of all tables are stored in the URL.
const FEWEST = 6;

const address = () => new URL(location);

function remember(name, value) {
  const changed = address();
  if (value) changed.searchParams.set(name, value);
  else changed.searchParams.delete(name);
  history.replaceState(history.state, "", changed);
}

// Headers of single columns. The first header can also span the row of group headers.
function headsOf({ rows }) {
  const [first, last] = [rows[0], rows[rows.length - 1]];
  return first !== last && first.cells[0].rowSpan > 1 ? [first.cells[0], ...last.cells] : [...last.cells];
}

// Headers of groups of columns, with the numbers of their columns.
function groupsOf({ rows }) {
  if (rows.length < 2) return [];
  let next = 0;
  return [...rows[0].cells].map((cell) => {
    const columns = Array.from({ length: cell.colSpan }, () => next++);
    return { cell, columns };
  }).filter(({ cell }) => cell.rowSpan < 2);
}

function offer(table) {
  const heads = headsOf(table.tHead);
  if (heads.length < FEWEST) return;
  const groups = groupsOf(table.tHead);
  const name = `without-${table.dataset.table}`;
  const off = new Set((address().searchParams.get(name) ?? "").split(",").filter(Boolean).map(Number));

  const show = () => {
    title.textContent = off.size ? `Columns, ${off.size} hidden` : "Columns";
    for (const { cell, columns } of groups) {
      const shown = columns.filter((column) => !off.has(column)).length;
      cell.hidden = !shown;
      cell.colSpan = shown || 1;
    }
    for (const [column, head] of heads.entries()) head.hidden = off.has(column);
    for (const row of [...table.tBodies, table.tFoot].flatMap((part) => [...(part?.rows ?? [])])) {
      if (row.cells.length === heads.length) for (const [column, cell] of [...row.cells].entries()) cell.hidden = off.has(column);
    }
  };

  const choice = document.createElement("details");
  choice.className = "folded small";
  const title = document.createElement("summary");
  const boxes = document.createElement("div");
  boxes.className = "row";
  for (const [column, head] of heads.entries()) {
    if (!column) continue;
    const group = groups.find(({ columns }) => columns.includes(column))?.cell.textContent.trim();
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = !off.has(column);
    box.addEventListener("change", () => {
      if (box.checked) off.delete(column);
      else off.add(column);
      remember(name, [...off].sort((a, b) => a - b).join(","));
      show();
    });
    label.append(box, ` ${[group, head.textContent.trim()].filter(Boolean).join(" · ")}`);
    boxes.append(label);
  }
  choice.append(title, boxes);
  table.parentElement.before(choice);
  show();
}

export function offerColumns(root) {
  for (const box of root.querySelectorAll("[data-switch]")) {
    box.checked ||= address().searchParams.has(box.dataset.switch);
    box.addEventListener("change", () => remember(box.dataset.switch, box.checked ? "1" : ""));
  }
  for (const table of root.querySelectorAll("table[data-table]")) offer(table);
}

offerColumns(document);
