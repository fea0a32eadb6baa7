draw("regression").then(() => {
  const data = read("regression-data"), element = name => document.getElementById(name);

  function show(number) {
    const listed = data.coefficients[number], largest = Math.max(...listed.map(([, value]) => Math.abs(value)));
    const level = data.levels[number].toPrecision(4);
    if (element("level")) element("level-told").textContent = level;
    element("level-title").textContent = `Coefficients at lambda = ${level}${number === data.chosen ? " (chosen)" : ""}`;
    element("level-size").textContent = `${data.sizes[number].toLocaleString("en")} nonzero coefficients` +
      `${data.sizes[number] > listed.length ? `, the ${listed.length} largest are shown` : ""}; intercept ${data.intercepts[number].toPrecision(5)}`;
    element("coefficients").replaceChildren(...listed.map(([name, value]) => {
      const bar = made("span", { className: value < 0 ? "bar below" : "bar" });
      bar.style.width = `${100 * Math.abs(value) / largest}%`;
      return made("li", {}, made("span", { textContent: name }), bar,
        made("span", { className: "number", textContent: value.toPrecision(4) }), made("span"));
    }));
  }

  if (element("level")) element("level").oninput = event => show(Number(event.target.value));
  show(data.chosen);
  element("regression").dataset.drawn = "";
});
