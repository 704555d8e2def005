// The page of a rehearsal: sliders say what they stand at, and the outcome follows them. Without it, the button does.
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
      if (response.redirected) return location.assign(`?${query}`); // logged out, or no draft any more
      if (response.ok) outcome.innerHTML = await response.text();
      outcome.removeAttribute("aria-busy");
    } catch (error) {
      // Asked anew meanwhile, and busy with that; or no answer: the outcome stays as it was.
      if (error.name !== "AbortError") outcome.removeAttribute("aria-busy");
    }
  };

  form.addEventListener("input", ({ target }) => {
    const shown = target.parentElement.querySelector("output");
    if (shown) shown.value = target.value;
    clearTimeout(timer);
    if (form.checkValidity()) timer = setTimeout(refresh, 400);
  });
})();
