// Draws the figures of a report in the page, each when it is scrolled to. Without script, or data, their images stay.
import { Plot } from "./plot.js";

const KINDS = {
  forest: () => import("./forest.js"),
  heat_map: () => import("./heat_map.js"),
};

async function draw(figure) {
  const response = await fetch(figure.dataset.plot).catch(() => null);
  if (!response?.ok || response.redirected) return;
  const content = await response.json();
  const kind = await KINDS[content.kind]();
  new Plot(figure, content, response.url, kind.draw);
}

const inSight = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    inSight.unobserve(target);
    draw(target);
  }
}, { rootMargin: "300px" });

for (const figure of document.querySelectorAll("[data-plot]")) inSight.observe(figure);
