// Disables links to other pages while offline. Dialogs work offline.
const LINKS = ".judge-foot a:not([data-open]), .judge-foot button";

export function followConnection(root) {
  const links = [...root.querySelectorAll(LINKS)].map((link) => [link, link.getAttribute("href")]);
  const show = () => {
    for (const [link, href] of links) {
      const isOffline = !navigator.onLine;
      if (href === null) link.disabled = isOffline;
      else if (isOffline) link.removeAttribute("href");
      else link.setAttribute("href", href);
      if (isOffline && href !== null) link.setAttribute("role", "link"); // an anchor without href has no link role
      else link.removeAttribute("role");
      link.setAttribute("aria-disabled", isOffline);
    }
  };
  for (const change of ["online", "offline"]) addEventListener(change, show);
  show();
}
