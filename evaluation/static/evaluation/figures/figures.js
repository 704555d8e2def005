// Draws the figures of a page, each when it is scrolled to. Without script, or data, their images stay.
import { Plot } from "./plot.js";

const KINDS = {
  forest: () => import("./forest.js"),
  heat_map: () => import("./heat_map.js"),
  curves: () => import("./curves.js"),
  calibration: () => import("./calibration.js"),
  precision_recall: () => import("./precision_recall.js"),
};

async function load(address) {
  const response = await fetch(address).catch(() => null);
  return response?.ok && !response.redirected ? response.json() : null;
}

async function draw(figure) {
  const address = new URL(figure.dataset.plot, location);
  const content = await load(address);
  if (!content) return;
  const kind = await KINDS[content.kind]();
  const plot = new Plot(figure, content, address, kind.draw);
  const choice = figure.querySelector("[data-choice]");
  if (choice) offer(choice, plot, address);
}

// Draws what a list beside the figure chooses, without leaving the page.
function offer(choice, plot, address) {
  choice.querySelector("button").hidden = true;
  let latest = null;
  choice.addEventListener("change", async () => {
    const chosen = new URL(address);
    for (const [name, value] of new FormData(choice)) chosen.searchParams.set(name, value);
    latest = chosen;
    const content = await load(chosen);
    if (content && chosen === latest) plot.show(content);
  });
}

const inSight = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    inSight.unobserve(target);
    draw(target);
  }
}, { rootMargin: "300px" });

for (const figure of document.querySelectorAll("[data-plot]")) inSight.observe(figure);
