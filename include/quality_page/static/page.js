// Loaded before the page is drawn, so that it begins in Airflow's colours: light or dark, or what the system says.
const follow = () => {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
};
follow();
window.addEventListener("storage", follow);

// Opens Airflow's own pages in its window in place of the frame that this page is shown in.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.airflow");
  if (link && window.parent !== window) {
    event.preventDefault();
    const outside = window.parent.document.createElement("a"); // the frame itself may not leave its window
    outside.href = link.href;
    outside.click();
  }
});

// The cards that have the words and the state that were chosen.
const choose = () => {
  const words = document.querySelector("#find").value.toLowerCase().split(/\s+/);
  const state = document.querySelector("#state").value;
  let shown = 0;
  for (const card of document.querySelectorAll(".card")) {
    const text = card.dataset.words.toLowerCase();
    card.hidden = !words.every((word) => text.includes(word)) || (state !== "" && card.dataset.state !== state);
    shown += card.hidden ? 0 : 1;
  }
  document.querySelector("#shown").textContent = shown;
};

// The edges of a table in the graph.
const light = (event) => {
  const node = event.target.closest?.(".lineage [data-name]");
  for (const path of document.querySelectorAll(".lineage path")) {
    path.classList.toggle("lit", node !== null && (path.dataset.from === node.dataset.name || path.dataset.to === node.dataset.name));
  }
};

document.addEventListener("DOMContentLoaded", () => {
  if (document.querySelector("#find")) {
    document.querySelector("#find").addEventListener("input", choose);
    document.querySelector("#state").addEventListener("change", choose);
    document.querySelector("#search").addEventListener("submit", (event) => event.preventDefault());
    choose(); // the browser keeps what was typed when one comes back
  }
  for (const graph of document.querySelectorAll(".lineage")) {
    graph.addEventListener("mouseover", light);
    graph.addEventListener("focusin", light);
  }
  for (const choice of document.querySelectorAll("select.at-once")) {
    choice.addEventListener("change", () => choice.form.requestSubmit());
  }
});
