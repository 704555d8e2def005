// Statements and labels as elements.
const element = (name, className, ...children) => {
  const made = Object.assign(document.createElement(name), { className });
  made.append(...children);
  return made;
};
const NAMES = { true: "True", false: "False", unjudgeable: "Unjudgeable" };

export const marked = (parts) => parts.map(([text, isEntity]) => (isEntity ? element("b", "", text) : text));
export const linkTo = (href, text) => Object.assign(element("a", "", text), { href });
export const labelMark = (label) => element("span", `label is-${label}`, NAMES[label]);

export function recentRow({ label, parts }, onChange) {
  const change = element("button", "button", "Change");
  change.addEventListener("click", onChange);
  const statement = Object.assign(element("span", "recent-statement", ...marked(parts)), { dir: "auto" });
  return element("li", "", labelMark(label), statement, change);
}
