// Looks at the page of a load test, and at that of two compared, as a browser shows them.
// make e2e-report runs it: node report.mjs BIN OUT, with loadtest in BIN. Screenshots go to OUT.
import { execFile } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { promisify } from "node:util";
import path from "node:path";
import { check, checks, judge, launch, problems, same } from "./checks.mjs";

const [bin, out] = process.argv.slice(2).map((p) => path.resolve(p));
const run = promisify(execFile);
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

// saved is the file of a short load test in virtual time. Two of one second have the same name, so each
// has its folder.
async function saved(rate) {
  const { stdout } = await run(path.join(bin, "loadtest"),
    ["run", "burst", "--virtual", "--accounts", "2", "--queues", "1", "--rate", String(rate), "--duration", "20s", "--out", path.join(out, String(rate))]);
  return /the report is in (\S+);/.exec(stdout)[1];
}

async function look(browser, name, file, plots) {
  const page = await browser.newPage();
  const heard = [];
  page.on("console", (m) => { if (["error", "warn", "warning"].includes(m.type())) heard.push(m.text()); });
  page.on("pageerror", (e) => heard.push(String(e)));
  page.on("request", (r) => { if (r.url() !== `file://${file}`) heard.push(`asks for ${r.url()}`); });
  await page.goto(`file://${file}`);
  for (const theme of ["light", "dark"]) {
    for (const width of [1600, 390]) await judge(page, `${name}, `, theme, width);
    const seen = await page.evaluate(() => [...document.querySelectorAll(".plot")].map((plot) => {
      // How bright the card is, how much of the picture is clear, and how many of its points are
      // read on the card.
      const bright = (r, g, b) => (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
      const card = bright(...getComputedStyle(plot.closest("figure")).backgroundColor.match(/[\d.]+/g).map(Number));
      const canvas = plot.querySelector("canvas");
      if (!canvas) return { card, read: 0, clear: 0 };
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let read = 0, clear = 0;
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] === 0) clear++;
        else if (data[i + 3] > 128 && Math.abs(bright(data[i], data[i + 1], data[i + 2]) - card) > 0.4) read++;
      }
      return { card, read, clear: clear / (data.length / 4) };
    }));
    check(`${name}, ${theme}: ${seen.length} plots are there`, seen.length >= plots, `${seen.length}`);
    for (const [i, s] of seen.entries()) {
      check(`${name}, ${theme}: plot ${i + 1} lies on its card, and is read there`,
        (theme === "dark") === s.card < 0.5 && s.clear > 0.5 && s.read > 500, JSON.stringify(s));
    }
    await page.setViewport({ width: 1200, height: 1000 });
    await page.screenshot({ path: path.join(out, `${name}-${theme}.png`), fullPage: true });
  }
  same(`${name}: no error, and no request to elsewhere`, heard, []);
  await page.close();
}

let failed = null;
const browser = await launch();
try {
  const [one, two] = [await saved(40), await saved(60)];
  const pages = { result: path.join(out, "one.html"), comparison: path.join(out, "both.html") };
  await run(path.join(bin, "loadtest"), ["report", "--html", one, "--to", pages.result]);
  await run(path.join(bin, "loadtest"), ["report", "--html", one, two, "--to", pages.comparison]);
  await look(browser, "result", pages.result, 4);
  await look(browser, "comparison", pages.comparison, 2);
} catch (e) {
  failed = e;
} finally {
  await browser.close();
}
if (failed) console.error(failed);
console.log(`${checks.length} checks, ${problems.length} problems${failed ? ", and it broke off" : ""}`);
process.exit(failed || problems.length ? 1 : 0);
