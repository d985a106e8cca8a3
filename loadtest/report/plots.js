// Draws the plots of a report. Each figure holds what it shows as JSON; all colours come from the
// styles, so that both themes have theirs.
const few = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

// number and duration write values as the tables of the report do.
const number = (v) => Math.abs(v) >= 1e15 ? v.toExponential(2) : (Math.abs(v) >= 100 ? whole : few).format(v);
function duration(s) {
  if (s === 0) return "0";
  const [unit, of] = s < 1e-3 ? [1e6, "µs"] : s < 1 ? [1e3, "ms"] : s < 120 ? [1, "s"] : s < 7200 ? [1 / 60, "min"] : [1 / 3600, "h"];
  return `${few.format(s * unit)} ${of}`;
}

const probe = document.body.appendChild(document.createElement("span"));
probe.hidden = true;
function colour(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// columns are the lines over the places of all of them. Where a line has no value of its own it has
// undefined there, and goes on; where its value is not known it has null, a gap. A place stands
// twice where a line has a step.
function columns(plot) {
  const times = new Map();
  const byPlace = plot.Lines.map((l) => {
    const found = Map.groupBy(l.X.map((x, i) => [x, l.Y[i]]), ([x]) => x);
    for (const [x, ys] of found) times.set(x, Math.max(times.get(x) || 0, ys.length));
    return found;
  });
  const places = [...times.keys()].sort((a, b) => a - b).flatMap((x) => Array(times.get(x)).fill(x));
  return [places, ...byPlace.map((found) => places.map((x) => ((found.get(x) || []).shift() || [])[1]))];
}

// alone are the places of values between gaps, which no line joins to another.
function alone(values) {
  const known = values.map((v, i) => [v, i]).filter(([v]) => v !== undefined);
  const gap = (k) => !known[k] || known[k][0] === null;
  return known.filter((_, k) => !gap(k) && gap(k - 1) && gap(k + 1)).map(([, i]) => i);
}

// events draws a dotted line at each.
const events = (at) => (u) => {
  u.ctx.save();
  u.ctx.strokeStyle = colour("--mark");
  u.ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const x of at || []) u.ctx.stroke(new Path2D(`M${u.valToPos(x, "x", true)},${u.bbox.top}v${u.bbox.height}`));
  u.ctx.restore();
};

function draw(box, plot) {
  const axis = (label, write, grid, size) => ({
    stroke: colour("--text"), grid: { stroke: colour(grid), width: 1 }, ticks: { stroke: colour(grid) }, size,
    font: "12px system-ui", labelFont: "12px system-ui", label: label || null, labelSize: 20,
    values: (u, marks) => marks.map((v) => v === null ? "" : write(v)),
  });
  const fromZero = (room) => (u, least, most) => [0, most > 0 ? most * room : 1];
  const data = columns(plot);
  return new uPlot({
    width: box.clientWidth, height: box.clientHeight, padding: [10, 16, 0, 0],
    legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false, range: fromZero(1) }, y: plot.Times ? { distr: 3 } : { range: fromZero(1.04) } },
    axes: [axis(plot.X, number, "--grid-fine", 30), axis(plot.Y, plot.Times ? duration : number, "--grid", 64)],
    series: [{}, ...plot.Lines.map((l, i) => ({
      stroke: colour(`--line-${l.Colour}`), width: 2, dash: l.Dashed ? [7, 4] : [],
      points: {
        show: l.Points, size: 6, fill: colour(`--line-${l.Colour}`),
        filter: (u, n, show) => show ? null : alone(data[i + 1]),
      },
    }))],
    hooks: { draw: [events(plot.Events)] },
  }, data, box);
}

const plots = [...document.querySelectorAll(".plot")].map((box) => [box, JSON.parse(box.nextElementSibling.textContent)]);
let drawn = [];
function all() {
  for (const d of drawn) d.destroy();
  drawn = plots.map(([box, plot]) => draw(box, plot));
}
all();
addEventListener("resize", all);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
// Paper is light.
for (const [event, theme] of [["beforeprint", "light"], ["afterprint", ""]]) {
  addEventListener(event, () => {
    document.documentElement.dataset.theme = theme;
    all();
  });
}
