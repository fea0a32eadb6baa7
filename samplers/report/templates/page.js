const read = id => JSON.parse(document.getElementById(id).textContent);
const config = read("charts-config");
const tip = document.getElementById("tip");

/** Make an element with properties and children; text is never parsed as markup. */
function made(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function showTip(_, event, item, value) {
  tip.hidden = value == null || value === "";
  if (tip.hidden) return;
  tip.textContent = typeof value === "object"
    ? Object.entries(value).map(([name, told]) => name ? `${name}: ${told}` : told).join("\n") : value;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${event.clientY + box.height + 24 > innerHeight ? event.clientY - box.height - 10 : event.clientY + 16}px`;
}

/** Draw the charts of a section; resolves to their Vega views by chart name. */
async function draw(section) {
  const views = {};
  for (const [name, spec] of Object.entries(read(`${section}-charts`))) {
    const options = { mode: "vega-lite", renderer: "svg", actions: false, config, tooltip: showTip };
    views[name] = (await embed(`#${section}-${name}`, spec, options)).view;
  }
  return views;
}

/** Set a signal of all views that define the signal. */
function signal(views, name, value) {
  for (const view of Object.values(views)) {
    if (name in view.getState().signals) view.signal(name, value).runAsync();
  }
}
