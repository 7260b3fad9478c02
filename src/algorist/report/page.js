"use strict";
(function () {
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const store = { get(k) { try { return localStorage.getItem(k); } catch (e) { return null; } },
                  set(k, v) { try { localStorage.setItem(k, v); } catch (e) { /* private mode: the choice is not kept */ } } };

  // theme: the system's until chosen
  const toggle = $("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const label = () => { toggle.textContent = now() === "dark" ? "Light page" : "Dark page"; };
  const kept = store.get("algorist-theme");
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  toggle.hidden = false;
  toggle.addEventListener("click", () => { root.dataset.theme = now() === "dark" ? "light" : "dark"; store.set("algorist-theme", root.dataset.theme); label(); });
  dark.addEventListener("change", label);
  label();

  // charts: the values under the pointer, or under the arrow keys
  const show = (v, percent) => percent ? (100 * v).toFixed(1) + "%" : Number(v.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
  for (const figure of document.querySelectorAll("figure.chart")) {
    const data = JSON.parse(figure.dataset.chart);
    const readout = figure.querySelector(".readout");
    const xs = [...new Set(data.lines.flatMap((l) => l.at.map((p) => p[0])))].sort((a, b) => a - b);
    const values = data.lines.map((l) => new Map(l.at));
    let at = -1;
    for (const svg of figure.querySelectorAll(".draw svg")) {
      const [left, right, low, high, log] = svg.dataset.plot.split(" ").map(Number);
      const f = log ? Math.log2 : (x) => x;
      const cross = svg.querySelector(".cross");
      const select = (i) => {
        at = i;
        const x = left + (right - left) * (f(xs[i]) - f(low)) / (f(high) - f(low));
        cross.setAttribute("x1", x); cross.setAttribute("x2", x);
        const parts = data.lines.map((l, j) => values[j].has(xs[i]) ? l.name + " " + show(values[j].get(xs[i]), data.percent) : null);
        figure.classList.add("reading"); readout.textContent = data.x + " " + show(xs[i], false) + ": " + parts.filter(Boolean).join(", ");
      };
      const clear = () => { at = -1; figure.classList.remove("reading"); readout.textContent = ""; };
      svg.addEventListener("pointermove", (e) => {
        const box = svg.getBoundingClientRect();
        const px = (e.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
        let best = 0, gap = Infinity;
        xs.forEach((x, i) => { const d = Math.abs(left + (right - left) * (f(x) - f(low)) / (f(high) - f(low)) - px); if (d < gap) { gap = d; best = i; } });
        select(best);
      });
      svg.addEventListener("pointerleave", clear);
      svg.addEventListener("blur", clear);
      svg.addEventListener("keydown", (e) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
        if (e.key === "Escape") return clear();
        if (!step) return;
        e.preventDefault();
        select(at < 0 ? (step > 0 ? 0 : xs.length - 1) : Math.min(xs.length - 1, Math.max(0, at + step)));
      });
    }
  }

  // samples: one group at a time
  const form = $("picker");
  if (form) {
    const filter = $("filter"), group = $("group"), previous = $("previous"), next = $("next"), picked = $("picked");
    const about = picked.textContent;
    const all = [...group.options].map((o) => ({ value: o.value, text: o.textContent, kinds: o.dataset.kinds.split(" ") }));
    const articles = [...document.querySelectorAll("article.group")];
    form.hidden = false;
    const pick = () => {
      for (const a of articles) a.hidden = a.id !== group.value;
      previous.disabled = group.selectedIndex <= 0;
      next.disabled = group.selectedIndex >= group.options.length - 1;
      picked.textContent = "Group " + (group.selectedIndex + 1) + " of " + group.options.length + ". " + about;
    };
    const refill = (want) => {
      const fit = all.filter((o) => !filter.value || o.kinds.includes(filter.value));
      group.replaceChildren(...fit.map((o) => new Option(o.text, o.value)));
      if (fit.some((o) => o.value === want)) group.value = want;
      pick();
    };
    const move = (by) => { group.selectedIndex += by; pick(); };
    filter.addEventListener("change", () => refill(group.value));
    group.addEventListener("change", pick);
    previous.addEventListener("click", () => move(-1));
    next.addEventListener("click", () => move(1));
    form.addEventListener("submit", (e) => e.preventDefault());
    const linked = location.hash.slice(1);
    const mixed = all.filter((o) => o.kinds.includes("mixed"));
    refill(all.some((o) => o.value === linked) ? linked : (mixed.length ? mixed[mixed.length - 1] : all[0]).value);
  }
})();
