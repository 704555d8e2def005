// Round form: filters harvests and updates the plan while typing. Without this script, buttons do the same.
(() => {
  const form = document.querySelector("[data-round-form]");
  if (!form) return;
  const pick = form.querySelector("[data-pick]");
  const plan = form.querySelector("[data-plan]");
  const filters = ["find", "set", "lm", "setting"].map((name) => form.elements[name]);
  const all = pick.querySelector("[data-pick-shown]");
  let timer = 0;
  let filterTimer = 0;

  const rowsOf = () => [...pick.querySelectorAll("li[data-lm]")];
  const boxesOf = () => [...pick.querySelectorAll("li[data-lm] input")];

  const show = () => {
    const [find, ...rest] = filters;
    const words = find.value.trim().toLowerCase().replaceAll("_", " ");
    for (const row of rowsOf()) {
      const name = row.querySelector("b").textContent.toLowerCase();
      row.hidden = !name.includes(words) || rest.some((filter) => filter.value && row.dataset[filter.name] !== filter.value);
    }
  };

  const choose = (isChosen) => {
    for (const row of rowsOf()) if (!row.hidden) row.querySelector("input").checked = isChosen;
    changed();
  };

  // Returns a function that sends a request and aborts the previous request.
  const latestRequest = () => {
    let request = null;
    return async (url, body) => {
      request?.abort();
      request = new AbortController();
      const response = await fetch(url, { method: "POST", body, signal: request.signal }).catch(() => null);
      return response?.ok ? response.text() : null;
    };
  };
  const requestPlan = latestRequest();
  const requestList = latestRequest();

  const refresh = async () => {
    const text = await requestPlan(form.dataset.planUrl, new FormData(form));
    if (text !== null) plan.innerHTML = text;
  };

  // The server filters the harvests, because the page may not list all of them. The button that selects all listed
  // harvests is disabled until the server responds.
  const list = async () => {
    const body = new FormData(form);
    body.set("action", "filter");
    const text = await requestList(location.href, body);
    if (text === null) return;
    const page = new DOMParser().parseFromString(text, "text/html");
    for (const part of [".pick-list", "[data-listed]"]) pick.querySelector(part).replaceWith(page.querySelector(part));
    all.disabled = false;
    show();
  };

  const changed = () => {
    const n = boxesOf().filter((box) => box.checked).length;
    pick.querySelector("[data-chosen]").textContent = n;
    clearTimeout(timer);
    if (n) timer = setTimeout(refresh, 400);
  };

  for (const [name, isChosen] of [["shown", true], ["none", false]]) {
    const button = pick.querySelector(`[data-pick-${name}]`);
    button.hidden = false;
    button.addEventListener("click", () => choose(isChosen));
  }
  const isComplete = pick.querySelector("[data-complete]") !== null;
  pick.querySelector(".filters button").hidden = true;
  for (const filter of filters) {
    filter.addEventListener("input", (event) => {
      event.stopPropagation();
      show();
      if (isComplete) return;
      all.disabled = true;
      clearTimeout(filterTimer);
      filterTimer = setTimeout(list, 250);
    });
  }
  show();
  // An invalid field in a closed section would block the form without a visible message.
  form.addEventListener("invalid", ({ target }) => {
    for (let section = target.closest("details"); section; section = section.parentElement.closest("details")) section.open = true;
  }, true);
  form.querySelector("[data-plan-button]").hidden = true;
  form.addEventListener("input", changed);
  changed();
})();
