// Delete the judging pages stored for offline reloads (kept_page.js), so that the next user of this browser cannot see them.
window.caches?.delete("kgharvest-judging");
try {
  for (const key of Object.keys(localStorage)) if (key.startsWith("kgharvest-page/")) localStorage.removeItem(key);
} catch {
  // Storage is blocked, so no page was stored.
}
