// Relation picker: search and selection count. Without JavaScript, the sets and checkboxes still work.
(() => {
  const picker = document.querySelector("[data-picker]");
  if (!picker) return;
  const search = picker.querySelector("[data-picker-search]");
  const count = picker.querySelector("[data-picker-count]");
  const sets = [...picker.querySelectorAll("[data-picker-set]")].map((element) => ({
    element,
    whole: element.querySelector("[name=sets]"),
    details: element.querySelector("details"),
    choices: [...element.querySelectorAll("li")].map((item) => ({
      item,
      box: item.querySelector("input"),
      text: item.textContent.toLowerCase(),
    })),
  }));
  const ready = sets.flatMap(({ choices }) => choices.filter(({ box }) => !box.disabled));
  const isReady = new Set(ready.map(({ box }) => box));

  // The form submits a whole set as one field. Its relations are disabled, so that they are not submitted as well.
  const syncWithSet = ({ whole, choices }) => {
    for (const { box } of choices) {
      if (!isReady.has(box)) continue;
      if (whole.checked) box.checked = true;
      box.disabled = whole.checked;
    }
  };

  const showCount = () => {
    const n = ready.filter(({ box }) => box.checked).length;
    count.textContent = `${n.toLocaleString("en")} of ${ready.length.toLocaleString("en")} selected`;
  };

  const filterRelations = () => {
    const query = search.value.trim().toLowerCase();
    for (const { element, details, choices } of sets) {
      let n = 0;
      for (const { item, text } of choices) {
        item.hidden = !text.includes(query);
        n += !item.hidden;
      }
      element.hidden = !n;
      if (query) details.open = n > 0;
    }
  };

  for (const set of sets) {
    set.whole.addEventListener("change", () => {
      syncWithSet(set);
      if (!set.whole.checked) set.choices.forEach(({ box }) => { box.checked = false; });
      showCount();
    });
    syncWithSet(set);
  }
  picker.addEventListener("change", showCount);
  search.addEventListener("input", filterRelations);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault(); // Enter would submit the form
  });
  picker.querySelector("[data-picker-tools]").hidden = false;
  showCount();
})();
