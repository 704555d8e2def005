// Shows how the statement reads with the seed tuples while both are written. The button Preview checks the rest.
(() => {
  const form = document.querySelector("[data-relation-form]");
  if (!form) return;
  const statement = form.querySelector("[name=statement]");
  const seeds = form.querySelector("[name=seed_tuples]");
  const preview = form.querySelector("[data-preview]");
  const SLOT = /<ENT(\d+)>/g;
  const SHOWN = 5;

  const element = (name, className, ...children) => {
    const made = document.createElement(name);
    made.className = className;
    made.append(...children);
    return made;
  };

  const tuples = () =>
    seeds.value
      .split("\n")
      .filter((line) => line.trim())
      .map((line) => line.split(line.includes("\t") ? "\t" : "|").map((entity) => entity.trim()));

  const filled = (entities) => {
    const pieces = statement.value.split(SLOT); // text, number of a slot, text, ...
    const parts = pieces.map((piece, index) => {
      if (index % 2 === 0) return piece;
      return element("b", "", entities[piece] || `<ENT${piece}>`);
    });
    return element("li", "", ...parts);
  };

  const faultOfSlots = () => {
    const slots = [...statement.value.matchAll(SLOT)].map((match) => Number(match[1]));
    if (!statement.value.trim()) return "Write a statement.";
    if (slots.length < 2) return "The statement needs at least the slots <ENT0> and <ENT1>.";
    const twice = slots.find((slot, index) => slots.indexOf(slot) !== index);
    if (twice !== undefined) return `The slot <ENT${twice}> is there twice; use each slot once.`;
    const missing = slots.findIndex((_, index) => !slots.includes(index));
    return missing < 0 ? "" : `The slot <ENT${missing}> is missing; number the slots from 0 without gaps.`;
  };

  const faultOfSeeds = () => {
    const arity = [...statement.value.matchAll(SLOT)].length;
    const wrong = tuples().findIndex((entities) => entities.length !== arity);
    if (wrong >= 0) return `Seed tuple ${wrong + 1} has ${tuples()[wrong].length} of ${arity} entities.`;
    return tuples().length < 2 ? "Give at least two seed tuples." : "";
  };

  const show = () => {
    const fault = faultOfSlots() || faultOfSeeds();
    const lines = tuples().slice(0, SHOWN);
    preview.replaceChildren(element("ul", "readings", ...(lines.length ? lines : [[]]).map(filled)));
    if (fault) preview.append(element("p", "muted small", fault));
  };

  form.addEventListener("input", (event) => {
    if (event.target === statement || event.target === seeds) show();
  });
  if (statement.value || seeds.value) show();
})();
