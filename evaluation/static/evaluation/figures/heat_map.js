// Relations as rows, LMs and settings as columns: the stronger the colour, the more is true. Columns are put on and off
// as a whole, and rows are drawn in blocks that the browser skips while they are out of sight: there may be thousands.
import { clipped, widthOf } from "./plot.js";

const ROW = 24;
const HEAD = 40;
const NARROWEST = 52;
const WIDEST = 180;
const ROWS_OF_BLOCK = 40;

export function draw(plot) {
  const { area, content, head, isOn } = plot;
  const columns = content.columns.map((lines, number) => ({ number, lines }));
  const names = Math.min(0.35 * plot.width, 16 + Math.max(...content.rows.map(({ name }) => widthOf(name))));
  const step = Math.min(WIDEST, Math.max(NARROWEST, (plot.width - names) / columns.length));
  const width = names + step * columns.filter(({ number }) => isOn(number)).length;
  if (!head.selectChild().size()) drawAll(plot, columns, names, step);

  head.attr("width", width).attr("height", HEAD);
  area.selectAll("svg.plot-block").attr("width", width);
  for (const block of [head, ...area.selectAll("svg.plot-block").nodes().map((node) => d3.select(node))]) {
    const groups = block.selectChildren("g").attr("display", ({ number }) => (isOn(number) ? null : "none"));
    groups.filter(({ number }) => isOn(number)).attr("transform", (_, position) => `translate(${names + position * step},0)`);
  }
  return content.rows.map((_, row) => columns.filter(({ number }) => isOn(number)).map(({ number }) => plot.cells.get(`${row},${number}`)));
}

function drawAll(plot, columns, names, step) {
  const { area, content, head } = plot;
  plot.size(0, 0);
  plot.cells = new Map();
  area.classed("is-tall", true);
  head.selectAll("g").data(columns).join("g").each(function title({ lines }) {
    d3.select(this).selectAll("text").data(lines).join("text")
      .attr("x", step / 2).attr("y", (_, line) => 14 + 15 * line).attr("text-anchor", "middle").text((line) => clipped(line, step));
  });
  area.selectAll("svg.plot-block").remove();
  for (const first of d3.range(0, content.rows.length, ROWS_OF_BLOCK)) {
    const rows = content.rows.slice(first, first + ROWS_OF_BLOCK);
    const block = area.append("svg").attr("class", "plot-block").attr("role", "group").attr("height", ROW * rows.length)
      .attr("aria-label", `Relations ${first + 1} to ${first + rows.length}`);
    block.selectAll("text").data(rows).join("text")
      .attr("y", (_, row) => ROW * (row + 0.5)).attr("dy", ".35em").text(({ name }) => clipped(name, names - 8));
    block.selectAll("g").data(columns).join("g").each(function cells({ number }) {
      drawCells(plot, d3.select(this), cellsOf(content, rows, number, first), step);
    });
  }
}

function cellsOf({ series }, rows, number, first) {
  return rows.flatMap(({ name, query, cells }, row) => (cells[number] === null ? [] : [{
    row, key: `${first + row},${number}`, share: cells[number][0], printed: cells[number][1], text: cells[number][2],
    name: `${name}, ${series[number].name}`, address: `../tuples/?${[query, series[number].query].filter(Boolean).join("&")}`,
  }]));
}

function drawCells(plot, group, cells, step) {
  const marks = plot.mark(group.selectAll("a").data(cells).enter()).attr("transform", ({ row }) => `translate(0,${ROW * row})`);
  marks.append("rect").attr("class", "plot-cell").attr("width", step - 2).attr("height", ROW - 2).style("--tenths", ({ share }) => 10 * share);
  marks.append("text").attr("x", step / 2 - 1).attr("y", ROW / 2 - 1).attr("dy", ".35em").attr("text-anchor", "middle").text(({ printed }) => printed);
  marks.each(function keep({ key }) { plot.cells.set(key, this); });
}
