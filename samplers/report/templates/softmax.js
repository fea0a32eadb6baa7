draw("softmax").then(() => {
  const data = read("softmax-data"), element = name => document.getElementById(name);

  function show(number) {
    const listed = data.weights[number], largest = Math.max(...listed.map(([, value]) => Math.abs(value)));
    element("label-told").textContent = data.labels[number];
    element("label-title").textContent = `Weights of class ${data.labels[number]}`;
    element("label-size").textContent = `${listed.length} largest weights; intercept ${data.intercepts[number].toPrecision(5)}`;
    element("weights").replaceChildren(...listed.map(([name, value]) => {
      const bar = made("span", { className: value < 0 ? "bar below" : "bar" });
      bar.style.width = `${100 * Math.abs(value) / largest}%`;
      return made("li", {}, made("span", { textContent: name }), bar,
        made("span", { className: "number", textContent: value.toPrecision(4) }), made("span"));
    }));
  }

  element("label").oninput = event => show(Number(event.target.value));
  show(0);
  element("softmax").dataset.drawn = "";
});
