// Relations as rows, LMs and settings as columns: the stronger the colour, the more is true. Columns are put on and off
// as a whole, so that thousands of cells are drawn once.
import { clipped, widthOf } from "./plot.js";

const ROW = 24;
const HEAD = 40;
const NARROWEST = 52;
const WIDEST = 120;

export function draw(plot) {
  const { content, svg, head } = plot;
  const columns = content.columns.map((lines, number) => ({ number, lines })).filter(({ number }) => plot.isOn(number));
  const names = Math.min(0.35 * plot.width, 16 + Math.max(...content.rows.map(({ name }) => widthOf(name))));
  const step = Math.min(WIDEST, Math.max(NARROWEST, (plot.width - names) / content.columns.length));
  const width = names + step * columns.length;
  const height = ROW * content.rows.length;
  plot.size(width, height);
  head.attr("width", width).attr("height", HEAD);
  plot.area.classed("is-tall", true);

  const place = (selection) => selection.attr("transform", (_, column) => `translate(${names + column * step},0)`);
  const titles = head.selectAll("g").data(columns, ({ number }) => number)
    .join((entered) => entered.append("g").each(function title({ lines }) {
      d3.select(this).selectAll("text").data(lines).join("text")
        .attr("x", step / 2).attr("y", (_, line) => 14 + 15 * line).attr("text-anchor", "middle").text((line) => clipped(line, step));
    }));
  place(titles);

  svg.selectAll("text.plot-row").data(content.rows).join("text").attr("class", "plot-row")
    .attr("y", (_, row) => ROW * (row + 0.5)).attr("dy", ".35em").text(({ name }) => clipped(name, names - 8));
  const groups = svg.selectAll("g.column").data(columns, ({ number }) => number)
    .join((entered) => entered.append("g").attr("class", "column").each(function cells({ number }) {
      drawCells(plot, d3.select(this), number, step);
    }));
  place(groups);
  return d3.transpose(groups.nodes().map((group) => group.marks));
}

function drawCells(plot, group, number, step) {
  const { rows, series } = plot.content;
  const cells = rows.flatMap(({ name, query, cells: own }, row) => (own[number] === null ? [] : [{
    row, share: own[number][0], printed: own[number][1], text: own[number][2], name: `${name}, ${series[number].name}`,
    address: `../tuples/?${[query, series[number].query].filter(Boolean).join("&")}`,
  }]));
  const marks = plot.mark(group.selectAll("a").data(cells).enter()).attr("transform", ({ row }) => `translate(0,${ROW * row})`);
  marks.append("rect").attr("class", "plot-cell").attr("width", step - 2).attr("height", ROW - 2).style("--tenths", ({ share }) => 10 * share);
  marks.append("text").attr("x", step / 2 - 1).attr("y", ROW / 2 - 1).attr("dy", ".35em").attr("text-anchor", "middle").text(({ printed }) => printed);
  group.node().marks = Array(rows.length).fill(null);
  marks.each(function keep({ row }) { group.node().marks[row] = this; });
}
