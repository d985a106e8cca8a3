// Drives the page with a real load while an account goes dark, and says what was found.
// make e2e-page runs it: node e2e.mjs BIN OUT, with both binaries and loadtest in BIN. Screenshots
// and the report go to OUT.
import { execFile, spawn } from "node:child_process";
import { createServer } from "node:http";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import path from "node:path";
import { check, checks, judge, launch, problems, same, sleep } from "./checks.mjs";
import { streams } from "./stream.mjs";

const [bin, out] = process.argv.slice(2).map((p) => path.resolve(p));
const run = promisify(execFile);
const work = path.join(out, "work");
rmSync(work, { recursive: true, force: true });
mkdirSync(work, { recursive: true });
const config = path.join(work, "pump.yaml"), token = "a-token-of-the-test-0123456789";

// until waits until f gives something, for at most so many seconds.
async function until(what, seconds, f) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const found = await f();
    if (found) return found;
    if (Date.now() > end) { check(what, false, `not within ${seconds} s`); return found; }
    await sleep(150);
  }
}

// ---- processes

const children = [];
function start(name, args, log) {
  const child = spawn(path.join(bin, name), args, { cwd: work, stdio: ["ignore", "pipe", "pipe"] });
  child.said = "";
  child.stdout.on("data", (d) => { child.said += d; });
  child.stderr.on("data", (d) => { child.said += d; if (log) process.stderr.write(d); });
  child.ended = new Promise((done) => child.on("exit", done));
  children.push(child);
  return child;
}
async function stop(child) {
  child.kill("SIGTERM");
  await child.ended;
}
const distributor = async (...args) => (await run(path.join(bin, "distributor"), [...args, "--config", "pump.yaml"], { cwd: work, maxBuffer: 64 << 20 })).stdout;
const status = async () => JSON.parse(await distributor("status", "--json"));

// ---- the load: a worker that takes its time, and rejects some tasks until it is mended

let mended = false, failing = false, done = 0;
const worker = createServer((request, response) => {
  request.resume();
  setTimeout(() => {
    if (failing) { response.writeHead(500).end("tax service: no answer"); return; }
    const rejects = !mended && /^(Lima|Cairo)/.test(request.headers["queuepump-key"] || "");
    response.writeHead(rejects ? 422 : 200).end(rejects ? "no such city in the register" : "");
    done++;
  }, 40);
});

async function main() {
  await new Promise((up) => worker.listen(0, "127.0.0.1", up));
  const serve = start("loadtest", ["serve", "--accounts", "3", "--queues", "4", "--write-config", "pump.yaml"]);
  await until("the simulator serves", 20, () => /serving until/.test(serve.said));
  const faults = `${/admin\s+(\S+)/.exec(serve.said)[1]}/faults`;
  const tokenFile = path.join(work, "token");
  writeFileSync(tokenFile, `${token}\n`);
  writeFileSync(config, `${readFileSync(config, "utf8")}delivery: once\npage:\n  tokenFile: ${tokenFile}\n`);
  const cities = Array.from({ length: 300 }, (_, i) => ["Oslo", "Lima", "Pune", "Cairo", "Bern", "Kyoto", "Quito", "Turin", "Perth", "Lagos"][i % 10] + (i < 10 ? "" : `-${i}`));
  const lines = [];
  for (let i = 0; i < 40000; i++) {
    const city = i % 997 === 5 ? "Lima" : i % 1499 === 7 ? "Cairo" : cities[(i * 7) % 300].replace(/^(Lima|Cairo)/, "Oslo");
    lines.push(JSON.stringify({ city, id: `task-${i}`, temperature: i % 40 }));
  }
  writeFileSync(path.join(work, "tasks.jsonl"), `${lines.join("\n")}\n`);

  const server = start("distributor", ["page", "--config", "pump.yaml", "--json"]);
  const { url } = JSON.parse(await until("distributor page prints its address", 20, () => /\{.*\}/.exec(server.said)?.[0]));
  start("distributor", ["run", "--config", "pump.yaml", "--input", path.join(work, "tasks.jsonl"), "--key", "city"]);
  const process = (name) => start("processor", ["run", "--config", "pump.yaml", "--http", `http://127.0.0.1:${worker.address().port}/`,
    "--concurrency", "8", "--beat", "1s", "--admin", "127.0.0.1:0"], false);
  const first = process("a");
  process("b");
  await until("tasks are done", 30, () => done > 200);

  const browser = await launch("--host-resolver-rules=MAP evil.example 127.0.0.1");
  try {
    await streams(browser);
    await drive({ browser, url, faults, first, process });
  } finally {
    await browser.close();
  }
}

