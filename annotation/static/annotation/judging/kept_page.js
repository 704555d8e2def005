// Offline copy of a judging page. The cache of the service worker contains the HTML and the files of the page.
// localStorage contains the annotator's progress since the page was loaded.
const CACHE = "kgharvest-judging";
const isFile = ({ initiatorType, name }) => ["link", "script", "css", "img"].includes(initiatorType) && name.startsWith(location.origin);

// Returns {state, keep}. state: last stored state if this page is a reloaded offline copy, otherwise null.
export function openKeptPage({ worker, url, outbox: prefix }) {
  const key = `kgharvest-page/${prefix}`;
  const isOfflineCopy = "kept" in document.documentElement.dataset;

  async function register() {
    await navigator.serviceWorker.register(worker, { scope: url });
    const [cache, page] = await Promise.all([caches.open(CACHE), fetch(url)]);
    if (!page.ok) return;
    await cache.put(url, page);
    await cache.addAll(performance.getEntriesByType("resource").filter(isFile).map(({ name }) => name));
  }

  // Without service workers, HTTPS, or storage, a reload requires a connection. Previews have no worker. Only pages
  // with status 200 are stored; the response to a rejected answer, for example, has another status.
  const isPage = worker && performance.getEntriesByType("navigation")[0]?.responseStatus === 200;
  if (isPage && !isOfflineCopy && navigator.serviceWorker && window.caches) addEventListener("load", () => register().catch(() => {}));

  const attempt = (act) => { try { return act(); } catch { return null; } };
  return {
    state: isOfflineCopy ? attempt(() => JSON.parse(localStorage[key])) : null,
    keep: (state) => attempt(() => localStorage.setItem(key, JSON.stringify(state))),
  };
}
