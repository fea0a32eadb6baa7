draw("training").then(views => {
  document.getElementById("against").addEventListener("change", event => signal(views, "against", event.target.value));
  document.getElementById("training").dataset.drawn = "";
});
