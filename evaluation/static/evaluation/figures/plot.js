// What all figures share: a drawing as wide as its figure, a legend, a tooltip, and arrow keys from mark to mark.
//
// A mark is a link `<a>` whose datum has `name`, `text` and `address`, relative to that of the data. A kind's `draw(plot)`
// fills `plot.svg` and returns its marks as rows of nodes (null where there is none), along which the arrows go.
import "../vendor/d3.min.js";
import { isOn, legend, onSwitch } from "./series.js";

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export class Plot {
  constructor(figure, content, base, drawKind) {
    Object.assign(this, { figure, content, base, drawKind, isOn });
    this.images = figure.querySelector("[data-images]");
    this.area = d3.create("div").attr("class", "plot-area");
    this.head = this.area.append("svg").attr("class", "plot-head").attr("aria-hidden", true).attr("height", 0);
    this.svg = this.area.append("svg").attr("role", "group").attr("aria-label", figure.querySelector("h2, h3").textContent);
    this.tip = d3.create("div").attr("class", "plot-tip").attr("aria-hidden", true).property("hidden", true);
    this.images.before(legend(content.series), this.area.node(), this.tip.node());
    this.images.hidden = true;
    this.listen(this.area.node());
    onSwitch(() => this.draw());
    new ResizeObserver(() => this.resize()).observe(figure);
  }

  resize() {
    const width = Math.floor(this.figure.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    this.redraw();
  }

  show(content) {
    this.content = content;
    this.redraw();
  }

  redraw() {
    this.svg.selectChildren().remove();
    this.head.selectChildren().remove();
    this.draw();
  }

  draw() {
    if (!this.width) return;
    this.rows = this.drawKind(this).filter((row) => row.some(Boolean));
    this.area.selectAll('a[tabindex="0"]').attr("tabindex", -1);
    const focused = document.activeElement;
    const kept = this.area.node().contains(focused) && this.placeOf(focused) ? focused : null;
    (kept ?? this.rows[0]?.find(Boolean))?.setAttribute("tabindex", 0);
  }

  size(width, height) {
    this.svg.attr("width", width).attr("height", height).attr("viewBox", [0, 0, width, height]);
  }

  // Makes a link of each element that enters.
  mark(selection) {
    return selection.append("a")
      .attr("class", "mark")
      .attr("tabindex", -1)
      .attr("href", (datum) => new URL(datum.address, this.base).href)
      .attr("aria-label", (datum) => `${datum.name}: ${datum.text}`);
  }

  listen(area) {
    const markOf = ({ target }) => target.closest("a.mark");
    for (const name of ["pointerover", "focusin"]) area.addEventListener(name, (event) => this.tell(markOf(event)));
    for (const name of ["pointerleave", "focusout", "scroll"]) area.addEventListener(name, () => this.tell(null));
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.tell(null);
      if (STEPS[event.key] && !event.altKey && !event.ctrlKey && !event.metaKey && markOf(event)) this.step(event, markOf(event));
    });
  }

  tell(mark) {
    this.tip.property("hidden", !mark);
    if (!mark) return;
    const { name, text } = d3.select(mark).datum();
    this.tip.selectAll("span").data([name, text]).join("span").text((words) => words);
    const [own, box, tip] = [this.figure, mark, this.tip.node()].map((node) => node.getBoundingClientRect());
    const left = Math.min(box.x + box.width / 2 - tip.width / 2, own.right - tip.width);
    this.tip.style("left", `${Math.max(0, left - own.x)}px`).style("top", `${box.y - own.y - tip.height - 6}px`);
  }

  placeOf(mark) {
    const row = this.rows.findIndex((marks) => marks.includes(mark));
    return row < 0 ? null : [row, this.rows[row].indexOf(mark)];
  }

  // Goes to the next mark in the arrow's direction; where a row is shorter, to its end.
  step(event, mark) {
    event.preventDefault();
    let [row, column] = this.placeOf(mark);
    const [down, right] = STEPS[event.key];
    let next = null;
    do {
      [row, column] = [row + down, column + right];
      const marks = this.rows[row];
      if (!marks || column < 0 || (right && column >= marks.length)) return;
      next = marks[Math.min(column, marks.length - 1)];
    } while (!next);
    mark.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  }
}

// -- text and axes -----------------------------------------------------------------------------------------------------

const ruler = document.createElement("canvas").getContext("2d");
ruler.font = `13px ${getComputedStyle(document.body).fontFamily}`; // asked once: each time costs a style of the whole page
export const widthOf = (text) => ruler.measureText(text).width; // pixels, as the figures write it
export function clipped(text, width) {
  let end = text.length;
  while (end > 1 && widthOf(text.slice(0, end)) > width) end -= 1;
  return end === text.length ? text : `${text.slice(0, Math.max(1, end - 1))}…`;
}

const TICKS = {
  share: (share) => String(+share.toFixed(3)).replace(/^0\./, "."),
  points: (difference) => String(+(100 * difference).toFixed(2)).replace("-", "−"),
  number: (number) => d3.format(",")(number).replace("-", "−"),
};

// Panels side by side, as many as fit, each with its text lines above: the groups to draw in, and their size.
export function panelsOf(plot, items, { least = 260, height = 170, lines = () => [] } = {}) {
  const { svg, width } = plot;
  const n = Math.max(1, Math.min(items.length, Math.floor(width / least)));
  const [step, head, foot] = [width / n, 8 + 16 * Math.max(0, ...items.map((item) => lines(item).length)), 44];
  plot.size(width, Math.ceil(items.length / n) * (head + height + foot));
  const groups = svg.selectAll("g.panel").data(items).join("g").attr("class", "panel")
    .attr("transform", (_, number) => `translate(${step * (number % n) + 36},${Math.floor(number / n) * (head + height + foot) + head})`);
  groups.each(function title(item) {
    d3.select(this).selectAll("text.line").data(lines(item)).join("text").attr("class", "line")
      .attr("y", (_, line) => 16 * line - head + 16).text((line) => clipped(line, step - 48));
  });
  return { groups, width: step - 56, height };
}

// An axis below (`side` "Bottom") or left of the marks, with its lines across them over `length` pixels.
export function axis(group, side, scale, unit, length) {
  const ticks = Math.max(2, Math.round(Math.abs(scale.range()[1] - scale.range()[0]) / 80));
  group.attr("class", "plot-axis").attr("aria-hidden", true)
    .call(d3[`axis${side}`](scale).ticks(ticks).tickFormat(TICKS[unit]).tickSize(-length).tickPadding(8));
}
