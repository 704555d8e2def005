// Live preview of the statement filled with the seed tuples. The Preview button also validates the other fields.
(() => {
  const form = document.querySelector("[data-relation-form]");
  if (!form) return;
  const statement = form.querySelector("[name=statement]");
  const seeds = form.querySelector("[name=seed_tuples]");
  const preview = form.querySelector("[data-preview]");
  const SLOT = /<ENT(\d+)>/g;
  const N_EXAMPLES = 5;

  const element = (name, className, ...children) => {
    const node = document.createElement(name);
    node.className = className;
    node.append(...children);
    return node;
  };

  const tuples = () =>
    seeds.value
      .split("\n")
      .filter((line) => line.trim())
      .map((line) => line.split(line.includes("\t") ? "\t" : "|").map((entity) => entity.trim()));

  const filled = (entities) => {
    const pieces = statement.value.split(SLOT); // text, slot number, text, ...
    const parts = pieces.map((piece, index) => {
      if (index % 2 === 0) return piece;
      return element("b", "", entities[piece] || `<ENT${piece}>`);
    });
    return element("li", "", ...parts);
  };

  const slotError = () => {
    const slots = [...statement.value.matchAll(SLOT)].map((match) => Number(match[1]));
    if (!statement.value.trim()) return "Enter a statement.";
    if (slots.length < 2) return "The statement must contain at least the slots <ENT0> and <ENT1>.";
    const duplicate = slots.find((slot, index) => slots.indexOf(slot) !== index);
    if (duplicate !== undefined) return `The slot <ENT${duplicate}> occurs twice. Use each slot once.`;
    const missing = slots.findIndex((_, index) => !slots.includes(index));
    return missing < 0 ? "" : `The slot <ENT${missing}> is missing. Number the slots from 0 without gaps.`;
  };

  const seedError = () => {
    const arity = [...statement.value.matchAll(SLOT)].length;
    const invalid = tuples().findIndex((entities) => entities.length !== arity);
    if (invalid >= 0) return `Seed tuple ${invalid + 1} has ${tuples()[invalid].length} of ${arity} entities.`;
    return tuples().length < 2 ? "Enter at least two seed tuples." : "";
  };

  const showPreview = () => {
    const error = slotError() || seedError();
    const examples = tuples().slice(0, N_EXAMPLES);
    preview.replaceChildren(
      element("ul", "example-statements", ...(examples.length ? examples : [[]]).map(filled)),
    );
    if (error) preview.append(element("p", "muted small", error));
  };

  form.addEventListener("input", (event) => {
    if (event.target === statement || event.target === seeds) showPreview();
  });
  if (statement.value || seeds.value) showPreview();
})();
