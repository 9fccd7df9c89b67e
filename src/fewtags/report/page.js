"use strict";
// Sorting and filtering. Without this script the page shows everything, in the order it was written.

function value(row, column) {
  const cell = row.cells[column];
  if (cell.dataset.value === undefined) return cell.textContent.toLowerCase();
  return cell.dataset.value === "" ? null : Number(cell.dataset.value);
}

function compare(a, b) {
  return typeof a === "string" ? a.localeCompare(b) : a - b;
}

function sortBy(table, column, direction) {
  const rows = Array.from(table.tBodies[0].rows);
  const known = rows.filter((row) => value(row, column) !== null);
  const unknown = rows.filter((row) => value(row, column) === null); // always last
  known.sort((a, b) => direction * compare(value(a, column), value(b, column)));
  table.tBodies[0].append(...known, ...unknown);
}

function makeSortable(table) {
  const heads = Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numbers = head.classList.contains("num") || column === 1;
      const before = head.getAttribute("aria-sort");
      const rising = before ? before === "descending" : !numbers; // of figures the best first
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      sortBy(table, column, rising ? 1 : -1);
    });
  });
}

function makeFilters(form) {
  const [tag, least, most] = ["tag", "least", "most"].map((id) => document.getElementById(id));
  const groups = Array.from(document.querySelectorAll(".group-of-cards"));
  const cards = new Map(
    groups.map((group) => [
      group,
      Array.from(group.querySelectorAll(".card"), (card) => ({
        card,
        tags: card.dataset.tags
          .split(" ")
          .filter(Boolean)
          .map((mark) => mark.split(":"))
          .map(([place, sure]) => ({ place, sure: Number(sure) })),
      })),
    ])
  );

  function matches(entry) {
    const low = Number(least.value), high = Number(most.value);
    if (!tag.value && low === 0 && high === 100) return true;
    return entry.tags.some((one) => (!tag.value || one.place === tag.value) && one.sure >= low && one.sure <= high);
  }

  function show() {
    const name = form.elements.group.value;
    for (const group of groups) {
      group.hidden = group.id !== `group-${name}`;
      if (group.hidden) continue;
      const all = cards.get(group);
      const found = all.filter(matches);
      const sure = (entry) => entry.tags.find((one) => one.place === tag.value).sure;
      if (tag.value && name === "confident") found.sort((a, b) => sure(b) - sure(a));
      all.forEach((entry) => (entry.card.hidden = true));
      found.forEach((entry) => {
        entry.card.hidden = false;
        entry.card.parentNode.append(entry.card);
      });
      document.getElementById("found").textContent = `${found.length} of ${all.length} shown`;
    }
    for (const range of [least, most]) range.nextElementSibling.textContent = `${range.value} %`;
  }

  least.addEventListener("input", () => {
    if (Number(least.value) > Number(most.value)) most.value = least.value;
  });
  most.addEventListener("input", () => {
    if (Number(most.value) < Number(least.value)) least.value = most.value;
  });
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
}

document.documentElement.classList.add("scripted");
document.querySelectorAll("table.sortable").forEach(makeSortable);
makeFilters(document.querySelector("form.filters"));
