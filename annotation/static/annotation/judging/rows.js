// Rows of a page of statements: answers, current focus, and navigation.
export function readRows(form, onEnd) {
  const rows = [...form.querySelectorAll("[data-row]")];
  const radios = (row) => [...row.querySelectorAll("input[type=radio]")];
  const chosen = (row) => radios(row).find((radio) => radio.checked);
  const isOpen = (row) => !chosen(row) && !row.disabled;
  const current = () => document.activeElement.closest("[data-row]") ?? rows.find(isOpen) ?? rows[0];

  function focus(row) { // without a row, focuses the end of the page
    const target = row ? chosen(row) ?? radios(row)[0] : onEnd;
    target.focus({ preventScroll: true });
    (row ?? target).scrollIntoView({ block: "center" });
  }

  return {
    rows,
    chosen,
    isOpen,
    current,
    focus,
    ofTask: (task) => rows.find((row) => row.dataset.row === task),
    choose: (row, label) => radios(row).forEach((radio) => { radio.checked = radio.value === label; }),
    focusNextOpen(row) {
      const after = rows.indexOf(row) + 1;
      focus([...rows.slice(after), ...rows.slice(0, after)].find(isOpen));
    },
    step(by) {
      focus(rows[Math.min(rows.length - 1, Math.max(0, rows.indexOf(current()) + by))]);
    },
  };
}
