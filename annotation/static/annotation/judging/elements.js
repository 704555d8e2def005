// DOM elements of statements and labels.
const element = (name, className, ...children) => {
  const node = Object.assign(document.createElement(name), { className });
  node.append(...children);
  return node;
};
const NAMES = { true: "True", false: "False", unjudgeable: "Unjudgeable" };

export const statementNodes = (parts) => parts.map(([text, isEntity]) => (isEntity ? element("b", "", text) : text));
export const textOf = (parts) => parts.map(([text]) => text).join("");
export const linkElement = (href, text) => Object.assign(element("a", "", text), { href });
export const labelElement = (label) => element("span", `label is-${label}`, NAMES[label]);

export function recentElement({ label, parts }, onChange) {
  const change = element("button", "button", "Change");
  change.addEventListener("click", onChange);
  const statement = Object.assign(element("span", "recent-statement", ...statementNodes(parts)), { dir: "auto" });
  return element("li", "", labelElement(label), statement, change);
}
