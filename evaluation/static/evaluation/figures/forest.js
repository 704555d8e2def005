// Averages, or differences, with their intervals: a row each, its dot the link to what is behind it.
import { axis, clipped, widthOf } from "./plot.js";

const FOOT = 44;
const GAP = 12;
const NARROW = 520; // names then stand above their rows

export function draw(plot) {
  const { content, width, svg } = plot;
  const rows = content.rows.filter(({ series }) => series.every(plot.isOn));
  const isNarrow = width < NARROW;
  const step = isNarrow ? 46 : 30;
  const left = isNarrow ? 8 : Math.min(0.4 * width, GAP + longest(content.rows, "name"));
  const right = width - (isNarrow ? 16 : GAP + longest(content.rows, "text"));
  const height = step * rows.length;
  svg.selectChildren().remove();
  plot.size(width, height + FOOT);

  const x = d3.scaleLinear(domainOf(content), [left, right]);
  axis(svg.append("g").attr("transform", `translate(0,${height})`), "Bottom", x, content.unit, height);
  const title = widthOf(content.axis) <= width - left ? left : 0;
  svg.append("text").attr("class", "plot-title").attr("x", title).attr("y", height + FOOT - 4).text(clipped(content.axis, width));
  if (content.unit === "points") svg.append("path").attr("class", "plot-zero").attr("d", `M${x(0)},0V${height}`);

  const groups = svg.selectAll("g.row").data(rows).join("g")
    .attr("transform", (_, row) => `translate(0,${step * (row + (isNarrow ? 0.7 : 0.5))})`);
  if (isNarrow) {
    groups.append("text").attr("y", -14).text(({ name }) => clipped(name, width));
  } else {
    groups.append("text").attr("x", left - GAP).attr("dy", ".35em").attr("text-anchor", "end").text(({ name }) => clipped(name, left - GAP));
    groups.append("text").attr("x", right + GAP).attr("dy", ".35em").text(({ text }) => text);
  }
  const marks = plot.mark(groups.datum(({ basis, ...row }) => ({ ...row, text: `${row.text}, ${basis}` })))
    .attr("class", ({ series }) => `mark series-${series.length === 1 ? series[0] % 8 : 0}`);
  marks.append("rect").attr("class", "plot-target").attr("x", left).attr("y", -14).attr("width", right - left).attr("height", 28);
  marks.filter(({ low, high }) => low !== null && high !== null)
    .append("path").attr("class", "plot-interval").attr("d", ({ low, high }) => `M${x(low)},0H${x(high)}`);
  marks.append("circle").attr("r", 5).attr("cx", ({ value }) => x(value)).classed("is-open", ({ is_firm: isFirm }) => !isFirm);
  return marks.nodes().map((node) => [node]);
}

const longest = (rows, key) => Math.max(0, ...rows.map((row) => widthOf(row[key])));

function domainOf({ unit, rows }) {
  if (unit === "share") return [0, 1];
  const [low, high] = d3.extent(rows.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value, 0]));
  const margin = 0.04 * (high - low || 0.1);
  return [low - margin, high + margin];
}
