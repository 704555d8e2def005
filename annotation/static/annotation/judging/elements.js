// DOM elements of statements and labels.
const element = (name, className, ...children) => {
  const node = Object.assign(document.createElement(name), { className });
  node.append(...children);
  return node;
};
const NAMES = { true: "True", false: "False", unjudgeable: "Unjudgeable" };

export const statementNodes = (parts) => parts.map(([text, isEntity]) => (isEntity ? element("b", "", text) : text));
export const referenceNodes = (references) => references.flatMap(({ text, url }) => {
  const link = url ? { href: url, target: "_blank", rel: "noopener noreferrer nofollow" } : {};
  return [Object.assign(element(url ? "a" : "q", "", text), { dir: "auto", ...link }), " "];
});
export const partButtons = (slots) => [...slots, "Relation"].map((slot, number) => {
  const value = number < slots.length ? number : "relation";
  return Object.assign(element("button", "button", element("kbd", "", number + 1), ` ${slot}`), { name: "wrong_part", value, dir: "auto" });
});
// Calls onOpen(link) when a reference is opened by a click, the middle mouse button, or the keyboard.
export function watchReferences(root, onOpen) {
  const watch = ({ target, button }) => {
    const link = button < 2 && target.closest("[data-references] a");
    if (link) onOpen(link);
  };
  root.addEventListener("click", watch);
  root.addEventListener("auxclick", watch);
}
export const textOf = (parts) => parts.map(([text]) => text).join("");
export const linkElement = (href, text) => Object.assign(element("a", "", text), { href });
export const labelElement = (label) => element("span", `label is-${label}`, NAMES[label]);

export function recentElement({ label, parts }, onChange) {
  const change = element("button", "button", "Change");
  change.addEventListener("click", onChange);
  const statement = Object.assign(element("span", "recent-statement", ...statementNodes(parts)), { dir: "auto" });
  return element("li", "", labelElement(label), statement, change);
}
