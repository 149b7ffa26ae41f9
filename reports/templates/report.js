/* Adds what a reader can do without: sorting, filtering and a larger view of a plot. The pages are complete as they are. */
"use strict";

(() => {
  const plain = (cell) => cell.textContent.trim();

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const descending = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        sort(table.tBodies[0], column, descending);
      });
    });
  }

  /* A number that is missing stays last in both directions: it is neither small nor large. */
  function sort(body, column, descending) {
    const rows = [...body.rows].map((row) => ({ row, cell: row.cells[column] }));
    const numeric = rows.some(({ cell }) => cell.dataset.value !== undefined);
    const direction = descending ? -1 : 1;
    rows.sort((a, b) => {
      if (!numeric) {
        return direction * plain(a.cell).localeCompare(plain(b.cell), "en", { numeric: true });
      }
      const [left, right] = [a.cell.dataset.value, b.cell.dataset.value];
      if (left === undefined || right === undefined) {
        return (left === undefined) - (right === undefined);
      }
      return direction * (Number(left) - Number(right));
    });
    body.append(...rows.map(({ row }) => row));
  }

  function labelled(text, control) {
    const label = document.createElement("label");
    label.append(text, control);
    return label;
  }

  /* One bar for the whole page: what does not match leaves every table that speaks of it. */
  function filterable(table) {
    const rows = [...table.tBodies[0].rows];
    const parts = [...document.querySelectorAll("[data-id]")];
    const lines = [...document.querySelectorAll("table.grid tbody tr")];
    const search = document.createElement("input");
    search.type = "search";
    const choice = document.createElement("select");
    choice.add(new Option("all", ""));
    for (const status of new Set(rows.map((row) => row.dataset.status))) {
      choice.add(new Option(status.replace("_", " "), status));
    }
    const told = document.createElement("p");
    told.setAttribute("role", "status");

    const apply = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const part of parts) {
        const named = words.every((word) => part.dataset.id.toLowerCase().includes(word));
        part.hidden = !named || (choice.value !== "" && part.dataset.status !== choice.value);
      }
      for (const line of lines) {
        line.hidden = line.querySelector(".cell:not([hidden])") === null;
      }
      told.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} plans`;
    };

    const bar = document.createElement("form");
    bar.className = "filter";
    bar.setAttribute("role", "search");
    bar.setAttribute("aria-label", "Filter the plans");
    bar.append(labelled("Plan contains", search), labelled("Outcome", choice), told);
    bar.addEventListener("submit", (event) => event.preventDefault());
    bar.addEventListener("input", apply);
    document.querySelector(".counts").after(bar);
    apply();
  }

  function viewer() {
    const dialog = document.createElement("dialog");
    dialog.className = "viewer";
    const image = document.createElement("img");
    image.className = "plot";
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = "Close";
    close.addEventListener("click", () => dialog.close());
    dialog.append(close, image);
    document.body.append(dialog);
    return (plot) => {
      image.src = plot.src;
      image.alt = plot.alt;
      dialog.setAttribute("aria-label", plot.alt);
      dialog.showModal();
    };
  }

  document.querySelectorAll("table[data-sortable]").forEach(sortable);
  document.querySelectorAll("table[data-filterable]").forEach(filterable);

  const plots = [...document.querySelectorAll("figure img.plot")];
  if (plots.length && "showModal" in HTMLDialogElement.prototype) {
    const show = viewer();
    plots.forEach((plot) => {
      const link = plot.closest("a.zoom");
      const target = link ?? plot;
      target.addEventListener("click", (event) => {
        event.preventDefault();
        show(plot);
      });
    });
  }
})();
