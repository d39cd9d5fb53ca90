// Keys for those who keep their hands there: / to the filter, j and k down and up the
// rows, p to pause, Escape back out of a field.

function step(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main tbody tr")];
  const here = rows.findIndex((r) => r.contains(document.activeElement));
  const next = rows[here < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, here + by))];
  next?.querySelector<HTMLElement>("a, button")?.focus();
}

export function listen(): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    if (target.matches("input, textarea, select")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (target.closest("dialog")) return;
    if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "p") document.querySelector<HTMLElement>("[data-key=p]")?.click();
    else if (event.key === "/") {
      const field = document.querySelector<HTMLElement>("main input[type=search]");
      if (!field) return;
      field.focus();
      event.preventDefault();
    }
  });
}
