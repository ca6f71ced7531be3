"use strict";
// Everything an agent wrote comes from the data block and reaches the page as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  function make(tag, text, className) {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  }

  function block(into, title, text) {
    if (!text) return;
    into.append(make("h4", title), make("pre", text));
    into.lastChild.tabIndex = 0;
  }

  function fill(details) {
    const known = data.attempts[details.dataset.attempt];
    const into = details.querySelector(".body");
    if (!known || into.childElementCount) return;
    block(into, "Error", known.error);
    block(into, "Prompt", known.prompt);
    block(into, "Answer", known.answer);
    if (known.calls.length) into.append(make("h4", `Tool calls (${known.calls.length}${known.more ? ` of ${known.calls.length + known.more}` : ""})`));
    for (const call of known.calls) {
      const one = make("details", undefined, "call");
      const head = make("summary");
      head.append(make("span", call.name, "what"), make("span", call.brief, "meta"));
      if (call.failed) head.append(make("span", "failed", "badge bad"));
      one.append(head, make("pre", call.input), make("pre", call.result));
      into.append(one);
    }
    block(into, "Denied", known.denied);
    into.append(make("p", `Everything is in ${known.folder}`, "soft"));
  }

  document.addEventListener("toggle", (event) => {
    const details = event.target;
    if (details.open && details.dataset && details.dataset.attempt) fill(details);
  }, true);

  const search = document.getElementById("search");
  const problems = document.getElementById("problems");
  const count = document.getElementById("count");

  function apply() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const only = problems.getAttribute("aria-pressed") === "true";
    let shown = 0, total = 0;
    for (const leaf of all("[data-leaf]")) {
      const text = leaf.dataset.leaf;
      const good = words.every((w) => text.includes(w)) && (!only || leaf.dataset.bad === "1");
      leaf.hidden = !good;
      if (leaf.classList.contains("step")) { total += 1; shown += good ? 1 : 0; }
    }
    const filtering = words.length > 0 || only;
    for (const group of all("details.group").reverse()) {
      const some = all(".step", group).some((leaf) => !leaf.hidden);
      group.hidden = filtering && !some;
      if (filtering && some) group.open = true;
    }
    count.textContent = filtering ? `${shown} of ${total} steps` : `${total} steps`;
  }

  search.addEventListener("input", apply);
  problems.addEventListener("click", () => {
    problems.setAttribute("aria-pressed", String(problems.getAttribute("aria-pressed") !== "true"));
    apply();
  });
  document.getElementById("open").addEventListener("click", () => all("details.group").forEach((d) => { d.open = true; }));
  document.getElementById("close").addEventListener("click", () => all(".steps details").forEach((d) => { d.open = false; }));
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); search.focus(); }
    if (event.key === "Escape" && document.activeElement === search) { search.value = ""; apply(); }
  });
  addEventListener("hashchange", reveal);
  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let up = target; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    target.scrollIntoView();
  }
  apply();
  if (location.hash) reveal();
})();
