// Behaviour of the report page: sort, filter, link rows, zoom. No network, no storage, no library.
// Errors are left on the root element, where the headless test looks for them.
"use strict";
window.addEventListener("error", (e) => { document.documentElement.dataset.jsError = e.message; });

(() => {
  const $ = (id) => document.getElementById(id);
  const el = (tag, props) => Object.assign(document.createElement(tag), props);
  const pct = (x) => (100 * x).toFixed(2) + "\u2009%";
  const root = document.documentElement;

  // --- theme -------------------------------------------------------------------------------
  function theme() {
    const button = $("theme");
    button.hidden = false;
    button.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
    });
  }

  // --- words or /regex/ to a predicate ------------------------------------------------------
  function matcher(query) {
    const q = query.trim();
    if (!q) return null;
    if (q.length > 1 && q.startsWith("/")) {
      try {
        const re = new RegExp(q.replace(/^\/|\/$/g, ""), "i");
        return (text) => re.test(text);
      } catch { return () => false; }
    }
    const words = q.toLowerCase().split(/\s+/);
    return (text) => { const t = text.toLowerCase(); return words.every((w) => t.includes(w)); };
  }

  // --- tables ------------------------------------------------------------------------------
  const value = (cell) => {
    if (!cell) return "";
    const raw = cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent.replace(/,/g, "").trim();
    return raw !== "" && !isNaN(raw) ? Number(raw) : raw.toLowerCase();
  };

  function sortBy(table, index, th) {
    const down = th.getAttribute("aria-sort") !== "descending" && (th.classList.contains("n") || th.hasAttribute("aria-sort"));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const keyed = Array.from(body.rows, (row) => [value(row.cells[index]), row]);
    const sign = down ? -1 : 1;
    keyed.sort(([a], [b]) => {
      if (typeof a !== typeof b) return sign * String(a).localeCompare(String(b));
      return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
    });
    body.append(...keyed.map(([, row]) => row));
    apply(table);
  }

  // Hides what the filter rejects, and what lies beyond the first rows until they are asked for.
  function apply(table) {
    const match = table.match;
    const first = table.all || match ? Infinity : Number(table.dataset.first || Infinity);
    let shown = 0, share = 0;
    for (const row of table.tBodies[0].rows) {
      const hit = !match || match(row.labels);
      if (hit) { shown += 1; share += row.share; }
      row.hidden = !hit || shown > first;
    }
    const out = document.querySelector(`[data-count="${table.id}"]`);
    const total = table.tBodies[0].rows.length;
    if (out) out.textContent = match ? `${shown} of ${total} rows` + (table.hasShare ? `, ${pct(share)}` : "") : "";
    if (table.more) {
      table.more.hidden = Boolean(match) || total <= Number(table.dataset.first);
      table.more.textContent = table.all ? "Show fewer rows" : `Show all ${total} rows`;
      table.more.setAttribute("aria-expanded", String(Boolean(table.all)));
    }
  }

  function tables() {
    for (const table of document.querySelectorAll("table.sortable")) {
      table.hasShare = Boolean(table.querySelector("td.bar"));
      for (const row of table.tBodies[0].rows) {
        row.labels = Array.from(row.querySelectorAll("td.t"), (c) => c.textContent).join(" ");
        const bar = row.querySelector("td.bar");
        row.share = bar ? Number(bar.dataset.v) : 0;
      }
      Array.from(table.tHead.rows[0].cells).forEach((th, i) => {
        if (!th.textContent) return;
        const button = el("button", { type: "button", title: "Sort" });
        button.append(...th.childNodes);
        th.append(button);
        button.addEventListener("click", () => sortBy(table, i, th));
      });
      if (table.dataset.first) {
        table.more = el("button", { type: "button", className: "more" });
        table.more.addEventListener("click", () => { table.all = !table.all; apply(table); });
        table.parentElement.after(table.more);
      }
      apply(table);
    }
    for (const input of document.querySelectorAll("input[data-filter]")) {
      input.closest(".find").hidden = false;
      const table = $(input.dataset.filter);
      if (!table) continue;
      input.addEventListener("input", () => { table.match = matcher(input.value); apply(table); });
    }
    document.addEventListener("keydown", (e) => {
      if (e.key !== "/" || e.ctrlKey || e.metaKey || /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
      const inputs = Array.from(document.querySelectorAll("input[type=search]")).filter((i) => i.offsetParent);
      const near = inputs.find((i) => i.getBoundingClientRect().top >= 0) || inputs[0];
      if (near) { e.preventDefault(); near.focus(); near.select(); }
    });
  }

  // --- annotated procedures ----------------------------------------------------------------
  function lit(proc, place, on) {
    for (const row of proc.querySelectorAll("tr[data-l]")) if (row.dataset.l === place) row.classList.toggle("lit", on);
  }

  // Brings the first (or hottest) row of the other pane into its own view, without moving the page.
  function reveal(row) {
    const box = row.closest(".code");
    const at = row.offsetTop - box.clientHeight / 3;
    box.scrollTo({ top: Math.max(0, at) });
  }

  function openTarget() {
    const target = location.hash.length > 1 && $(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const proc = target.closest("details.proc");
    if (proc && !proc.open) proc.open = true;
    if (target.tagName === "TR") { reveal(target); if (proc) proc.querySelector(".panes").scrollIntoView({ block: "nearest" }); }
    else target.scrollIntoView();
  }

  function procedures() {
    for (const proc of document.querySelectorAll("details.proc")) {
      let current = null;
      const move = (row) => {
        const place = row ? row.dataset.l || null : null;
        if (place === current) return;
        if (current) lit(proc, current, false);
        if (place) lit(proc, place, true);
        current = place;
      };
      proc.addEventListener("mouseover", (e) => move(e.target.closest("tr[data-l]")));
      proc.addEventListener("mouseleave", () => move(null));
      proc.addEventListener("click", (e) => {
        const row = e.target.closest("tr[data-l]");
        if (!row || e.target.closest("a")) return;
        const here = row.closest(".code");
        for (const pane of proc.querySelectorAll(".code")) {
          if (pane === here) continue;
          const there = pane.querySelector(`tr[data-l="${row.dataset.l}"]`);
          if (there) reveal(there);
        }
      });
      const strip = proc.querySelector(".strip");
      if (strip) strip.addEventListener("click", (e) => {
        const r = strip.getBoundingClientRect();
        const box = strip.parentElement.querySelector(".code");
        box.scrollTop = ((e.clientY - r.top) / r.height) * box.scrollHeight - box.clientHeight / 2;
      });
      proc.addEventListener("toggle", () => { if (proc.open) centre(proc); });
      if (proc.open) centre(proc);
    }
    window.addEventListener("hashchange", openTarget);
    openTarget();
  }

  // A procedure opens at its hottest row in both panes.
  function centre(proc) {
    if (proc.dataset.seen) return;
    proc.dataset.seen = "1";
    for (const box of proc.querySelectorAll(".code")) {
      let best = null, most = 0;
      for (const cell of box.querySelectorAll("td.h[style]")) {
        const share = parseFloat(cell.textContent);
        if (share > most) { most = share; best = cell.parentElement; }
      }
      if (best) reveal(best);
    }
  }

  // --- flame graph -------------------------------------------------------------------------
  function decode(data) {
    const flat = data.nodes;
    let at = 0;
    const make = (parent) => {
      const [name, image, flags, own, children] = flat.slice(at, at + 5);
      at += 5;
      return { name: data.names[name], image: data.images[image], flags, own, total: own, left: children, kids: [], parent };
    };
    const top = make(null);
    const open = [top];
    while (open.length) {
      const node = open[open.length - 1];
      if (node.left > 0) {
        node.left -= 1;
        const child = make(node);
        node.kids.push(child);
        open.push(child);
      } else {
        open.pop();
        node.kids.sort((a, b) => b.total - a.total);
        if (node.parent) node.parent.total += node.total;
      }
    }
    return top;
  }

  // The callers' tree: every place where time was spent, then who called it.
  function invert(top) {
    const inverse = { name: top.name, image: "", flags: 0, own: 0, total: 0, kids: [], parent: null, map: new Map() };
    const work = [top];
    while (work.length) {
      const node = work.pop();
      work.push(...node.kids);
      if (node.own <= 0) continue;
      inverse.total += node.own;
      let to = inverse;
      for (let n = node; n && n !== top; n = n.parent) {
        const key = n.flags + "\0" + n.image + "\0" + n.name;
        let next = to.map.get(key);
        if (!next) {
          next = { name: n.name, image: n.image, flags: n.flags, own: 0, total: 0, kids: [], parent: to, map: new Map() };
          to.map.set(key, next);
          to.kids.push(next);
        }
        next.total += node.own;
        to = next;
      }
      to.own += node.own;
    }
    const all = [inverse];
    while (all.length) { const n = all.pop(); n.map = null; n.kids.sort((a, b) => b.total - a.total); all.push(...n.kids); }
    return inverse;
  }

  // Hues by rank of own time, a golden section apart: neighbours in the legend never look alike. The
  // band around red is left to the kernel.
  const hues = new Map();
  const hue = (image) => hues.get(image) || 0;

  function rank(top) {
    const images = new Map();
    const work = [top];
    while (work.length) {
      const n = work.pop();
      work.push(...n.kids);
      if (!n.image) continue;
      const seen = images.get(n.image) || { own: 0, kernel: n.flags & 1 };
      seen.own += n.own;
      images.set(n.image, seen);
    }
    const ranked = Array.from(images).sort((a, b) => b[1].own - a[1].own);
    ranked.forEach(([name], i) => hues.set(name, 45 + ((150 + i * 108.86) % 285)));
    return ranked;
  }

  function amount(n, unit) {
    if (unit !== "ns") return n.toLocaleString("en-US");
    if (n >= 1e9) return (n / 1e9).toFixed(2) + "\u2009s";
    if (n >= 1e6) return (n / 1e6).toFixed(1) + "\u2009ms";
    return (n / 1e3).toFixed(0) + "\u2009\u00b5s";
  }

  function flame() {
    const source = $("flame-data");
    if (!source) return;
    let data = JSON.parse(source.textContent);
    const view = $("flame-view"), info = $("flame-info"), hitOut = $("flame-hit");
    let topDown = decode(data);
    rank(topDown);
    let bottomUp = null, tree = topDown, zoom = topDown, match = null, down = true;
    const ROW = 18;
    $("flame-tools").hidden = false;

    const describe = (n) =>
      `${n.name}${n.image ? "  [" + n.image + "]" : ""}${n.flags & 1 ? " kernel" : ""}${n.flags & 2 ? " inlined" : ""}: ` +
      `${pct(n.total / tree.total)} of all (${amount(n.total, data.unit)})` +
      (n.own ? `, ${pct(n.own / tree.total)} itself` : "") +
      (zoom !== tree ? `, ${pct(n.total / zoom.total)} of ${zoom.name}` : "");

    function box(node, x, width, level, above) {
      const b = el("button", { type: "button", tabIndex: -1 });
      b.node = node;
      b.setAttribute("role", "treeitem");
      b.setAttribute("aria-level", String(level + 1));
      b.setAttribute("aria-label", `${node.name}, ${pct(node.total / tree.total)}`);
      const kind = [node.flags & 1 ? "kernel" : "", node.flags & 2 ? "inlined" : "", node.flags & 4 ? "folded" : "",
        node.image.startsWith("[unknown") ? "unknown" : "",
        node === tree || !node.image ? "root" : "", above ? "above" : "", match && match(node.name) ? "hit" : ""];
      b.className = kind.filter(Boolean).join(" ");
      b.style.cssText = `left:${x}px;width:${width}px;top:${level * ROW}px;--hue:${hue(node.image)}`;
      if (width > 24) b.textContent = node.name;
      return b;
    }

    function draw() {
      const full = view.clientWidth - 2;
      const boxes = [];
      const chain = [];
      for (let n = zoom.parent; n; n = n.parent) chain.unshift(n);
      chain.forEach((n, i) => boxes.push(box(n, 0, full, i, true)));
      let deepest = chain.length;
      const work = [[zoom, 0, full, chain.length]];
      while (work.length) {
        const [node, x, width, level] = work.pop();
        boxes.push(box(node, x, width, level, false));
        deepest = Math.max(deepest, level);
        let at = x;
        for (const kid of node.kids) {
          const w = (kid.total / node.total) * width;
          if (w < 0.7) break;
          work.push([kid, at, Math.max(w, 1), level + 1]);
          at += w;
        }
      }
      const tall = (deepest + 1) * ROW;
      if (!down) for (const b of boxes) b.style.top = tall - ROW - parseInt(b.style.top, 10) + "px";
      view.style.height = tall + 2 + "px";
      view.classList.toggle("searching", Boolean(match));
      view.replaceChildren(...boxes);
      const here = boxes.find((b) => b.node === zoom);
      here.tabIndex = 0;
      info.textContent = describe(zoom);
      search();
      return here;
    }

    // Share of matching frames; a match below a match counts once.
    function search() {
      if (!match) { hitOut.textContent = ""; return; }
      let sum = 0, found = 0;
      const work = [tree];
      while (work.length) {
        const node = work.pop();
        if (node !== tree && match(node.name)) { sum += node.total; found += 1; continue; }
        work.push(...node.kids);
      }
      hitOut.textContent = found ? `${pct(sum / tree.total)} in ${found} place${found === 1 ? "" : "s"}` : "no match";
    }

    const go = (node, focus) => { zoom = node; const b = draw(); if (focus) b.focus({ preventScroll: true }); };
    view.addEventListener("click", (e) => { const b = e.target.closest("button"); if (b) go(b.node, true); });
    view.addEventListener("mouseover", (e) => { const b = e.target.closest("button"); if (b) info.textContent = describe(b.node); });
    view.addEventListener("mouseleave", () => { info.textContent = describe(zoom); });
    view.addEventListener("focusin", (e) => { if (e.target.node) info.textContent = describe(e.target.node); });
    view.addEventListener("keydown", (e) => {
      const now = document.activeElement.node;
      if (e.key === "Escape") { if (zoom.parent) go(zoom.parent, true); return; }
      if (!now || !e.key.startsWith("Arrow")) return;
      e.preventDefault();
      const kin = now.parent ? now.parent.kids : [now];
      const step = (d) => kin[kin.indexOf(now) + d];
      const inward = down ? "ArrowDown" : "ArrowUp";
      const next = e.key === "ArrowLeft" ? step(-1) : e.key === "ArrowRight" ? step(1) : e.key === inward ? now.kids[0] : now.parent;
      const b = next && Array.from(view.children).find((c) => c.node === next);
      if (!b) return;
      for (const c of view.children) c.tabIndex = -1;
      b.tabIndex = 0;
      b.focus();
    });
    $("flame-q").addEventListener("input", (e) => { match = matcher(e.target.value); draw(); });
    $("flame-reset").addEventListener("click", () => go(tree));
    const toggle = (id, set) => $(id).addEventListener("click", (e) => {
      const on = e.currentTarget.getAttribute("aria-pressed") !== "true";
      e.currentTarget.setAttribute("aria-pressed", String(on));
      set(on);
      draw();
    });
    toggle("flame-dir", (on) => { down = !on; });
    toggle("flame-inv", (on) => {
      if (on && !bottomUp) bottomUp = invert(topDown);
      tree = on ? bottomUp : topDown;
      zoom = tree;
    });
    const metric = $("flame-metric");
    if (metric) metric.addEventListener("change", () => {
      data = JSON.parse($(metric.value).textContent);
      topDown = decode(data);
      bottomUp = $("flame-inv").getAttribute("aria-pressed") === "true" ? invert(topDown) : null;
      tree = bottomUp || topDown;
      zoom = tree;
      legend(topDown, rank(topDown));
      draw();
    });
    let width = 0;
    new ResizeObserver(() => { if (view.clientWidth !== width) { width = view.clientWidth; draw(); } }).observe(view);
    draw();
    legend(topDown, rank(topDown));
  }

  function legend(top, ranked) {
    $("flame-legend").replaceChildren();
    for (const [name, { own, kernel }] of ranked.filter(([, r]) => r.own).slice(0, 10)) {
      const item = el("span", {});
      const chip = el("i", { className: kernel ? "kernel" : "" });
      chip.style.setProperty("--hue", hue(name));
      item.append(chip, `${name} ${pct(own / top.total)}`);
      $("flame-legend").append(item);
    }
  }

  // --- the section in view is marked in the bar ----------------------------------------------
  function spy() {
    const links = new Map(Array.from(document.querySelectorAll(".top nav a"), (a) => [a.hash.slice(1), a]));
    const seen = new IntersectionObserver((entries) => {
      for (const e of entries) {
        if (!e.isIntersecting) continue;
        for (const a of links.values()) a.removeAttribute("aria-current");
        const a = links.get(e.target.id);
        if (a) a.setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-10% 0px -80% 0px" });
    for (const id of links.keys()) if ($(id)) seen.observe($(id));
  }

  theme();
  tables();
  procedures();
  flame();
  spy();
  root.dataset.ready = "1";
})();
