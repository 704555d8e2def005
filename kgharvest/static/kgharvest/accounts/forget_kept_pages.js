// Whoever uses this browser next finds no judging page that was kept for a reload without a connection (kept_page.js).
window.caches?.delete("kgharvest-judging");
try {
  for (const key of Object.keys(localStorage)) if (key.startsWith("kgharvest-page/")) localStorage.removeItem(key);
} catch {
  // Storage is forbidden: then nothing was kept.
}
