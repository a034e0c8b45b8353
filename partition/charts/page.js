"use strict";
// The tip of a figure, at the pointer or the arrow keys' place; tables that can be sorted.
(() => {
  const tip = document.getElementById("tip");
  const format = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toPrecision(3);
    return value.toLocaleString("en", { maximumSignificantDigits: 4 });
  };
  const show = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(x + 14, innerWidth - box.width - 8);
    const top = y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18;
    tip.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, top)}px)`;
  };
  const hide = () => { tip.hidden = true; };

  for (const chart of document.querySelectorAll("svg[data-tip]")) {
    let facts = null;
    let cursor = null;
    let place = [0, 0];
    const load = () => {
      if (facts !== null) return;
      facts = JSON.parse(chart.dataset.tip);
      cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
      cursor.setAttribute("class", "cursor");
      chart.append(cursor);
    };
    const edge = (column) => {
      const [x, , width] = facts.box;
      return facts.edges ? facts.edges[column] : x + width * column / facts.columns.length;
    };
    const columnAt = (at) => {
      if (facts.places) {
        let best = 0;
        facts.places.forEach((x, i) => {
          if (Math.abs(x - at) < Math.abs(facts.places[best] - at)) best = i;
        });
        return best;
      }
      let column = facts.columns.length - 1;
      while (column > 0 && edge(column) > at) column -= 1;
      return column;
    };
    const middle = (column) =>
      facts.places ? facts.places[column] : (edge(column) + edge(column + 1)) / 2;
    const text = ([row, column]) => {
      if (facts.grid) {
        return `${facts.rows[row]}, ${facts.columns[column]}\n${format(facts.cells[row][column])} (${facts.unit})`;
      }
      const lines = facts.rows
        .map((name, i) => [name, facts.cells[i][column]])
        .filter(([, value]) => value !== null)
        .map(([name, value]) => `${name}: ${format(value)}`);
      return [facts.columns[column], ...lines, `(${facts.unit})`].join("\n");
    };
    const mark = () => {
      const [, top, , height] = facts.box;
      const [row, column] = place;
      if (facts.grid) {
        const size = height / facts.rows.length;
        const [a, b] = [edge(column), edge(column + 1)];
        cursor.setAttribute("d", `M${a} ${top + size * row}H${b}v${size}H${a}z`);
      } else {
        cursor.setAttribute("d", `M${middle(column)} ${top}v${height}`);
      }
    };
    const leave = () => {
      hide();
      if (cursor !== null) cursor.removeAttribute("d");
    };
    chart.addEventListener("pointermove", (event) => {
      load();
      if (facts.columns.length === 0) return;
      const box = chart.getBoundingClientRect();
      const scale = chart.viewBox.baseVal.width / box.width;
      const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      const [left, top, width, height] = facts.box;
      if (x < left - 4 || x > left + width + 4 || y < top || y > top + height) {
        leave();
        return;
      }
      const row = Math.floor((y - top) / height * facts.rows.length);
      place = [Math.max(0, Math.min(facts.rows.length - 1, row)), columnAt(x)];
      mark();
      show(text(place), event.clientX, event.clientY);
    });
    chart.addEventListener("pointerleave", leave);
    chart.addEventListener("blur", leave);
    chart.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      if (event.key === "Escape") leave();
      const step = steps[event.key];
      if (!step) return;
      load();
      if (facts.columns.length === 0 || (!facts.grid && step[0] !== 0)) return;
      event.preventDefault();
      const first = tip.hidden;
      place = first ? place : [
        Math.max(0, Math.min(facts.rows.length - 1, place[0] + step[0])),
        Math.max(0, Math.min(facts.columns.length - 1, place[1] + step[1])),
      ];
      mark();
      const box = chart.getBoundingClientRect();
      const scale = box.width / chart.viewBox.baseVal.width;
      show(text(place), box.left + middle(place[1]) * scale, box.top + facts.box[1] * scale);
    });
  }
  addEventListener("scroll", hide, { passive: true });

  for (const table of document.querySelectorAll("table[data-sort]")) {
    const body = table.tBodies[0];
    if (body.rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const key = (row) => {
          const cell = row.cells[column];
          return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
        };
        const compare = (a, b) => {
          const [x, y] = [key(a), key(b)];
          if (typeof x === "number" && typeof y === "number") return x - y;
          if (typeof x === "number") return -1;
          if (typeof y === "number") return 1;
          return x.localeCompare(y, "en", { numeric: true });
        };
        body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) * compare(a, b)));
      });
    });
  }

  const unfold = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = target && target.closest("details");
    if (folded) folded.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
})();
