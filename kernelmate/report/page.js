// Draws the figures that stand in the page as JSON, and draws them again when the reader's colour scheme changes.
(function () {
  "use strict";
  var templates = JSON.parse(document.getElementById("templates").textContent);
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  var config = { displaylogo: false, responsive: true, modeBarButtons: [["toImage", "resetScale2d"]] };
  function draw() {
    document.querySelectorAll("figure.plot").forEach(function (figure) {
      var spec = JSON.parse(figure.querySelector("script").textContent);
      spec.layout.template = templates[dark.matches ? "dark" : "light"];
      Plotly.react(figure.querySelector(".chart"), spec.data, spec.layout, config);
    });
  }
  draw();
  dark.addEventListener("change", draw);
})();
