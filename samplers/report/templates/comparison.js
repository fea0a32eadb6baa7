draw("comparison").then(() => {
  document.getElementById("comparison").dataset.drawn = "";
});
