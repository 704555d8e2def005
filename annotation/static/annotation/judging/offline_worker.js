// The service worker of the judging pages: without a connection it answers a reload with the page as it was kept.
// `data-kept` on its root tells the page that it is such a copy (kept_page.js).
const CACHE = "kgharvest-judging";

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET") return;
  if (request.mode === "navigate") event.respondWith(page(request));
  else if (["script", "style", "image"].includes(request.destination)) event.respondWith(asset(request));
});

async function page(request) {
  const [cache, { pathname }] = [await caches.open(CACHE), new URL(request.url)];
  try {
    const response = await fetch(request);
    if (response.ok && !response.redirected) await cache.put(pathname, response.clone());
    else await cache.delete(pathname); // logged out, say: what was kept is nobody's any more
    return response;
  } catch (error) {
    const kept = await cache.match(pathname);
    if (!kept) throw error;
    const html = await kept.text();
    return new Response(html.replace("<html", "<html data-kept"), { headers: kept.headers });
  }
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
