// The form of a round: filter and choose harvests, and plan while one types. Without it, buttons do the same.
(() => {
  const form = document.querySelector("[data-round-form]");
  if (!form) return;
  const pick = form.querySelector("[data-pick]");
  const rows = [...pick.querySelectorAll("li[data-lm]")];
  const boxes = rows.map((row) => row.querySelector("input"));
  const chosen = pick.querySelector("[data-chosen]");
  const plan = form.querySelector("[data-plan]");
  const filters = ["find", "set", "lm", "setting"].map((name) => form.elements[name]);
  let request = null;
  let timer = 0;

  const show = () => {
    const [find, ...rest] = filters;
    const words = find.value.trim().toLowerCase();
    for (const row of rows) {
      const name = row.querySelector("b").textContent.toLowerCase();
      row.hidden = !name.includes(words) || rest.some((filter) => filter.value && row.dataset[filter.name] !== filter.value);
    }
  };

  const choose = (isChosen) => {
    for (const [index, box] of boxes.entries()) if (!rows[index].hidden) box.checked = isChosen;
    changed();
  };

  const refresh = async () => {
    request?.abort();
    request = new AbortController();
    try {
      const response = await fetch(form.dataset.planUrl, { method: "POST", body: new FormData(form), signal: request.signal });
      if (response.ok) plan.innerHTML = await response.text();
    } catch {
      // Asked anew meanwhile, or no answer: the plan stays as it was.
    }
  };

  const changed = () => {
    chosen.textContent = boxes.filter((box) => box.checked).length;
    clearTimeout(timer);
    if (boxes.some((box) => box.checked)) timer = setTimeout(refresh, 400);
  };

  for (const [name, isChosen] of [["shown", true], ["none", false]]) {
    const button = pick.querySelector(`[data-pick-${name}]`);
    button.hidden = false;
    button.addEventListener("click", () => choose(isChosen));
  }
  // All are listed: filtering needs no server, and so no button.
  const isComplete = pick.querySelector("[data-complete]") !== null;
  if (isComplete) {
    pick.querySelector(".filters button").hidden = true;
    for (const filter of filters) filter.addEventListener("input", (event) => { event.stopPropagation(); show(); });
    show();
  }
  // What is wrong inside a closed fold would keep the form from being sent without a word.
  form.addEventListener("invalid", ({ target }) => { const fold = target.closest("details"); if (fold) fold.open = true; }, true);
  form.querySelector("[data-plan-button]").hidden = true;
  form.addEventListener("input", changed);
  changed();
})();
