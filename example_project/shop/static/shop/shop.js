// The buy button without a page change. A busy shop (423), one whose lock service is down (503) or
// one that lost its lock on the way (409 with Retry-After) says when to come back: the button counts down and asks again by itself, with the same
// idempotency key, so that no answer that got lost on the way can buy twice.
"use strict";

const form = document.getElementById("buy");
const button = form.querySelector("button");
const message = document.getElementById("message");
const stock = document.getElementById("stock");
const label = button.textContent;
const TRIES = 10;
const LOST_ANSWER_SECONDS = 2;
const REASONS = {
  409: "The shop stood still for a moment. You will not be charged twice.",
  423: "Many people are buying this right now.",
};

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

function say(text, tone = "", link = null) {
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
  stock.textContent = left < 1 ? "Sold out" : " left";
  if (left >= 1) {
    const number = document.createElement("strong");
    number.textContent = left;
    stock.prepend(number);
  }
}

async function countDown(seconds, reason) {
  say(reason);
  const end = performance.now() + seconds * 1000;
  for (let left = seconds; left > 0; left = Math.ceil((end - performance.now()) / 1000)) {
    button.textContent = `Trying again in ${left} s`;
    await pause(Math.min(1, (end - performance.now()) / 1000));
  }
  button.textContent = "Buying …";
}

async function post() {
  try {
    return await fetch(form.action, {
      method: "POST",
      body: new FormData(form),
      headers: { Accept: "application/json" },
    });
  } catch {
    return null; // no answer: the order may exist or not; the same key finds out
  }
}

async function buy() {
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    const response = await post();
    if (response === null) {
      await countDown(LOST_ANSWER_SECONDS, "The connection was lost. You will not be charged twice.");
      continue;
    }
    if (response.headers.has("Retry-After")) {
      const seconds = Number.parseInt(response.headers.get("Retry-After"), 10) || 1;
      await countDown(seconds, REASONS[response.status] || "The shop cannot sell for a moment.");
      continue;
    }
    const isJson = response.headers.get("Content-Type")?.includes("json");
    return { ok: response.ok, ...(isJson ? await response.json() : {}) };
  }
  return { ok: false, detail: "Still busy. Nothing was charged; please try again." };
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  button.disabled = true;
  button.textContent = "Buying …";
  say("");
  const answer = await buy();
  if (typeof answer.left === "number") showStock(answer.left);
  button.textContent = label;
  if (answer.ok) {
    // The button stays off: this page's key has been used.
    say(`Order ${answer.order} is yours.`, "good", { url: answer.url, text: "See the receipt" });
  } else {
    say(answer.detail || "Something went wrong. Please try again.", "bad");
    button.disabled = answer.left < 1;
  }
});
