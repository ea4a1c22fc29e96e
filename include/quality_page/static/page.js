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

// Arrow keys go from bar to bar, from verdict to verdict: only one of a row is a stop of the Tab key.
const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
const step = (event) => {
  const row = event.target.closest?.(".chart, .runs");
  if (!row || !(event.key in moves)) return;
  const bars = [...row.querySelectorAll("[tabindex]")];
  const from = bars.indexOf(event.target.closest("[tabindex]"));
  const to = Math.min(Math.max(from + moves[event.key], 0), bars.length - 1);
  bars[from].tabIndex = -1;
  bars[to].tabIndex = 0;
  bars[to].focus();
  event.preventDefault();
};

// What the bar is, below its chart.
const read = (event) => {
  const bar = event.target.closest?.(".chart [tabindex]");
  const line = bar?.closest(".chart").parentElement.querySelector(".reading");
  if (line) line.textContent = bar.querySelector("title").textContent;
};

// What is wider than the window can be scrolled by keyboard, and has the name of its heading.
const reach = () => {
  let heading = "";
  for (const each of document.querySelectorAll("h1, h2, h3, .wide")) {
    if (!each.matches(".wide")) heading = each.textContent;
    else if (each.scrollWidth > each.clientWidth) {
      each.tabIndex = 0;
      each.setAttribute("role", "region");
      each.setAttribute("aria-label", `${heading}, wider than the window`);
    } else for (const name of ["tabindex", "role", "aria-label"]) each.removeAttribute(name);
  }
};

// Where the graph is wider than the window, it begins at the first gate that is closed.
const lead = () => {
  const closed = document.querySelector(".lineage .is-closed");
  const box = closed?.closest(".wide");
  if (box) box.scrollLeft += closed.getBoundingClientRect().left - box.getBoundingClientRect().left - 20;
};

document.addEventListener("keydown", step);
document.addEventListener("mouseover", read);
document.addEventListener("focusin", read);
window.addEventListener("load", reach); // the styles are there
window.addEventListener("load", lead);
window.addEventListener("resize", reach);
document.addEventListener("toggle", reach, true);

// While a job is under way the page is asked for again, and for a minute after the last one: the next job of a run begins then.
// What is open, typed, scrolled or focused stays so.
const REFRESH_MS = 10_000;
const QUIET_ROUNDS = 6;
const STOPS = "a[href], summary, input, select, button, [tabindex]";
let quiet = 0;
const nameOf = (part) => {
  const around = part.closest("article, section, main");
  return `${around.querySelector("h1, h2, h3")?.textContent} / ${part.querySelector("summary").textContent}`;
};
const refresh = async () => {
  if (document.activeElement?.matches("input, select")) return void setTimeout(refresh, REFRESH_MS); // somebody types
  const answer = await fetch(location.href, { cache: "no-store" }).catch(() => null);
  if (answer?.ok) replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
  else quiet += 1;
  if (quiet < QUIET_ROUNDS) setTimeout(refresh, REFRESH_MS);
};
const replace = (fresh) => {
  const now = document.querySelector("main");
  const next = document.adoptNode(fresh.querySelector("main"));
  quiet = next.matches("[data-under-way]") ? 0 : quiet + 1;
  const open = new Map([...now.querySelectorAll("details")].map((part) => [nameOf(part), part.open]));
  const scrolled = [...now.querySelectorAll(".wide")].map((box) => box.scrollLeft);
  const at = [...now.querySelectorAll(STOPS)].indexOf(document.activeElement);
  const [left, top] = [window.scrollX, window.scrollY];
  for (const field of now.querySelectorAll("input[id], select[id]")) {
    const same = next.querySelector(`#${field.id}`);
    if (same) [same.value, same.checked] = [field.value, field.checked];
  }
  now.replaceWith(next);
  for (const part of next.querySelectorAll("details")) part.open = open.get(nameOf(part)) ?? part.open;
  next.querySelectorAll(".wide").forEach((box, place) => (box.scrollLeft = scrolled[place] ?? 0));
  prepare();
  reach();
  if (at >= 0) next.querySelectorAll(STOPS)[at]?.focus({ preventScroll: true });
  window.scrollTo(left, top);
};

// A re-drive of the rows that were chosen: a run of Airflow's, by its own interface, which asks who the caller is and what they may do.
const DENIED = "Airflow does not let you trigger it: that takes the role user, or more.";
const explainAnswer = async (answer) => {
  if (answer.status === 401 || answer.status === 403) return DENIED;
  const detail = (await answer.json().catch(() => ({}))).detail;
  return `Airflow did not start it (${answer.status}): ${typeof detail === "string" ? detail : JSON.stringify(detail ?? "no reason")}`;
};
const redrive = async (event) => {
  event.preventDefault();
  const form = event.target;
  const [button, says] = [form.querySelector("button"), form.querySelector(".answer")];
  const conf = { ...JSON.parse(form.dataset.conf), dry_run: form.querySelector("#dry").checked };
  const body = JSON.stringify({ logical_date: null, conf });
  button.disabled = true;
  says.className = "answer faint";
  says.textContent = "Asking Airflow …";
  const answer = await fetch(form.dataset.to, { method: "POST", headers: { "Content-Type": "application/json" }, body }).catch(() => null);
  button.disabled = false;
  if (answer?.ok) {
    const run = (await answer.json()).dag_run_id;
    const link = Object.assign(document.createElement("a"), { className: "airflow", href: form.dataset.runs + encodeURIComponent(run) });
    link.textContent = run;
    says.className = "answer passed";
    says.replaceChildren(conf.dry_run ? "✓ Dry run started: " : "✓ Started: ", link);
  } else {
    says.className = "answer failed";
    says.textContent = answer ? await explainAnswer(answer) : "Airflow did not answer.";
  }
};

const prepare = () => {
  document.querySelector("#redrive")?.addEventListener("submit", redrive);
  if (document.querySelector("#find")) {
    document.querySelector("#find").addEventListener("input", choose);
    document.querySelector("#state").addEventListener("change", choose);
    document.querySelector("#search").addEventListener("submit", (event) => {
      event.preventDefault();
      document.querySelector(".card:not([hidden]) h3 a")?.focus(); // Enter leads to the first that was found
    });
    choose(); // the browser keeps what was typed when one comes back
  }
  for (const graph of document.querySelectorAll(".lineage")) {
    graph.addEventListener("mouseover", light);
    graph.addEventListener("focusin", light);
  }
  for (const choice of document.querySelectorAll("select.at-once")) {
    choice.addEventListener("change", () => choice.form.requestSubmit());
  }
};

document.addEventListener("DOMContentLoaded", () => {
  prepare();
  if (document.querySelector("main[data-under-way]")) setTimeout(refresh, REFRESH_MS);
});
