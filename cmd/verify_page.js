// Lets tables be sorted by their headers, and weights be found. Without it they are all there.
"use strict";

// What a cell sorts by: a number, the elements of a shape, or text. An en dash comes last.
function sortKey(cell) {
  const text = cell.textContent.trim();
  const numbers = text.split("×").map(Number);
  if (text === "–") return -Infinity;
  return numbers.every(Number.isFinite) ? numbers.reduce((a, b) => a * b) : text;
}

function compareKeys(a, b) {
  if (typeof a === "number" && typeof b === "number") return b - a;
  return String(a).localeCompare(String(b), "en", {numeric: true});
}

// The first click puts great numbers and early names first, the second turns that around.
function sortTable(table, head, column) {
  const body = table.tBodies[0];
  const again = head.hasAttribute("aria-sort") && !head.dataset.turned;
  const rows = Array.from(body.rows, row => [sortKey(row.cells[column]), row]);
  rows.sort((a, b) => again ? compareKeys(b[0], a[0]) : compareKeys(a[0], b[0]));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  const numeric = head.classList.contains("n");
  head.setAttribute("aria-sort", numeric === again ? "ascending" : "descending");
  if (again) head.dataset.turned = "yes"; else delete head.dataset.turned;
  body.append(...rows.map(row => row[1]));
}

function makeSortable(table) {
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortTable(table, head, column));
    head.append(button);
  });
}

// A field that hides the weights whose names do not hold what is typed.
function addFilter(section) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  input.type = "search";
  label.append("Show weights whose name contains ", input);
  input.addEventListener("input", () => {
    for (const row of section.querySelector("tbody").rows)
      row.hidden = !row.cells[0].firstChild.textContent.includes(input.value);
  });
  section.querySelector("h2").after(label);
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
document.querySelectorAll("#weights").forEach(addFilter);
