// Live update of the power simulation: slider values and results. Without JavaScript, users submit the form.
(() => {
  const form = document.querySelector("[data-rehearsal]");
  const outcome = document.querySelector("[data-outcome]");
  let request = null;
  let timer = 0;

  const refresh = async () => {
    const query = new URLSearchParams(new FormData(form));
    history.replaceState(null, "", `?${query}`);
    request?.abort();
    request = new AbortController();
    outcome.setAttribute("aria-busy", "true");
    try {
      const response = await fetch(`?${query}&part=outcome`, { signal: request.signal });
      if (response.redirected) return location.assign(`?${query}`); // logged out, or the round is no longer a draft
      if (response.ok) outcome.innerHTML = await response.text();
      outcome.removeAttribute("aria-busy");
    } catch (error) {
      // An aborted request was replaced by a newer one, which is still busy. After other errors, keep the old results.
      if (error.name !== "AbortError") outcome.removeAttribute("aria-busy");
    }
  };

  form.addEventListener("input", ({ target }) => {
    const output = target.parentElement.querySelector("output");
    if (output) output.value = target.value;
    clearTimeout(timer);
    if (form.checkValidity()) timer = setTimeout(refresh, 400);
  });
})();
