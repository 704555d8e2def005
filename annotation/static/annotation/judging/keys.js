// Keyboard shortcuts, inactive in text fields and while a dialog is open. The templates show the same keys (kbd).
const NAMES = {
  t: "true", 1: "true", f: "false", 2: "false", u: "unjudgeable", 3: "unjudgeable",
  s: "skip", c: "comment", r: "report", "?": "instructions",
  backspace: "back", arrowleft: "left", arrowup: "up", arrowdown: "down", j: "down", k: "up",
};

// Letter of the key, or of its position on keyboards with non-Latin scripts.
const letterOf = ({ key, code }) => (/^[ -~]/.test(key) ? key.toLowerCase() : code.replace("Key", "").toLowerCase());

// actions: {name: function}. A function that returns false leaves the key to the browser. choosePart(number): called for
// digits; returns false if no question about parts is open.
export function listenToKeys(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (event.key === "Escape" && event.target.matches("textarea")) event.target.blur();
    if (event.target.matches("textarea, select, input:not([type=radio])") || document.querySelector("dialog[open]")) return;
    if (actions.choosePart && /^[1-9]$/.test(event.key) && actions.choosePart(Number(event.key)) !== false) return event.preventDefault();
    const action = actions[NAMES[letterOf(event)]];
    if (action && action(event) !== false) event.preventDefault();
  });
}
