draw("factors").then(() => {
  const { items } = read("factors-data"), element = name => document.getElementById(name);
  const slots = new Map(items.map((item, slot) => [item.name, slot]));
  const rows = [...element("items-table").tBodies[0].rows];

  function choose(slot) {
    element("item-title").textContent = items[slot].name;
    element("item-alike").replaceChildren(...items[slot].alike.map(([name, score]) => {
      const known = slots.has(name), bar = made("span", { className: "bar" });
      bar.style.width = `${100 * Math.max(score, 0)}%`;
      const told = known ? made("button", { textContent: name, onclick: () => choose(slots.get(name)) }) : made("span", { textContent: name });
      return made("li", {}, told, bar, made("span", { className: "number", textContent: score.toFixed(3) }), made("span"));
    }));
    rows.forEach((row, number) => row.setAttribute("aria-current", number === slot));
  }

  element("item").oninput = event => {
    const text = event.target.value.trim().toLowerCase();
    rows.forEach((row, slot) => { row.hidden = !items[slot].name.toLowerCase().includes(text); });
  };
  element("item").onkeydown = event => {
    const slot = rows.findIndex(row => !row.hidden);
    if (event.key === "Enter" && slot >= 0) choose(slot);
  };
  element("items-table").onclick = event => {
    if (event.target.closest("button")) choose(Number(event.target.closest("tr").dataset.slot));
  };
  if (items.length) choose(0);
  element("factors").dataset.drawn = "";
});
