// Rows of a page of statements: answers, current focus, and navigation.
export function readRows(form, onEnd) {
  const rows = [...form.querySelectorAll("[data-row]")];
  const radios = (row) => [...row.querySelectorAll("input[type=radio]:not([data-part])")];
  const partRadios = (row) => [...row.querySelectorAll("input[data-part]")]; // only if the round asks for wrong parts
  const chosen = (row) => radios(row).find((radio) => radio.checked);
  const wrongPart = (row) => (chosen(row)?.value === "false" && partRadios(row).find((radio) => radio.checked)?.value) || "";
  const isAskingPart = (row) => chosen(row)?.value === "false" && partRadios(row).length > 0 && !wrongPart(row);
  const isOpen = (row) => (!chosen(row) || isAskingPart(row)) && !row.disabled;
  const current = () => document.activeElement.closest("[data-row]") ?? rows.find(isOpen) ?? rows[0];

  function focus(row) { // without a row, focuses the button at the end of the page
    const target = row ? chosen(row) ?? radios(row)[0] : onEnd;
    target.focus({ preventScroll: true });
    (row ?? target).scrollIntoView({ block: "center" });
  }

  return {
    rows,
    chosen,
    wrongPart,
    isAskingPart,
    partRadios,
    isOpen,
    current,
    focus,
    ofTask: (task) => rows.find((row) => row.dataset.row === task),
    choose(row, label, part = "") {
      for (const radio of radios(row)) radio.checked = radio.value === label;
      for (const radio of partRadios(row)) radio.checked = radio.value === part;
    },
    focusNextOpen(row) {
      const after = rows.indexOf(row) + 1;
      focus([...rows.slice(after), ...rows.slice(0, after)].find(isOpen));
    },
    step(by) {
      focus(rows[Math.min(rows.length - 1, Math.max(0, rows.indexOf(current()) + by))]);
    },
  };
}
