// Lets one search among relations to choose, and counts what is chosen. Without it the sets open and the boxes tick.
(() => {
  const chooser = document.querySelector("[data-chooser]");
  if (!chooser) return;
  const search = chooser.querySelector("[data-chooser-search]");
  const count = chooser.querySelector("[data-chooser-count]");
  const sets = [...chooser.querySelectorAll("[data-chooser-set]")].map((element) => ({
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

  // Whole sets travel as one field, so their relations need not travel too.
  const follow = ({ whole, choices }) => {
    for (const { box } of choices) {
      if (!isReady.has(box)) continue;
      if (whole.checked) box.checked = true;
      box.disabled = whole.checked;
    }
  };

  const tell = () => {
    const n = ready.filter(({ box }) => box.checked).length;
    count.textContent = `${n.toLocaleString("en")} of ${ready.length.toLocaleString("en")} chosen`;
  };

  const find = () => {
    const wanted = search.value.trim().toLowerCase();
    for (const { element, details, choices } of sets) {
      let n = 0;
      for (const { item, text } of choices) {
        item.hidden = !text.includes(wanted);
        n += !item.hidden;
      }
      element.hidden = !n;
      if (wanted) details.open = n > 0;
    }
  };

  for (const set of sets) {
    set.whole.addEventListener("change", () => {
      follow(set);
      if (!set.whole.checked) set.choices.forEach(({ box }) => { box.checked = false; });
      tell();
    });
    follow(set);
  }
  chooser.addEventListener("change", tell);
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault(); // it would send the form
  });
  chooser.querySelector("[data-chooser-tools]").hidden = false;
  tell();
})();
