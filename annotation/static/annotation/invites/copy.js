// Copies the return link; without this script it is selected by hand.
const button = document.querySelector("[data-copy]");
const field = button && document.getElementById(button.dataset.copy);

if (button) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    field.select();
    const isCopied = await navigator.clipboard?.writeText(field.value).then(() => true, () => false);
    document.querySelector("[data-copied]").textContent = isCopied ? "Copied" : "Selected; copy it now";
  });
}
