"use strict";
// The page shows what the stream says. Every text is set as a text; nothing of it becomes markup.
(() => {
  const $ = (id) => document.getElementById(id);
  const whole = new Intl.NumberFormat("en");
  const number = (n) => whole.format(n);

  // el makes an element: properties, then children or texts.
  function el(name, props, ...children) {
    const e = document.createElement(name);
    for (const [key, value] of Object.entries(props || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key === "class") e.className = value;
      else if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
      else if (key in e && typeof value !== "string") e[key] = value;
      else e.setAttribute(key, value === true ? "" : value);
    }
    e.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
    return e;
  }
  const set = (e, text) => { if (e.textContent !== text) e.textContent = text; };
  const show = (e, shown) => { e.hidden = !shown; };
  const plural = (n, one, many) => `${number(n)} ${n === 1 ? one : many}`;

  function rate(r) {
    if (r <= 0) return "0";
    return r < 9.95 ? r.toFixed(1) : number(Math.round(r));
  }
  function age(seconds) {
    if (seconds === null || seconds === undefined) return "";
    const s = Math.max(0, seconds);
    if (s < 100) return `${Math.round(s)} s`;
    if (s < 6000) return `${Math.round(s / 60)} min`;
    if (s < 172800) return `${Math.round(s / 3600)} h`;
    return `${Math.round(s / 86400)} d`;
  }
  function span(seconds) {
    if (seconds <= 0) return "";
    if (seconds < 0.0995) return `${(seconds * 1000).toPrecision(2)} ms`;
    return seconds < 9.95 ? `${seconds.toFixed(2)} s` : age(seconds);
  }
  function clock(time) {
    if (!time) return "";
    const t = new Date(time), today = new Date().toDateString() === t.toDateString();
    return today ? t.toLocaleTimeString("en-GB") : `${t.toLocaleDateString("en-CA")} ${t.toLocaleTimeString("en-GB").slice(0, 5)}`;
  }
  // depth is what is visible and in flight of a queue or an account, as far as it is known.
  const visible = (d) => (d.bounds ? "≥" : "") + number(d.visible);
  const inFlight = (d) => (d.bounds ? "≤" : "") + number(d.inFlight);

  // A table keeps its rows by key and changes only cells that say something else, so that focus and
  // selection stay.
  class Table {
    constructor(box, caption, columns, o = {}) {
      this.o = { most: 50, empty: "None.", ...o };
      this.columns = columns;
      this.all = false;
      this.rows = new Map();
      this.empty = el("p", { class: "empty" }, this.o.empty);
      this.body = el("tbody");
      this.table = el("table", {}, el("caption", { class: "hidden" }, caption),
        el("thead", {}, el("tr", {}, ...columns.map((c) => el("th", { scope: "col", class: c.number ? "number" : null }, c.title)))), this.body);
      this.scroll = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, this.table);
      this.more = el("button", { class: "more", type: "button", onclick: () => { this.all = !this.all; this.set(this.items); } });
      this.filter = el("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${caption.toLowerCase()}`, oninput: () => this.set(this.items) });
      this.tools = el("div", { class: "tools", hidden: true }, this.filter);
      box.replaceChildren(this.empty, this.tools, this.scroll, this.more);
      this.set([]);
    }

    set(items) {
      this.items = items;
      show(this.empty, items.length === 0);
      show(this.scroll, items.length > 0);
      show(this.tools, items.length > 20);
      const word = this.tools.hidden ? "" : this.filter.value.trim().toLowerCase();
      const meant = word ? items.filter((i) => this.o.text(i).toLowerCase().includes(word)) : items;
      const shown = this.all ? meant : meant.slice(0, this.o.most);
      show(this.more, meant.length > this.o.most);
      set(this.more, this.all ? `Show the first ${this.o.most}` : `Show all ${number(meant.length)}`);
      const seen = new Set();
      let at = this.body.firstElementChild;
      for (const item of shown) {
        const key = this.o.key(item);
        seen.add(key);
        let row = this.rows.get(key);
        if (!row) {
          row = el("tr", {}, ...this.columns.map((c) => el("td", { class: [c.number ? "number" : "", c.class || ""].join(" ").trim() || null })));
          this.rows.set(key, row);
        }
        if (row === at) at = at.nextElementSibling;
        else this.body.insertBefore(row, at);
        row.className = this.o.off && this.o.off(item) ? "off" : "";
        this.columns.forEach((c, i) => {
          const cell = row.children[i];
          if (c.fill) c.fill(cell, item);
          else set(cell, c.text(item));
        });
      }
      for (const [key, row] of this.rows) {
        if (!seen.has(key)) { row.remove(); this.rows.delete(key); }
      }
    }
  }

  // meter is a bar beside its figure; the figure is its text.
  function meter(part, tone) {
    const bar = el("div", { class: "meter", "aria-hidden": "true" }, el("span"));
    moveMeter(bar, part, tone);
    return bar;
  }
  function moveMeter(bar, part, tone) {
    bar.className = `meter ${tone || ""}`.trim();
    bar.firstElementChild.style.width = `${Math.min(100, Math.max(part > 0 ? 1 : 0, 100 * part)).toFixed(1)}%`;
  }
  const badge = (text, tone) => el("span", { class: `badge ${tone || ""}`.trim() }, text);

  // ---- what stands above all

  let spoken = "";
  let readAt = 0, old = false, allRead = false, counted = false;
  let version = "";
  function head(h) {
    // After an upgrade this script may not know what is sent.
    if (version && h.version !== version) { location.reload(); return; }
    version = h.version;
    const toned = document.body.dataset.tone !== h.headline.tone;
    document.body.dataset.tone = h.headline.tone;
    if (toned && examined) doctor(examined);
    set($("headline"), h.headline.text);
    set($("workload"), h.workload);
    document.title = h.workload ? `${h.workload} · queuepump` : "queuepump";
    // Spoken is what changed in kind; figures that move all the time would be noise.
    const kind = `${h.headline.tone} ${h.headline.heldBackBy}`;
    if (kind !== spoken) { set($("spoken"), h.headline.text); spoken = kind; }
    readAt = Date.now();
    old = h.old;
    const problems = h.problems || [];
    show($("problems"), problems.length > 0);
    const most = problems.length > 6 ? 5 : 6;
    $("problems").replaceChildren(...problems.slice(0, most).map((p) => el("li", {}, p)),
      ...(problems.length > most ? [el("li", {}, `and ${problems.length - most} more: distributor status has all`)] : []));
    olds(h.notRead || []);
    if (!h.time) { set($("about"), ""); return; }
    const d = h.distribution;
    set($("about"), [
      h.delivery, h.segments ? `${plural(h.segments, "segment", "segments")}${h.shared ? " without owners" : ""}` : "",
      h.segments ? `map ${h.mapVersion}` : "", h.spilled ? `${number(h.spilled)} spilled` : "",
      d.phase === "running" ? `leader ${d.leader || "has left its run"}` : "",
      d.cron ? `schedule ${d.cron}${d.due ? `, last due ${clock(d.due)}` : ""}` : "",
      d.next ? `next run ${clock(d.next)}` : "",
      h.ledger ? `ledger ${Math.round(100 * h.ledger.used)} % full` : "",
      h.localClock ? "by this machine's clock" : "",
      ...Object.entries(h.settings || {}).map(([name, value]) => `${name}=${value} is set`),
    ].filter(Boolean).join(" · "));
    const t = h.totals;
    if (allRead !== (t.looked >= t.queues)) { allRead = !allRead; drawCauses(); }
    const but = "of the accounts that answer";
    const known = t.dark ? but : t.looked >= t.queues ? "" : `${number(t.looked)} of ${plural(t.queues, "queue", "queues")} read so far`;
    tiles([
      ["Tasks a second", rate(h.headline.tasksPerSecond), h.headline.part >= 0.005 ? `${Math.round(100 * h.headline.part)} % of ${h.headline.account}'s limit` : ""],
      ["Visible", t.looked || t.dark ? visible(t) : "…", known || "could be taken now"],
      ["In flight", t.looked || t.dark ? inFlight(t) : "…", "in hand, or for later"],
      ["Oldest visible", t.oldestSeconds === null ? "none" : age(t.oldestSeconds), t.dark ? but : ""],
      ["Processors", number(t.processors), t.silent ? `${number(t.silent)} silent` : t.distributors ? plural(t.distributors, "distributor", "distributors") : "", t.silent ? "warn" : ""],
      ["Accounts", number(t.accounts), t.dark ? `${number(t.dark)} dark` : "all answer", t.dark ? "bad" : ""],
      ["In quarantine", t.quarantined === null ? "…" : number(t.quarantined), t.dark ? but : t.quarantined === 1 ? "message" : "messages", t.quarantined ? "warn" : ""],
    ]);
    show($("poison"), t.quarantined > 0);
    set($("poison"), plural(t.quarantined || 0, "message", "messages"));
    if (counted !== t.quarantined > 0) { counted = !counted; drawCauses(); }
    show($("segments"), !h.shared);
    document.body.classList.toggle("shared", h.shared);
    show($("settled"), h.segments > 0 && !h.shared);
    const unowned = h.unowned > 0;
    set($("settled"), h.settled ? "settled" : unowned ? plural(h.unowned, "without an owner", "without an owner") : "settling");
    $("settled").className = `badge ${h.settled ? "good" : unowned ? "bad" : "warn"}`;
    const e = h.ends;
    show($("ends"), e && e.waiting > 0);
    if (e && e.waiting > 0) {
      set($("ends"), `${plural(e.waiting, "run waits for its end", "runs wait for their ends")}${e.heldBackBy ? `, held back by ${e.heldBackBy}` : ""}.`);
    }
    set($("foot"), `Read at ${clock(h.time)} by the control account's clock, with ${plural(h.requests, "request", "requests")} for its rows.`);
  }
  // olds says beside a part that it could not be read this time, and as of when it is.
  const oldNames = {
    runs: ["runs", "the runs are"], ledger: ["runs", "what is exact of runs is"], ends: ["runs", "the ends of runs are"],
    history: ["money", "the history is"], keys: ["keys", "the keys are"], gates: ["gates", "the gates are"],
  };
  function olds(list) {
    const texts = new Map();
    for (const not of list) {
      const [at, what] = oldNames[not.part] || [];
      if (!at) continue; // problems tell of it
      const text = not.asOf ? `${what} as of ${clock(not.asOf)}, cannot be read now` : `${what} not known, cannot be read now`;
      texts.set(at, [...(texts.get(at) || []), text]);
    }
    for (const at of ["runs", "money", "keys", "gates"]) {
      const text = (texts.get(at) || []).join("; ");
      show($(`${at}-old`), text !== "");
      set($(`${at}-old`), text && `${text[0].toUpperCase()}${text.slice(1)}.`);
    }
  }
  const tileOf = new Map();
  function tiles(list) {
    for (const [name, value, note, tone] of list) {
      if (!tileOf.has(name)) {
        const tile = el("div", {}, el("dt", {}, name), el("dd"), el("dd", { class: "note" }));
        tileOf.set(name, tile);
        $("tiles").append(tile);
      }
      const tile = tileOf.get(name);
      tile.className = tone || "";
      set(tile.children[1], value);
      set(tile.children[2], note);
    }
  }

  // ---- the last minutes, or hours

  // A Past keeps columns of what was seen, as far back as so many seconds before the newest.
  class Past {
    constructor(seconds) {
      this.seconds = seconds;
      this.set({ times: [], rate: [], messages: [], accounts: {}, limits: {} });
    }

    set(c) {
      this.times = [];
      this.rate = [];
      this.messages = [];
      this.accounts = {};
      this.limits = {};
      this.add(c);
    }

    // until drops what is later than a time: it was seen before the service's clock went back.
    until(time) {
      const first = this.times.findIndex((t) => t > time);
      if (first >= 0) for (const column of this.columns()) column.length = first;
    }

    columns() { return [this.times, this.rate, this.messages, ...Object.values(this.accounts)]; }

    // add takes what is newer than all before.
    add(c) {
      c.times.forEach((time, i) => {
        const n = this.times.length;
        if (n && time <= this.times[n - 1]) return;
        this.times.push(time);
        this.rate.push(c.rate[i]);
        this.messages.push(c.messages[i]);
        for (const name of new Set([...Object.keys(this.accounts), ...Object.keys(c.accounts)])) {
          const column = this.accounts[name] || (this.accounts[name] = new Array(n).fill(null));
          column.push(c.accounts[name] ? c.accounts[name][i] : null);
        }
      });
      Object.assign(this.limits, c.limits);
      let first = 0;
      while (this.times.length && this.times[first] < this.times[this.times.length - 1] - this.seconds) first++;
      if (first) for (const column of this.columns()) column.splice(0, first);
    }
  }
  const minutes = new Past(15 * 60); // what was seen in the last minutes
  let past = minutes; // what the charts show
  let hours = null; // the rows of the last hours; null: they are not shown, or did not come yet
  function setPast(c) {
    minutes.set(c);
    join();
    if (!hours) { askedAt = 0; readHours(); }
  }
  function addPoints(c) {
    for (const p of new Set([minutes, past])) {
      if (c.times.length) p.until(c.times[0]); // what is seen now is the newest there is
      p.add(c);
    }
    drawPast();
  }
  // join puts behind the rows of the last hours what came since, which is seen here only.
  function join() {
    past = minutes;
    if (reach === "hours") {
      past = new Past(6 * 60 * 60);
      if (hours) past.add(hours);
      if (minutes.times.length) past.until(minutes.times[minutes.times.length - 1]);
      past.add(minutes);
    }
    drawPast();
  }
  const reachNames = { minutes: "The last 15 minutes", hours: "The last six hours" };
  let reach = "minutes", askedAt = 0;
  const over = () => (reach === "hours" ? "over the last six hours" : "over the last minutes");
  function setReach(s) {
    reach = s in reachNames ? s : "minutes";
    for (const radio of document.querySelectorAll("#reach input")) radio.checked = radio.value === reach;
    set($("h-throughput"), reachNames[reach]);
    set($("reach-note"), "");
    if (reach === "minutes") { hours = null; askedAt = 0; } // they are some hundred kilobytes
    else if (readAt) readHours(); // else once the stream has come
    try { localStorage.setItem("reach", reach); } catch { /* a browser that keeps nothing */ }
    join();
  }
  // readHours reads the rows of the last hours, of which a new one comes each minute.
  async function readHours() {
    if (reach !== "hours" || document.hidden || Date.now() - askedAt < 55000) return;
    askedAt = Date.now();
    let came = null, problem = "";
    try {
      const r = await fetch("hours");
      const answer = await r.json();
      if (r.ok) [came, problem] = [answer, answer.problem];
      else problem = answer.error || `status ${r.status}`;
    } catch {
      problem = "the process that serves this page did not answer";
    }
    if (reach !== "hours") return;
    hours = came || hours;
    set($("reach-note"), problem ? `Some of the last hours cannot be read: ${problem}.` : hours && hours.times.length ? "" :
      "No row of these hours was written: a process that samples the queues writes one each minute.");
    join();
  }
  $("reach").addEventListener("change", (e) => setReach(e.target.value));
  setInterval(readHours, 60000);
  document.addEventListener("visibilitychange", readHours);
  // withGaps puts a point without a value where nothing was seen for long, so that no line is drawn.
  function withGaps(...columns) {
    const out = columns.map(() => []);
    past.times.forEach((time, i) => {
      if (i && time - past.times[i - 1] > 100) {
        out[0].push(past.times[i - 1] + 1);
        for (let k = 1; k < out.length; k++) out[k].push(null);
      }
      columns.forEach((column, k) => out[k].push(column[i]));
    });
    return out;
  }
  const throughput = Draw.make($("throughput-chart"), { right: true, tall: true });
  function drawPast() {
    if (!past.times.length) return;
    Draw.draw(throughput, withGaps(past.times, past.rate, past.messages));
    const last = past.times.length - 1;
    $("throughput-chart").setAttribute("aria-label",
      `Tasks a second ${over()}: now ${rate(past.rate[last])}, at most ${rate(Math.max(...past.rate))}. ` +
      (past.messages[last] === null ? "" : `Messages: now ${number(past.messages[last])}, at most ${number(Math.max(...past.messages.filter((n) => n !== null)))}.`));
    for (const [name, card] of cards) drawAccount(name, card);
  }

  // ---- accounts

  const cards = new Map();
  const cardsMost = 12;
  let restTable = null;
  // Of many accounts the dark and the busiest have cards. Which these are is decided anew when an
  // account goes dark or comes back, and else each minute: cards that come and go cannot be read.
  let chosen = { at: 0, dark: "", names: new Set() };
  function choice(used) {
    const dark = used.filter((a) => a.dark).map((a) => a.name).join();
    if (Date.now() - chosen.at > 60000 || dark !== chosen.dark || used.length !== chosen.of) {
      const sorted = [...used].sort((a, b) => (b.dark !== "") - (a.dark !== "") || b.demand / (b.limit || 1) - a.demand / (a.limit || 1));
      chosen = { at: Date.now(), dark, of: used.length, names: new Set(sorted.slice(0, cardsMost).map((a) => a.name)) };
    }
    return used.filter((a) => chosen.names.has(a.name));
  }
  function accounts(list) {
    const used = list.filter((a) => a.state !== "unused");
    const shown = used.length <= cardsMost ? used : choice(used);
    for (const [name, card] of cards) {
      if (!shown.some((a) => a.name === name)) { Draw.drop(card.chart.box); card.root.remove(); cards.delete(name); }
    }
    shown.forEach((a, i) => {
      let card = cards.get(a.name);
      if (!card) {
        card = newCard(a.name);
        cards.set(a.name, card);
      }
      if ($("account-cards").children[i] !== card.root) $("account-cards").insertBefore(card.root, $("account-cards").children[i] || null);
      fillCard(card, a);
    });
    const unused = list.filter((a) => a.state === "unused");
    const rest = [...used.filter((a) => !shown.includes(a)), ...unused];
    if (rest.length && !restTable) {
      restTable = new Table($("account-table"), "Other accounts", [
        { title: "Account", text: (a) => a.name, class: "name" },
        { title: "State", text: (a) => (a.dark ? "dark" : a.state) },
        { title: "Of its limit", number: true, text: percent },
        { title: "Visible", number: true, text: (a) => (a.dark || !a.queuesRead ? "?" : visible(a)) },
        { title: "In flight", number: true, text: (a) => (a.dark || !a.queuesRead ? "?" : inFlight(a)) },
        { title: "Oldest", number: true, text: (a) => age(a.oldestSeconds) },
        { title: "Throttled", number: true, text: (a) => number(a.throttled) },
        { title: "Quarantined", number: true, text: (a) => (a.poison === null ? "?" : number(a.poison)) },
      ], { key: (a) => a.name, text: (a) => a.name });
    }
    if (restTable) restTable.set(rest);
    show($("account-rest"), rest.length > 0);
  }
  const percent = (a) => { const p = a.limit > 0 ? (100 * a.demand) / a.limit : 0; if (p > 0 && p < 0.05) return "<0.1 %"; return `${p < 9.95 ? p.toFixed(1) : Math.round(p)} %`; };
  const toneOf = (part) => (part >= 0.9 ? "bad" : part >= 0.7 ? "warn" : "");
  function newCard(name) {
    const part = (title) => { const dd = el("dd"); return [dd, el("dt", {}, title), dd]; };
    const [vis, ...v] = part("Visible"), [fly, ...f] = part("In flight"), [old, ...o] = part("Oldest"), [poison, ...p] = part("Quarantined");
    const title = el("h3"), of = el("b"), limit = el("span", { class: "muted" }), bar = meter(0), why = el("p", { class: "why" });
    const box = el("div", { class: "chart", role: "img" });
    const root = el("article", { class: "account", "data-account": name }, title, el("p", { class: "of" }, of, limit), bar, why, box, el("dl", {}, ...v, ...f, ...o, ...p));
    return { root, title, of, limit, bar, why, vis, fly, old, poison, chart: Draw.make(box, { limit: true }) };
  }
  function fillCard(card, a) {
    const marks = [a.control && badge("control"), a.state === "draining" && badge("draining", "warn"), a.dark && badge("dark", "bad"),
      !a.configured && badge("not configured", "warn"), a.throttled > 0 && badge(`${number(a.throttled)} throttled`, "warn")].filter(Boolean);
    const said = a.name + marks.map((m) => m.textContent).join();
    if (card.said !== said) { card.title.replaceChildren(a.name, ...marks); card.said = said; }
    card.root.classList.toggle("dark", a.dark !== "");
    set(card.of, percent(a));
    set(card.limit, `${rate(a.demand)} of ${number(a.limit)} messages/s`);
    moveMeter(card.bar, a.limit > 0 ? a.demand / a.limit : 0, toneOf(a.limit > 0 ? a.demand / a.limit : 0));
    show(card.why, a.dark !== "");
    set(card.why, a.dark);
    const unread = a.dark !== "" || a.queuesRead === 0;
    set(card.vis, unread ? "?" : visible(a));
    set(card.fly, unread ? "?" : inFlight(a));
    set(card.old, unread ? "?" : a.oldestSeconds === null ? "none" : age(a.oldestSeconds));
    set(card.poison, a.poison === null ? "?" : number(a.poison));
    drawAccount(a.name, card);
  }
  function drawAccount(name, card) {
    const column = past.accounts[name], limit = past.limits[name];
    if (!column || !column.length) return;
    const most = Math.max(...column);
    // A limit that is far away would make a flat line of all else: the bar shows it then.
    const near = limit > 0 && most > limit / 4;
    Draw.draw(card.chart, withGaps(past.times, column, column.map(() => (near ? limit : null))));
    card.chart.box.setAttribute("aria-label", `Messages a second asked of ${name} ${over()}: now ${rate(column[column.length - 1] || 0)}, at most ${rate(most)}, limit ${number(limit || 0)}.`);
  }

  // ---- segments

  const picture = new Draw.Owners($("owners"));
  let cellNames = [];
  const legend = new Map();
  function owners(o) {
    cellNames = o.cells.map((at) => (at < 0 ? "" : o.names[at]));
    const counts = new Map();
    for (const name of cellNames) counts.set(name, (counts.get(name) || 0) + 1);
    const names = [...counts.keys()].sort((a, b) => (a === "") - (b === "") || (a < b ? -1 : 1));
    Draw.Owners.keep(counts);
    names.forEach((name) => name !== "" && Draw.Owners.place(name));
    picture.set(cellNames);
    for (const [name, item] of legend) {
      if (!counts.has(name)) {
        item.remove();
        legend.delete(name);
        if (picture.only === name) choose(null);
      }
    }
    names.forEach((name, i) => {
      let item = legend.get(name);
      if (!item) {
        const swatch = el("span", { class: "swatch" });
        swatch.style.background = name === "" ? "var(--bar)" : Draw.ownerColour(name);
        item = el("li", {}, el("button", { type: "button", "aria-pressed": "false", onclick: () => choose(picture.only === name ? null : name) },
          swatch, el("span", { class: "name" }, name || "without an owner"), el("b")));
        legend.set(name, item);
      }
      if ($("legend").children[i] !== item) $("legend").insertBefore(item, $("legend").children[i] || null);
      set(item.querySelector("b"), number(counts.get(name)));
    });
    const first = names.slice(0, 8).map((n) => `${n || "without an owner"} ${counts.get(n)}`).join(", ");
    $("owners").setAttribute("aria-label", cellNames.length ?
      `${plural(cellNames.length, "segment", "segments")} by owner: ${first}${names.length > 8 ? `, and ${names.length - 8} more owners` : ""}. The list below has all.` : "No segments with owners");
    $("moves").replaceChildren(...(o.moves.length ? o.moves.map((m) => el("li", {}, el("time", {}, clock(m.at)),
      `${plural(m.segments, "segment", "segments")}: ${m.from || "without an owner"} → ${m.to || "without an owner"}`)) :
      [el("li", { class: "muted" }, "None since this page is watched.")]));
  }
  function choose(name) {
    picture.only = name;
    for (const [of, item] of legend) item.firstElementChild.setAttribute("aria-pressed", String(of === name));
    picture.paint();
    const mine = name === null ? [] : cellNames.map((n, i) => (n === name ? i : -1)).filter((i) => i >= 0);
    set($("segment"), name === null ? "Point at a cell to see its segment; choose an owner to see its cells." :
      `${name || "Without an owner"}: ${plural(mine.length, "segment", "segments")}, ${mine.slice(0, 16).join(", ")}${mine.length > 16 ? ", …" : ""}`);
  }
  $("owners").addEventListener("pointermove", (e) => {
    const i = picture.at(e.offsetX, e.offsetY);
    if (i >= 0) set($("segment"), `segment ${i}: ${cellNames[i] || "without an owner"}`);
  });

  // ---- tables

  const runsTable = new Table($("runs-table"), "Runs", [
    { title: "Run", fill: (td, r) => { set(td, r.id.slice(0, 12)); td.title = r.id; }, class: "mono" },
    { title: "State", fill: (td, r) => { if (td.textContent !== r.state) td.replaceChildren(badge(r.state, { closed: "good", broken: "bad", open: "quiet" }[r.state])); } },
    { title: "Started", text: (r) => clock(r.started) },
    { title: "Progress", fill: progress, class: "progress" },
    { title: "Done", number: true, text: (r) => number(r.exact ? r.exact.done : r.handled) },
    { title: "Of", number: true, text: (r) => (r.sent === null ? "?" : (r.sentIsAtLeast ? "≥" : "") + number(r.sent)) },
    { title: "Left", number: true, text: (r) => (r.exact && r.exact.remaining !== null ? number(r.exact.remaining) : "") },
    { title: "A second", number: true, text: (r) => (r.perSecond === null ? "" : rate(r.perSecond)) },
    { title: "Time left", number: true, text: (r) => (r.secondsLeft === null ? "" : age(r.secondsLeft)) },
    { title: "Cost", number: true, text: (r) => (r.cost > 0 ? price(r.cost) : "") },
    { title: "Note", text: runNote, class: "long" },
  ], { key: (r) => r.id, text: (r) => r.id, empty: "No run yet." });
  function progress(td, r) {
    const part = r.exact && r.exact.percent !== null ? r.exact.percent / 100 :
      !r.exact && r.sent ? Math.min(1, r.handled / r.sent) : null;
    if (!td.firstChild) td.append(meter(0), el("span", { class: "small" }));
    show(td.firstChild, part !== null);
    if (part !== null) moveMeter(td.firstChild, part, part >= 1 ? "good" : "");
    set(td.lastChild, part === null ? "its end is not known yet" : `${part >= 1 ? 100 : Math.floor(1000 * part) / 10} %${r.exact ? "" : " about"}`);
  }
  function runNote(r) {
    const quarantined = r.exact ? r.exact.quarantined : r.quarantined;
    return [r.note, quarantined && `${number(quarantined)} in quarantine`, r.failed && `${number(r.failed)} failed`, r.retried && `${number(r.retried)} retried`,
      r.duplicates && `${number(r.duplicates)} twice`, r.skipped && `${number(r.skipped)} skipped`, r.dropped && `${number(r.dropped)} dropped`].filter(Boolean).join(", ");
  }

  const queuesTable = new Table($("queues-table"), "Queues", [
    { title: "Account", text: (q) => q.account, class: "name" },
    { title: "Queue", text: (q) => q.queue, class: "name" },
    { title: "Visible", number: true, text: (q) => (q.dark ? "?" : visible(q)) },
    { title: "In flight", number: true, text: (q) => (q.dark ? "?" : inFlight(q)) },
    { title: "Oldest", number: true, text: (q) => age(q.oldestSeconds) },
    { title: "Note", text: (q) => q.dark, class: "long" },
  ], { key: (q) => `${q.account}/${q.queue}`, text: (q) => `${q.account}/${q.queue}`, empty: "No queue was read yet.", off: (q) => q.dark });
  // Many queues are shown with the fullest first.
  const queues = (list) => queuesTable.set(list.length <= 20 ? list : [...list].sort((a, b) => b.messages - a.messages));

  const processesTable = new Table($("processes-table"), "Processes", [
    { title: "Process", text: (p) => p.instance, class: "name" },
    { title: "Role", text: (p) => (p.role === "processor" && p.rank !== null ? `rank ${p.rank}` : p.role), class: "word" },
    { title: "Machine", text: (p) => p.host, class: "name" },
    { title: "Segments", number: true, text: (p) => (p.role === "processor" && !p.silent ? number(p.segments) : "") },
    { title: "Tasks/s", number: true, text: (p) => (p.silent ? "" : rate(p.tasksPerSecond)) },
    { title: "Busy", number: true, text: (p) => (p.silent || !p.busy ? "" : `${Math.round(100 * p.busy)} %`) },
    { title: "A task takes", number: true, text: (p) => span(p.secondsPerTask) },
    { title: "Tasks", number: true, text: (p) => number(p.tasks) },
    { title: "Beat", number: true, text: (p) => age(p.beatAgeSeconds) },
    { title: "Note", text: processNote, class: "long" },
  ], { key: (p) => p.instance, text: (p) => `${p.instance} ${p.host}`, empty: "No process.", off: (p) => p.silent });
  function processNote(p) {
    if (p.silent) return "silent: dead, or cut off";
    const over = p.keysOver?.top ? `${number(p.keysOver.tasks)} tasks wait, over the limits of keys ${p.keysOver.top.map((k) => k.key).join(", ")}` : "";
    return [over, p.draining && "stopping", p.paused && "paused", p.waiting && `waits at gate ${p.waiting}`, p.trouble, p.throttled && `${number(p.throttled)} throttled`].filter(Boolean).join(", ");
  }

  const keysTable = new Table($("keys-table"), "Keys with a claim", [
    { title: "Key", text: (k) => k.key, class: "name" },
    { title: "State", fill: (td, k) => {
      const text = k.running ? "running" : k.failed ? "failed" : "done";
      if (td.textContent !== text) td.replaceChildren(badge(text, k.running ? "warn" : k.failed ? "bad" : "good"));
    } },
    { title: "Began", text: (k) => clock(k.start) },
    { title: "Ended", text: (k) => (k.running ? "" : clock(k.stop)) },
    { title: "By", text: (k) => k.instance, class: "name" },
  ], { key: (k) => (k.base64 ? "b" : "t") + k.key, text: (k) => k.key, most: 20, empty: "No key has a claim. Processors make them with --min-interval." });

  const gatesTable = new Table($("gates-table"), "Gates", [
    { title: "Gate", text: (g) => g.name, class: "name" },
    { title: "State", fill: (td, g) => {
      const text = g.open ? "open" : "closed";
      if (td.textContent !== text) td.replaceChildren(badge(text, g.open ? "good" : "warn"));
    } },
    { title: "Since", text: (g) => clock(g.since) },
    { title: "By", text: (g) => g.by, class: "name" },
    { title: "Waiting", number: true, text: (g) => number(g.waiting) },
  ], { key: (g) => g.name, text: (g) => g.name, empty: "No gate was opened or closed, and no process waits at one." });

  // ---- quarantine, and what acts on it

  let found = { groups: [], dark: [], messages: 0, shown: 0 };
  let act = { can: false, id: "" };
  const bodies = new Map(); // by cause: what was shown of its tasks
  function quarantine(q) {
    found = q;
    drawCauses();
  }
  let causesSaid = "";
  function drawCauses() {
    // What is shown is made anew only if it says something else, so that focus stays.
    const said = JSON.stringify([found, allRead, counted, act.can, act.running, [...bodies]]);
    if (said === causesSaid) return;
    causesSaid = said;
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.act : null;
    const all = found.messages > found.shown;
    const list = found.groups.map((g) => el("article", { class: "cause" },
      el("h3", {}, g.cause || "cause not known", el("span", { class: "small muted" },
        `${all ? "at least " : ""}${plural(g.messages, "message", "messages")}, ${plural(g.tasks, "task", "tasks")}${g.stuck ? `, ${number(g.stuck)} cannot be redriven` : ""}`)),
      el("ul", {}, ...g.samples.map((s) => el("li", {}, el("span", { class: "muted" }, `${clock(s.at)} · ${s.account}${s.segment === null ? "" : ` · segment ${s.segment}`} · ${plural(s.attempts, "attempt", "attempts")}: `),
        s.detail || "no detail", s.problem ? el("span", { class: "muted" }, ` (cannot be redriven: ${s.problem})`) : null))),
      bodies.has(g.cause) ? el("pre", { tabindex: "0", "aria-label": `Tasks of ${g.cause}` }, bodies.get(g.cause)) : null,
      act.can ? el("div", { class: "tools" },
        el("button", { type: "button", "data-act": `try ${g.cause}`, disabled: act.running, onclick: () => post("redrive", { cause: g.cause }) }, "Try a redrive"),
        el("button", { type: "button", "data-act": `show ${g.cause}`, class: "quiet", onclick: () => showTasks(g.cause) }, "Show tasks")) : null));
    if (!list.length) list.push(el("p", { class: "empty" }, found.error ? "It cannot be read." : counted ? "None of it can be shown now: a command holds it, or it has just come." : found.dark.length ? "Nothing is in quarantine in the accounts that answer." : !allRead ? "Nothing is in quarantine in what was read so far." : "Nothing is in quarantine."));
    if (found.dark.length && list.length) list.push(el("p", { class: "muted small" }, `Not known of ${found.dark.join(", ")}.`));
    if (found.error) list.push(el("p", { class: "muted" }, found.error));
    if (all && found.groups.length) list.push(el("p", { class: "muted small" }, `${number(found.shown)} of ${number(found.messages)} were looked at: the first 32 of each account, which hides none from others. A trial looks at all.`));
    $("causes").replaceChildren(...list);
    if (focused) { const again = $("causes").querySelector(`[data-act="${CSS.escape(focused)}"]`); if (again) again.focus(); }
  }
  async function post(what, body) {
    complain("");
    try {
      const r = await fetch(what, { method: "POST", headers: { "Content-Type": "application/json", "X-Queuepump-Token": $("token").value.trim() }, body: JSON.stringify(body) });
      const answer = await r.json();
      if (!r.ok) { complain(answer.error || `status ${r.status}`); return null; }
      return answer;
    } catch {
      complain("The process that serves this page did not answer; whether it acts, the lines below say once it does.");
      return null;
    }
  }
  // complain says why a request came to nothing, beside what a trial or a redrive has said.
  function complain(text) {
    show($("act-problem"), text !== "");
    set($("act-problem"), text);
  }
  async function showTasks(cause) {
    const answer = await post("samples", { cause });
    if (!answer) return;
    const lines = answer.tasks.map((t) => (t.problem ? `${t.account} ${t.id}: ${t.problem}` : `${t.key ? `${t.key}: ` : ""}${t.body}`));
    bodies.set(cause, [...lines, answer.error].filter(Boolean).join("\n") || "Nothing of it is there any more.");
    drawCauses();
  }
  function say(text, bad) {
    show($("acted"), text !== "");
    $("acted").className = `acted${bad ? " bad" : ""}`;
    $("acted").replaceChildren(el("p", {}, text));
  }
  function acted(a) {
    act = a;
    show($("token-form"), a.can);
    show($("read-only"), !a.can);
    drawCauses();
    if (!a.id) return;
    const would = a.dry ? (a.running ? "would be put back so far" : "would be put back") : a.running ? "are put back so far" : "were put back";
    say(`${a.dry ? "Trial of a redrive" : "Redrive"} of “${a.cause || "cause not known"}”${a.running ? ", under way" : ""}: ` +
      `${plural(a.messages, "message", "messages")} with ${plural(a.tasks, "task", "tasks")} ${would}` +
      `${a.kept ? `; ${plural(a.kept, "message", "messages")} ${a.dry ? "would stay" : "stay"}: ${a.keptWhy.join("; ")}` : ""}` +
      `${a.error ? `. ${a.error}` : "."}`, a.error !== "");
    const tools = el("div", { class: "tools" });
    if (a.running) tools.append(el("button", { type: "button", onclick: () => post("stop", { cause: a.cause }) }, "Stop"));
    else if (a.dry && !a.error && a.messages > 0) {
      tools.append(el("button", { type: "button", class: "strong", onclick: () => post("redrive", { cause: a.cause, dry: a.id }) }, `Redrive ${plural(a.messages, "message", "messages")}`));
    }
    if (tools.children.length) $("acted").append(tools);
  }
  $("token-form").addEventListener("submit", (e) => e.preventDefault());

  // ---- requests and money

  let currency = "";
  // price has as many digits as matter: requests cost fractions of a cent.
  function price(x) {
    const digits = x >= 1 || x === 0 ? 2 : Math.min(8, 1 - Math.floor(Math.log10(x)));
    return `${x.toFixed(digits)} ${currency}`.trim();
  }
  const byCost = (list) => [...list].sort((a, b) => b.cost - a.cost);
  // kind is what a request is called in metrics and in docs/tuning.md.
  const kind = (o) => o.operation || "not known";
  const kindsTable = new Table($("kinds-table"), "Requests and cost by operation", [
    { title: "Operation", text: kind, class: "name" },
    { title: "To", text: (o) => (o.service === "table" ? "tables" : "queues") },
    { title: "A minute now", number: true, text: (o) => (o.perMinuteNow === null ? "" : rate(o.perMinuteNow)) },
    { title: "Cost a minute", number: true, text: (o) => (o.costPerMinuteNow === null ? "" : price(o.costPerMinuteNow)) },
    { title: "Today", number: true, text: (o) => number(o.requests) },
    { title: "Cost today", number: true, text: (o) => price(o.cost) },
  ], { key: (o) => `${o.service} ${o.operation}`, text: kind, empty: "What kinds of requests were made today is not known yet." });
  const moneyTable = new Table($("money-table"), "Requests of the day by account", [
    { title: "Account", text: (a) => a.name || "all others", class: "name" },
    { title: "To queues", number: true, text: (a) => number(a.requests.queue) },
    { title: "To tables", number: true, text: (a) => number(a.requests.table) },
    { title: "Cost", number: true, text: (a) => price(a.cost) },
    { title: "By operation", class: "long", text: (a) => byCost(a.operations).map((o) => `${kind(o)} ${number(o.requests)}`).join(", ") },
  ], { key: (a) => a.name, text: (a) => a.name, empty: "No process has written down yet what the accounts were asked today." });
  function money(m) {
    currency = m.prices.currency;
    set($("money-day"), `on ${m.day}, UTC`);
    const sum = (name, value) => [el("dt", {}, name), el("dd", {}, value === null ? "not known" : price(value))];
    $("money-sums").replaceChildren(el("div", {}, ...sum("Today so far", m.dayCost)), el("div", {}, ...sum("A day at the rate of now", m.costPerDayNow)),
      ...(m.capPerDay === null ? [] : [el("div", {}, ...sum("The cap of a day", m.capPerDay), m.leastPerDay > 0 ? el("dd", { class: "note" }, `at least ${price(m.leastPerDay)} for the processes that live`) : null)]));
    set($("spending"), m.spending);
    kindsTable.set(byCost(m.operations));
    moneyTable.set(m.accounts);
    set($("prices"), `10,000 requests to queues cost ${m.prices.queue} ${currency}, to tables ${m.prices.table} ${currency}: ${m.prices.source}${m.prices.date ? `, as of ${m.prices.date}` : ""}.`);
  }

  // ---- doctor

  let examined = null; // what was heard of the doctor last
  function doctor(d) {
    examined = d;
    const ask = d.asks && !d.looks ? [el("div", { class: "tools" },
      el("button", { type: "button", onclick: askDoctor }, "Let the doctor look"), el("span", { class: "small muted" }, "It asks every queue, some thousand requests, and is let do so every 15 minutes."))] : [];
    if (d.looks) ask.push(el("p", { class: "muted" }, "The doctor is at it; that takes some seconds."));
    if (!d.report) {
      $("findings").replaceChildren(...(ask.length ? ask : [el("p", { class: "muted" }, "The doctor looks in a moment.")]));
      return;
    }
    const list = d.report.findings;
    set($("doctor-at"), `looked at ${clock(d.at)}, in ${span(d.report.seconds)}`);
    $("findings").replaceChildren(...ask, ...(list.length ? list.map((f) => el("article", { class: `finding ${f.severity}` },
      el("p", {}, badge(f.severity, f.severity === "error" ? "bad" : "warn"), ` ${f.check}${f.subject ? `: ${f.subject}` : ""}`),
      el("p", {}, f.problem), f.fix ? el("p", {}, el("code", {}, f.fix)) : null)) :
      // What was found before the headline said that something is wrong is no news of now.
      [el("p", {}, ...(["warn", "bad"].includes(document.body.dataset.tone) ?
        [`Nothing was found at ${clock(d.at)}. What the headline says may have begun since.`] :
        [badge("well", "good"), " Nothing is wrong, as far as can be seen from here."]))]));
  }

  const askDoctor = () => fetch("doctor", { method: "POST" }).catch(() => {});

  // ---- the stream

  let lost = false;
  let heardAt = 0; // when anything came last, be it a sign of life alone
  function live() {
    const seconds = heardAt ? (Date.now() - heardAt) / 1000 : 0, e = $("live");
    const state = lost || seconds > 45 ? "lost" : !readAt ? "wait" : old ? "old" : "live";
    e.dataset.state = state;
    set(e, { lost: "connection lost, trying again", wait: "connecting", old: "rows cannot be read now", live: "live" }[state]);
    document.body.classList.toggle("lost", state === "lost");
  }
  const parts = {
    head, past: setPast, point: addPoints, accounts, queues, owners, processes: (p) => processesTable.set(p), runs: (r) => runsTable.set(r),
    money, keys: (k) => keysTable.set(k), gates: (g) => gatesTable.set(g), quarantine, doctor, act: acted,
    alive: () => {},
  };
  // Each part is drawn once in a frame at most, with what is newest.
  const waiting = new Map();
  let asked = false;
  function drawWaiting() {
    asked = false;
    for (const [name, data] of [...waiting]) {
      waiting.delete(name);
      try {
        parts[name](data);
      } catch (e) { // it hides no other part
        console.error(`the part ${name} cannot be drawn`, e);
      }
    }
    if (!lost) live();
  }
  function later(draw) { document.hidden ? setTimeout(draw, 0) : requestAnimationFrame(draw); }
  // A browser connects again by itself when a stream breaks off, but gives one up for good that was
  // answered with anything else than a stream: a full page's 503, or a proxy's 502.
  let stream = null;
  function watch() {
    stream = new EventSource("events");
    for (const name of Object.keys(parts)) stream.addEventListener(name, (e) => hear(name, e.data));
    stream.onerror = () => {
      lost = true;
      live();
      if (stream.readyState === EventSource.CLOSED) setTimeout(watch, 5000);
    };
  }
  function hear(name, text) {
    lost = false;
    heardAt = Date.now();
    const data = JSON.parse(text);
    if (name === "point" || name === "past") { parts[name](data); return; } // none is left out
    waiting.set(name, data);
    if (!asked) { asked = true; later(drawWaiting); }
  }
  watch();
  setInterval(live, 1000);

  // ---- theme

  const themes = ["auto", "light", "dark"];
  let theme = "auto";
  try { theme = localStorage.getItem("theme") || "auto"; } catch { /* a browser that keeps nothing */ }
  function setTheme(t) {
    theme = themes.includes(t) ? t : "auto";
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    set($("theme"), `Theme: ${theme}`);
    try { localStorage.setItem("theme", theme); } catch { /* as above */ }
    repaint();
  }
  function repaint() { Draw.again(); picture.paint(); }
  $("theme").addEventListener("click", () => setTheme(themes[(themes.indexOf(theme) + 1) % themes.length]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  setTheme(theme);
  let kept = "minutes";
  try { kept = localStorage.getItem("reach") || kept; } catch { /* as above */ }
  setReach(kept);
  addEventListener("pagehide", () => stream.close());
  addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); });
})();
