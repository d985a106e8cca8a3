// What the drives of a browser share: checks that are counted, the browser, and what a page must be in
// every theme and width.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import puppeteer from "puppeteer-core";

const chromium = process.env.CHROMIUM || "/usr/bin/chromium";
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const problems = [], checks = [];
export function check(what, ok, detail = "") {
  checks.push(what);
  console.log(`${ok ? "ok  " : "FAIL"} ${what}${ok || !detail ? "" : `\n     ${detail}`}`);
  if (!ok) problems.push(`${what}: ${detail}`);
}
export const same = (what, got, want) => check(what, JSON.stringify(got) === JSON.stringify(want), `got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export const launch = (...args) => puppeteer.launch({
  executablePath: chromium, headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb", ...args],
});

// judge has a page shown in a theme and at a width, and judges it by axe-core.
export async function judge(page, what, theme, width) {
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
  await page.setViewport({ width, height: width < 500 ? 844 : 1000, isMobile: width < 500, hasTouch: width < 500 });
  await sleep(1500);
  await page.evaluate(() => scrollTo(0, 0));
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check(`${what}${theme}, ${width} wide: nothing is wider than the screen`, wide <= width, `${wide}`);
  await page.evaluate(axe);
  const found = await page.evaluate(async () => (await window.axe.run(document)).violations
    .filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html).join(" | ")}`));
  same(`${what}${theme}, ${width} wide: axe-core finds nothing serious`, found, []);
}
