// Shows the page with a stream that says what a workload seldom does: it is refused, it breaks off, it
// says nothing, or it says what the page's script does not know. e2e.mjs does this too; by itself it
// is run so: node stream.mjs
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import path from "node:path";
import { check, launch, problems, same, sleep } from "./checks.mjs";

const shared = path.join(path.dirname(fileURLToPath(import.meta.url)), ".."); // what all pages share
const assets = path.join(shared, "assets");
const kinds = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };

const headOf = (text, more) => ({
  workload: "demo", time: new Date().toISOString(), localClock: false, delivery: "once", segments: 0, shared: false, mapVersion: 1,
  settled: true, spilled: 0, unowned: 0, distribution: { phase: "none" }, ends: null, ledger: null, problems: [], notRead: [], requests: 1,
  old: false, version: "one", headline: { text, tone: "good", tasksPerSecond: 1, account: "", part: 0, heldBackBy: "" },
  totals: { messages: 0, visible: 0, inFlight: 0, bounds: false, oldestSeconds: null, quarantined: 0, processors: 1, distributors: 0, silent: 0, accounts: 1, dark: 0, queues: 0, looked: 0 },
  ...more,
});

// serve serves the page's files, and a stream to all who watch.
async function serve() {
  const s = { refuse: 0, open: new Set(), answers: {} };
  const server = createServer((request, response) => {
    const name = new URL(request.url, "http://x").pathname.replace(/^\/page\//, "");
    if (name === "events") {
      if (s.refuse > 0) { s.refuse--; response.writeHead(502).end(); return; }
      response.writeHead(200, { "Content-Type": "text/event-stream" }).write("retry: 200\n\n");
      s.open.add(response);
      response.on("close", () => s.open.delete(response));
      response.write(s.first || "");
    } else if (s.answers[name]) {
      response.writeHead(s.answers[name].status, { "Content-Type": "application/json" }).end(JSON.stringify(s.answers[name].body));
    } else {
      try {
        const file = path.basename(name) || "page.html";
        let body = readFileSync(path.join(file.startsWith("uPlot.") ? shared : assets, file));
        if (file === "page.css") body = readFileSync(path.join(shared, "tokens.css")) + body;
        response.writeHead(200, { "Content-Type": kinds[path.extname(file)] }).end(body);
      } catch {
        response.writeHead(404).end();
      }
    }
  });
  await new Promise((up) => server.listen(0, "127.0.0.1", up));
  s.url = `http://127.0.0.1:${server.address().port}/page/`;
  const event = (part, data) => `event: ${part}\ndata: ${JSON.stringify(data)}\n\n`;
  s.begin = (part, data) => { s.first = event(part, data); };
  s.send = (part, data) => { for (const r of s.open) r.write(event(part, data)); };
  s.breakOff = () => { for (const r of s.open) r.destroy(); };
  s.close = () => { server.close(); server.closeAllConnections(); };
  return s;
}

const text = (page, selector) => page.$eval(selector, (e) => e.textContent);

export async function streams(browser) {
  const s = await serve();
  const page = await browser.newPage();
  // The page's time can be moved on.
  await page.evaluateOnNewDocument(() => {
    const now = Date.now.bind(Date);
    window.ahead = 0;
    Date.now = () => now() + window.ahead;
  });
  const within = async (what, ms, f) => {
    const end = Date.now() + ms;
    while (!(await f())) {
      if (Date.now() > end) { check(what, false, `not within ${ms} ms`); return; }
      await sleep(100);
    }
    check(what, true);
  };
  const says = (what, ms = 9000) => within(`the page comes to say “${what}”`, ms, async () => (await text(page, "#headline")) === what);
  try {
    for (const look of looks) await look({ page, s, says, within });
  } finally {
    await page.close();
    s.close();
  }
}

const looks = [refused, silent, upgraded, tried, capped, byKind, backwards, ownerless, unread];

// refused: a stream that is answered with a 502 or a 503 comes back.
async function refused({ page, s, says }) {
  s.begin("head", headOf("after a refusal"));
  s.refuse = 1;
  await page.goto(s.url, { waitUntil: "domcontentloaded" });
  await says("after a refusal");
  s.begin("head", headOf("after a restart"));
  s.refuse = 2;
  s.breakOff();
  await says("after a restart", 14000);
  same("and it is live again", await text(page, "#live"), "live");
}

// silent: while rows cannot be read nothing changes, and the stream says that it lives.
async function silent({ page, s, says }) {
  s.send("head", headOf("the rows cannot be read", { old: true }));
  await says("the rows cannot be read");
  const live = async () => { await sleep(2500); return text(page, "#live"); };
  await page.evaluate(() => { window.ahead += 60000; });
  same("a stream that says nothing for a minute is lost", await live(), "connection lost, trying again");
  s.send("alive", {});
  same("one that lives is not, however old the rows are", await live(), "rows cannot be read now");
}

// upgraded: a part that the script cannot draw hides no other, and a page of another version is loaded.
async function upgraded({ page, s, says, within }) {
  await page.evaluate(() => { window.stays = true; });
  s.send("runs", null);
  await sleep(500);
  s.send("head", headOf("after a part that cannot be drawn"));
  await says("after a part that cannot be drawn");
  same("the page was not loaded again", await page.evaluate(() => window.stays), true);
  s.begin("head", headOf("of another version", { version: "two" }));
  s.send("head", headOf("of another version", { version: "two" }));
  await within("a page of another version is loaded", 9000, () => page.evaluate(() => window.stays === undefined).catch(() => false));
  await says("of another version");
}

// tried: what a trial says stays, with the button that goes on, whatever else is asked meanwhile.
async function tried({ page, s, within }) {
  s.send("quarantine", { groups: [{ cause: "rejected", messages: 3, tasks: 3, stuck: 0, samples: [] }], dark: [], messages: 3, shown: 3, error: "" });
  s.send("act", { can: true, id: "a-trial", dry: true, running: false, cause: "rejected", messages: 3, tasks: 3, kept: 0, keptWhy: [], error: "" });
  const button = () => page.$eval("#acted .strong", (b) => b.checkVisibility()).catch(() => false);
  await within("a trial has its button", 3000, button);
  const show = () => page.$eval('[data-act="show rejected"]', (b) => b.click());
  s.answers.samples = { status: 401, body: { error: "the token is wrong" } };
  await show();
  await within("a wrong token is told", 3000, async () => /token is wrong/.test(await text(page, "#act-problem").catch(() => "")));
  same("a wrong token leaves the button", await button(), true);
  s.answers.samples = { status: 200, body: { tasks: [{ account: "a", id: "1", key: "Lima", body: "{}" }], error: "" } };
  await show();
  await within("tasks are shown", 3000, async () => /Lima/.test(await text(page, "#causes pre").catch(() => "")));
  same("tasks that are shown leave the button", await button(), true);
  same("and take the problem away", await page.$eval("#act-problem", (e) => e.hidden).catch(() => null), true);
}

// capped: the page says what the status does of the cap of a day.
async function capped({ page, s, within }) {
  s.send("money", { prices: { currency: "USD", queue: 0.004, table: 0.00036, source: "a list", date: "2026-08" }, day: "2026-01-02", dayCost: 0.0042, costPerDayNow: 1, capPerDay: 2,
    leastPerDay: 0.25, slowed: 2, holdBack: 1, operations: [], accounts: [], spending: "at most 2.00 USD a day, so gets are held back by 1 processor" });
  await within("the page says what the cap does", 3000, async () => /so gets are held back by 1 processor/.test(await text(page, "#money")));
  same("and as of when the prices are", await text(page, "#prices").then((t) => /: a list, as of 2026-08\.$/.test(t)), true);
  same("and what a day costs at the least", /at least 0.25 USD/.test(await text(page, "#money-sums")), true);
}

// byKind: the page says what each kind of request costs, now and on the day, and of each account.
async function byKind({ page, s, within }) {
  const get = { operation: "get", service: "queue", requests: 12345, cost: 0.0049, perMinuteNow: 20.4, costPerMinuteNow: 0.00000816 };
  const read = { operation: "read", service: "table", requests: 1, cost: 0.000000036, perMinuteNow: 0, costPerMinuteNow: 0 };
  const rest = { operation: "", service: "queue", requests: 3, cost: 0.0000012, perMinuteNow: null, costPerMinuteNow: null };
  s.send("money", { prices: { currency: "USD", queue: 0.004, table: 0.00036, source: "a list", date: "2026-08" }, day: "2026-01-02", dayCost: 0.0042, costPerDayNow: 1, capPerDay: null,
    leastPerDay: 0, slowed: 0, holdBack: 0, operations: [read, get, rest], spending: "", accounts: [
      { name: "alpha", requests: { queue: 12345, table: 1 }, cost: 0.0049, operations: [read, get] },
      { name: "beta", requests: { queue: 3, table: 0 }, cost: 0.0000012, operations: [] },
    ] });
  const rows = (selector) => page.$$eval(`${selector} tbody tr`, (list) => list.map((r) => [...r.children].map((c) => c.textContent)));
  await within("the page says what kinds of requests were made", 3000, async () => (await rows("#kinds-table")).length === 3);
  same("the kinds that cost most come first, with figures as known", await rows("#kinds-table"), [
    ["get", "queues", "20", "0.0000082 USD", "12,345", "0.0049 USD"], ["not known", "queues", "", "", "3", "0.0000012 USD"],
    ["read", "tables", "0", "0.00 USD", "1", "0.00000004 USD"],
  ]);
  same("and by account", (await rows("#money-table")).map((r) => r[4]), ["get 12,345, read 1", ""]);
  same("the table has a name and heads for those who hear it", await page.$eval("#kinds-table", (e) =>
    [e.querySelector("caption").textContent, e.querySelectorAll("th[scope=col]").length, e.querySelector("[role=region]").tabIndex]), ["Requests and cost by operation", 6, 0]);
}

// backwards: a clock of the service that goes back stops nothing: what comes last is the newest.
async function backwards({ page, s, within }) {
  const now = Math.floor(Date.now() / 1000);
  const chart = (times, rates) => ({ times, rate: rates, messages: rates, accounts: { alpha: rates }, limits: { alpha: 100 } });
  const shown = async () => /now ([0-9.]+)/.exec(await page.$eval("#throughput-chart", (e) => e.getAttribute("aria-label") || ""))?.[1];
  const says = (what, want) => within(what, 3000, async () => (await shown()) === want);
  s.send("past", chart([now - 20, now - 10, now], [11, 12, 13]));
  await says("the chart has what was seen", "13");
  s.send("point", chart([now - 600], [21]));
  await says("what comes after the clock went back is drawn", "21");
  s.send("point", chart([now - 595], [22]));
  await says("and what comes then", "22");
  s.answers.hours = { status: 200, body: { ...chart([now - 7200, now - 3600, now], [1, 2, 3]), problem: "" } };
  await page.$eval('#reach input[value="hours"]', (e) => e.click());
  await sleep(1000);
  await says("in six hours too", "22");
  s.send("point", chart([now - 590], [23]));
  await says("and what comes there", "23");
  await page.$eval('#reach input[value="minutes"]', (e) => e.click());
}

// ownerless: many segments without owners are drawn with few looks at the styles, and owners that
// come after many others have colours that can be told apart.
async function ownerless({ page, s, within }) {
  await page.evaluate(() => {
    const real = window.getComputedStyle;
    window.styles = 0;
    window.getComputedStyle = (...args) => { window.styles++; return real(...args); };
  });
  s.send("head", headOf("segments have no owners", { segments: 4096, version: "two" }));
  s.send("owners", { names: [], cells: new Array(4096).fill(-1), moves: [] });
  await within("the segments are drawn", 3000, async () => /4,096/.test(await page.$eval("#owners", (c) => c.getAttribute("aria-label"))));
  await sleep(300);
  const styles = await page.evaluate(() => window.styles);
  check("the styles are looked at a few times a picture", styles > 0 && styles < 200, `${styles}`);
  const colours = new Set();
  for (let i = 0; i < 30; i++) {
    s.send("owners", { names: [`p${i}`], cells: [0, 0, 0, 0], moves: [] });
    await page.waitForFunction((name) => document.getElementById("owners").getAttribute("aria-label").includes(name), { timeout: 3000 }, `p${i} `);
    colours.add(await page.$eval("#legend .swatch", (e) => e.style.background));
  }
  check("owners that come after many others have colours of the palette", colours.size <= 12, [...colours].join(" "));
}

// unread: a part that could not be read says as of when it is, until it can be.
async function unread({ page, s, says }) {
  const asOf = new Date();
  s.send("head", headOf("parts cannot be read", { version: "two", notRead: [{ part: "keys", asOf }, { part: "gates", asOf: null }, { part: "time", asOf: null }] }));
  await says("parts cannot be read");
  const at = asOf.toLocaleTimeString("en-GB");
  same("a part that cannot be read says as of when it is", await text(page, "#keys-old").catch(() => ""), `The keys are as of ${at}, cannot be read now.`);
  same("or that it is not known", await text(page, "#gates-old").catch(() => ""), "The gates are not known, cannot be read now.");
  s.send("head", headOf("all can be read", { version: "two" }));
  await says("all can be read");
  same("until it can be read", await page.$eval("#keys-old", (e) => e.hidden).catch(() => null), true);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const browser = await launch();
  await streams(browser);
  await browser.close();
  process.exit(problems.length ? 1 : 0);
}
