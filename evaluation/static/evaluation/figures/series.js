// Selection of LMs and settings in the figures of this page. Legends toggle them; hidden ones are in the URL: ?off=0,3.
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

// Shows a legend; its buttons are pressed while their series are shown.
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
