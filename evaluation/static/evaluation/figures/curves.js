// Accuracy against the size of the KG: lines with bands, each point the link to the best tuples up to it. More than a few
// lines get a panel each, with the others in grey.
import { axis, panelsOf } from "./plot.js";

const MOST_TOGETHER = 4;
const DASHES = [null, "6 3", "2 3", "8 3 2 3"];

export function draw(plot) {
  const { content, svg, isOn } = plot;
  svg.selectChildren().remove();
  const curves = content.curves.filter(({ series }) => isOn(series));
  if (!curves.length) return [];
  const isTogether = curves.length <= MOST_TOGETHER;
  const panels = isTogether
    ? panelsOf(plot, [curves], { least: plot.width, height: Math.min(320, 0.6 * plot.width) })
    : panelsOf(plot, curves.map((curve) => [curve]), { lines: ([{ name }]) => [name] });
  const x = d3.scaleLinear([0, d3.max(curves, ({ points }) => d3.max(points, (point) => point.x))], [0, panels.width]);
  const y = d3.scaleLinear([0, 1], [panels.height, 0]);
  const line = d3.line((point) => x(point.x), ({ value }) => y(value));
  const band = d3.area((point) => x(point.x), ({ low }) => y(low), ({ high }) => y(high));

  const rows = [];
  panels.groups.each(function panel(own) {
    const group = d3.select(this);
    axis(group.append("g").attr("transform", `translate(0,${panels.height})`), "Bottom", x, content.unit, panels.height);
    axis(group.append("g"), "Left", y, "share", panels.width);
    if (!isTogether) group.append("g").selectAll("path").data(curves).join("path").attr("class", "plot-other").attr("d", ({ points }) => line(points));
    for (const curve of own) rows.push(drawCurve(plot, group.append("g").attr("class", `series-${curve.series % 8}`), curve, { x, y, line, band }));
    group.append("text").attr("class", "plot-title").attr("y", panels.height + 36).text(isTogether ? content.axis : content.axis.split(",")[0]);
  });
  return rows;
}

function drawCurve(plot, group, { series, points, cuts }, { x, y, line, band }) {
  group.append("path").attr("class", "plot-band").attr("d", band(points));
  group.append("path").attr("class", "plot-line").attr("stroke-dasharray", DASHES[series % DASHES.length]).attr("d", line(points));
  const marks = plot.mark(group.selectAll("a").data([...points, ...cuts]).enter());
  marks.append("circle").attr("class", "plot-target").attr("r", 10).attr("cx", (point) => x(point.x)).attr("cy", ({ value }) => y(value));
  marks.append("path").attr("class", "plot-point")
    .attr("transform", (point) => `translate(${x(point.x)},${y(point.value)})`)
    .attr("d", (point) => d3.symbol(cuts.includes(point) ? d3.symbolDiamond : d3.symbolCircle, cuts.includes(point) ? 60 : 28)());
  return marks.nodes();
}
