"use strict";
// Draws the report from the data inside the page: SVG by hand, no library, nothing fetched.
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const TIP = document.getElementById("tip");
  const DASHES = ["", "7 3", "2 2.5", "9 3 2 3", "4 2", "12 4", "1.5 3", "6 2 1.5 2 1.5 2"];
  const COLOURS = 8;
  const BARS = [
    { key: "worst", label: "worst group", colour: "var(--c1)", pattern: "solid" },
    { key: "average", label: "average of the groups", colour: "var(--c0)", pattern: "hatch" },
    { key: "best", label: "best group", colour: "var(--c2)", pattern: "dots" },
  ];
  const TIMES = [
    { key: "compute", label: "compute", colour: "var(--c0)", pattern: "solid" },
    { key: "exchange", label: "exchange", colour: "var(--c5)", pattern: "hatch" },
    { key: "wait", label: "wait", colour: "var(--c3)", pattern: "dots" },
  ];
  const colour = (i) => `var(--c${i % COLOURS})`;
  // After eight series the colours come again, with other dashes and markers.
  const dash = (i) => DASHES[(i + Math.floor(i / COLOURS)) % DASHES.length];
  const shape = (i) => (i + 3 * Math.floor(i / COLOURS)) % 8;

  /* ---- elements, numbers, text ---- */

  function make(parent, tag, attributes = {}, text) {
    const svg = parent instanceof SVGElement || tag === "svg";
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value != null) node.setAttribute(name, value);
    if (text != null) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  }
  // Kept, because to make one takes longer than to draw a bar.
  const formats = Array.from({ length: 13 }, (_, n) => new Intl.NumberFormat("en-US", { minimumFractionDigits: n, maximumFractionDigits: n }));
  const fixed = (x, digits) => (x == null ? "–" : formats[Math.min(12, digits)].format(x));
  const whole = (x) => fixed(x, 0);
  // Three decimals for shares and risks; more where that would leave nothing to see.
  const three = (x) => (x != null && x !== 0 && Math.abs(x) < 0.001 ? x.toPrecision(2) : fixed(x, 3));
  const pair = (p, f = three) => (p == null ? "–" : p[1] == null ? f(p[0]) : `${f(p[0])} ± ${f(p[1])}`);
  const between = (ends) => (ends ? `${three(ends[0])}–${three(ends[1])}` : "–");
  function seconds(s) {
    if (s == null) return "–";
    if (s < 1) return `${(1000 * s).toPrecision(s < 0.1 ? 2 : 3)} ms`;
    if (s < 120) return `${fixed(s, s < 10 ? 2 : 1)} s`;
    return s < 7200 ? `${fixed(s / 60, 1)} min` : `${fixed(s / 3600, 1)} h`;
  }
  function bytes(b) {
    if (b == null) return "–";
    const units = ["B", "kB", "MB", "GB"];
    let i = 0;
    while (b >= 1000 && i < 3) { b /= 1000; i++; }
    return `${fixed(b, i && b < 100 ? 1 : 0)} ${units[i]}`;
  }
  // η_θ with its index below the line.
  function indexed(node, text) {
    text.split(/_(\p{L})(?!\p{L})/u).forEach((part, i) => (i % 2 ? make(node, "sub", {}, part) : node.append(part)));
  }
  const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;
  const lossName = (loss) => ({ brier: "Brier score", "cross-entropy": "cross entropy" })[loss] || loss;
  const settingName = (s) => s || "one client with all rows";
  const runLabel = (section, run) =>
    [section.methods[run.method].label, run.setting, `seed ${run.seed}`].filter(Boolean).join(", ");

  function ticks(low, high, count) {
    const span = high - low || 1;
    let step = 10 ** Math.floor(Math.log10(span / count));
    const error = span / count / step;
    step *= error >= 7 ? 10 : error >= 3 ? 5 : error >= 1.5 ? 2 : 1;
    const found = [];
    // + 0: a minus zero would be written as one.
    for (let i = Math.ceil(low / step - 1e-9) + 0; i * step <= high + step * 1e-9; i++) found.push(i * step);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return found.map((value) => [value, fixed(value, digits)]);
  }

  const measure = document.createElement("canvas").getContext("2d");
  // Asked for once: the answer makes the browser work out all styles anew.
  measure.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  const textWidth = (text) => measure.measureText(text).width;
  // One line, or two at a space, or without its middle: beginnings and ends tell groups apart.
  function lines(text, room, height) {
    if (textWidth(text) <= room) return [text];
    const words = text.split(" ");
    for (let n = words.length - 1; n > 0 && height >= 22; n--) {
      const two = [words.slice(0, n).join(" "), words.slice(n).join(" ")];
      if (two.every((line) => textWidth(line) <= room)) return two;
    }
    const letters = Array.from(text);
    let keep = letters.length - 1;
    const cut = () => letters.slice(0, Math.ceil(keep / 2)).join("") + "…" + letters.slice(letters.length - Math.floor(keep / 2)).join("");
    while (keep > 2 && textWidth(cut()) > room) keep--;
    return [cut()];
  }
  // The name of a row that is `height` high around y, to the left of x.
  function rowName(svg, x, y, text, height) {
    const shown = lines(text, x, height);
    const node = make(svg, "text", { "text-anchor": "end" });
    shown.forEach((line, i) => make(node, "tspan", { x, y: y + 4 + (i - (shown.length - 1) / 2) * 11.5 }, line));
    if (shown.join(" ") !== text) make(node, "title", {}, text);
  }
  const labelRoom = (names, width) => Math.min(Math.max(...names.map((n) => textWidth(n))) + 10, 0.42 * width);

  /* ---- marks ---- */

  let patterns = 0;
  function fill(svg, kind) {
    if (kind.pattern === "solid") return kind.colour;
    const id = `p${patterns++}`;
    const defs = svg.querySelector("defs") || make(svg, "defs");
    const p = make(defs, "pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse" });
    make(p, "rect", { width: 5, height: 5, style: `fill:${kind.colour}` });
    const ink = "stroke:var(--card);fill:var(--card)";
    if (kind.pattern === "hatch") make(p, "path", { d: "M-1 1L1 -1M0 5L5 0M4 6L6 4", style: `${ink};stroke-width:1.3` });
    else make(p, "circle", { cx: 2.5, cy: 2.5, r: 1.1, style: `${ink};stroke:none` });
    return `url(#${id})`;
  }
  function marker(svg, i, x, y, r, attributes = {}) {
    const paths = [
      `M${-r} 0A${r} ${r} 0 1 0 ${r} 0A${r} ${r} 0 1 0 ${-r} 0Z`,
      `M${-r * 0.88} ${-r * 0.88}H${r * 0.88}V${r * 0.88}H${-r * 0.88}Z`,
      `M0 ${-r * 1.15}L${r * 1.1} ${r * 0.85}H${-r * 1.1}Z`,
      `M0 ${-r * 1.3}L${r * 1.3} 0L0 ${r * 1.3}L${-r * 1.3} 0Z`,
      `M0 ${r * 1.15}L${r * 1.1} ${-r * 0.85}H${-r * 1.1}Z`,
      `M${-r * 0.4} ${-r * 1.2}H${r * 0.4}V${-r * 0.4}H${r * 1.2}V${r * 0.4}H${r * 0.4}V${r * 1.2}H${-r * 0.4}V${r * 0.4}H${-r * 1.2}V${-r * 0.4}H${-r * 0.4}Z`,
      `M0 ${-r * 1.35}L${r * 0.4} ${-r * 0.4}L${r * 1.35} 0L${r * 0.4} ${r * 0.4}L0 ${r * 1.35}L${-r * 0.4} ${r * 0.4}L${-r * 1.35} 0L${-r * 0.4} ${-r * 0.4}Z`,
      `M${-r * 1.2} ${-r * 0.6}H${r * 1.2}V${r * 0.6}H${-r * 1.2}Z`,
    ];
    return make(svg, "path", { d: paths[shape(i)], transform: `translate(${x} ${y})`, style: `fill:${colour(i)};stroke:var(--card);stroke-width:.8`, ...attributes });
  }

  /* ---- the tip ---- */

  function tip(event, title, rows) {
    TIP.replaceChildren();
    if (title) make(TIP, "b", {}, title);
    for (const [name, value] of rows) {
      const row = make(TIP, "div", { class: "r" });
      make(row, "span", {}, name);
      make(row, "span", {}, value);
    }
    TIP.hidden = false;
    const box = TIP.getBoundingClientRect();
    let x = event.clientX + 14, y = event.clientY + 14;
    if (x + box.width > innerWidth - 6) x = Math.max(6, event.clientX - box.width - 14);
    if (y + box.height > innerHeight - 6) y = Math.max(6, event.clientY - box.height - 14);
    TIP.style.left = `${x}px`;
    TIP.style.top = `${y}px`;
  }
  const hideTip = () => { TIP.hidden = true; };
  function hover(node, title, rows) {
    const show = (event) => tip(event, title, rows());
    node.addEventListener("pointermove", show);
    node.addEventListener("pointerdown", show);
    node.addEventListener("pointerleave", hideTip);
  }
  addEventListener("scroll", hideTip, { passive: true });

  /* ---- figures: panels that are drawn again when their width changes ---- */

  const drawn = new Map();
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) if (drawn.has(target) && drawn.get(target).width !== target.clientWidth) redraw(target);
  });
  function redraw(panel) {
    if (!panel.isConnected) { drawn.delete(panel); resized.unobserve(panel); return; }
    const entry = drawn.get(panel);
    entry.width = panel.clientWidth;
    if (entry.width) drawAt(entry, entry.width);
  }
  function drawAt({ svg, draw }, room) {
    const width = Math.max(225, room);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${draw(svg, width)}`);
  }
  // On paper the panels are narrower: drawn for that width, their letters keep their size.
  addEventListener("beforeprint", () => {
    for (const [panel, entry] of drawn) {
      const grid = panel.closest(".panels");
      const half = panel.closest(".two") || grid.classList.contains("half");
      drawAt(entry, half ? 490 : grid.classList.contains("one") ? 1000 : 320);
    }
  });
  addEventListener("afterprint", () => drawn.forEach((_, panel) => redraw(panel)));
  function figure(parent, { title, caption, kind }) {
    const card = make(parent, "figure", { class: "card", "data-figure": kind });
    const head = make(card, "div", { class: "head" });
    make(head, "h3", {}, title);
    const tools = make(head, "div", { class: "tools" });
    if (caption) indexed(make(card, "figcaption"), caption);
    const panels = make(card, "div", { class: "panels" });
    const mine = [];
    return {
      card, tools, panels,
      panel(heading, sub, describe, draw) {
        const box = make(panels, "div", { class: "panel" });
        if (heading) make(box, "h4", {}, heading);
        if (sub != null) make(box, "p", { class: "sub" }, sub);
        const host = make(box, "div");
        const svg = make(host, "svg", { role: "img", "aria-label": describe });
        drawn.set(host, { svg, draw, width: 0 });
        mine.push(host);
        panels.classList.toggle("one", mine.length === 1);
        panels.classList.toggle("half", mine.length === 2);
        redraw(host);
        resized.observe(host);
      },
      redraw() { mine.forEach(redraw); },
    };
  }
  // items: [{label, sample(svg)}]; `hidden` is a set of numbers that all figures of a legend share.
  function legend(parent, items, hidden, changed, what) {
    const box = make(parent, "div", { class: "legend", role: "group", "aria-label": `show or hide ${what}` });
    items.forEach((item, i) => {
      const fixedItem = item.fixed;
      const button = make(box, fixedItem ? "span" : "button", fixedItem ? {} : { type: "button", "aria-pressed": String(!hidden.has(i)), title: "show or hide" });
      const svg = make(button, "svg", { viewBox: "0 0 28 12", "aria-hidden": "true" });
      item.sample(svg);
      make(button, "span", { style: "all:unset" }, item.label);
      if (fixedItem) return;
      button.addEventListener("click", () => {
        if (!hidden.delete(i)) hidden.add(i);
        button.setAttribute("aria-pressed", String(!hidden.has(i)));
        changed();
      });
    });
    return box;
  }
  const swatch = (kind) => (svg) => make(svg, "rect", { x: 3, width: 22, height: 12, rx: 2, fill: fill(svg, kind), style: kind.pattern === "solid" ? `fill:${kind.colour}` : null });
  const lineSample = (i) => (svg) => {
    make(svg, "path", { d: "M0 6H28", "stroke-dasharray": dash(i), style: `stroke:${colour(i)};stroke-width:2;fill:none` });
    marker(svg, i, 14, 6, 3.4);
  };
  const markSample = (i) => (svg) => marker(svg, i, 14, 6, 4.4);

  function tickText(svg, x, y, text, width) {
    const half = textWidth(text) / 2;
    make(svg, "text", { class: "quiet", x: Math.min(x, width - half - 1), y, "text-anchor": "middle" }, text);
  }
  function xAxis(svg, ticksOf, x, top, bottom, name, left, right) {
    for (const [value, text] of ticksOf) {
      make(svg, "line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: bottom });
      make(svg, "text", { class: "quiet", x: x(value), y: bottom + 14, "text-anchor": "middle" }, text);
    }
    if (name) make(svg, "text", { class: "quiet", x: (left + right) / 2, y: bottom + 30, "text-anchor": "middle" }, name);
  }

  /* ---- worst, average and best by method (the paper's Figure 3) ---- */

  const cellsOf = (section, setting) =>
    section.methods.map((_, m) => section.cells.find((c) => c.method === m && (c.setting === setting || c.setting === "")));

  function lead(section, cells, what) {
    const key = `worst_${what}`;
    // Fewer clients are another, easier problem: only runs of one number of clients are compared.
    const counts = [...new Set(section.cells.map((c) => c.run[0]).filter(Boolean))];
    const clients = counts.includes(40) ? 40 : Math.max(...counts);
    const known = cells.filter((c) => c && c.stats[key] && (counts.length < 2 || [0, clients].includes(c.run[0])));
    if (known.length < 2) return "";
    // The baseline that holds all rows is no competitor of the federated methods.
    const others = known.filter((c) => section.methods[c.method].name !== "centralized");
    const sign = what === "risk" ? 1 : -1;
    const best = (others.length ? others : known).reduce((a, b) => (sign * b.stats[key][0] < sign * a.stats[key][0] ? b : a));
    const rank = what === "risk" ? "lowest" : "highest";
    const among = counts.length > 1 ? `with ${whole(clients)} clients, ` : "";
    return `${among}${rank} worst-group ${what}: ${section.methods[best.method].label}, ${three(best.stats[key][0])}`;
  }

  // What an error bar reaches to, as [low, high]: an interval over rows (and seeds), or a deviation.
  const reach = (p, interval) => interval ?? (p[1] != null ? [p[0] - p[1], p[0] + p[1]] : null);
  function spreadText(section, seeds, of = "") {
    const some = section.cells.some((c) => c.intervals && c.intervals.risk.some(Boolean));
    const rows = some ? `95% interval by the test rows${of}` : "";
    if (seeds < 2) return rows ? `Error bars: ${rows}.` : "One seed each, so no error bars.";
    const several = section.cells.filter((c) => c.seeds.length > 1);
    const both = several.every((c) => c.intervals) ? "95% interval over seeds and test rows" : "standard deviation over the seeds";
    const mixed = several.some((c) => c.intervals) && !several.every((c) => c.intervals) ? "; 95% interval over seeds and test rows, where runs have bootstrap.npz" : "";
    return `Error bars: ${both}${mixed}${rows && section.cells.some((c) => c.seeds.length < 2) ? `; for one seed, ${rows}` : ""}.`;
  }

  function bars(section, parent, what, hidden, all) {
    const seeds = Math.max(...section.cells.map((c) => c.seeds.length));
    const spread = spreadText(section, seeds, ", of the worst group");
    const unit = what === "risk" ? `test risk${section.loss ? ` (${lossName(section.loss)})` : ""}` : "test accuracy";
    const fig = figure(parent, {
      kind: `bars-${what}`,
      title: what === "risk" ? "Test risk of the worst, the average and the best group" : "Test accuracy of the worst, the average and the best group",
      caption: `${what === "risk" ? "Lower is better." : "Higher is better."} ${spread}`,
    });
    let own = false;
    const endsOf = (c, key) => reach(c.stats[key], c.intervals?.[key]);
    const top = (cells) => Math.max(0.01, ...cells.flatMap((c) => (c ? BARS.map((b) => `${b.key}_${what}`).filter((key) => c.stats[key]).map((key) => endsOf(c, key)?.[1] ?? c.stats[key][0]) : [])));
    const everywhere = top(section.settings.flatMap((s) => cellsOf(section, s)));
    if (what === "risk" && section.settings.length > 1) {
      const button = make(fig.tools, "button", { type: "button", "aria-pressed": "false" }, "Scale each setting");
      button.addEventListener("click", () => {
        own = !own;
        button.setAttribute("aria-pressed", String(own));
        button.textContent = own ? "One scale for all" : "Scale each setting";
        fig.redraw();
      });
    }
    fig.card.insertBefore(legend(fig.card, BARS.map((b) => ({ label: b.label, sample: swatch(b) })), hidden, all, "bars"), fig.panels);
    for (const setting of section.settings) {
      const cells = cellsOf(section, setting);
      const words = cells.filter(Boolean).map((c) => `${section.methods[c.method].label} ${pair(c.stats[`worst_${what}`])}`).join(", ");
      fig.panel(settingName(setting), lead(section, cells, what), `${unit} in ${settingName(setting)}, worst group: ${words}`, (svg, width) => {
        const names = section.methods.map((m) => m.label);
        const left = labelRoom(names, width), right = width - 40;
        const high = what === "accuracy" ? 1 : own ? top(cells) : everywhere;
        const x = (v) => left + ((right - left) * v) / high;
        const shown = BARS.filter((_, i) => !hidden.has(i));
        const thick = 9, gap = 11, rowHeight = Math.max(14, shown.length * (thick + 1.5)) + gap;
        const bottom = 4 + rowHeight * cells.length;
        xAxis(svg, ticks(0, high, width < 330 ? 3 : 4), x, 0, bottom, unit, left, right);
        const fills = new Map(shown.map((b) => [b.key, fill(svg, b)]));
        cells.forEach((cell, m) => {
          const y0 = 4 + m * rowHeight + gap / 2, middle = y0 + (rowHeight - gap) / 2;
          rowName(svg, left - 8, middle, names[m], rowHeight);
          if (!cell) return make(svg, "text", { class: "quiet", x: left + 6, y: middle + 4 }, "no run");
          shown.forEach((b, i) => {
            const p = cell.stats[`${b.key}_${what}`];
            if (!p) return;
            const y = y0 + i * (thick + 1.5);
            const bar = make(svg, "rect", { class: "bar", "data-bar": b.key, "data-method": names[m], "data-value": p[0], x: left, y, width: Math.max(0.5, x(p[0]) - left), height: thick, fill: fills.get(b.key), style: b.pattern === "solid" ? `fill:${b.colour}` : null });
            const ends = endsOf(cell, `${b.key}_${what}`);
            if (ends) {
              const lo = x(Math.max(0, ends[0])), hi = x(Math.min(high, ends[1])), yc = y + thick / 2;
              make(svg, "path", { class: "error", d: `M${lo} ${yc}H${hi}M${lo} ${yc - 3}v6M${hi} ${yc - 3}v6` });
            }
            make(svg, "text", { class: "value", x: x(Math.min(high, ends?.[1] ?? p[0])) + 4, y: y + thick - 1 }, three(p[0]));
            hover(bar, `${names[m]}, ${settingName(cell.setting)}`, () => [
              [`${b.label}, ${what}`, pair(p, (v) => fixed(v, 4))],
              ...(cell.intervals?.[`${b.key}_${what}`] ? [["95% interval", between(ends)]] : []),
              ...(b.key === "worst" && what === "risk" && cell.worst_groups.length ? [["which is", cell.worst_groups.join(" / ")]] : []),
              ["seeds", cell.seeds.join(", ")],
            ]);
          });
        });
        make(svg, "line", { class: "axis", x1: left, x2: left, y1: 0, y2: bottom });
        return bottom + 36;
      });
    }
    return fig;
  }

  /* ---- a value of each group, by method (the paper's Figure 4) ---- */

  function dots(section, parent, key, { title, caption, unit, priors, settings, hidden, all }) {
    const used = section.methods.map((_, m) => section.cells.some((c) => c.method === m && c.groups[key].some(Boolean)));
    if (!used.some(Boolean)) return null;
    const fig = figure(parent, { kind: `groups-${key}`, title, caption });
    const items = section.methods.map((m, i) => ({ label: m.label, sample: markSample(i), i })).filter((item) => used[item.i]);
    if (priors) items.push({ label: "share of the training rows", fixed: true, sample: (svg) => make(svg, "path", { d: "M14 0V12", style: "stroke:var(--muted);stroke-width:3" }) });
    // The legend's numbers count the methods that have this value; the set holds numbers of methods.
    const shadow = { has: (i) => hidden.has(items[i].i), add: (i) => hidden.add(items[i].i), delete: (i) => hidden.delete(items[i].i) };
    fig.card.insertBefore(legend(fig.card, items, shadow, all, "methods"), fig.panels);
    const endsOf = (c, a) => reach(c.groups[key][a], c.intervals?.[key]?.[a]);
    const values = section.cells.flatMap((c) => c.groups[key].flatMap((p, a) => (p ? [p[0], ...(endsOf(c, a) || [])] : []))).concat(priors || []);
    // Points need no zero to stand on, and would lie on each other. Weights are shares of one.
    const most = Math.max(...values), least = key === "risk" ? Math.min(...values) : 0;
    const pad = 0.05 * (most - least || most || 1);
    const low = key === "risk" ? Math.max(0, least - pad) : 0, high = key === "risk" ? most + pad : Math.min(1, most + pad);
    for (const setting of settings) {
      const cells = cellsOf(section, setting).filter((c) => c && c.groups[key].some(Boolean));
      fig.panel(section.settings.length > 1 || setting ? settingName(setting) : "", null, `${unit} by group, ${settingName(setting)}`, (svg, width) => {
        const names = section.groups;
        const left = labelRoom(names, width), right = width - 12;
        // A mark at an end of the axis is seen whole.
        const x = (v) => left + 6 + ((right - left - 6) * (Math.min(high, Math.max(low, v)) - low)) / (high - low || 1);
        const shown = cells.filter((c) => !hidden.has(c.method));
        // A method keeps its place in the row, in every setting.
        const places = section.methods.map((_, m) => m).filter((m) => used[m] && !hidden.has(m));
        const rowHeight = Math.max(22, places.length * 8 + 10);
        const bottom = rowHeight * names.length + 4;
        xAxis(svg, ticks(low, high, width < 330 ? 3 : 4), x, 0, bottom, unit, left, right);
        names.forEach((name, a) => {
          const y0 = 2 + a * rowHeight;
          if (a) make(svg, "line", { class: "grid", x1: left, x2: right, y1: y0, y2: y0 });
          rowName(svg, left - 8, y0 + rowHeight / 2, name, rowHeight);
          if (priors) {
            const tick = make(svg, "line", { x1: x(priors[a]), x2: x(priors[a]), y1: y0 + 3, y2: y0 + rowHeight - 3, style: "stroke:var(--muted);stroke-width:3" });
            hover(tick, name, () => [["share of the training rows", three(priors[a])]]);
          }
          shown.forEach((cell) => {
            const p = cell.groups[key][a];
            if (!p) return;
            const y = y0 + rowHeight / 2 + (places.indexOf(cell.method) - (places.length - 1) / 2) * 8;
            const ends = endsOf(cell, a);
            if (ends) make(svg, "path", { class: "error", d: `M${x(ends[0])} ${y}H${x(ends[1])}`, style: `stroke:${colour(cell.method)}` });
            const mark = marker(svg, cell.method, x(p[0]), y, 4, { class: "mark", "data-group": name });
            hover(mark, name, () => [[section.methods[cell.method].label, pair(p, (v) => fixed(v, 4))], ...(cell.intervals?.[key]?.[a] ? [["95% interval", between(ends)]] : []), ...(priors ? [["share of the training rows", three(priors[a])]] : [])]);
          });
        });
        make(svg, "line", { class: "axis", x1: left, x2: left, y1: 0, y2: bottom });
        return bottom + 36;
      });
    }
    return fig;
  }

  /* ---- curves ---- */

  // series: [{label, i, values, plain}]; `hidden` holds their numbers.
  function curves(svg, width, { x: xs, series, hidden, xName, yName, low, high, xTicks, tipTitle, behind, marks = true }) {
    const height = Math.min(300, Math.max(210, width * 0.5)), top = 8, bottom = height - 38;
    const shown = series.filter((s, n) => !hidden.has(n));
    const values = shown.flatMap((s) => s.values).filter((v) => v != null);
    const max = high ?? Math.max(1e-9, ...values) * 1.03;
    let min = low ?? Math.min(...values);
    if (low == null) min = min > 0.4 * max ? min - 0.04 * (max - min) : 0;
    const yTicks = ticks(min, max, 5);
    const edge = Math.max(...yTicks.map(([, t]) => textWidth(t))) + 26, right = width - 12;
    const left = edge + (marks ? 6 : 0); // the first mark is seen whole
    const x = (v) => left + ((right - left) * (v - xs[0])) / (xs[xs.length - 1] - xs[0] || 1);
    const y = (v) => bottom - ((bottom - top) * (v - min)) / (max - min);
    for (const [value, text] of yTicks) {
      make(svg, "line", { class: "grid", x1: edge, x2: right, y1: y(value), y2: y(value) });
      make(svg, "text", { class: "quiet", x: edge - 6, y: y(value) + 4, "text-anchor": "end" }, text);
    }
    for (const [value, text] of xTicks || ticks(xs[0], xs[xs.length - 1], width < 400 ? 4 : 6))
      tickText(svg, x(value), bottom + 15, text, width);
    make(svg, "text", { class: "quiet", x: (left + right) / 2, y: bottom + 31, "text-anchor": "middle" }, xName);
    make(svg, "text", { class: "quiet", transform: `translate(11 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yName);
    if (behind) behind(x, y, bottom, top);
    for (const s of shown) {
      let d = "", pen = "M";
      s.values.forEach((v, n) => {
        if (v == null) pen = "M";
        else { d += `${pen}${x(xs[n]).toFixed(1)} ${y(v).toFixed(1)}`; pen = "L"; }
      });
      make(svg, "path", { class: "curve", "data-series": s.label, d, "stroke-dasharray": s.dash ?? dash(s.i), style: `fill:none;stroke:${s.colour || colour(s.i)};stroke-width:${s.width || 1.9};stroke-linejoin:round` });
      if (marks && !s.plain) {
        const every = Math.max(1, Math.floor(xs.length / 6));
        for (let n = Math.floor((every * (s.i % 5)) / 5); n < xs.length; n += every) if (s.values[n] != null) marker(svg, s.i, x(xs[n]), y(s.values[n]), 3.6);
      }
    }
    make(svg, "line", { class: "axis", x1: edge, x2: right, y1: bottom, y2: bottom });
    const cross = make(svg, "line", { class: "axis", y1: top, y2: bottom, visibility: "hidden", "stroke-dasharray": "2 2" });
    follow(svg, width, (px) => nearest(xs, xs[0] + ((px - left) / (right - left)) * (xs[xs.length - 1] - xs[0])), xs.length, (n, event) => {
      cross.setAttribute("visibility", n == null ? "hidden" : "visible");
      if (n == null) return hideTip();
      cross.setAttribute("x1", x(xs[n]));
      cross.setAttribute("x2", x(xs[n]));
      const rows = shown.filter((s) => s.values[n] != null).sort((a, b) => b.values[n] - a.values[n]);
      tip(event, tipTitle(xs[n]), rows.map((s) => [s.label, fixed(s.values[n], 4)]));
    }, x, xs);
    return height;
  }
  function nearest(xs, value) {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] < value) low = middle; else high = middle;
    }
    return Math.abs(xs[low] - value) <= Math.abs(xs[high] - value) ? low : high;
  }
  // Pointer and arrow keys walk over the points; assigned, not added, as a redraw replaces them.
  function follow(svg, width, at, count, show, x, xs) {
    let now = 0;
    svg.setAttribute("tabindex", "0");
    svg.onpointermove = svg.onpointerdown = (event) => {
      const box = svg.getBoundingClientRect();
      now = at(((event.clientX - box.left) * width) / box.width);
      show(now, event);
    };
    svg.onpointerleave = svg.onblur = () => show(null);
    svg.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -count, End: count }[event.key];
      if (!step) return;
      event.preventDefault();
      now = Math.min(count - 1, Math.max(0, now + step));
      const box = svg.getBoundingClientRect();
      show(now, { clientX: box.left + (x(xs[now]) * box.width) / width, clientY: box.top + 20 });
    };
  }

  /* ---- the learned h(x) of the synthetic data (the paper's Figure 2) ---- */

  function hypothesis(section, parent, panels, caption) {
    const fig = figure(parent, { kind: "hypothesis", title: "What was learned: h(x) beside the best answer for each group", caption });
    const learned = panels.flatMap((p) => p.curves.map((c) => c.i)).filter((i, n, all) => all.indexOf(i) === n).sort((a, b) => a - b);
    const single = learned.length === 1;
    // Beside several methods, whose colours they would share, the optima are grey.
    const ink = single ? ["var(--c1)", "var(--c0)"] : ["var(--muted)", "var(--muted)"];
    const optima = Object.entries(section.optima).map(([name, values], a) => ({ label: `best for ${name}`, values, i: a, plain: true, colour: ink[a % 2], dash: a ? "2 3" : "8 4", width: 2.6 }));
    const style = single ? { colour: "var(--fg)", dash: "", width: 2.4, plain: true } : {};
    const items = [
      ...optima.map((s) => ({ label: s.label, sample: (svg) => make(svg, "path", { d: "M0 6H28", "stroke-dasharray": s.dash, style: `stroke:${s.colour};stroke-width:2.6` }) })),
      ...learned.map((i) => ({ label: `h(x) of ${section.methods[i].label}`, sample: single ? (svg) => make(svg, "path", { d: "M0 6H28", style: "stroke:var(--fg);stroke-width:2.4" }) : lineSample(i) })),
      { label: "density of x, in both groups", fixed: true, sample: (svg) => make(svg, "path", { d: "M2 12C9 12 9 1 14 1S19 12 26 12Z", style: "fill:var(--line)" }) },
    ];
    const hidden = new Set();
    fig.card.insertBefore(legend(fig.card, items, hidden, fig.redraw, "curves"), fig.panels);
    for (const panel of panels) {
      const series = [...optima, ...learned.map((i) => {
        const found = panel.curves.find((c) => c.i === i);
        return { label: `h, ${section.methods[i].label}`, i, values: found ? found.values : [], ...style };
      })];
      fig.panel(panel.title, null, "P(Y = 1 | x): learned, and best for each group", (svg, width) => curves(svg, width, {
        x: DATA.grid, series, hidden, low: 0, high: 1, xName: "x", yName: "P(Y = 1 | x)", xTicks: [-3, -2, -1, 0, 1, 2, 3].map((v) => [v, String(v)]),
        tipTitle: (v) => `x = ${fixed(v, 2)}`,
        behind: (x, y, bottom) => {
          const area = DATA.grid.map((v) => `${x(v).toFixed(1)} ${y(0.25 * Math.exp((-v * v) / 2)).toFixed(1)}`).join("L");
          make(svg, "path", { d: `M${x(DATA.grid[0])} ${bottom}L${area}L${x(DATA.grid[DATA.grid.length - 1])} ${bottom}Z`, style: "fill:var(--grid)" });
        },
      }));
    }
  }

  /* ---- who holds what ---- */

  // Writes the clients' names below their columns, upright where they are wide; of clients without
  // names, or of too many, some numbers. Returns how far below the next line of text is.
  function clientNames(svg, { names, sizes }, left, w, bottom, width) {
    const middle = (k) => left + (k + 0.5) * w;
    if (!names.length || w < 12) {
      const numbers = sizes.length < 2 ? [[0]] : ticks(0, sizes.length - 1, width < 400 ? 4 : 8).filter(([v]) => Number.isInteger(v));
      for (const [k] of numbers) make(svg, "text", { class: "quiet", x: middle(k), y: bottom + 14, "text-anchor": "middle" }, whole(k));
      return 30;
    }
    const upright = names.some((name) => textWidth(name) > w - 4);
    const room = upright ? 90 : w;
    names.forEach((name, k) => {
      const [shown] = lines(name, room, 0);
      const place = upright ? { transform: `translate(${middle(k) + 4} ${bottom + 6}) rotate(-90)`, "text-anchor": "end" } : { x: middle(k), y: bottom + 14, "text-anchor": "middle" };
      const node = make(svg, "text", { class: "quiet client", ...place }, shown);
      if (shown !== name) make(node, "title", {}, name);
    });
    return upright ? 24 + Math.min(room, Math.max(...names.map(textWidth))) : 30;
  }
  function heat(parent, partition) {
    const clients = partition.sizes.length, groups = partition.groups;
    const cut = partition.clients > clients ? ` The first ${whole(clients)} of ${whole(partition.clients)} clients.` : "";
    const fig = figure(parent, { kind: "partition", title: "Who holds what: the share of each group in each client", caption: `P_A: a column is a client and adds up to 1.${cut}` });
    fig.panel("", null, `shares of ${groups.length} groups in ${clients} clients`, (svg, width) => {
      const left = labelRoom(groups, width), right = width - 12, top = 4;
      const w = (right - left) / clients, h = Math.max(12, Math.min(26, 220 / groups.length)), bottom = top + h * groups.length;
      const gapX = w > 6 ? 1 : 0, gapY = h > 12 ? 1 : 0.5, levels = Array.from({ length: 25 }, () => "");
      groups.forEach((name, a) => {
        rowName(svg, left - 8, top + h * (a + 0.5), name, h);
        partition.counts[a].forEach((count, k) => {
          const share = count / (partition.sizes[k] || 1);
          const level = share > 0 ? Math.max(1, Math.round(24 * share)) : 0;
          levels[level] += `M${(left + k * w).toFixed(2)} ${(top + a * h).toFixed(2)}h${(w - gapX).toFixed(2)}v${(h - gapY).toFixed(2)}h${(gapX - w).toFixed(2)}z`;
        });
      });
      // A path a shade: a thousand clients are still two dozen elements.
      levels.forEach((d, level) => d && make(svg, "path", { class: "cells", d, style: level ? `fill:var(--heat);fill-opacity:${(0.06 + (0.94 * level) / 24).toFixed(3)}` : "fill:var(--grid);fill-opacity:.5" }));
      const below = bottom + clientNames(svg, partition, left, w, bottom, width);
      make(svg, "text", { class: "quiet", x: (left + right) / 2, y: below, "text-anchor": "middle" }, "client");
      const scale = Math.min(150, (right - left) / 2);
      for (let level = 0; level <= 24; level++) make(svg, "rect", { x: right - 12 - scale + (scale * level) / 25, y: below + 8, width: scale / 25 + 0.3, height: 8, style: level ? `fill:var(--heat);fill-opacity:${0.06 + (0.94 * level) / 24}` : "fill:var(--grid);fill-opacity:.5" });
      make(svg, "text", { class: "quiet", x: right - scale - 18, y: below + 16, "text-anchor": "end" }, "share 0");
      make(svg, "text", { class: "quiet", x: right, y: below + 16, "text-anchor": "end" }, "1");
      svg.onpointermove = svg.onpointerdown = (event) => {
        const box = svg.getBoundingClientRect(), f = width / box.width;
        const k = Math.floor(((event.clientX - box.left) * f - left) / w), a = Math.floor(((event.clientY - box.top) * f - top) / h);
        if (k < 0 || k >= clients || a < 0 || a >= groups.length) return hideTip();
        const n = partition.counts[a][k], all = partition.sizes[k];
        tip(event, partition.names[k] ?? `client ${k}`, [[groups[a], `${whole(n)} of ${plural(all, "row")}`], ["share", three(all ? n / all : 0)]]);
      };
      svg.onpointerleave = hideTip;
      return below + 22;
    });
  }

  /* ---- where the time went ---- */

  // At most `count` columns, each the mean of its rows: more could not be told apart.
  function binned({ round, time }, count) {
    const size = Math.ceil(round.length / count);
    const starts = round.map((_, n) => n).filter((n) => n % size === 0);
    const mean = (values) => starts.map((n) => {
      const part = values.slice(n, n + size);
      return part.reduce((s, v) => s + (v || 0), 0) / part.length;
    });
    return {
      round: starts.map((n) => round[Math.min(n + size, round.length) - 1]),
      time: Object.fromEntries(TIMES.map((t) => [t.key, mean(time[t.key])])),
    };
  }
  function times(parent, history) {
    const { round, time } = binned(history, 120);
    const sums = round.map((_, n) => TIMES.reduce((s, t) => s + (time[t.key][n] || 0), 0));
    const spans = round.map((r, n) => r - (n ? round[n - 1] : 0));
    const total = sums.reduce((s, v, n) => s + v * spans[n], 0) || 1;
    const share = (t) => time[t.key].reduce((s, v, n) => s + (v || 0) * spans[n], 0) / total;
    const words = TIMES.map((t) => `${t.label} ${fixed(100 * share(t), 0)} %`).join(", ");
    // The first round warms up and would flatten all others.
    const rest = sums.length > 3 ? sums.slice(1) : sums;
    const high = Math.max(1e-9, ...rest) * 1.05;
    const off = sums[0] > high ? ` The first column, ${round[0] > 1 ? `rounds 1–${whole(round[0])}` : "round 1"}, took ${seconds(sums[0])}, beyond the scale.` : "";
    const fig = figure(parent, { kind: "time", title: "Where the time of a round went", caption: `${words}. Wait: the mean client rank for the slowest.${off}` });
    const hidden = new Set();
    fig.card.insertBefore(legend(fig.card, TIMES.map((t) => ({ label: t.label, sample: swatch(t) })), hidden, fig.redraw, "parts"), fig.panels);
    fig.panel("", null, `time of a round: ${words}`, (svg, width) => {
      const height = 210, top = 8, bottom = height - 38;
      const inMs = high < 1, f = inMs ? 1000 : 1;
      const yTicks = ticks(0, high * f, 4);
      const left = Math.max(...yTicks.map(([, t]) => textWidth(t))) + 26, right = width - 12;
      const first = 0, last = round[round.length - 1];
      const x = (v) => left + ((right - left) * (v - first)) / (last - first || 1);
      const y = (v) => bottom - (bottom - top) * Math.min(1, v / high);
      for (const [value, text] of yTicks) {
        make(svg, "line", { class: "grid", x1: left, x2: right, y1: y(value / f), y2: y(value / f) });
        make(svg, "text", { class: "quiet", x: left - 6, y: y(value / f) + 4, "text-anchor": "end" }, text);
      }
      for (const [value, text] of ticks(first, last, width < 400 ? 4 : 6)) tickText(svg, x(value), bottom + 15, text, width);
      make(svg, "text", { class: "quiet", x: (left + right) / 2, y: bottom + 31, "text-anchor": "middle" }, "round");
      make(svg, "text", { class: "quiet", transform: `translate(11 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, inMs ? "ms a round" : "s a round");
      const base = round.map(() => 0);
      TIMES.forEach((t, i) => {
        if (hidden.has(i)) return;
        let up = "", down = "";
        round.forEach((r, n) => {
          const a = x(n ? round[n - 1] : first).toFixed(1), b = x(r).toFixed(1);
          const under = y(base[n]).toFixed(1);
          base[n] += time[t.key][n] || 0;
          up += `${n ? "L" : "M"}${a} ${y(base[n]).toFixed(1)}H${b}`;
          down = `L${b} ${under}H${a}${down}`;
        });
        make(svg, "path", { class: "time", d: `${up}${down}Z`, fill: fill(svg, t), style: t.pattern === "solid" ? `fill:${t.colour}` : null });
      });
      make(svg, "line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
      const from = (n) => (n ? round[n - 1] + 1 : 1);
      follow(svg, width, (px) => {
        const at = first + ((px - left) / (right - left)) * (last - first);
        const n = round.findIndex((r) => r >= at);
        return n < 0 ? round.length - 1 : n;
      }, round.length, (n, event) => {
        if (n == null) return hideTip();
        const title = from(n) === round[n] ? `round ${whole(round[n])}` : `rounds ${whole(from(n))}–${whole(round[n])}, each`;
        tip(event, title, [...TIMES.map((t) => [t.label, seconds(time[t.key][n])]), ["in all", seconds(sums[n])]]);
      }, x, round);
      return height;
    });
  }

  /* ---- tables to sort and to copy ---- */

  // columns: [{label, get(row), text(row), number, wrap, copy: [[header, get], ...]}]
  function table(parent, { title, note, columns, rows, long }) {
    const card = make(parent, "div", { class: `card${long ? " long" : ""}`, "data-table": title });
    const head = make(card, "div", { class: "head" });
    make(head, "h3", {}, title);
    const tools = make(head, "div", { class: "tools" });
    const said = make(tools, "output");
    if (note) make(card, "p", { class: "note" }, note);
    const scroll = make(card, "div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title });
    const grid = make(scroll, "table");
    const headRow = make(make(grid, "thead"), "tr");
    const body = make(grid, "tbody");
    let order = [...rows];
    const state = { column: null, down: false };
    const heads = columns.map((column) => {
      const th = make(headRow, "th", { class: column.number ? "n" : null, scope: "col", "aria-sort": "none" });
      make(th, "button", { type: "button", title: "sort" }, column.label).addEventListener("click", () => {
        // Numbers begin with the largest, names with the first; a third click restores the order.
        const start = Boolean(column.number);
        if (state.column !== column) Object.assign(state, { column, down: start });
        else if (state.down === start) state.down = !start;
        else state.column = null;
        sort();
      });
      return th;
    });
    function sort() {
      order = [...rows];
      const { column, down } = state;
      if (column) order.sort((a, b) => {
        const p = column.get(a), q = column.get(b);
        if (p == null || q == null) return (p == null) - (q == null); // what is unknown goes last
        return (down ? -1 : 1) * (typeof p === "number" && typeof q === "number" ? p - q : String(p).localeCompare(String(q), "en", { numeric: true }));
      });
      heads.forEach((th, i) => th.setAttribute("aria-sort", columns[i] !== column ? "none" : down ? "descending" : "ascending"));
      fillBody();
    }
    function fillBody() {
      body.replaceChildren();
      for (const row of order) {
        const tr = make(body, "tr");
        for (const column of columns) {
          const cell = make(tr, "td", { class: [column.number && "n", column.wrap && "wrap", column.class && column.class(row)].filter(Boolean).join(" ") || null });
          if (column.fold) {
            const { title, open, lines } = column.fold(row);
            const fold = make(cell, "details", { open: open ? "" : null });
            make(fold, "summary", {}, title);
            for (const line of lines) make(fold, "p", {}, line);
            continue;
          }
          const text = column.text ? column.text(row) : column.get(row);
          const [mean, deviation] = String(text ?? "–").split(" ± ");
          cell.textContent = column.number ? mean : text ?? "–";
          if (column.number && deviation) make(cell, "span", { class: "pm" }, ` ± ${deviation}`);
        }
      }
    }
    function asText(separator) {
      const fields = columns.flatMap((c) => c.copy || [[c.label, c.get]]);
      const quote = (value) => {
        const text = value == null ? "" : String(value);
        if (separator === "\t") return text.replace(/[\t\r\n]+/g, " ");
        return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
      };
      return [fields.map(([name]) => quote(name)), ...order.map((row) => fields.map(([, get]) => quote(get(row))))].map((line) => line.join(separator)).join("\n") + "\n";
    }
    let fading;
    for (const [name, separator] of [["CSV", ","], ["TSV", "\t"]]) {
      make(tools, "button", { type: "button" }, `Copy ${name}`).addEventListener("click", async () => {
        const ok = await copy(asText(separator), card);
        said.textContent = ok ? `${plural(order.length, "row")} copied` : "Select and copy:";
        clearTimeout(fading); // the last message's end is not this one's
        if (ok) fading = setTimeout(() => { said.textContent = ""; }, 2500);
      });
    }
    tools.append(said);
    fillBody();
    return card;
  }
  // The clipboard may be refused (a page from a file, an old browser): then the old way, then by hand.
  async function copy(text, card) {
    card.querySelector(".by-hand")?.remove();
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch { /* go on */ }
    const area = make(card, "textarea", { class: "by-hand", readonly: "", "aria-label": "the table as text" });
    area.value = text;
    area.select();
    let done = false;
    try { done = document.execCommand("copy"); } catch { /* go on */ }
    if (done) area.remove();
    return done;
  }
  const meanColumn = (title, get, digits = 4) => ({
    label: title, number: true,
    get: (row) => get(row)?.[0],
    text: (row) => pair(get(row), (v) => fixed(v, digits)),
    copy: [[title, (row) => get(row)?.[0]], [`${title} std`, (row) => get(row)?.[1]]],
  });

  const intervalColumn = (title, get) => ({
    label: "95% interval", number: true, get: (row) => get(row)?.[0], text: (row) => between(get(row)),
    copy: [[`${title} low`, (row) => get(row)?.[0]], [`${title} high`, (row) => get(row)?.[1]]],
  });

  function claims(parent, list) {
    if (!list.length) return;
    const said = (verdict) => ({ pass: "✓ pass", fail: "✗ fail" })[verdict] || `? ${verdict}`;
    const checks = (c) => {
      const passed = c.checks.filter(([verdict]) => verdict === "pass").length;
      const title = !c.checks.some(([verdict]) => verdict) ? plural(c.checks.length, "comparison") : passed === c.checks.length ? `${plural(passed, "check")}, passed` : `${passed} of ${plural(c.checks.length, "check")} passed`;
      // The checks of a quick look have no verdict. What did not pass comes first; a screen of checks stays folded.
      const ordered = [...c.checks].sort(([a], [b]) => (a === "pass") - (b === "pass"));
      return { title, open: c.verdict !== "pass" && ordered.length <= 6, lines: ordered.map(([verdict, figures]) => (verdict ? `${said(verdict)}: ${figures}` : figures)) };
    };
    const verdict = (key, label) => (list.some((c) => c[key]) ? [{ label, get: (c) => c[key] || "–", text: (c) => (c[key] ? said(c[key]) : "–"), class: (c) => `verdict ${c[key]}` }] : []);
    table(parent, {
      title: "The claims of the paper", rows: list,
      columns: [
        { label: "no.", number: true, get: (c) => c.number },
        { label: "claim", get: (c) => c.claim, wrap: true },
        { label: "here", get: (c) => c.verdict, text: (c) => said(c.verdict), class: (c) => `verdict ${c.verdict}` },
        ...verdict("rule", "by the rule"), ...verdict("steps", "with the paper's steps"), ...verdict("paper", "by the paper's tables"),
        { label: "decided by", get: (c) => c.checks.map(([, figures]) => figures).join("; "), wrap: true, fold: checks },
      ],
    });
  }

  function tables(section, parent) {
    const name = (cell) => section.methods[cell.method].label;
    const worstColumns = (what) => {
      const title = `worst ${what}`, key = `worst_${what}`;
      const some = section.cells.some((c) => c.seeds.length > 1 && c.intervals?.[key]);
      return [meanColumn(title, (c) => c.stats[key]), ...(some ? [intervalColumn(title, (c) => c.intervals?.[key])] : [])];
    };
    table(parent, {
      title: "Methods and settings", long: true, note: "Test rows; mean ± standard deviation over the seeds. Click a heading to sort.",
      rows: section.cells,
      columns: [
        { label: "method", get: name },
        { label: "setting", get: (c) => c.setting || "–" },
        { label: "seeds", number: true, get: (c) => c.seeds.length },
        ...worstColumns("risk"),
        { label: "worst group", get: (c) => c.worst_groups.join(" / ") },
        meanColumn("average risk", (c) => c.stats.average_risk),
        meanColumn("best risk", (c) => c.stats.best_risk),
        ...worstColumns("accuracy"),
        meanColumn("average accuracy", (c) => c.stats.average_accuracy),
        meanColumn("best accuracy", (c) => c.stats.best_accuracy),
        ...(section.cells.some((c) => c.stats.seconds_per_round) ? [{ label: "time a round", number: true, get: (c) => c.stats.seconds_per_round?.[0], text: (c) => seconds(c.stats.seconds_per_round?.[0]), copy: [["seconds a round", (c) => c.stats.seconds_per_round?.[0]]] }] : []),
      ],
    });
    const rows = section.cells.flatMap((cell) => section.groups.map((group, a) => ({ cell, group, a })));
    table(parent, {
      title: "Groups", long: true, note: "Each group, by method and setting. Test risk and accuracy are of the reported model, the weight is the last one.",
      rows,
      columns: [
        { label: "method", get: (r) => name(r.cell) },
        { label: "setting", get: (r) => r.cell.setting || "–" },
        { label: "group", get: (r) => r.group },
        ...["risk", "accuracy"].flatMap((key) => [
          meanColumn(key, (r) => r.cell.groups[key][r.a]),
          ...(section.cells.some((c) => c.intervals?.[key].some(Boolean)) ? [intervalColumn(key, (r) => r.cell.intervals?.[key][r.a])] : []),
        ]),
        meanColumn("weight", (r) => r.cell.groups.weight[r.a]),
        ...(section.priors ? [{ label: "share of rows", number: true, get: (r) => section.priors[r.a], text: (r) => fixed(section.priors[r.a], 4) }] : []),
      ],
    });
  }

  /* ---- one run ---- */

  // The interval of a worst figure, and whether the figure rests on few test rows.
  function few(run, name, key) {
    const rows = run.groups.find((g) => g.name === name)?.n_test;
    const ends = run.intervals[key];
    return (ends ? `, 95% ${between(ends)}` : "") + (rows != null && rows < 30 ? `, of ${plural(rows, "test row")} only` : "");
  }
  function facts(parent, pairs) {
    const list = make(parent, "dl", { class: "facts" });
    for (const [name, value] of pairs) {
      const pairOf = make(list, "div");
      indexed(make(pairOf, "dt"), name);
      make(pairOf, "dd", {}, value);
    }
  }

  function showRun(section, run, parent, alone) {
    parent.replaceChildren();
    const s = run.stats;
    const worstAccuracy = run.groups.filter((g) => g.accuracy != null).reduce((a, b) => (!a || b.accuracy < a.accuracy ? b : a), null);
    const tiles = make(parent, "div", { class: "tiles" });
    const aRound = [s.seconds_per_round != null && seconds(s.seconds_per_round), s.bytes_per_round != null && bytes(s.bytes_per_round)].filter(Boolean).join(" and ");
    for (const [value, text] of [
      [s.worst_risk, three, `worst risk: ${run.worst_group ?? "–"}${few(run, run.worst_group, "worst_risk")}`],
      [s.average_risk, three, "average risk of the groups"],
      [s.best_risk, three, "best risk"],
      [s.worst_accuracy, three, `worst accuracy${worstAccuracy ? `: ${worstAccuracy.name}${few(run, worstAccuracy.name, "worst_accuracy")}` : ""}`],
      [s.seconds, seconds, aRound ? `${aRound} a round` : "in all"],
    ].filter(([number]) => number != null).map(([number, f, text]) => [f(number), text])) {
      const tile = make(tiles, "div", { class: "tile" });
      make(tile, "b", {}, value);
      make(tile, "span", {}, text);
    }
    facts(parent, run.facts);
    for (const note of run.notes) make(parent, "p", { class: "note" }, note);
    if (alone) {
      const two = make(parent, "div", { class: "two" });
      groupDots(section, two);
    }
    if (run.history) history(section, run, parent);
    if (run.h) hypothesis(section, parent, [{ title: "", curves: [{ i: run.method, values: run.h }] }], "The grey hill is where the rows are. The minimax answer is the best one for the worst group, A=0.");
    const two = make(parent, "div", { class: "two" });
    if (run.partition != null) heat(two, DATA.partitions[run.partition]);
    if (run.history?.time) times(two, run.history);
    const column = (title, key, f = (v) => fixed(v, 4)) => ({ label: title, number: true, get: (g) => g[key], text: (g) => f(g[key]) });
    const both = run.reported === "averaged";
    table(parent, {
      title: alone ? "Groups of this run" : `Groups: ${runLabel(section, run)}`, rows: run.groups,
      note: [both ? "Reported is the mean of θ over the rounds; “last” is the θ of the last round." : "", run.groups.some((g) => g.risk_interval) ? "95% intervals are by the test rows of each group; that of the worst, above, holds for all groups at once." : ""].filter(Boolean).join(" ") || null,
      columns: [
        { label: "group", get: (g) => g.name },
        column("train rows", "n_train", whole), column("test rows", "n_test", whole),
        ...["risk", "accuracy", "weight"].filter((key) => run.groups.some((g) => g[key] != null)).flatMap((key) => [
          column(key, key),
          ...(run.groups.some((g) => g[`${key}_interval`]) ? [intervalColumn(key, (g) => g[`${key}_interval`])] : []),
        ]),
        ...(both ? [column("risk, last", "risk_last"), column("accuracy, last", "accuracy_last")] : []),
      ],
    });
    for (const [of, t] of [...(run.fairness || []).map((t) => ["Fairness", t]), ...(run.personal || []).map((t) => ["Clients' own models", t])])
      table(parent, {
        title: [of, t.title].filter(Boolean).join(": "), rows: t.rows,
        columns: t.columns.map((name, i) => ({
          label: name.replaceAll("_", " ") || " ", number: i > 0, get: (r) => r[i],
          text: (r) => (typeof r[i] === "number" ? (Number.isInteger(r[i]) ? whole(r[i]) : fixed(r[i], 4)) : (r[i] ?? "–").replaceAll("_", " ")),
        })),
      });
    if (run.card) card(parent, run.card);
  }

  // The card of a model, folded: its reader looks for it, others look for the figures.
  function card(parent, parts) {
    const fold = make(parent, "details", { class: "card model-card" });
    make(fold, "summary", {}, "Model card");
    for (const part of parts) {
      make(fold, "h3", {}, part.title);
      for (const text of part.text) make(fold, "p", {}, text);
      if (part.items.length) {
        const list = make(fold, "ul");
        for (const item of part.items) make(list, "li", {}, item);
      }
      for (const { columns, rows } of part.tables) {
        const grid = make(make(fold, "div", { class: "scroll", tabindex: "0" }), "table");
        const head = make(make(grid, "thead"), "tr"), body = make(grid, "tbody");
        columns.forEach((name, i) => make(head, "th", { class: i ? "n" : null, scope: "col" }, name));
        for (const row of rows) row.reduce((tr, cell, i) => (make(tr, "td", { class: i ? "n" : null }, cell), tr), make(body, "tr"));
      }
    }
  }

  function history(section, run, parent) {
    const hidden = new Set();
    const caption = run.history.weight ? "Risks are of the θ that a round began with; weights are the adversary's." : "Risks are of the θ that a round began with. This method has no weights of groups.";
    const fig = figure(parent, { kind: "history", title: "Each group over the rounds", caption });
    fig.card.insertBefore(legend(fig.card, section.groups.map((label, i) => ({ label, sample: lineSample(i) })), hidden, fig.redraw, "groups"), fig.panels);
    for (const [kind, title, yName] of [["risk", "Training risk", "training risk"], ["weight", "Weight", "weight μ"]]) {
      if (!run.history[kind]) continue;
      fig.panel(title, null, `${yName} of each group over the rounds`, (svg, width) => curves(svg, width, {
        x: run.history.round, series: section.groups.map((label, i) => ({ label, i, values: run.history[kind][i] })), hidden,
        low: kind === "weight" ? 0 : null, xName: "round", yName, tipTitle: (r) => `round ${whole(r)}`,
      }));
    }
  }

  function trend(section, parent) {
    const found = section.methods.map((_, m) => m).filter((m) => section.cells.some((c) => c.method === m && c.trend));
    if (!found.length) return;
    const hidden = new Set();
    const fig = figure(parent, {
      kind: "trend", title: "The worst group as training goes on",
      caption: "Training risk of whichever group is the worst, mean over the seeds. A round of a method with local epochs is as many passes over the rows; the others make one, a batch or a cohort its share of one.",
    });
    fig.card.insertBefore(legend(fig.card, found.map((m) => ({ label: section.methods[m].label, sample: lineSample(m) })), hidden, fig.redraw, "methods"), fig.panels);
    for (const setting of section.settings) {
      const cells = cellsOf(section, setting);
      const series = found.map((m) => ({ label: section.methods[m].label, i: m, values: cells[m]?.trend || [] }));
      fig.panel(settingName(setting), null, "training risk of the worst group over the passes, by method", (svg, width) => curves(svg, width, {
        x: section.passes, series, hidden, xName: "passes over the training rows", yName: "worst group's risk",
        tipTitle: (v) => `after ${fixed(v, 1)} passes`,
      }));
    }
  }

  function groupDots(section, parent) {
    const hidden = new Set(), figures = [];
    const all = () => figures.forEach((f) => f?.redraw());
    figures.push(dots(section, parent, "risk", { title: "Test risk of each group", caption: `Lower is better; the worst-off group is the one to look at. ${spreadText(section, Math.max(...section.cells.map((c) => c.seeds.length)))}`, unit: "test risk", settings: section.settings, hidden, all }));
    const weightless = section.cells.every((c) => !c.groups.weight.some(Boolean));
    if (!weightless) figures.push(dots(section, parent, "weight", { title: `Final weight of each group${section.priors ? " beside its share of the rows" : ""}`, caption: "Of the methods that weigh groups; for AFL, the weights that its clients imply.", unit: "weight μ", priors: section.priors, settings: section.settings.filter((s) => section.cells.some((c) => (c.setting === s || !c.setting) && c.groups.weight.some(Boolean))), hidden: new Set(), all: () => figures[1].redraw() }));
  }

  /* ---- the page ---- */

  function showSection(section, parent, number) {
    const box = make(parent, "section", { id: `s${number}`, "data-dataset": section.dataset });
    const alone = section.runs.length === 1;
    if (!alone || DATA.sections.length > 1) {
      make(box, "h2", { class: number ? null : "first" }, section.title);
      const seeds = [...new Set(section.runs.map((r) => r.seed))];
      make(box, "p", { class: "sub" }, [
        plural(section.runs.length, "run"), plural(new Set(section.methods.map((m) => m.name)).size, "method"), section.settings.filter(Boolean).join(", "),
        plural(seeds.length, "seed"), plural(section.groups.length, "group"), lossName(section.loss),
      ].filter(Boolean).join(" · "));
    }
    facts(box, section.data);
    for (const note of section.notes) make(box, "p", { class: "note" }, note);
    claims(box, section.claims);
    if (!alone) {
      const hidden = new Set(), figures = [];
      const all = () => {
        figures.forEach((f) => f.redraw());
        // One legend each, one choice for both.
        for (const f of figures) f.card.querySelectorAll(".legend button").forEach((b, i) => b.setAttribute("aria-pressed", String(!hidden.has(i))));
      };
      for (const what of ["risk", "accuracy"]) figures.push(bars(section, box, what, hidden, all));
      trend(section, box);
      groupDots(section, box);
      const learned = section.settings.map((setting) => ({ title: settingName(setting), curves: cellsOf(section, setting).filter((c) => c?.h).map((c) => ({ i: c.method, values: c.h })) })).filter((p) => p.curves.length);
      if (learned.length) hypothesis(section, box, learned, "Mean over the seeds. The grey hill is where the rows are. The minimax answer is the best one for the worst group, A=0.");
      tables(section, box);
      make(box, "h2", { style: "font-size:18px" }, `One run of ${section.title}`);
    }
    const host = make(box, "div", { "data-run": "" });
    if (!alone) {
      const choose = make(box, "label", { class: "choose" });
      make(choose, "span", {}, "Run");
      const select = make(choose, "select");
      const sorted = section.runs.map((run, i) => [run, i]).sort(([a], [b]) => a.setting.localeCompare(b.setting) || b.method - a.method || a.seed - b.seed);
      sorted.forEach(([run, i]) => make(select, "option", { value: i }, runLabel(section, run)));
      const shown = make(box, "p", { class: "sub" });
      const show = () => {
        const run = section.runs[select.value];
        shown.textContent = run.path;
        showRun(section, run, host, false);
      };
      select.addEventListener("change", show);
      host.before(choose, shown);
      const first = sorted.find(([run]) => section.methods[run.method].name === "fedminmax") || sorted[0];
      select.value = first[1];
      show();
    } else showRun(section, section.runs[0], host, true);
  }

  const main = document.getElementById("report");
  main.replaceChildren();
  const header = make(main, "header");
  make(header, "h1", {}, DATA.title);
  const only = DATA.sections.length === 1 && DATA.sections[0].runs.length === 1 ? DATA.sections[0].runs[0] : null;
  if (only) make(header, "p", { class: "sub" }, only.path);
  if (DATA.sections.length > 1) {
    const nav = make(header, "nav", { "aria-label": "datasets" });
    DATA.sections.forEach((section, i) => make(nav, "a", { href: `#s${i}` }, section.title));
  }
  claims(main, DATA.claims);
  DATA.sections.forEach((section, i) => showSection(section, main, i));
  make(main, "footer", {}, `Made by fedmpi ${DATA.version}. Risks and accuracies of groups are on test rows, averages count each group once.`);
  document.documentElement.dataset.ready = "yes";
})();
