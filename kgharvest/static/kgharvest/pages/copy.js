// Copy button for a link or code. Without JavaScript, users select and copy the text manually.
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
