/* Charts and tables of forecasts for pages without a framework, on uPlot. Load uPlot and page.css first.

   itocast.bandChart(element, data, options)  lines over bands; zoom by dragging, by two fingers, by buttons and by keys
   itocast.table(element, columns, rows, options)  a table that can be sorted, searched and paged
   itocast.number(value), itocast.figure(value), itocast.percent(share), itocast.time(x, options)  numbers and times as people read them

   Whatever comes from data is written as text, never as markup. Colours are the custom properties of page.css. */
"use strict";

const itocast = (() => {
  const charts = new Set();

  // ---- words and numbers

  function number(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    const size = Math.abs(value);
    if (size && (size < 1e-3 || size >= 1e9)) return value.toExponential(2).replace("e+", "e").replace("-", "−");
    const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4;
    const text = value.toLocaleString("en", {maximumFractionDigits: digits});
    return text.replace("-", "−");
  }

  /* The same with as many digits whatever they are, for columns. */
  function figure(value) {
    const size = Math.abs(value ?? NaN);
    if (!(size < 1000) || (size && size < 1e-3)) return number(value);
    return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4).replace("-", "−");
  }

  const percent = (share, digits = 1) =>
    share === null || Number.isNaN(share) ? "–" : `${(100 * share).toFixed(digits)} %`;

  /* A place on the time axis: seconds since 1970, or whatever the data counts by. */
  function time(x, {time = true, zone = "UTC", days = false, names = null} = {}) {
    if (names) return names[Math.round(x)] ?? "";
    if (!time) return number(x);
    const parts = {weekday: "short", day: "numeric", month: "short", year: "numeric", timeZone: known(zone)};
    if (!days) Object.assign(parts, {hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
    return new Date(1000 * x).toLocaleString("en-GB", parts);
  }

  /* A zone that this browser knows, or else UTC. */
  function known(zone) {
    try {
      return new Intl.DateTimeFormat("en", {timeZone: zone}).resolvedOptions().timeZone;
    } catch {
      return "UTC";
    }
  }

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === false || value === null || value === undefined) continue;
      key === "class" ? (made.className = value) : made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children);
    return made;
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // ---- charts

  /* data     {x, bands: [{name, low, high, colour}], lines: [{name, values, colour, kind, dash}]}; null where nothing is.
              kind is "line", "points" or "bars"; colour a custom property without its dashes; spots marks the places of a
              line; says are values that stand for those of a band in the read-out
     options  height, label (for readers of the screen), unit (above the axis), format (of values)
              time (x is seconds), zone, days (no hours), names (of x = 0, 1 …), whole (x is), xLabel, title(i) of a read-out
              range ([low, high] of y), zero (y begins there), log, zoom (by drag and buttons; the latter not if tools is
              false), show ([from, to] at first), marks ([{x, name}])
              sync (a key: charts that share it share cursor and zoom)
     returns  {plot, update(data), show(from, to), all(), destroy()} */
  function bandChart(parent, data, options = {}) {
    const o = {height: 260, time: false, zone: "UTC", zoom: false, format: number, marks: [], ...options};
    o.zone = known(o.zone);
    const root = element("figure", {class: "chart"});
    const tip = element("div", {class: "tip", hidden: true});
    const place = element("div", {
      class: "plot", tabindex: 0, role: "img", "aria-label": o.label || o.unit || "chart",
    });
    const head = element("div", {class: "head"}, element("span", {class: "unit"}, o.unit || ""));
    const legend = element("div", {class: "legend"});
    root.append(head, place, tip, legend);
    parent.append(root);

    let rows = entries(data), plot = null;
    plot = new uPlot(settings(rows, o, width()), columns(data), place);
    plot.over.addEventListener("mouseleave", () => { tip.hidden = true; });
    const self = {plot, root, o, update, show, all, destroy, resize};
    charts.add(self);
    fillLegend();
    if (o.zoom && o.tools !== false) head.append(buttons());
    touch(plot, limits, show);
    place.addEventListener("keydown", keys);
    plot.over.addEventListener("dblclick", all);
    const watch = new ResizeObserver(() => resize(width()));
    watch.observe(root);
    if (o.show) show(...o.show);
    return self;

    function width() { return Math.max(160, Math.floor(root.clientWidth || parent.clientWidth || 600)); }
    function resize(to) { if (to !== plot.width) plot.setSize({width: to, height: o.height}); }
    function limits() {
      const x = plot.data[0];
      const [low, high] = o.names ? [-0.6, x.length - 0.4] : [x[0], x[x.length - 1]];
      return low === high || low === undefined ? [(low ?? 0) - 1, (high ?? 0) + 1] : [low, high];
    }
    function show(from, to) {
      const [low, high] = limits();
      const span = Math.min(to - from, high - low);
      if (!(span > 0)) return;
      const min = Math.min(Math.max(from, low), high - span);
      for (const one of family()) one.plot.setScale("x", {min, max: min + span});
      tip.hidden = true;
    }
    function family() { return o.sync ? [...charts].filter((one) => one.o.sync === o.sync) : [self]; }
    function all() { show(...limits()); }
    function zoom(factor, move = 0) {
      const {min, max} = plot.scales.x, middle = (min + max) / 2 + move * (max - min), half = (max - min) / 2 / factor;
      show(middle - half, middle + half);
    }
    function keys(event) {
      const acts = {"+": () => zoom(2), "-": () => zoom(0.5), "0": all, Escape: () => { tip.hidden = true; }};
      if (o.zoom && event.shiftKey) Object.assign(acts, {ArrowLeft: () => zoom(1, -0.25), ArrowRight: () => zoom(1, 0.25)});
      else Object.assign(acts, {ArrowLeft: () => step(-1), ArrowRight: () => step(1)});
      if (!acts[event.key] || (!o.zoom && "+-0".includes(event.key))) return;
      event.preventDefault();
      acts[event.key]();
    }
    function step(by) {
      const x = plot.data[0], last = plot.cursor.idx ?? x.length - 1;
      const next = Math.min(Math.max(last + by, 0), x.length - 1);
      plot.setCursor({left: plot.valToPos(x[next], "x"), top: plot.over.clientHeight / 3});
    }
    function update(next) {
      data = next;
      rows = entries(next);
      plot.setData(columns(next));
    }
    function destroy() {
      watch.disconnect();
      plot.destroy();
      charts.delete(self);
      root.remove();
    }
    function buttons() {
      const make = (text, title, act) => {
        const button = element("button", {type: "button", title, "aria-label": title}, text);
        button.addEventListener("click", act);
        return button;
      };
      return element("span", {class: "tools"},
        make("‹", "earlier", () => zoom(1, -0.5)), make("−", "zoom out", () => zoom(0.5)), make("+", "zoom in", () => zoom(2)),
        make("›", "later", () => zoom(1, 0.5)), make("all", "show all", all));
    }
    function fillLegend() {
      for (const row of rows) {
        if (row.name === "") continue;
        const button = element("button", {type: "button", "aria-pressed": "true", title: "show or hide"}, swatch(row), row.name);
        button.addEventListener("click", () => {
          const on = button.getAttribute("aria-pressed") !== "true";
          button.setAttribute("aria-pressed", String(on));
          plot.batch(() => row.places.forEach((i) => plot.setSeries(i, {show: on})));
        });
        legend.append(button);
      }
    }
    function settings(rows, o, width) {
      return {
        width, height: o.height, padding: [10, 20, 0, 8],
        series: [{}, ...rows.flatMap(series)],
        bands: rows.filter((row) => row.high).map((row) => ({series: [row.places[1], row.places[0]], fill: () => colour(row.colour)})),
        scales: {
          x: {time: o.time, range: o.names ? () => [-0.6, columnsOf() - 0.4] : undefined},
          y: {distr: o.log ? 3 : 1, range: o.range ? () => o.range : o.log ? undefined : (u, low, high) => padded(o.zero && low !== null ? Math.min(low, 0) : low, high)},
        },
        axes: [xAxis(o), yAxis(o)],
        tzDate: (x) => uPlot.tzDate(new Date(1000 * x), o.zone),
        legend: {show: false},
        cursor: {
          y: false,
          drag: {x: o.zoom, y: false, setScale: false},
          points: {size: 7, width: 1, fill: (u, i) => colour(colourOf(i)), stroke: () => colour("card")},
          sync: o.sync ? {key: o.sync, scales: ["x", null]} : undefined,
        },
        hooks: {
          setCursor: [(u) => readout(u)],
          setSelect: [(u) => {
            const {left, width: wide} = u.select;
            if (wide > 4) show(u.posToVal(left, "x"), u.posToVal(left + wide, "x"));
            u.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
          }],
          draw: [(u) => o.marks.forEach((mark) => vertical(u, mark))],
        },
      };
    }
    function columnsOf() { return data.x.length; }
    function colourOf(i) { return rows.find((row) => row.places.includes(i))?.colour ?? "ink"; }
    /* What is said at the cursor. */
    function readout(u) {
      const i = u.cursor.idx;
      if (i === null || i === undefined || u.cursor.left < 0) { tip.hidden = true; return; }
      const lines = [element("b", {}, o.title ? o.title(i) : [o.xLabel && !o.time ? `${o.xLabel} ` : "", time(u.data[0][i], o)].join(""))];
      for (const row of rows) {
        const values = row.says ? [row.says[i]] : row.places.map((place) => u.data[place][i]);
        if (row.name === "" || values.some((v) => v === null || v === undefined) || !u.series[row.places[0]].show) continue;
        lines.push(element("span", {}, swatch(row), `${row.name}: ${values.map(o.format).join(" to ")}`));
      }
      tip.replaceChildren(...lines);
      tip.hidden = lines.length < 2;
      const begin = u.over.offsetLeft, at = begin + u.cursor.left, wide = tip.offsetWidth;
      tip.style.left = `${at + 14 + wide > root.clientWidth ? Math.max(at - 14 - wide, 0) : at + 14}px`;
      tip.style.top = `${place.offsetTop + 8}px`;
    }
  }

  const columns = ({x, bands = [], lines = []}) =>
    [x, ...bands.flatMap((band) => [band.low, band.high]), ...lines.map((line) => line.values)];

  /* Bands and lines, each with the numbers of its columns. */
  function entries({bands = [], lines = []}) {
    let next = 1;
    return [...bands, ...lines].map((row) => ({...row, places: row.high ? [next++, next++] : [next++]}));
  }

  function series(row) {
    if (row.high) return [0, 1].map(() => ({stroke: "transparent", width: 0, points: {show: false}}));
    const paint = () => colour(row.colour);
    if (row.kind === "points") return [{stroke: paint, paths: () => null, points: {show: true, size: 5, width: 0, fill: paint}}];
    if (row.kind === "bars") {
      return [{stroke: paint, fill: paint, width: 0, paths: uPlot.paths.bars({size: [0.86, 80]}), points: {show: false}}];
    }
    return [{stroke: paint, width: row.width ?? 1.6, dash: row.dash, points: {show: Boolean(row.spots), size: 5, width: 0, fill: paint}}];
  }

  function swatch(row) {
    const mark = element("i", {class: `swatch ${row.high || row.kind === "bars" ? "area" : row.kind === "points" ? "dot" : "line"}`});
    mark.style.setProperty("--here", `var(--${row.colour})`);
    return mark;
  }

  function padded(low, high) {
    if (low === null) return [0, 1];
    const room = 0.06 * (high - low) || Math.abs(high) * 0.1 || 1;
    return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
  }

  const FONT = "12px system-ui, sans-serif";
  const shared = () => ({
    stroke: () => colour("muted"), font: FONT,
    grid: {stroke: () => colour("grid"), width: 1}, ticks: {stroke: () => colour("grid"), width: 1, size: 5},
  });
  const TIMES = [
    [31536000, "{YYYY}", null, null, null, null, null, null, 1],
    [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
    [0.001, "{HH}:{mm}:{ss}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  ];

  function xAxis(o) {
    const axis = {...shared(), size: o.xLabel ? 30 : 44, space: o.time ? 64 : 50};
    if (o.xLabel) Object.assign(axis, {label: o.xLabel, labelSize: 22, labelFont: FONT});
    if (o.names) {
      return {...axis, size: 30, incrs: [1, 2, 4, 6, 12, 24, 48, 96, 192], values: (u, ticks) => ticks.map((i) => o.names[i] ?? "")};
    }
    if (o.time) return {...axis, values: TIMES};
    return {...axis, size: 30, incrs: o.whole ? [1, 2, 5, 10, 20, 50, 100, 500, 1000] : undefined, values: (u, ticks) => ticks.map(number)};
  }

  /* As wide as its longest number, and mostly as wide as that of the chart below. */
  function yAxis(o) {
    const size = (u, values) => {
      if (!values) return 46;
      u.ctx.save();
      u.ctx.font = FONT;
      const widest = Math.max(...values.map((text) => u.ctx.measureText(text ?? "").width));
      u.ctx.restore();
      return Math.max(46, Math.ceil(widest) + 14);
    };
    const axis = shared();
    if (o.log) axis.grid.filter = (u, ticks) => ticks.map((tick) => (Number.isInteger(Math.log10(tick)) ? tick : null));
    return {...axis, size, values: (u, ticks) => ticks.map((tick) => (tick === null ? "" : o.format(tick))), space: 34};
  }

  function vertical(u, mark) {
    const at = u.valToPos(mark.x, "x", true);
    const {left, top, width, height} = u.bbox;
    if (at < left || at > left + width) return;
    const {ctx} = u, ratio = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("muted");
    ctx.setLineDash([4 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(at, top);
    ctx.lineTo(at, top + height);
    ctx.stroke();
    if (mark.name) {
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = at > left + width / 2 ? "right" : "left";
      ctx.fillText(mark.name, at + (ctx.textAlign === "right" ? -5 : 5) * ratio, top + 11 * ratio);
    }
    ctx.restore();
  }

  /* One finger moves a chart that is zoomed in, two stretch it; a tap reads it. */
  function touch(plot, limits, show) {
    let begin = null;
    const spots = (event) => [...event.touches].map((one) => one.clientX - plot.over.getBoundingClientRect().left);
    const start = (event) => {
      const {min, max} = plot.scales.x;
      begin = {spots: spots(event), min, max};
    };
    plot.over.addEventListener("touchstart", start, {passive: true});
    plot.over.addEventListener("touchend", (event) => { if (event.touches.length) start(event); }, {passive: true});
    plot.over.addEventListener("touchmove", (event) => {
      const now = spots(event), [low, high] = limits();
      if (!begin || now.length !== begin.spots.length) return start(event);
      const zoomed = begin.max - begin.min < high - low;
      if (now.length === 1 && (!zoomed || Math.abs(now[0] - begin.spots[0]) < 6)) return;
      event.preventDefault();
      const each = (begin.max - begin.min) / plot.over.clientWidth;
      if (now.length === 1) {
        const by = (begin.spots[0] - now[0]) * each;
        return show(begin.min + by, begin.max + by);
      }
      const wide = (pair) => Math.max(Math.abs(pair[0] - pair[1]), 10), middle = (pair) => (pair[0] + pair[1]) / 2;
      const span = (begin.max - begin.min) * wide(begin.spots) / wide(now);
      const from = begin.min + middle(begin.spots) * each - middle(now) / plot.over.clientWidth * span;
      show(from, from + span);
    }, {passive: false});
  }

  // ---- tables

  /* columns  [{name, kind: "text" or "number", format}], rows an array of arrays
     options  search (a placeholder: adds a box), page (rows at a time), pick(row, index) when a row is chosen, label,
              sort ([column, -1 or 1]) at first, plain (without a head)
     returns  {choose(index), element} */
  function table(parent, columns, rows, options = {}) {
    const o = {page: 15, search: null, pick: null, sort: null, label: "", ...options};
    const root = element("div", {class: "table"});
    const head = element("thead"), body = element("tbody"), foot = element("div", {class: "pages"});
    const grid = element("table", {"aria-label": o.label}, head, body);
    let from = 0, chosen = -1, sort = o.sort, order = rows.map((_, i) => i), found = order;
    const folded = o.search === null ? [] : rows.map((row) => row.filter((v) => typeof v === "string").join("\n").toLowerCase());
    if (o.search !== null) {
      const box = element("input", {type: "search", placeholder: o.search, "aria-label": o.search, autocomplete: "off"});
      box.addEventListener("input", () => { from = 0; filter(box.value.trim().toLowerCase()); });
      root.append(box);
    }
    root.append(element("div", {class: "scroll"}, grid), foot);
    parent.append(root);
    let words = "";
    arrange();
    return {choose, element: root};

    function choose(index) { chosen = index; draw(); }
    function filter(text) {
      words = text;
      found = text ? order.filter((i) => folded[i].includes(text)) : order;
      draw();
    }
    function arrange() {
      if (sort) {
        const [place, way] = sort;
        const key = (i) => rows[i][place];
        order = [...order].sort((a, b) => {
          const one = key(a), two = key(b);
          if (one === null || two === null) return (one === null) - (two === null);  // what is not known comes last
          return way * (typeof one === "string" ? one.localeCompare(two, "en", {numeric: true}) : one - two);
        });
      }
      filter(words);
    }
    function draw() {
      if (!o.plain) head.replaceChildren(element("tr", {}, ...columns.map((column, place) => {
        const way = sort && sort[0] === place ? sort[1] : 0;
        const button = element("button", {type: "button"}, column.name, element("span", {"aria-hidden": "true"}, way > 0 ? " ↑" : way < 0 ? " ↓" : ""));
        button.addEventListener("click", () => {
          sort = [place, way ? -way : column.kind === "number" ? -1 : 1];
          from = 0;
          arrange();
        });
        return element("th", {class: column.kind, scope: "col", "aria-sort": way > 0 ? "ascending" : way < 0 ? "descending" : false}, button);
      })));
      body.replaceChildren(...found.slice(from, from + o.page).map(line));
      if (!found.length) body.append(element("tr", {}, element("td", {colspan: columns.length}, "Nothing matches.")));
      const pages = Math.ceil(found.length / o.page);
      foot.replaceChildren();
      if (pages < 2) return;
      const move = (text, title, by) => {
        const button = element("button", {type: "button", title, "aria-label": title, disabled: from + by < 0 || from + by >= found.length}, text);
        button.addEventListener("click", () => { from += by; draw(); });
        return button;
      };
      const last = Math.min(from + o.page, found.length).toLocaleString("en");
      foot.append(move("‹", "previous page", -o.page),
        `${(from + 1).toLocaleString("en")} to ${last} of ${found.length.toLocaleString("en")}`, move("›", "next page", o.page));
    }
    function line(index) {
      const cells = rows[index].map((value, place) => {
        const {kind, format} = columns[place];
        return element("td", {class: kind}, format ? format(value) : kind === "number" ? number(value) : String(value ?? "–"));
      });
      const row = element("tr", {"aria-selected": o.pick ? String(index === chosen) : null}, ...cells);
      if (o.pick) {
        row.tabIndex = 0;
        row.classList.add("pick");
        const pick = () => { choose(index); o.pick(rows[index], index); };
        row.addEventListener("click", pick);
        row.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(); });
      }
      return row;
    }
  }

  // ---- all charts of a page follow light, dark and paper

  const redraw = () => charts.forEach((one) => one.plot.redraw(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  for (const [event, paper] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      document.documentElement.classList.toggle("paper", paper);
      redraw();
    });
  }

  return {bandChart, table, number, figure, percent, time, element, colour, charts};
})();
