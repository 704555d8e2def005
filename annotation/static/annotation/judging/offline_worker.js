// Service worker of the judging pages: serves the offline copy of a page if the network, the server, or its database is
// unavailable. The attribute `data-kept` of the root element marks such a copy (kept_page.js).
const CACHE = "kgharvest-judging";
const UNAVAILABLE = [502, 503, 504]; // from proxies, and from the server without a database
const SCOPE = new URL(self.registration.scope).pathname;

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET") return;
  const isPage = new URL(request.url).pathname === SCOPE; // pages below this path have no copy
  if (request.mode === "navigate" && isPage) event.respondWith(page(request));
  else if (["script", "style", "image"].includes(request.destination)) event.respondWith(asset(request));
});

async function page(request) {
  const { pathname } = new URL(request.url);
  const response = await fetch(request).catch((error) => error);
  if (response instanceof Error || UNAVAILABLE.includes(response.status)) {
    const copy = await (await caches.open(CACHE)).match(pathname);
    if (!copy && response instanceof Error) throw response;
    if (!copy) return response;
    const html = await copy.text();
    return new Response(html.replace("<html", "<html data-kept"), { headers: copy.headers });
  }
  try { // full or forbidden storage must not prevent showing the page
    const cache = await caches.open(CACHE);
    if (response.ok && !response.redirected) await cache.put(pathname, response.clone());
    else if (response.status < 500) await cache.delete(pathname); // for example after logout, when the copy is invalid
  } catch {} // eslint-disable-line no-empty
  return response;
}

async function asset(request) {
  try {
    return await fetch(request);
  } catch (error) {
    const copy = await (await caches.open(CACHE)).match(request);
    if (!copy) throw error;
    return copy;
  }
}
