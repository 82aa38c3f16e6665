/* Runs the clocks of the lock pages, and puts in what is new there every other second.

Parts are elements with `data-live`; the answer has elements of the same ids. What has not changed
is left alone, so focus, selection and scrolling stay. Ages are counted here, so that the answer
stays the same, and is none, while nothing changes. Without this file the page is complete. */
"use strict";

(() => {
  const page = document.getElementById("distlock-live");
  if (!page) return;
  const text = page.dataset;
  const find = (id) => document.getElementById(id);
  const pause = find("distlock-pause");
  const SLOWEST = 10000;
  const QUIET = 15000;
  const PAUSED = "distlock.paused";

  let interval = Number(text.interval) || 2000;
  let failures = 0;
  let timer = 0;
  let request = null;
  let goodAt = text.trouble ? 0 : Date.now();
  let announced = find("distlock-summary").textContent.trim();
  let announcedAt = 0;
  let paused = false;
  let stopped = false;
  let held = false; // whether a list under the pointer keeps its order
  let etag = "";
  let ahead = text.now - Date.now(); // the server's clock before ours

  /* --- what is shown --------------------------------------------------------------------------- */

  function same(one, other) {
    return one && one.nodeType === other.nodeType && one.nodeName === other.nodeName &&
      (one.id || "") === (other.id || "");
  }

  function patch(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    for (const { name } of [...old.attributes]) {
      // What the reader has opened or closed stays so.
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (old.nodeName !== "TIME" || fresh.firstChild) children(old, fresh); // else a clock, which runs
  }

  function hovered() {
    return page.querySelector("[data-order]:hover");
  }

  /* Gives fresh rows the order of those shown, so that no click hits another row than was meant. New
     rows come last, and rows that are gone stay, marked, until the pointer leaves. */
  function keepOrder(old, fresh) {
    held = true;
    const rows = new Map([...fresh.children].map((row) => [row.id, row]));
    const gone = (row) => {
      const kept = row.cloneNode(true);
      kept.dataset.state = "gone";
      return kept;
    };
    fresh.prepend(...[...old.childNodes]
      .filter((one) => one.id || one.nodeType === Node.TEXT_NODE)
      .map((one) => (one.id ? rows.get(one.id) || gone(one) : one.cloneNode())));
  }

  function children(old, fresh) {
    if (old.matches("[data-order]:hover")) keepOrder(old, fresh);
    const known = new Map();
    for (const child of old.children) if (child.id) known.set(child.id, child);
    let at = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const there = wanted.id ? known.get(wanted.id) : at;
      if (there && same(there, wanted)) {
        if (there === at) at = at.nextSibling;
        else old.insertBefore(there, at);
        patch(there, wanted);
      } else {
        old.insertBefore(document.importNode(wanted, true), at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function show(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    const trouble = fresh.getElementById("distlock-trouble") !== null;
    const focused = document.activeElement;
    const restore = selection();
    held = false;
    for (const part of page.querySelectorAll("[data-live]")) {
      // While the server is away the locks stay as they were.
      if (trouble && part.dataset.live === "keep" && goodAt) continue;
      const found = fresh.getElementById(part.id);
      if (found) children(part, found);
    }
    if (focused && document.activeElement !== focused) {
      const again = focused.isConnected ? focused : find(focused.id);
      if (again) again.focus({ preventScroll: true });
    }
    restore();
    clocks();
    return trouble;
  }

  /* Returns a function that selects again what is selected now: rows that move lose it. */
  function selection() {
    const chosen = document.getSelection();
    const { anchorNode, anchorOffset, focusNode, focusOffset, isCollapsed } = chosen;
    const within = (node, offset) => Math.min(offset, (node.nodeValue || node.childNodes).length);
    return () => {
      if (isCollapsed || !anchorNode.isConnected || !focusNode.isConnected) return;
      if (chosen.anchorNode === anchorNode && chosen.anchorOffset === anchorOffset &&
        chosen.focusNode === focusNode && chosen.focusOffset === focusOffset) return;
      chosen.setBaseAndExtent(anchorNode, within(anchorNode, anchorOffset),
        focusNode, within(focusNode, focusOffset));
    };
  }

  function clocks() {
    const patterns = text.textDurations.split("|");
    for (const clock of page.querySelectorAll("[data-live] time")) {
      const age = Math.max(0, Math.floor((Date.now() + ahead - Date.parse(clock.dateTime)) / 1000));
      const units = { days: Math.floor(age / 86400), hours: Math.floor(age / 3600) % 24,
        minutes: Math.floor(age / 60) % 60, seconds: age % 60 };
      const found = Object.values(units).findIndex(Boolean);
      const pattern = patterns[found < 0 ? 3 : found];
      const said = pattern.replace(/%\((\w+)\)d/g, (_, unit) => units[unit]);
      if (clock.textContent !== said) clock.textContent = said;
    }
  }

  function announce(said, now) {
    const place = find("distlock-announce");
    if (said === announced || (!now && Date.now() - announcedAt < QUIET)) return;
    announced = said;
    announcedAt = Date.now();
    place.textContent = said;
  }

  function mark(name) {
    text.state = name;
    const said = { live: text.textLive, paused: text.textPaused, stale: text.textStale,
      stopped: text.textStopped }[name];
    if (said) find("distlock-now").textContent = said;
  }

  function state(name, why) {
    mark(name);
    const banner = find("distlock-stale");
    const said = find("distlock-stale-why");
    banner.hidden = !why;
    if (said.textContent !== (why || "")) said.textContent = why || "";
    tick();
  }

  function tick() {
    // Apart from the alert, which a screen reader would read out every second.
    const age = Math.round((Date.now() - goodAt) / 1000);
    const shown = text.state === "stale" && goodAt;
    find("distlock-stale-age").textContent = shown ? text.textAge.replace("{seconds}", age) : "";
  }

  /* --- when to ask ----------------------------------------------------------------------------- */

  function later() {
    clearTimeout(timer);
    if (paused || stopped || document.hidden) return;
    const backoff = Math.min(2000 * 2 ** Math.min(failures - 1, 5), SLOWEST);
    timer = setTimeout(ask, failures ? backoff : interval);
  }

  function stop(message) {
    stopped = true;
    pause.disabled = true;
    state("stopped", message);
  }

  async function ask() {
    const abort = new AbortController();
    request = abort;
    const patience = setTimeout(() => abort.abort(), 15000);
    try {
      const answer = await fetch(text.url, {
        signal: abort.signal, redirect: "manual", cache: "no-store",
        credentials: "same-origin", headers: etag ? { "If-None-Match": etag } : {},
      });
      if (answer.type === "opaqueredirect") return stop(text.textLogin);
      if (answer.status === 401 || answer.status === 403) return stop(text.textRefused);
      const same = answer.status === 304;
      if (!answer.ok && !same) throw new Error(String(answer.status));
      const html = await answer.text();
      if (request !== abort || paused) return;
      interval = Number(answer.headers.get("Distlock-Interval")) || interval;
      ahead = Number(answer.headers.get("Distlock-Now")) - Date.now();
      etag = answer.headers.get("ETag");
      answered(same ? Boolean(text.trouble) : show(html));
    } catch (error) {
      if (request !== abort) return;
      failures += 1;
      state("stale", text.textSite);
    } finally {
      clearTimeout(patience);
      if (request === abort) {
        request = null;
        later();
      }
    }
  }

  function answered(trouble) {
    const changed = trouble !== Boolean(text.trouble);
    if (trouble) {
      text.trouble = "1";
      failures += 1;
      state("stale", goodAt ? text.textServer : text.textNever);
    } else {
      delete text.trouble;
      failures = 0;
      goodAt = Date.now();
      state("live");
      announce(find("distlock-summary").textContent.trim(), changed);
    }
  }

  function cancel() {
    clearTimeout(timer);
    const asked = request;
    request = null;
    if (asked) asked.abort();
  }

  /* --- what the reader does -------------------------------------------------------------------- */

  function remember(value) {
    try {
      localStorage.setItem(PAUSED, value);
    } catch (error) { /* the browser blocks it: then it is forgotten at the next load */ }
  }

  function remembered() {
    try {
      return localStorage.getItem(PAUSED) === "1";
    } catch (error) {
      return false;
    }
  }

  function setPaused(value, said) {
    paused = value;
    pause.textContent = value ? text.textResume : text.textPause;
    if (said) announce(said, true);
    if (value) {
      cancel();
      mark("paused");
    } else {
      mark(text.trouble ? "stale" : "live");
      if (said) ask();
      else later();
    }
  }

  pause.addEventListener("click", () => {
    remember(paused ? "0" : "1");
    setPaused(!paused, paused ? text.textLive : text.textPaused);
  });
  document.addEventListener("mouseover", () => {
    if (!held || paused || stopped || hovered()) return;
    held = false;
    etag = "";
    cancel();
    ask();
  });
  document.addEventListener("visibilitychange", () => {
    if (paused || stopped) return;
    cancel();
    if (document.hidden) mark("hidden");
    else ask();
  });
  window.addEventListener("storage", (event) => {
    if (event.key === PAUSED && !stopped && (event.newValue === "1") !== paused) {
      setPaused(event.newValue === "1", "");
    }
  });

  setInterval(() => { tick(); if (text.state === "live") clocks(); }, 1000);
  pause.hidden = false;
  find("distlock-now").hidden = false;
  setPaused(remembered(), "");
})();
