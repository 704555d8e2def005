// Copy button for the return link. Without JavaScript, select and copy the link manually.
const button = document.querySelector("[data-copy]");
const field = button && document.getElementById(button.dataset.copy);

if (button) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    field.select();
    const isCopied = await navigator.clipboard?.writeText(field.value).then(() => true, () => false);
    document.querySelector("[data-copied]").textContent = isCopied ? "Copied" : "Selected. Copy it now.";
  });
}
