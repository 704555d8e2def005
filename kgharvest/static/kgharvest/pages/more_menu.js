// Menus (partials/_more_menu.html): Escape and a click outside close an open menu.
const openMenus = () => [...document.querySelectorAll(".more-menu[open]")];

document.addEventListener("keydown", ({ key }) => {
  if (key !== "Escape") return;
  for (const menu of openMenus()) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});
document.addEventListener("click", ({ target }) => {
  for (const menu of openMenus()) if (!menu.contains(target)) menu.open = false;
});
