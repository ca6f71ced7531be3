"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const words = document.getElementById("words");
const found = document.getElementById("found");
const selects = [...document.querySelectorAll("select[data-field]")];
const order = { summary: 0, detail: 1, full_research: 2 };
for (const one of data.documents) {
  one.text = [one.title, one.summary, ...one.sections.flatMap((s) => [s.heading, s.text])].join(" ").toLowerCase();
}

function score(one, asked) {
  let sum = 0;
  for (const word of asked) {
    const times = one.text.split(word).length - 1;
    if (!times) return -1;
    sum += Math.log(1 + times) + (one.title.toLowerCase().includes(word) ? 3 : 0);
  }
  return sum / Math.log(40 + one.text.length);
}

function marked(text, asked) {
  const node = document.createElement("span");
  const pattern = asked.length ? new RegExp("(" + asked.map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|") + ")", "gi") : null;
  for (const part of pattern ? text.split(pattern) : [text]) {
    const hit = pattern && asked.includes(part.toLowerCase());
    node.append(hit ? Object.assign(document.createElement("mark"), { textContent: part }) : part);
  }
  return node;
}

function element(name, className, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

function shown(one, asked) {
  const article = element("article", "", element("h2", "", marked(one.title, asked)), element("div", "path", one.path));
  article.id = one.path;
  article.append(element("p", "", marked(one.summary, asked)));
  for (const section of one.sections) {
    const details = element("details", "", element("summary", "", marked(section.heading || "Text", asked)), element("p", "", marked(section.text, asked)));
    details.open = asked.length > 0 && asked.some((w) => section.text.toLowerCase().includes(w));
    article.append(details);
  }
  const related = one.related.filter((path) => data.documents.some((d) => d.path === path));
  if (related.length) {
    const links = related.flatMap((path, n) => {
      const link = element("a", "", path);
      link.href = "#" + path;
      link.onclick = (event) => { event.preventDefault(); words.value = ""; selects.forEach((s) => (s.value = "")); draw(path); };
      return n ? [", ", link] : [link];
    });
    article.append(element("div", "origin", "Read on: ", ...links));
  }
  article.append(element("div", "origin", "Source: " + one.origin));
  return article;
}

function draw(to) {
  const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = data.documents.filter((one) => selects.every((s) => !s.value || one[s.dataset.field] === s.value));
  const ranked = fits.map((one) => [score(one, asked), one]).filter(([s]) => s >= 0);
  ranked.sort((a, b) => (asked.length ? b[0] - a[0] : order[a[1].level] - order[b[1].level]) || a[1].path.localeCompare(b[1].path));
  const most = typeof to === "string" ? ranked.length : 50;
  found.replaceChildren(...ranked.slice(0, most).map(([, one]) => shown(one, asked)));
  const more = ranked.length > most ? `, the first ${most} of them` : "";
  document.getElementById("count").textContent = ranked.length ? `${ranked.length} of ${data.documents.length} documents${more}` : "This is not in the knowledge base.";
  if (typeof to === "string") document.getElementById(to)?.scrollIntoView();
}

words.oninput = () => draw();
for (const select of selects) select.onchange = () => draw();
document.onkeydown = (event) => {
  if (event.key === "/" && document.activeElement !== words) { event.preventDefault(); words.focus(); words.select(); }
};
draw(decodeURIComponent(location.hash.slice(1)) || undefined);
