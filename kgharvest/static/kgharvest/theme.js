// Loaded in the head, before the first paint, so that the page does not flash in the wrong theme.
(() => {
  const KEY = "kgharvest-theme";
  const root = document.documentElement;
  const systemPrefersDark = matchMedia("(prefers-color-scheme: dark)");

  const systemTheme = () => (systemPrefersDark.matches ? "dark" : "light");
  const shownTheme = () => root.dataset.theme || systemTheme();
  const otherTheme = () => (shownTheme() === "dark" ? "light" : "dark");

  function storedTheme() {
    try { return localStorage.getItem(KEY); } catch { return null; } // storage may be blocked in a frame
  }

  function storeTheme(theme) {
    try {
      if (theme) localStorage.setItem(KEY, theme);
      else localStorage.removeItem(KEY);
    } catch { /* the choice then applies to this page only */ }
  }

  function show(theme) {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  }

  // Choosing the system's theme removes the override.
  function choose(theme) {
    const override = theme === systemTheme() ? null : theme;
    storeTheme(override);
    show(override);
  }

  function nameSwitch(button) {
    button.dataset.offers = otherTheme();
    button.querySelector("[data-theme-name]").textContent = otherTheme() === "dark" ? "Dark theme" : "Light theme";
  }

  function bindSwitch(button) {
    nameSwitch(button);
    button.hidden = false;
    button.addEventListener("click", () => {
      choose(otherTheme());
      nameSwitch(button);
    });
    systemPrefersDark.addEventListener("change", () => nameSwitch(button));
  }

  show(storedTheme());
  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-theme-switch]").forEach(bindSwitch);
  });
})();
