// Light or dark, as the user chose or as the system is, before anything is drawn. Not a module: those run later.
"use strict";
{
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const chosen = localStorage.getItem("hocket-theme");
    document.documentElement.dataset.theme = chosen ?? (isDark.matches ? "dark" : "light");
    window.dispatchEvent(new Event("theme"));
  };
  isDark.addEventListener("change", apply);
  window.addEventListener("theme-chosen", apply);
  apply();
}
