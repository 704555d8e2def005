// Power simulation page: shows slider values and updates the outcome. Without JavaScript, the button updates it.
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
      if (response.redirected) return location.assign(`?${query}`); // logged out, or the draft is gone
      if (response.ok) outcome.innerHTML = await response.text();
      outcome.removeAttribute("aria-busy");
    } catch (error) {
      // A newer request is pending, or the server did not answer: keep the current outcome.
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
