"use strict";
// Charts (uPlot) and the picture of segments. All colours come from the styles, so that both
// themes have theirs.
const Draw = (() => {
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);

  // colour resolves a variable of the styles.
  function colour(name) {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  }

  // compact writes a number for an axis.
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const compact = (n) => short.format(n);

  // A chart is made anew when the theme changes, and keeps its columns.
  const charts = new Map();

  function axes(tall, right) {
    const line = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const time = { ...line, size: 26, space: 70, values: times, grid: { show: false }, font: "11px system-ui" };
    const y = { ...line, size: 46, space: tall ? 40 : 28, font: "11px system-ui", values: (u, ticks) => ticks.map(compact) };
    return right ? [time, y, { ...y, side: 1, scale: "right", grid: { show: false }, stroke: colour("--series-2") }] : [time, y];
  }

  // times are those of the axis, with seconds where minutes would be the same.
  function times(u, ticks) {
    const long = ticks.length > 1 && ticks[1] - ticks[0] < 60;
    return ticks.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB").slice(0, long ? 8 : 5));
  }

  // steps of whole numbers from zero, with room above.
  const fromZero = (u, min, max) => [0, Math.max(max * 1.12, 1)];

  // make draws a chart into a box: one or two series, and a limit that is drawn where it is near.
  function make(box, o) {
    const chart = { box, o, plot: null, width: 0 };
    charts.set(box, chart);
    new ResizeObserver(() => {
      if (chart.plot && box.clientWidth !== chart.width) {
        chart.width = box.clientWidth;
        chart.plot.setSize({ width: chart.width, height: box.clientHeight });
      }
    }).observe(box);
    return chart;
  }

  function draw(chart, columns) {
    chart.columns = columns;
    const { box, o } = chart;
    if (!box.clientWidth) return;
    if (chart.plot && chart.plot.series.length === columns.length) {
      chart.plot.setData(columns);
      return;
    }
    if (chart.plot) chart.plot.destroy();
    chart.width = box.clientWidth;
    const series = [{}, {
      stroke: colour("--series"), width: 1.75, points: { show: false },
      fill: colour("--series").replace("rgb(", "rgba(").replace(")", ", .12)"),
    }];
    if (o.right) series.push({ stroke: colour("--series-2"), width: 1.5, scale: "right", points: { show: false } });
    if (o.limit) series.push({ stroke: colour("--bad"), width: 1.25, dash: [6, 4], points: { show: false } });
    chart.plot = new uPlot({
      width: chart.width, height: box.clientHeight, legend: { show: false }, cursor: { show: false },
      padding: [8, o.right ? 0 : 10, 0, 0],
      scales: { y: { range: fromZero }, right: { range: fromZero } },
      axes: axes(o.tall, o.right), series,
    }, columns, box);
    // What it draws is in the box's label and in the figures beside it.
    chart.plot.root.setAttribute("aria-hidden", "true");
  }

  function again() {
    for (const chart of charts.values()) {
      if (chart.plot) {
        chart.plot.destroy();
        chart.plot = null;
        draw(chart, chart.columns);
      }
    }
  }

  function drop(box) {
    const chart = charts.get(box);
    if (chart && chart.plot) chart.plot.destroy();
    charts.delete(box);
  }

  // Colours of owners: the first have a palette that people with any sight can tell apart about as
  // well as twelve can be, the others go round the wheel.
  const palette = ["#4477aa", "#ee8866", "#228833", "#eedd88", "#aa3377", "#66ccee", "#bbcc33", "#994455",
    "#77aadd", "#997700", "#ffaabb", "#44bb99"];
  function ownerColour(i) {
    if (i < palette.length) return palette[i];
    return `hsl(${(i * 137.508) % 360} ${55 + (i % 3) * 12}% ${42 + (i % 4) * 9}%)`;
  }

  const flashFor = 9000, fadeFor = 1400;
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  // Owners draws a cell for each segment, in the colour of its owner. A cell whose owner changes
  // fades to its new colour and has a frame for a while.
  class Owners {
    constructor(canvas) {
      this.canvas = canvas;
      this.cells = [];
      this.before = [];   // colours that fade
      this.changed = [];  // when
      this.only = null;   // the owner whose cells are shown alone
      this.running = false;
      new ResizeObserver(() => this.layout()).observe(canvas.parentElement);
    }

    set(cells) { // names; "" is none
      const known = this.cells.length === cells.length, now = performance.now();
      if (!known) this.changed = cells.map(() => -Infinity);
      cells.forEach((name, i) => {
        if (known && this.cells[i] !== name) {
          this.before[i] = this.cells[i];
          this.changed[i] = now;
        }
      });
      this.cells = cells;
      this.layout();
      if (!this.running && this.changed.some((t) => now - t < flashFor)) {
        this.running = true;
        requestAnimationFrame(() => this.step());
      }
    }

    layout() {
      const n = this.cells.length, width = this.canvas.parentElement.clientWidth;
      if (!n || !width) return;
      const aspect = n > 512 ? 4.2 : 4;
      let columns = 2 ** Math.round(Math.log2(Math.sqrt(n * aspect)));
      if (width < 480) columns = Math.max(8, columns / 2);
      columns = Math.min(columns, n);
      this.columns = columns;
      this.size = width / columns;
      const height = Math.min(this.size, 40) * Math.ceil(n / columns);
      const ratio = devicePixelRatio || 1;
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = `${height}px`;
      this.cellHeight = Math.min(this.size, 40);
      this.paint();
    }

    colourOf(name) {
      return !places.has(name) ? this.none : ownerColour(Owners.place(name));
    }

    paint() {
      const c = this.canvas.getContext("2d"), ratio = devicePixelRatio || 1, now = performance.now();
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      c.clearRect(0, 0, this.canvas.width, this.canvas.height);
      this.none = colour("--bar");
      // Once for all cells: a look at the styles takes some microseconds.
      const frame = colour("--text"), cross = colour("--bad"), gap = this.size > 7 ? 1.5 : this.size > 4 ? .75 : .25;
      this.cells.forEach((name, i) => {
        const x = (i % this.columns) * this.size, y = Math.floor(i / this.columns) * this.cellHeight;
        const w = this.size - gap, h = this.cellHeight - gap, age = now - this.changed[i];
        c.globalAlpha = this.only !== null && name !== this.only ? .15 : 1;
        c.fillStyle = this.colourOf(name);
        c.fillRect(x, y, w, h);
        if (age < fadeFor && !still.matches) {
          c.globalAlpha *= 1 - age / fadeFor;
          c.fillStyle = this.colourOf(this.before[i]);
          c.fillRect(x, y, w, h);
        }
        if (age < flashFor) {
          c.globalAlpha = still.matches ? 1 : Math.max(0, 1 - age / flashFor);
          c.strokeStyle = frame;
          c.lineWidth = Math.min(2.5, Math.max(1, this.size / 6));
          const l = c.lineWidth / 2;
          c.strokeRect(x + l, y + l, w - 2 * l, h - 2 * l);
        }
        if (name === "" && this.size > 5) { // without an owner: crossed, not by colour alone
          c.globalAlpha = 1;
          c.strokeStyle = cross;
          c.lineWidth = 1;
          c.beginPath();
          c.moveTo(x + 1, y + h - 1);
          c.lineTo(x + w - 1, y + 1);
          c.stroke();
        }
      });
      c.globalAlpha = 1;
    }

    step() {
      this.paint();
      const now = performance.now();
      this.running = this.changed.some((t) => now - t < flashFor);
      if (!this.running) return;
      if (still.matches) setTimeout(() => this.step(), 1000);
      else requestAnimationFrame(() => this.step());
    }

    // at is the segment at a point of the canvas, -1 if there is none.
    at(x, y) {
      const i = Math.floor(y / this.cellHeight) * this.columns + Math.floor(x / this.size);
      return i >= 0 && i < this.cells.length ? i : -1;
    }
  }
  // An owner keeps its colour for as long as it owns something; then another may have it. So a page
  // that is open for days does not run out of those that can be told apart.
  const places = new Map();
  Owners.place = (name) => {
    if (!places.has(name)) {
      const taken = new Set(places.values());
      let free = 0;
      while (taken.has(free)) free++;
      places.set(name, free);
    }
    return places.get(name);
  };
  Owners.keep = (names) => { for (const name of places.keys()) if (!names.has(name)) places.delete(name); };

  return { make, draw, again, drop, Owners, ownerColour: (name) => ownerColour(Owners.place(name)) };
})();
