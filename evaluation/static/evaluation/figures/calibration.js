// Accuracy by score: a panel per cell, each bin of scores a link to its tuples.
import { axis, panelsOf } from "./plot.js";

export function draw(plot) {
  const { content, svg, isOn } = plot;
  svg.selectChildren().remove();
  const shown = content.panels.filter(({ series }) => isOn(series));
  const panels = panelsOf(plot, shown, { least: 220, height: 120, lines: ({ lines }) => lines });
  const y = d3.scaleLinear([0, 1], [panels.height, 0]);
  const rows = [];
  panels.groups.each(function panel({ series, points, cut }) {
    const group = d3.select(this);
    const x = d3.scaleLinear(d3.extent(points.flatMap((point) => point.x)), [6, panels.width - 6]);
    axis(group.append("g").attr("transform", `translate(0,${panels.height})`), "Bottom", x, "number", panels.height);
    axis(group.append("g"), "Left", y, "share", panels.width);
    if (cut !== null) group.append("path").attr("class", "plot-cut").attr("d", `M${x(cut)},0V${panels.height}`);
    const middle = (point) => x((point.x[0] + point.x[1]) / 2);
    const marks = plot.mark(group.append("g").attr("class", `series-${series % 8}`).selectAll("a").data(points).enter());
    marks.append("rect").attr("class", "plot-target").attr("x", (point) => middle(point) - 8).attr("width", 16).attr("height", panels.height);
    marks.append("path").attr("class", "plot-interval")
      .attr("d", (point) => `M${middle(point)},${y(point.low)}V${y(point.high)}M${x(point.x[0])},${y(point.value)}H${x(point.x[1])}`);
    marks.append("circle").attr("r", 4).attr("cx", middle).attr("cy", ({ value }) => y(value));
    rows.push(marks.nodes());
  });
  return rows;
}
