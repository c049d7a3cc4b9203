// What pages do besides being read: they refresh while they are looked at, and draw rates.
(function () {
  "use strict";
  var REFRESH_MS = 5000, POLL_MS = 2000, KEPT_MS = 300000;
  var root = document.documentElement, themes = ["auto", "light", "dark"];

  function cookie(name, value) {
    document.cookie = name + "=" + value + "; Path=/ui; Max-Age=31536000; SameSite=Strict";
  }
  function colour(name) { return getComputedStyle(root).getPropertyValue("--" + name).trim(); }
  function say(text) { document.getElementById("said").textContent = text; }

  // colours: the cookie lets the server set them before anything is drawn
  var button = document.getElementById("theme"), redraw = [];
  function theme() { return root.dataset.theme || "auto"; }
  function showTheme() {
    document.getElementById("theme-name").textContent = theme();
    redraw.forEach(function (draw) { draw(); });
  }
  button.hidden = false;
  button.addEventListener("click", function () {
    var next = themes[(themes.indexOf(theme()) + 1) % themes.length];
    if (next === "auto") delete root.dataset.theme; else root.dataset.theme = next;
    cookie("goqueue_theme", next);
    showTheme();
    say("Colours: " + next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  showTheme();

  // refreshing: not while one reads or types there, nor where nobody looks
  var live = document.getElementById("live"), region = "#live-region", isLive = true;
  function busy() {
    var at = document.querySelector(region), chosen = getSelection();
    if (!at || document.hidden || !isLive) return true;
    if (at.contains(document.activeElement)) return true;
    return !chosen.isCollapsed && at.contains(chosen.anchorNode);
  }
  if (document.querySelector(region)) {
    live.hidden = false;
    live.addEventListener("click", function () {
      isLive = !isLive;
      live.setAttribute("aria-pressed", String(isLive));
      say(isLive ? "The page refreshes itself" : "The page stands still");
    });
    setInterval(function () {
      if (!busy()) document.body.dispatchEvent(new CustomEvent("goqueue:refresh"));
    }, REFRESH_MS);
    // what was scrolled stays scrolled
    var scrolled = [];
    document.body.addEventListener("htmx:beforeSwap", function () {
      scrolled = Array.from(document.querySelectorAll(region + " .scroll"), function (one) { return one.scrollLeft; });
    });
    document.body.addEventListener("htmx:afterSwap", function () {
      document.querySelectorAll(region + " .scroll").forEach(function (one, at) { one.scrollLeft = scrolled[at] || 0; });
    });
  }

  // a tail: what is stored comes in front, as text and never as markup
  var tail = document.getElementById("tail");
  if (tail && window.EventSource) follow(tail);

  function follow(place) {
    var TAIL_KEPT = 100, DRAW_MS = 250, TEXT_MAX = 2000, UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
    var button = place.querySelector("button"), list = place.querySelector("ol"), state = place.querySelector("[data-state]");
    var source = null, waiting = [], passed = 0;
    function shown(text) {
      var cut = text.length > TEXT_MAX ? text.slice(0, TEXT_MAX) + "…" : text;
      return cut.replace(UNSEEN, function (one) { return "\\u" + one.charCodeAt(0).toString(16).padStart(4, "0"); });
    }
    function element(name, of, text, kind) {
      var made = document.createElement(name);
      if (kind) made.className = kind;
      made.textContent = text;
      of.appendChild(made);
      return made;
    }
    function row(told) {
      var item = document.createElement("li"), head = element("header", item, "");
      element("a", head, told.offset, "code").href = place.dataset.messages + encodeURIComponent(place.dataset.topic + ":" + told.partition + ":" + told.offset);
      head.append(" ");
      element("time", head, told.timestamp.slice(0, -1).replace("T", " ")).dateTime = told.timestamp;
      head.append(" ");
      element("span", head, told.priority, "tag");
      if (told.key !== undefined) { head.append(" "); element("span", head, "key " + shown(told.key), "code"); }
      element("pre", item, told.value === null ? "null" : shown(told.value));
      return item;
    }
    function draw() {
      if (!waiting.length) return;
      waiting.forEach(function (told) { list.insertBefore(row(told), list.firstChild); });
      waiting = [];
      while (list.children.length > TAIL_KEPT) list.removeChild(list.lastChild);
      state.textContent = passed.toLocaleString("en") + (passed === 1 ? " message" : " messages") + " since you began";
    }
    function stop(text) {
      if (source) source.close();
      source = null;
      button.setAttribute("aria-pressed", "false");
      state.textContent = text;
      say(text);
    }
    function begin() {
      passed = 0;
      source = new EventSource(place.dataset.source);
      button.setAttribute("aria-pressed", "true");
      state.textContent = "Connecting…";
      source.onopen = function () { if (!passed) state.textContent = "Waiting for the next message…"; };
      say("New messages are shown as they come");
      source.onmessage = function (event) {
        passed += 1;
        waiting.push(JSON.parse(event.data));
        if (waiting.length > TAIL_KEPT) waiting.shift();
      };
      source.addEventListener("end", function (event) {
        var told = JSON.parse(event.data);
        if (!told.reconnect) stop("It has ended: " + told.error);
      });
      source.onerror = function () { // a browser comes back by itself, unless it was refused
        if (source && source.readyState === EventSource.CLOSED) stop("It is refused now: load the page again");
      };
    }
    place.hidden = false;
    button.addEventListener("click", function () { if (source) stop("New messages are not shown any more"); else begin(); });
    setInterval(draw, DRAW_MS);
  }

  // rates: points of any node fit together by their times
  var place = document.getElementById("rates-chart");
  if (place && window.uPlot) rates(place);

  function rates(place) {
    var points = new Map(), chart = null;
    function number(value) {
      if (value === 0) return "0";
      return value < 0.1 ? "< 0.1" : value < 100 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value).toLocaleString("en");
    }
    function series() {
      var times = Array.from(points.keys()).sort(function (a, b) { return a - b; });
      return [times.map(function (at) { return at / 1000; })].concat([0, 1, 2].map(function (which) {
        return times.map(function (at) { return points.get(at)[which]; });
      }));
    }
    function line(label) {
      return { label: label, width: 2, fill: label === "published" ? function () { return colour("accent-ground"); } : undefined, stroke: function () { return colour(label); }, points: { show: false } };
    }
    function axis(more) {
      var soft = function () { return colour("soft"); };
      return Object.assign({ stroke: soft, font: "12px system-ui", grid: { stroke: function () { return colour("line"); }, width: 1 }, ticks: { show: false } }, more);
    }
    function options() {
      return {
        width: Math.max(200, place.clientWidth - 16), height: 200, legend: { show: false }, cursor: { y: false },
        padding: [null, 36, null, null], // room for half of a time below the right end
        tzDate: function (at) { return uPlot.tzDate(new Date(at * 1000), "Etc/UTC"); },
        scales: { x: { range: function (_, low, high) { return [Math.min(low, high - 60), high]; } }, y: { range: function (_, low, high) { return [0, Math.max(1, high * 1.1)]; } } },
        series: [{}, line("published"), line("delivered"), line("settled")],
        axes: [axis({ values: function (_, marks) { return marks.map(function (mark) { return new Date(mark * 1000).toISOString().slice(11, 19); }); }, space: 90, gap: 10 }), axis({ size: 56, values: function (_, marks) { return marks.map(function (mark) { return mark.toLocaleString("en"); }); } })]
      };
    }
    function draw() {
      if (!points.size) return;
      if (!chart) {
        place.textContent = "";
        chart = new uPlot(options(), series(), place);
        chart.root.setAttribute("role", "img");
        chart.root.setAttribute("aria-label", "Rates of the last five minutes; the figures of now stand below");
      } else chart.setData(series());
    }
    function take(told) {
      told.points.forEach(function (point) { points.set(point[0], point.slice(1)); });
      var times = Array.from(points.keys()), newest = Math.max.apply(null, times.concat(0));
      times.forEach(function (at) { if (newest - at > KEPT_MS) points.delete(at); });
      var now = points.get(newest);
      if (now) document.querySelectorAll("[data-rate]").forEach(function (cell) { cell.textContent = number(now[+cell.dataset.rate]); });
      draw();
    }
    function poll() {
      var next = function () { setTimeout(poll, POLL_MS); };
      if (document.hidden || !isLive) return next();
      fetch(place.dataset.source, { credentials: "same-origin" })
        .then(function (answer) { return answer.ok ? answer.json() : null; })
        .catch(function () { return null; }) // a node that does not answer leaves a gap
        .then(function (told) { next(); if (told) take(told); });
    }
    redraw.push(function () { if (chart) chart.redraw(); });
    new ResizeObserver(function () { if (chart) chart.setSize({ width: Math.max(200, place.clientWidth - 16), height: 200 }); }).observe(place);
    place.textContent = "Waiting for the second look…";
    poll();
  }
})();
