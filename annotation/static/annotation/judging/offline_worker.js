// The service worker of the judging pages: without a connection, or while the server or its database is away, it answers
// a reload with the page as it was kept.
// `data-kept` on its root tells the page that it is such a copy (kept_page.js).
const CACHE = "kgharvest-judging";
const AWAY = [502, 503, 504]; // as proxies say, and as the server says of its database
const SCOPE = new URL(self.registration.scope).pathname;

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET") return;
  const isPage = new URL(request.url).pathname === SCOPE; // those below it are not kept
  if (request.mode === "navigate" && isPage) event.respondWith(page(request));
  else if (["script", "style", "image"].includes(request.destination)) event.respondWith(asset(request));
});

async function page(request) {
  const { pathname } = new URL(request.url);
  const response = await fetch(request).catch((error) => error);
  if (response instanceof Error || AWAY.includes(response.status)) {
    const kept = await (await caches.open(CACHE)).match(pathname);
    if (!kept && response instanceof Error) throw response;
    if (!kept) return response;
    const html = await kept.text();
    return new Response(html.replace("<html", "<html data-kept"), { headers: kept.headers });
  }
  try { // a full or forbidden storage must not keep anybody from a page that has come
    const cache = await caches.open(CACHE);
    if (response.ok && !response.redirected) await cache.put(pathname, response.clone());
    else if (response.status < 500) await cache.delete(pathname); // logged out, say: what was kept is nobody's any more
  } catch {} // eslint-disable-line no-empty
  return response;
}

async function asset(request) {
  try {
    return await fetch(request);
  } catch (error) {
    const kept = await (await caches.open(CACHE)).match(request);
    if (!kept) throw error;
    return kept;
  }
}
