// Replaces the images of a figure with an interactive drawing when the figure becomes visible. The server draws it for
// the width of the page. The marks of the drawing are links with tooltips, and arrow keys move between the marks.
// Without JavaScript or without a response, the images stay.
import { offSeries, onSwitch, wireLegend } from "./series.js";

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

async function fetchDrawing(address) {
  const response = await fetch(address).catch(() => null);
  return response?.ok && !response.redirected ? response.text() : null;
}

function element(className) {
  const created = document.createElement("div");
  created.className = className;
  return created;
}

class Figure {
  constructor(figure) {
    this.figure = figure;
    this.area = element("plot-area");
    this.tip = element("plot-tip");
    this.tip.ariaHidden = true;
    this.tip.hidden = true;
    this.choice = figure.querySelector("[data-choice]");
    this.listen();
    onSwitch(() => this.draw());
    new ResizeObserver(() => this.width !== this.figure.clientWidth && this.draw()).observe(figure);
  }

  async draw() {
    this.width = this.figure.clientWidth;
    const address = new URL(this.figure.dataset.plot, location);
    if (this.choice) for (const [name, value] of new FormData(this.choice)) address.searchParams.set(name, value);
    address.searchParams.set("width", this.width);
    address.searchParams.set("off", offSeries());
    this.latest = address;
    const drawing = await fetchDrawing(address);
    if (drawing === null || this.latest !== address) return;
    if (!this.area.isConnected) this.replaceImages();
    const focused = this.area.contains(document.activeElement) && document.activeElement.ariaLabel;
    this.area.innerHTML = drawing; // escaped by the server
    const marks = [...this.area.querySelectorAll(".mark")];
    const current = marks.find((mark) => mark.getAttribute("aria-label") === focused);
    (current ?? marks[0])?.setAttribute("tabindex", 0);
    current?.focus();
  }

  replaceImages() {
    const images = this.figure.querySelector("[data-images]");
    images.before(this.area, this.tip);
    images.hidden = true;
    const legend = this.figure.querySelector("[data-legend]");
    if (legend) wireLegend(legend);
    if (this.choice) this.choice.querySelector("button").hidden = true;
  }

  listen() {
    const markOf = ({ target }) => target.closest(".mark");
    for (const name of ["pointerover", "focusin"]) this.area.addEventListener(name, (event) => this.showTip(markOf(event)));
    for (const name of ["pointerleave", "focusout", "scroll"]) this.area.addEventListener(name, () => this.showTip(null));
    this.area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.showTip(null);
      if (STEPS[event.key] && !event.altKey && !event.ctrlKey && !event.metaKey && markOf(event)) this.step(event, markOf(event));
    });
    this.choice?.addEventListener("change", () => this.draw());
  }

  showTip(mark) {
    this.tip.hidden = !mark;
    if (!mark) return;
    const [label, end] = [mark.getAttribute("aria-label"), Number(mark.dataset.name)];
    const lines = [label.slice(0, end), label.slice(end + 2)];
    this.tip.replaceChildren(...lines.map((words) => Object.assign(document.createElement("span"), { textContent: words })));
    const [frame, box, tip] = [this.figure, mark, this.tip].map((node) => node.getBoundingClientRect());
    const left = Math.min(box.x + box.width / 2 - tip.width / 2, frame.right - tip.width);
    this.tip.style.left = `${Math.max(0, left - frame.x)}px`;
    this.tip.style.top = `${box.y - frame.y - tip.height - 6}px`;
  }

  // Focuses the next mark in the direction of the arrow. Left and right stay in the row. Up and down go to the mark in
  // the same column of the next row or, if there is none, to the last mark before that column.
  step(event, mark) {
    event.preventDefault();
    const [down, right] = STEPS[event.key];
    const [row, column] = [Number(mark.dataset.row), Number(mark.dataset.column)];
    const marksOf = (number) => [...this.area.querySelectorAll(`.mark[data-row="${number}"]`)];
    const columnOf = (other) => Number(other.dataset.column);
    const before = (marks) => marks.findLast((other) => columnOf(other) <= column + right);
    const next = right > 0 ? marksOf(row).find((other) => columnOf(other) > column) : before(marksOf(row + down));
    if (!next || next === mark) return;
    mark.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  }
}

const inSight = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    inSight.unobserve(target);
    new Figure(target);
  }
}, { rootMargin: "300px" });

export function observeFigures(root) {
  for (const figure of root.querySelectorAll("[data-plot]")) inSight.observe(figure);
}

observeFigures(document);
