// Precision against recall of several scorers; each point leads to the table of average precision.
import { axis, panelsOf } from "./plot.js";

const DASHES = [null, "6 3", "2 3", "8 3 2 3"];

export function draw(plot) {
  const { content, svg, isOn } = plot;
  svg.selectChildren().remove();
  const panels = panelsOf(plot, [content], { least: plot.width, height: Math.min(420, 0.7 * plot.width) });
  const x = d3.scaleLinear([0, 1], [0, panels.width]);
  const y = d3.scaleLinear([0, 1], [panels.height, 0]);
  const line = d3.line((point) => x(point.x), ({ value }) => y(value));
  const group = panels.groups;
  axis(group.append("g").attr("transform", `translate(0,${panels.height})`), "Bottom", x, "share", panels.height);
  axis(group.append("g"), "Left", y, "share", panels.width);
  group.append("text").attr("class", "plot-title").attr("y", panels.height + 36).text("recall; upwards precision");
  group.append("path").attr("class", "plot-cut").attr("d", `M0,${y(content.chance.value)}H${panels.width}`);
  group.append("text").attr("class", "plot-title").attr("x", 6).attr("y", y(content.chance.value) + 14).text(content.chance.name);
  return content.curves.filter(({ series }) => isOn(series)).map(({ series, points }) => {
    const own = group.append("g").attr("class", `series-${series % 8}`);
    own.append("path").attr("class", "plot-line").attr("stroke-dasharray", DASHES[series % DASHES.length]).attr("d", line(points));
    const marks = plot.mark(own.selectAll("a").data(points).enter());
    marks.append("circle").attr("class", "plot-target").attr("r", 8).attr("cx", (point) => x(point.x)).attr("cy", ({ value }) => y(value));
    marks.append("circle").attr("r", 2.5).attr("cx", (point) => x(point.x)).attr("cy", ({ value }) => y(value));
    return marks.nodes();
  });
}
