// A judging page kept for a reload without a connection: its HTML and files in the cache of the service worker, and in
// localStorage how far the annotator has come since it was loaded.
const CACHE = "kgharvest-judging";
const isFile = ({ initiatorType, name }) => ["link", "script", "css", "img"].includes(initiatorType) && name.startsWith(location.origin);

// Returns {state, keep}. state: what was kept last, where this page is a copy that was reloaded, else null.
export function openKeptPage({ worker, url, outbox: prefix }) {
  const key = `kgharvest-page/${prefix}`;
  const isCopy = "kept" in document.documentElement.dataset;

  async function register() {
    await navigator.serviceWorker.register(worker, { scope: url });
    const [cache, page] = await Promise.all([caches.open(CACHE), fetch(url)]);
    if (!page.ok) return;
    await cache.put(url, page);
    await cache.addAll(performance.getEntriesByType("resource").filter(isFile).map(({ name }) => name));
  }

  // Where the browser has none of this, or no https, or forbids storage, a reload needs a connection. A preview has no
  // worker, and what answers a refusal is no page to come back to.
  const isPage = worker && performance.getEntriesByType("navigation")[0]?.responseStatus === 200;
  if (isPage && !isCopy && navigator.serviceWorker && window.caches) addEventListener("load", () => register().catch(() => {}));

  const attempt = (act) => { try { return act(); } catch { return null; } };
  return {
    state: isCopy ? attempt(() => JSON.parse(localStorage[key])) : null,
    keep: (state) => attempt(() => localStorage.setItem(key, JSON.stringify(state))),
  };
}
