// Launch form: updates the estimate next to the button while the form changes. Without JavaScript, a button does the same.
(() => {
  const form = document.querySelector("[data-launch-form]");
  if (!form) return;
  const estimate = form.querySelector("[data-estimate]");
  let timer = 0;
  let request = null;

  const refresh = async () => {
    request?.abort();
    request = new AbortController();
    const body = new FormData(form);
    body.set("estimate", "1");
    const response = await fetch(form.action, { method: "POST", body, signal: request.signal }).catch(() => null);
    if (response?.ok) estimate.innerHTML = await response.text();
  };

  // The additional LMs and settings do not list the selected one.
  const hideSelected = () => {
    for (const { name, value } of form.querySelectorAll("select[name=models], select[name=settings]")) {
      for (const box of form.querySelectorAll(`input[name=${name}]`)) box.closest("label").hidden = box.value === value;
    }
  };

  form.addEventListener("input", () => {
    hideSelected();
    clearTimeout(timer);
    timer = setTimeout(refresh, 300);
  });
  // An invalid field in a closed section would block the form without a visible message.
  form.addEventListener("invalid", ({ target }) => {
    for (let section = target.closest("details"); section; section = section.parentElement.closest("details")) section.open = true;
  }, true);
  hideSelected();
  refresh();
})();
