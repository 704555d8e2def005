// Loads a section of the report's appendix when it is opened, and opens the section that the URL fragment names.
// Without JavaScript, each section contains a link to its own page.
import { observeFigures } from "../figures/figures.js";
import { offerColumns } from "./tables.js";

async function load(section) {
  const address = section.dataset.section;
  if (!address) return;
  delete section.dataset.section;
  const response = await fetch(address).catch(() => null);
  if (!response?.ok || response.redirected) {
    section.dataset.section = address; // the link to the page stays; opening the section again retries
    return;
  }
  const content = section.querySelector("div");
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  content.replaceChildren(...page.querySelector("[data-content]").childNodes);
  observeFigures(content);
  offerColumns(content);
}

function follow() {
  const section = document.getElementById(location.hash.slice(1));
  if (!section?.matches(".appendix details")) return;
  section.open = true;
  section.scrollIntoView();
}

for (const section of document.querySelectorAll("[data-section]")) section.addEventListener("toggle", () => section.open && load(section));
addEventListener("hashchange", follow);
follow();
