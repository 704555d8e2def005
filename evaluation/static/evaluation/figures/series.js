// Which LMs and settings the figures of this page show: switched by legends, kept in the address as ?off=0,3.
const PARAMETER = "off";
const off = new Set((new URLSearchParams(location.search).get(PARAMETER) ?? "").split(",").filter(Boolean).map(Number));
const listeners = [];

export const isOn = (number) => !off.has(number);
export const onSwitch = (listener) => listeners.push(listener);

function switchSeries(number) {
  if (!off.delete(number)) off.add(number);
  const address = new URL(location);
  if (off.size) address.searchParams.set(PARAMETER, [...off].sort((a, b) => a - b).join(","));
  else address.searchParams.delete(PARAMETER);
  history.replaceState(history.state, "", address);
  for (const listener of listeners) listener();
}

const MOST_IN_SIGHT = 8; // as many as there are hues; more of them are folded

// A button for each of `series`, pressed while it is shown.
export function legend(series) {
  const group = document.createElement("div");
  group.className = "plot-legend";
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", "LMs and settings shown");
  const buttons = series.map(({ name }, number) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = `series-${number % 8}`;
    button.textContent = name;
    button.addEventListener("click", () => switchSeries(number));
    return button;
  });
  group.append(...buttons);
  const [whole, title] = series.length > MOST_IN_SIGHT ? folded(group) : [group, null];
  const show = () => {
    buttons.forEach((button, number) => button.setAttribute("aria-pressed", isOn(number)));
    if (title) title.textContent = `${series.filter((_, number) => isOn(number)).length} of ${series.length} LMs and settings shown`;
  };
  onSwitch(show);
  show();
  return whole;
}

function folded(group) {
  const details = document.createElement("details");
  details.className = "folded small";
  const title = document.createElement("summary");
  details.append(title, group);
  return [details, title];
}
