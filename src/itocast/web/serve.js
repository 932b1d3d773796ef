/* The page of the server: a file in, its columns named, forecasts drawn. All numbers come from /v1/forecast. */
"use strict";

(() => {
  const {bandChart, table, number, element} = itocast;
  const at = (id) => document.getElementById(id);
  const LEVELS = [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 99];
  const GROUPS = {time: "time", id: "name of the series", targets: "target", past: "known up to now", future: "known ahead", static: "the same in a series"};
  const NONE = "";  // a column that is not in the file
  let models = [], limits = {}, token = "", file = null, sent = null, answer = null, chart = null;
  let ready;  // once the models are known

  // ---- the server

  async function ask(path, options = {}) {
    const headers = {...options.headers, ...(token ? {Authorization: `Bearer ${token}`} : {})};
    let reply;
    try {
      reply = await fetch(path, {...options, headers});
    } catch {
      throw new Error("The server does not answer: look whether it still runs, and try again.");
    }
    if (reply.ok) return reply;
    const text = await reply.text();
    let message = text;
    try { message = JSON.parse(text).error; } catch { /* not of this server: shown as it is */ }
    const error = new Error(message || `The server answered ${reply.status}.`);
    error.status = reply.status;
    throw error;
  }

  const post = (format, level) => ask(`v1/forecast?${new URLSearchParams({model: sent.model, level: level.join(","), format})}`,
    {method: "POST", headers: {"Content-Type": "text/csv"}, body: sent.body});

  function say(text) {
    at("problem").textContent = text;
    at("problem").hidden = !text;
    if (text) at("problem").scrollIntoView({block: "nearest"});
  }

  /* Do something that may fail with a message. */
  async function attempt(act) {
    say("");
    document.body.setAttribute("aria-busy", "true");
    try {
      await act();
    } catch (error) {
      if (error.status === 401) at("entry").hidden = false;
      say(error.message);
    } finally {
      document.body.removeAttribute("aria-busy");
    }
  }

  async function start() {
    ({models, limits} = await (await ask("v1/models")).json());
    at("entry").hidden = true;
    at("model").replaceChildren(...models.map((one) => element("option", {value: one.name}, one.name)));
    at("model-line").hidden = models.length < 2;
    at("input").hidden = false;
    tellModel();
  }

  const model = () => models.find((one) => one.name === at("model").value);

  // ---- the model

  function tellModel() {
    const one = model(), {targets} = one.columns;
    at("model-text").textContent = `${one.name} forecasts ${targets.join(", ")}, ${one.horizon === 1 ? "one step" : `${one.horizon} steps`} ahead (a row every ${one.freq}), from the last ${one.window} rows.`;
    at("own-line").hidden = one.columns.future.length > 0;
    const widest = Math.floor(1000 * one.outcomes / (one.outcomes + 1)) / 10;
    const [kind, why] = split(one.calibration);
    const facts = {
      "Calibration": kind === "none" ? "none: the intervals are the model's own" : kind,
      "Why this one": why,
      "Learned from": one.outcomes ? `${one.outcomes.toLocaleString("en")} independent outcomes: enough for intervals up to ${Math.min(widest, 99.9)} %` : "nothing yet",
      "Learns on": one.adaptive ? "yes: /v1/observe tells it what happened" : "no",
      "Model": `${one.kind}, ${one.parameters.toLocaleString("en")} parameters, version ${one.version}`,
      "Knows": `${one.series.toLocaleString("en")} series, up to ${one.until}`,
      "Forecasts stay": {real: "anywhere", positive: "at 0 and above", unit: "between 0 and 1"}[one.support],
      "Fault": one.fault ? `the folder cannot be read now, the version from before goes on: ${one.fault}` : "",
    };
    at("facts").replaceChildren(...Object.entries(facts).filter(([, text]) => text).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
    at("about").hidden = false;
  }

  function split(text) {
    const place = text.indexOf(": ");
    return place < 0 ? [text, ""] : [text.slice(0, place), text.slice(place + 2)];
  }

  // ---- the file

  async function take(chosen) {
    if (!chosen) return;
    await ready;
    at("result").hidden = true;
    if (chosen.size > limits.body) {
      throw new Error(`${chosen.name} has ${(chosen.size / 1e6).toFixed(1)} MB, and this server takes ${(limits.body / 1e6).toFixed(1)} MB: keep the newest rows of each series.`);
    }
    let text;
    try {
      text = new TextDecoder("utf-8", {fatal: true}).decode(await chosen.arrayBuffer());
    } catch {
      throw new Error(`${chosen.name} is not a text file in UTF-8: save the table as CSV (UTF-8) and choose that file.`);
    }
    file = {name: chosen.name, ...itocastCsv.read(text)};
    at("file-text").textContent = `${file.name}: ${file.rows.length.toLocaleString("en")} rows; columns ${file.names.join(", ")}`;
    showMapping();
    if (missing().length) throw new Error(`Not every column that the model needs was found in ${file.name}: choose below which one is ${missing().join(", ")}.`);
    await forecastFile();
  }

  /* The columns of the model, each with its place in a group. */
  function needed() {
    const {columns} = model();
    return Object.keys(GROUPS).flatMap((group) => [columns[group] ?? []].flat().map((name) => ({group, name})));
  }

  function showMapping() {
    at("fields").replaceChildren(...needed().map(({group, name}, i) => {
      const found = guess(group, name);
      const options = [NONE, ...file.names].map((one) => element("option", {value: one, selected: one === found}, one === NONE ? "– choose –" : one));
      const select = element("select", {id: `column-${i}`, "data-name": name}, ...options);
      return element("label", {for: `column-${i}`}, element("span", {}, `${name} `, element("span", {class: "muted"}, `(${GROUPS[group]})`)), select);
    }));
    at("mapping").hidden = false;
  }

  const folded = (name) => name.toLowerCase().replace(/[^a-z0-9]/g, "");
  const USUAL = {time: ["ds", "time", "date", "datetime", "timestamp", "day", "hour"], id: ["uniqueid", "id", "series", "name", "item"], targets: ["y", "value", "target"]};

  function guess(group, name) {
    if (file.names.includes(name)) return name;
    const same = file.names.find((one) => folded(one) === folded(name));
    const usual = file.names.filter((one) => !needed().some((other) => other.name === one)).find((one) => USUAL[group]?.includes(folded(one)));
    return same ?? usual ?? NONE;
  }

  const selects = () => [...at("fields").querySelectorAll("select")];
  const missing = () => selects().filter((one) => one.value === NONE).map((one) => one.dataset.name);

  async function forecastFile() {
    const lacking = missing();
    if (lacking.length) throw new Error(`Choose a column of the file for ${lacking.join(", ")}.`);
    const names = selects().map((one) => one.dataset.name), places = selects().map((one) => file.names.indexOf(one.value));
    const rows = file.rows.map((row) => places.map((place) => row[place]));
    await forecast(itocastCsv.write(names, rows), {names, rows});
  }

  async function forecast(body, shown) {
    sent = {model: model().name, body, shown, columns: model().columns, about: model()};
    answer = await (await post("json", LEVELS)).json();
    const series = [...new Set(answer.forecast.map((row) => row[sent.columns.id] ?? ""))];
    fill("series", series, series.length > 1);
    fill("target", sent.columns.targets, sent.columns.targets.length > 1);
    at("warnings").replaceChildren(...answer.warnings.map((text) => element("li", {}, text)));
    at("result").hidden = false;
    draw();
    at("result").scrollIntoView({block: "start"});
  }

  function fill(id, values, visible) {
    at(id).replaceChildren(...values.map((value) => element("option", {value}, String(value))));
    at(`${id}-line`).hidden = !visible;
  }

  // ---- what is drawn

  /* A time as a number: seconds, or what the model counts by. Text without a zone is taken as it stands. */
  function instant(text) {
    if (!sent.about.dates) return Number(text);
    const plain = String(text).trim().replace(" ", "T");
    const zoned = /(Z|[+-]\d\d:?\d\d)$/i.test(plain) || !/T/.test(plain);  // a day alone is read in UTC
    return Date.parse(zoned ? plain : `${plain}Z`) / 1000;
  }

  /* The rows of the file of one series, in order of time: pairs of time and value. */
  function history(series, target) {
    if (!sent.shown) return [];
    const {names, rows} = sent.shown, {time, id} = sent.columns;
    const [when, who, what] = [time, id, target].map((name) => names.indexOf(name));
    const own = who < 0 ? rows : rows.filter((row) => row[who] === String(series));
    const pairs = own.map((row, i) => [when < 0 ? i : instant(row[when]), row[what].trim() === "" ? null : Number(row[what])]);
    return pairs.filter(([x, y]) => Number.isFinite(x) && (y === null || Number.isFinite(y))).sort((a, b) => a[0] - b[0]);
  }

  function ahead(series, target) {
    const {id, targets, time} = sent.columns;
    const own = answer.forecast.filter((row) => (!id || String(row[id]) === String(series)) && (targets.length < 2 || row.target === target));
    return own.map((row) => ({...row, x: instant(row[time ?? "ds"])}));
  }

  function draw() {
    const target = at("target").value, series = at("series").value, level = LEVELS[at("level").value];
    const parts = document.querySelector("input[name=view]:checked").value === "parts";
    const steps = ahead(series, target), next = steps[0].x;
    const past = history(series, target).filter(([x]) => x < next);
    while (past.length && past[past.length - 1][1] === null) past.pop();
    const tail = past.length ? past[past.length - 1][1] : null;
    const column = (last, of) => [...past.slice(0, -1).map(() => null), ...(past.length ? [last] : []), ...steps.map(of)];
    const total = (row) => Math.hypot(row.aleatoric, row.epistemic);
    const band = (name, colour, low, high) => ({name, colour, low: column(tail, low), high: column(tail, high)});
    const bands = parts
      ? [band("aleatoric deviation", "aleatoric-area", (r) => r.mean - r.aleatoric, (r) => r.mean + r.aleatoric),
         band("what the epistemic part adds", "epistemic-area", (r) => r.mean + r.aleatoric, (r) => r.mean + total(r)),
         band("", "epistemic-area", (r) => r.mean - total(r), (r) => r.mean - r.aleatoric)]
      : [band(`${level} % interval`, "narrow", (r) => r[`lo-${level}`], (r) => r[`hi-${level}`])];
    const lines = [{name: "mean", colour: "mean", spots: steps.length < 3, values: column(tail, (r) => r.mean)}];
    if (past.length) lines.push({name: "observed", colour: "observed", values: [...past.map(([, y]) => y), ...steps.map(() => null)]});
    else if (steps.length < 2) lines.push(...bands.flatMap((one) => [one.low, one.high].map((values) => ({name: "", colour: "mean", kind: "points", values}))));
    const x = [...past.map(([when]) => when), ...steps.map((row) => row.x)];
    const first = Math.max(0, past.length - Math.max(sent.about.window, 3 * steps.length, 48));
    const was = chart && chart.place === `${series}/${target}` ? chart.plot.scales.x : null;
    if (chart) chart.destroy();
    chart = bandChart(at("chart"), {x, bands, lines}, {
      height: 340, zoom: x.length > 2, time: sent.about.dates, zone: sent.about.zone ?? "UTC", unit: target,
      label: `Forecast of ${target} with ${parts ? "both parts of its uncertainty" : `its ${level} % interval`}`,
      show: was ? [was.min, was.max] : [x[first], x[x.length - 1]], marks: past.length ? [{x: past[past.length - 1][0], name: "ahead"}] : [],
    });
    chart.place = `${series}/${target}`;
    tell(steps, past, level, parts, target);
  }

  function tell(steps, past, level, parts, target) {
    const share = steps.reduce((sum, row) => sum + row.epistemic ** 2, 0) / steps.reduce((sum, row) => sum + row.epistemic ** 2 + row.aleatoric ** 2, 0);
    const last = steps[steps.length - 1], name = sent.columns.time ?? "ds";
    at("warnings").hidden = !answer.warnings.length || level !== LEVELS[LEVELS.length - 1];  // they are of the widest interval
    at("level-text").textContent = `${level} %`;
    at("level").setAttribute("aria-valuetext", `${level} percent`);
    const unread = sent.shown && !past.length ? " The times or values of the file could not be drawn; the forecast read them." : "";
    at("result-text").textContent = `${answer.model}, version ${answer.version}: ${steps.length === 1 ? "one step" : `${steps.length} steps`}, up to ${String(last[name]).replace("T", " ")}.${unread}`;
    at("chart-text").textContent = parts
      ? `${itocast.percent(share)} of the variance is epistemic, what the model does not know; the rest is aleatoric, noise in the data.`
      : `Of such intervals ${level} of 100 should hold what happens. At the last step: ${number(last[`lo-${level}`])} to ${number(last[`hi-${level}`])}.`;
    const columns = [name, "mean", "median", `lo-${level}`, `hi-${level}`, "aleatoric", "epistemic"];
    at("numbers").replaceChildren();
    table(at("numbers"), columns.map((one, i) => ({name: one, kind: i ? "number" : "text"})), steps.map((row) => columns.map((one, i) => (i ? row[one] : String(row[one]).replace("T", " ")))), {page: 24});
  }

  async function save(format) {
    const content = await (await post(format, [LEVELS[at("level").value]])).blob();
    const link = element("a", {href: URL.createObjectURL(content), download: `forecast.${format}`});
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // ---- what a person does

  at("level").max = LEVELS.length - 1;
  at("level").value = LEVELS.indexOf(80);
  at("model").addEventListener("change", () => {
    at("result").hidden = true;
    tellModel();
    if (file) showMapping();
  });
  at("file").addEventListener("change", (event) => attempt(() => take(event.target.files[0])));
  at("mapping").addEventListener("submit", (event) => { event.preventDefault(); attempt(forecastFile); });
  at("own").addEventListener("click", () => attempt(() => forecast("", null)));
  at("token-form").addEventListener("submit", (event) => { event.preventDefault(); token = at("token").value.trim(); ready = attempt(start); });
  for (const id of ["series", "target"]) at(id).addEventListener("change", draw);
  at("level").addEventListener("input", draw);
  document.querySelectorAll("input[name=view]").forEach((one) => one.addEventListener("change", draw));
  at("save-csv").addEventListener("click", () => attempt(() => save("csv")));
  at("save-json").addEventListener("click", () => attempt(() => save("json")));
  const over = (event) => { event.preventDefault(); at("drop").classList.add("over"); };
  document.addEventListener("dragover", over);
  document.addEventListener("dragleave", () => at("drop").classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    at("drop").classList.remove("over");
    if (!at("input").hidden) attempt(() => take(event.dataTransfer.files[0]));
  });
  ready = attempt(start);
})();