// ---- the browser

async function watched(browser, url) {
  const page = await browser.newPage();
  const heard = { errors: [], elsewhere: [] };
  page.on("console", (m) => { if (["error", "warn", "warning"].includes(m.type())) heard.errors.push(m.text()); });
  page.on("pageerror", (e) => heard.errors.push(String(e)));
  page.on("request", (r) => { if (!r.url().startsWith(new URL(url).origin) && !r.url().startsWith("data:")) heard.elsewhere.push(r.url()); });
  return { page, heard };
}

const text = (page, selector) => page.$eval(selector, (e) => e.textContent);
const rows = (page, id) => page.$$eval(`#${id} tbody tr`, (trs) => trs.map((tr) => [...tr.children].map((td) => td.textContent)));
const digits = (s) => Number(s.replace(/[^0-9.]/g, ""));
// readAt is when the rows were read that the page shows, by the control account's clock.
const readAt = (page) => page.evaluate(() => window.lastHead && Date.parse(window.lastHead.time));

async function drive({ browser, url, faults, first, process }) {
  const { page, heard } = await watched(browser, url);
  // The stream is heard beside the page, so that it is known which reading the page shows.
  await page.evaluateOnNewDocument(() => {
    const Real = window.EventSource;
    window.EventSource = class extends Real {
      constructor(...args) {
        super(...args);
        this.addEventListener("head", (e) => { window.lastHead = JSON.parse(e.data); });
      }
    };
  });
  await page.setViewport({ width: 1600, height: 1000 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  const began = Date.now();
  await page.goto(url, { waitUntil: "domcontentloaded" });
  await page.waitForFunction(() => /tasks\/s/.test(document.getElementById("headline").textContent), { timeout: 10000 });
  const paint = Date.now() - began;
  check(`first figures after ${paint} ms`, paint < 1000, `${paint} ms`);
  await until("all queues are read", 20, () => page.evaluate(() => window.lastHead.totals.looked === 12));
  await sleep(6000);

  await figuresUnderLoad(page);
  await handOver(page, process);
  await sleep(20000); // for the lines of the charts
  await looks(browser, page, "light", 1600, "page");
  await looks(browser, page, "light", 390, "page-phone");
  await page.setViewport({ width: 1600, height: 1000 });

  await darkAccount(page, faults);
  await quarantine(page);
  await figuresAtRest(page);
  await lastHours(page);
  await keyboard(page);
  await handlersFail(page);
  await processPort(browser, first);
  await attacker(browser, url);

  same("no console error", heard.errors.filter((e) => !/status of 401/.test(e)), []);
  same("no request to elsewhere", heard.elsewhere, []);
}

// figuresUnderLoad: what only grows must lie between two readings of status.
async function figuresUnderLoad(page) {
  const before = await status();
  const after = Date.parse(before.time);
  await until("the page reads after that", 20, async () => (await readAt(page)) > after);
  await sleep(300);
  const [runs, processes, accounts] = [await rows(page, "runs"), await rows(page, "processes"), await cards(page)];
  const later = await status();
  const of = (list, key, value) => list.find((i) => i[key] === value);
  for (const row of runs) {
    const [a, b] = [of(before.runs, "id", row.id) || before.runs[0], later.runs[0]];
    const n = digits(row[4]);
    check("the run's progress is that of status --json", a.exact.done <= n && n <= b.exact.done, `${a.exact.done} <= ${n} <= ${b.exact.done}`);
    same("the run's total", row[5], b.sent.toLocaleString("en"));
  }
  for (const row of processes) {
    const [a, b] = [of(before.instances, "instance", row[0]), of(later.instances, "instance", row[0])];
    if (!a || !b) continue;
    const n = digits(row[7]);
    check(`the tasks of ${row[1]}`, a.tasks <= n && n <= b.tasks, `${a.tasks} <= ${n} <= ${b.tasks}`);
  }
  same("the accounts", accounts.map((a) => a.name), later.accounts.map((a) => a.name));
}

const cards = (page) => page.$$eval(".account", (all) => all.map((e) => ({
  name: e.dataset.account, dark: e.classList.contains("dark"), figures: [...e.querySelectorAll("dd")].map((d) => d.textContent),
  of: e.querySelector(".of b").textContent,
})));

// figuresAtRest: while nothing moves all figures are the same.
async function figuresAtRest(page) {
  await distributor("workload", "pause");
  await until("the processors stand still", 60, async () => (await status()).instances.every((i) => i.role !== "processor" || i.paused));
  let settled = await status();
  await until("the page shows the pause", 20, async () => /^Paused since/.test(await text(page, "#headline")));
  await sleep(5000);
  const n = (x) => x.toLocaleString("en");
  for (let tries = 0; ; tries++) { // a look that falls between two readings is made again
    settled = await status();
    await until("the page reads after that", 20, async () => (await readAt(page)) > Date.parse(settled.time) + 2500);
    await sleep(200);
    const share = (a) => { const p = (100 * a.demand) / a.limit; if (p > 0 && p < 0.05) return "<0.1 %"; return `${p < 9.95 ? p.toFixed(1) : Math.round(p)} %`; };
    const depth = (d) => [(d.bounds ? "≥" : "") + n(d.visible), (d.bounds ? "≤" : "") + n(d.inFlight)];
    const want = {
      queues: settled.accounts.flatMap((a) => a.byQueue.map((q) => [a.name, q.queue, ...depth(q)])),
      accounts: settled.accounts.map((a) => [a.name, ...depth(a), n(a.poison), share(a)]),
      runs: settled.runs.map((r) => [r.id.slice(0, 12), r.state, n(r.exact.done), n(r.sent), n(r.exact.remaining)]),
      processes: settled.instances.map((i) => [i.instance, i.role === "processor" ? n(i.segments) : "", n(i.tasks)]),
    };
    const [q, a, r, p] = [await rows(page, "queues"), await cards(page), await rows(page, "runs"), await rows(page, "processes")];
    const got = {
      queues: q.map((c) => c.slice(0, 4)),
      accounts: a.map((c) => [c.name, c.figures[0], c.figures[1], c.figures[3], c.of]),
      runs: r.map((c) => [c[0], c[1], c[4], c[5], c[6]]),
      processes: p.map((c) => [c[0], c[3], c[7]]),
    };
    const equal = JSON.stringify(got) === JSON.stringify(want);
    if (!equal && tries < 3) continue;
    for (const part of Object.keys(want)) same(`at rest, ${part} are those of status --json`, got[part], want[part]);
    break;
  }
  await moneyByOperation(page);
  await distributor("workload", "resume");
}

// moneyByOperation: what was asked on the day only grows, so it lies between two readings of status.
async function moneyByOperation(page) {
  const counts = (s) => Object.fromEntries(s.money.operations.map((o) => [o.operation, o]));
  const before = await status();
  await until("the page reads after that", 20, async () => (await readAt(page)) > Date.parse(before.time) + 1000);
  await sleep(300);
  const shown = await rows(page, "kinds-table");
  const later = await status();
  const [a, b] = [counts(before), counts(later)];
  // A kind of which a few are asked may come between two readings.
  const kinds = shown.map((r) => r[0]);
  check("the kinds of requests are those of status --json",
    Object.keys(a).every((k) => kinds.includes(k)) && kinds.every((k) => k in b),
    `${Object.keys(a)} <= ${kinds} <= ${Object.keys(b)}`);
  for (const [operation, , perMinute, , today, cost] of shown) {
    const n = digits(today), [from, to] = [a[operation]?.requests ?? 0, b[operation].requests];
    check(`${operation}: requests and cost of the day`, from <= n && n <= to && digits(cost) <= b[operation].cost * 1.06, `${from} <= ${n} <= ${to}, ${cost}`);
    check(`${operation}: requests a minute`, /^[0-9.,]+$/.test(perMinute), perMinute);
  }
  const sum = later.money.operations.reduce((all, o) => all + o.cost, 0);
  check("they add up to the day's cost", Math.abs(sum / later.money.dayCost - 1) < 1e-6, `${sum}, ${later.money.dayCost}`);
}

async function handOver(page, process) {
  const before = await page.$$eval("#legend li", (l) => l.map((e) => e.textContent));
  const picture = () => page.$eval("#owners", (c) => c.toDataURL());
  const was = await picture();
  process("c");
  await until("a hand-over is told", 40, async () => !/None since/.test(await text(page, "#moves")));
  await until("the picture moves", 5, async () => (await picture()) !== was);
  await until("three owners", 40, () => page.$$eval("#legend li", (l) => l.length === 3));
  check("a hand-over is seen to move", before.length === 2, JSON.stringify(before));
  const label = await page.$eval("#owners", (c) => c.getAttribute("aria-label"));
  check("the picture has a text", /segments by owner: .+ \d+, .+ \d+, .+ \d+/.test(label), label);
}

async function darkAccount(page, faults) {
  await fetch(faults, { method: "PUT", body: JSON.stringify({ faults: [{ fault: "dark", account: "simulated2" }] }) });
  await until("the headline names the dark account", 30, async () => /simulated2, which does not answer/.test(await text(page, "#headline")));
  same("the dark account's card", (await cards(page)).filter((a) => a.dark).map((a) => a.name), ["simulated2"]);
  same("the tone", await page.$eval("body", (b) => b.dataset.tone), "bad");
  const s = await status();
  same("status --json says so too", s.accounts.filter((a) => a.dark).map((a) => a.name), ["simulated2"]);
  await looks(page.browser(), page, "dark", 1600, "page-dark");
  await looks(page.browser(), page, "dark", 390, null);
  await page.setViewport({ width: 1600, height: 1000 });
  await fetch(faults, { method: "DELETE" });
  await until("the account is there again", 30, async () => (await cards(page)).every((a) => !a.dark));
}

// handlersFail: a page is not green while every handler fails, and says why, and of which task.
async function handlersFail(page) {
  failing = true;
  const more = start("distributor", ["run", "--config", "pump.yaml", "--input", path.join(work, "tasks.jsonl"), "--key", "id"]);
  await until("the headline says that handlers fail", 60, async () => /handlers fail: .*tax service: no answer.*\(task /.test(await text(page, "#headline")));
  same("the tone of handlers that fail", await page.$eval("body", (b) => b.dataset.tone), "bad");
  check("status --json says so too", /handlers fail: .*tax service/.test((await status()).headline.text));
  await looks(page.browser(), page, "light", 1600, "page-failing");
  failing = false;
  await stop(more);
  await until("the headline says it no longer", 60, async () => !/handlers fail/.test(await text(page, "#headline")));
}

async function quarantine(page) {
  await until("quarantine is shown by cause", 40, () => page.$(".cause"));
  check("the cause and a sample", /rejected/.test(await text(page, "#causes")) && /no such city/.test(await text(page, "#causes")), await text(page, "#causes"));
  check("no key or body without the token", !/task-\d/.test(await text(page, "#quarantine")));
  const press = async (act) => page.$eval(`[data-act="${act}"]`, (b) => b.click());
  await page.type("#token", "a-wrong-token-of-16");
  await press("try rejected");
  await until("a wrong token is refused", 10, async () => /token is wrong/.test(await text(page, "#act-problem")));
  await page.$eval("#token", (i) => { i.value = ""; });
  await page.type("#token", token);
  await sleep(1200); // wrong tokens are taken at a rate
  await press("show rejected");
  await until("tasks are shown with the token", 10, async () => /Lima|Cairo/.test(await text(page, "#causes pre").catch(() => "")));
  await press("try rejected");
  const said = await until("a trial says what would be done", 20, async () => { const t = await text(page, "#acted"); return /would be put back\./.test(t) && t; });
  const would = /: ([\d,]+) messages? with/.exec(said)?.[1];
  // The count that is shown may be some seconds old.
  await until("a trial changes nothing", 20, async () => digits(await text(page, "#poison")) >= digits(would));
  mended = true;
  await page.$eval("#acted .strong", (b) => b.click());
  await until("the redrive is told", 30, async () => /were put back/.test(await text(page, "#acted")));
  const did = /: ([\d,]+) messages? with/.exec(await text(page, "#acted"))?.[1];
  same("as many are redriven as were tried", did, would);
}

// lastHours: the keyboard chooses how far back the charts reach, a reader of the screen is told, and
// the page stays as it is.
async function lastHours(page) {
  await page.evaluate(() => { window.stays = true; });
  const label = () => page.$eval("#throughput-chart", (e) => e.getAttribute("aria-label"));
  const asked = () => page.evaluate(() => performance.getEntriesByType("resource").filter((r) => r.name.endsWith("/page/hours")).length);
  same("the last hours are not asked for until they are chosen", await asked(), 0);
  await page.focus("#reach input:checked");
  await page.keyboard.press("ArrowRight");
  await until("the charts reach back six hours", 10, async () => /^Tasks a second over the last six hours: now/.test(await label()));
  await until("the rows of the last hours come", 10, async () => (await asked()) > 0);
  // One who samples writes the first row within two minutes, and the page asks again each minute.
  await until("rows of the last hours are shown", 150, async () => (await text(page, "#reach-note")) === "");
  same("the heading says so", await text(page, "#h-throughput"), "The last six hours");
  const tree = JSON.stringify(await page.accessibility.snapshot());
  check("a reader of the screen has the choice", /"role":"radio","name":"6 hours"[^}]*"checked":true/.test(tree), tree.match(/\{[^{}]*"radio"[^}]*\}/g)?.join());
  await page.keyboard.press("ArrowLeft");
  await until("and back to the last minutes", 10, async () => /^Tasks a second over the last minutes: now/.test(await label()));
  same("the page was not loaded again", await page.evaluate(() => window.stays), true);
}

async function keyboard(page) {
  await page.reload({ waitUntil: "domcontentloaded" });
  await page.waitForSelector("#legend button");
  await page.keyboard.press("Tab");
  same("the first stop of the keyboard", await page.evaluate(() => document.activeElement.className), "skip");
  await page.keyboard.press("Enter");
  same("it leads to the figures", await page.evaluate(() => document.activeElement.id), "main");
  await page.focus("#legend button");
  await page.keyboard.press("Space");
  same("an owner is chosen by the keyboard", await page.$eval("#legend button", (b) => b.getAttribute("aria-pressed")), "true");
  await page.keyboard.press("Space");
}

// looks judges the page at a width and in a theme, and takes a picture of it.
async function looks(browser, page, theme, width, picture) {
  await judge(page, "", theme, width);
  if (!picture) return;
  if (width > 500) { // smaller pictures for the documents
    await page.setViewport({ width, height: 1000, deviceScaleFactor: 0.75 });
    await sleep(700);
  }
  const full = await page.evaluate(() => document.documentElement.scrollHeight);
  await page.screenshot({ path: path.join(out, `${picture}.png`), clip: { x: 0, y: 0, width, height: Math.min(full, width < 500 ? 2600 : 1750) }, captureBeyondViewport: true });
}

// processPort: every process serves the same page on its admin port.
async function processPort(browser, processor) {
  const address = /address=(\S+)/.exec(processor.said)[1];
  const { page, heard } = await watched(browser, `http://${address}/page/`);
  await page.goto(`http://${address}/page/`, { waitUntil: "domcontentloaded" });
  await until("a processor's page shows the workload", 15, async () => /demo/.test(await text(page, "#workload")));
  same("no console error there", heard.errors, []);
  await page.close();
}

// attacker: a page of another origin in the same browser can do nothing, and learns nothing.
async function attacker(browser, url) {
  const origin = new URL(url).origin;
  const evil = createServer((_, response) => response.writeHead(200, { "Content-Type": "text/html" }).end("<!doctype html><title>evil</title>"));
  await new Promise((up) => evil.listen(0, "127.0.0.1", up));
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${evil.address().port}/`);
  const tried = await page.evaluate(async (origin, token) => {
    const body = JSON.stringify({ cause: "rejected" });
    const attempt = (o) => fetch(`${origin}/page/redrive`, { method: "POST", body, ...o }).then((r) => `status ${r.status}`, () => "failed");
    const stream = await new Promise((done) => {
      const s = new EventSource(`${origin}/page/events`);
      s.onmessage = s.onopen = () => done("opened");
      s.onerror = () => { s.close(); done("failed"); };
    });
    const framed = await new Promise((done) => {
      const f = document.createElement("iframe");
      f.src = `${origin}/page/`;
      f.onload = () => { try { done(f.contentDocument === null ? "closed" : "open"); } catch { done("closed"); } };
      document.body.append(f);
    });
    return {
      withToken: await attempt({ headers: { "X-Queuepump-Token": token, "Content-Type": "application/json" } }),
      simple: await attempt({ headers: { "Content-Type": "text/plain" } }),
      blind: await fetch(`${origin}/page/redrive`, { method: "POST", body, mode: "no-cors" }).then((r) => r.type, () => "failed"),
      read: await fetch(`${origin}/page/`).then(() => "read", () => "failed"),
      stream, framed,
    };
  }, origin, token);
  same("an attacker's page gets nothing", { ...tried, blind: "" }, { withToken: "failed", simple: "failed", blind: "", read: "failed", stream: "failed", framed: "closed" });
  const rebound = await page.goto(`http://evil.example:${new URL(url).port}/page/`);
  same("a name that is pointed here is refused", rebound.status(), 421);
  await page.close();
  evil.close();
  same("and nothing was begun by it", server_said(), "");
}
const server_said = () => children.map((c) => c.said).filter((s) => /redrive was asked/.test(s)).flatMap((s) => s.match(/redrive was asked[^\n]*/g)).slice(2).join("\n").replace(/^$/, "");

let failed = null;
try {
  await main();
} catch (e) {
  failed = e;
}
worker.close();
worker.closeAllConnections();
for (const child of children.reverse()) await Promise.race([stop(child), sleep(8000).then(() => child.kill("SIGKILL"))]);
if (failed) console.error(failed);
console.log(`${checks.length} checks, ${problems.length} problems${failed ? ", and it broke off" : ""}`);
if (failed || problems.length) for (const c of children) if (/WARN|ERROR|panic/.test(c.said)) console.error(c.said.split("\n").filter((l) => /WARN|ERROR|panic/.test(l)).slice(0, 10).join("\n"));
process.exit(failed || problems.length ? 1 : 0);
