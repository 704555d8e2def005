// What leads to other pages is dead while there is no connection. Dialogs open without one.
const WAYS = ".judge-foot a:not([data-open]), .judge-foot button";

export function followConnection(root) {
  const ways = [...root.querySelectorAll(WAYS)].map((way) => [way, way.getAttribute("href")]);
  const show = () => {
    for (const [way, address] of ways) {
      const isDead = !navigator.onLine;
      if (address === null) way.disabled = isDead;
      else if (isDead) way.removeAttribute("href");
      else way.setAttribute("href", address);
      if (isDead && address !== null) way.setAttribute("role", "link"); // an anchor without an address is none
      else way.removeAttribute("role");
      way.setAttribute("aria-disabled", isDead);
    }
  };
  for (const change of ["online", "offline"]) addEventListener(change, show);
  show();
}
