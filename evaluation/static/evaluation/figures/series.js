// Selection of the series (an LM with a setting) that the figures of this page show. The buttons of the legends show
// and hide series. The URL lists the hidden series: ?off=0,3.
const PARAMETER = "off";
const off = new Set((new URLSearchParams(location.search).get(PARAMETER) ?? "").split(",").filter(Boolean).map(Number));
const listeners = [];

export const offSeries = () => [...off].sort((a, b) => a - b).join(",");
export const onSwitch = (listener) => listeners.push(listener);

function switchSeries(number) {
  if (!off.delete(number)) off.add(number);
  const address = new URL(location);
  if (off.size) address.searchParams.set(PARAMETER, offSeries());
  else address.searchParams.delete(PARAMETER);
  history.replaceState(history.state, "", address);
  for (const listener of listeners) listener();
}

// Shows a legend. A button of the legend is pressed while its series is shown.
export function wireLegend(legend) {
  const buttons = [...legend.querySelectorAll("button")];
  const title = legend.querySelector("summary");
  const show = () => {
    buttons.forEach((button, number) => button.setAttribute("aria-pressed", !off.has(number)));
    if (title) title.textContent = `${buttons.length - off.size} of ${buttons.length} LMs and settings shown`;
  };
  buttons.forEach((button, number) => button.addEventListener("click", () => switchSeries(number)));
  onSwitch(show);
  show();
  legend.hidden = false;
}
