// Loaded in the head, before the first paint, so that a stored theme never flashes.
(() => {
  const KEY = "kgharvest-theme";
  const root = document.documentElement;
  const systemPrefersDark = matchMedia("(prefers-color-scheme: dark)");

  const systemTheme = () => (systemPrefersDark.matches ? "dark" : "light");
  const shownTheme = () => root.dataset.theme || systemTheme();
  const otherTheme = () => (shownTheme() === "dark" ? "light" : "dark");

  function stored() {
    try { return localStorage.getItem(KEY); } catch { return null; } // storage may be forbidden in a frame
  }

  // Choosing what the system asks for means following it again, so nothing is stored then.
  function store(theme) {
    try {
      if (theme === systemTheme()) localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, theme);
    } catch { /* the choice then lasts for this page only */ }
  }

  function show(theme) {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  }

  function nameSwitch(button) {
    button.dataset.offers = otherTheme();
    button.querySelector("[data-theme-name]").textContent = otherTheme() === "dark" ? "Dark theme" : "Light theme";
  }

  function bindSwitch(button) {
    nameSwitch(button);
    button.hidden = false;
    button.addEventListener("click", () => {
      const chosen = otherTheme();
      store(chosen);
      show(chosen);
      nameSwitch(button);
    });
    systemPrefersDark.addEventListener("change", () => nameSwitch(button));
  }

  show(stored());
  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-theme-switch]").forEach(bindSwitch);
  });
})();
