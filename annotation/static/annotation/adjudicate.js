// One key for each answer. Without this script the page works as a plain form.
(() => {
  const buttons = [...document.querySelectorAll("[data-answers] .answer")];
  const keys = { t: 0, 1: 0, f: 1, 2: 1, u: 2, 3: 2 };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (event.target.matches("input, select, textarea")) return;
    const key = event.key.toLowerCase();
    if (key in keys) buttons[keys[key]].click();
    else if (key === "s") document.querySelector("[data-skip]").click();
    else return;
    event.preventDefault();
  });
})();
