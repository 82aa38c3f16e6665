// The buy button without a page change. While the request waits for the lock of the product, the
// page asks once a second for its place in the line. A busy shop (423), one whose lock service is
// down (503) or one that lost its lock on the way (409 with Retry-After) says when to come back: the
// page asks again by itself, with the same idempotency key, so that no answer that got lost on the
// way can buy twice.
"use strict";

const form = document.getElementById("buy");
const button = form.querySelector("button");
const message = document.getElementById("message");
const stock = document.getElementById("stock");
const line = document.getElementById("line");
const texts = document.getElementById("texts").dataset;
const TRIES = 10;
const LOST_ANSWER_SECONDS = 2;
const REASONS = { 409: texts.still, 423: texts.busy };

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

function say(text, tone = "", link = null) {
  // A screen reader reads what changes, and only that.
  if (!link && message.textContent === text) return;
  message.textContent = text;
  message.className = `message ${tone}`;
  if (link) {
    const a = document.createElement("a");
    a.href = link.url;
    a.textContent = link.text;
    message.append(" ", a);
  }
}

function showStock(left) {
  stock.classList.toggle("gone", left < 1);
  if (left < 1) {
    stock.textContent = texts.gone;
    return;
  }
  const [before, after] = texts.left.split("{left}");
  const number = document.createElement("strong");
  number.textContent = left;
  stock.replaceChildren(before, number, after);
}

function showPlace(place) {
  // The length of the way is the first place that is known.
  if (line.hidden) line.max = place + 1;
  line.value = line.max - place;
  line.hidden = false;
  say(place > 0 ? texts.waiting.replace("{place}", place) : texts.till);
}

async function followLine(signal) {
  // Most answers come before the first look: a short line needs none.
  for (let seconds = 0.3; ; seconds = 1) {
    await pause(seconds);
    if (signal.aborted) return;
    try {
      const response = await fetch(form.dataset.line, { signal });
      const { place } = response.ok ? await response.json() : { place: null };
      if (place !== null && !signal.aborted) showPlace(place);
    } catch {
      // The answer to the purchase counts, not this one.
    }
  }
}

async function comeBack(seconds, reason) {
  line.hidden = true;
  say(reason.replace("{seconds}", seconds));
  await pause(seconds);
  say(texts.asking);
}

async function post() {
  const following = new AbortController();
  followLine(following.signal);
  try {
    return await fetch(form.action, {
      method: "POST",
      body: new FormData(form),
      headers: { Accept: "application/json" },
    });
  } catch {
    return null; // no answer: the order may exist or not; the same key finds out
  } finally {
    following.abort();
  }
}

async function buy() {
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    const response = await post();
    if (response === null) {
      await comeBack(LOST_ANSWER_SECONDS, texts.lost);
      continue;
    }
    if (response.headers.has("Retry-After")) {
      const seconds = Number.parseInt(response.headers.get("Retry-After"), 10) || 1;
      await comeBack(seconds, REASONS[response.status] || texts.closed);
      continue;
    }
    const isJson = response.headers.get("Content-Type")?.includes("json");
    return { ok: response.ok, ...(isJson ? await response.json() : {}) };
  }
  return { ok: false, detail: texts.late };
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  button.disabled = true;
  say(texts.asking);
  const answer = await buy();
  line.hidden = true;
  if (typeof answer.left === "number") showStock(answer.left);
  if (answer.ok) {
    // The button stays off: this page's key has been used.
    const link = { url: answer.url, text: texts.receipt };
    say(texts.yours.replace("{order}", answer.order), "good", link);
  } else {
    say(answer.detail || texts.wrong, "bad");
    button.disabled = answer.left < 1;
  }
});
