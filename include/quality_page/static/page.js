// Draws the charts, and opens Airflow's own pages in its window in place of the frame that this page is shown in.
document.addEventListener("DOMContentLoaded", () => {
  for (const chart of document.querySelectorAll(".chart")) {
    const figure = JSON.parse(chart.dataset.figure);
    Plotly.newPlot(chart, figure.data, figure.layout, { responsive: true, displaylogo: false });
  }
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a.airflow");
  if (link && window.parent !== window) {
    event.preventDefault();
    const outside = window.parent.document.createElement("a"); // the frame itself may not leave its window
    outside.href = link.href;
    outside.click();
  }
});
