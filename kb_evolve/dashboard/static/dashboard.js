// Live updates and clickable dots. Every page is complete without this file.
"use strict";

const parser = new DOMParser();
const status = document.getElementById("status");
const pause = document.getElementById("pause");
let paused = false;
let waiting = false;
let latest = null;

// Replaces the parts of the page that follow the run by what the server now says; a parsed page runs no script.
async function refresh() {
  if (paused || document.hidden) {
    waiting = true;
    return;
  }
  waiting = false;
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const page = parser.parseFromString(await answer.text(), "text/html");
  for (const old of document.querySelectorAll("[data-live-part]")) {
    const fresh = page.getElementById(old.id);
    if (fresh) replace(old, document.importNode(fresh, true));
  }
  show();
}

// Keeps focus, ticks and the place of sideways scrolling where they were.
function replace(old, fresh) {
  for (const box of old.querySelectorAll("input:checked")) {
    const same = [...fresh.querySelectorAll("input")].find((one) => one.name === box.name && one.value === box.value);
    if (same) same.checked = true;
  }
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const places = [...old.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  old.replaceWith(fresh);
  [...fresh.querySelectorAll(".scroll")].forEach((one, index) => (one.scrollLeft = places[index] || 0));
  if (focused) again(fresh, focused)?.focus({ preventScroll: true });
}

function again(fresh, focused) {
  const alike = [...fresh.querySelectorAll(focused.tagName)];
  const mark = (one) => [one.getAttribute("href"), one.getAttribute("value"), one.getAttribute("aria-label")].join("\n");
  return alike.find((one) => mark(one) === mark(focused));
}

function show() {
  if (!latest) return;
  const many = latest.told === 1 ? "evaluation" : "evaluations";
  const state = paused ? "paused" : latest.running ? "live" : "up to date";
  status.textContent = `${state}: ${latest.told.toLocaleString("en")} ${many}`;
  status.parentElement.classList.toggle("on", !paused && latest.running > 0);
}

function follow(address) {
  status.parentElement.hidden = false;
  const stream = new EventSource(address);
  stream.addEventListener("state", (event) => {
    latest = JSON.parse(event.data);
    show();
  });
  stream.addEventListener("changed", (event) => {
    latest = JSON.parse(event.data);
    refresh();
  });
  stream.addEventListener("error", () => {
    status.textContent = stream.readyState === EventSource.CLOSED ? "no longer connected" : "connecting again";
    status.parentElement.classList.remove("on");
  });
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (!paused && waiting) refresh();
    else show();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && waiting) refresh();
  });
  window.addEventListener("pagehide", () => stream.close());
}

document.addEventListener("click", (event) => {
  const dot = event.target.closest("circle[data-id]");
  if (dot) location.href = `/candidates/${encodeURIComponent(dot.dataset.id)}`;
});

if (document.body.dataset.live) follow(document.body.dataset.live);
