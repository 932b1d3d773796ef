/* Draws the figures of a report into the sections of report.html. */
"use strict";

(() => {
  const {bandChart, table, number, figure, percent, element, time} = itocast;
  const f = JSON.parse(document.getElementById("figures").textContent);
  const at = (id) => document.getElementById(id);
  const drop = (id) => at(id).remove();
  const write = (id, text) => { at(id).textContent = text; };
  const seconds = (instant) => (f.clock.dates ? instant / 1e6 : instant);
  const clock = {time: f.clock.dates, zone: f.clock.zone, days: f.clock.days};
  const when = (instant) => time(seconds(instant), clock);
  const points = (value) => `${number(value)} %`;
  const several = f.lines.lines.length > 1;

  write("says", f.says.join(" "));

  // ---- the course of a series

  const decode = (values, [shift, unit]) => values.map((k) => (k === null ? null : (shift + k) * unit));

  function course(line) {
    const [first, steps] = line.time;
    const x = [first];
    for (const [step, count] of steps) for (let i = 0; i < count; i++) x.push(x[x.length - 1] + step);
    const part = (name) => decode(line[name], line.scale);
    const deviation = ({unit, values}) => values.map((k) => (k === null || k <= 0 ? null : k * unit));
    return {
      x: x.map((k) => seconds(k * f.lines.tick)),
      forecast: {
        bands: [
          {name: "95 % interval", low: part("lo-95"), high: part("hi-95"), colour: "wide"},
          {name: "80 % interval", low: part("lo-80"), high: part("hi-80"), colour: "narrow"},
        ],
        lines: [
          {name: "mean", values: part("mean"), colour: "mean"},
          {name: "observed", values: part("y"), colour: "observed", kind: "points"},
        ],
      },
      parts: {lines: ["aleatoric", "epistemic"].map((name) => ({name, values: deviation(line[name]), colour: name}))},
    };
  }

  const FIRST = innerWidth < 600 ? 120 : 336;  // points that are shown at first
  let drawn = [];

  function draw(line) {
    drawn.forEach((chart) => chart.destroy());
    const {x, forecast, parts} = course(line);
    const marks = line.past < x.length ? [{x: (x[line.past - 1] + x[line.past]) / 2, name: "ahead"}] : [];
    const shared = {...clock, sync: "course", marks, show: [x[Math.max(0, x.length - FIRST)], x[x.length - 1]]};
    const positive = parts.lines.every((one) => one.values.some((value) => value !== null));
    const log = {log: positive && parts.lines.length > 1};
    if (!positive) parts.lines = parts.lines.filter((one) => one.values.some((value) => value !== null));
    write("chosen", several ? line.name : "");
    drawn = [
      bandChart(at("course"), {x, ...forecast}, {...shared, height: 320, zoom: true, unit: f.unit || f.targets.join(", "), label: `Forecasts of ${line.name} with intervals, and outcomes`}),
      bandChart(at("deviations"), {x, ...parts}, {...shared, ...log, height: 170, zoom: true, tools: false, unit: f.unit ? `deviation (${f.unit})` : "deviation", label: "Aleatoric and epistemic deviation"}),
    ];
    return drawn[0];
  }

  let chart = draw(f.lines.lines[0]);
  const steps = f.horizon > 1 ? ` Forecasts follow one another every ${f.horizon} steps, each made at the end of the one before.` : "";
  write("forecast-text", `The end of the rows that were looked at${f.lines.ahead ? ", and the forecast of what comes next" : ""}.${steps}`);

  let list = null;
  if (several) {
    const shown = f.lines.lines.length, all = f.lines.of;
    const kept = shown < all ? ` ${shown.toLocaleString("en")} of ${all.toLocaleString("en")} are in this file, evenly spaced.` : "";
    write("series-text", `Choose one to see its course. Figures are of the points in its chart.${kept}`);
    const columns = [
      {name: "series", kind: "text"}, {name: "forecasts", kind: "number"}, {name: "RMSE", kind: "number", format: figure},
      {name: "inside 80 %", kind: "number", format: percent}, {name: "inside 95 %", kind: "number", format: percent},
      {name: "width of 95 %", kind: "number", format: figure}, {name: "epistemic share", kind: "number", format: percent},
    ];
    const rows = f.lines.lines.map((l) => [l.name, l.forecasts, l.rmse, l.coverage_80, l.coverage_95, l.width_95, l.share]);
    const pick = (row, index) => {
      chart = draw(f.lines.lines[index]);
      at("forecast").scrollIntoView({block: "start"});
    };
    list = table(at("series-table"), columns, rows, {search: "Search series", page: 12, pick, label: "All series"});
    list.choose(0);
  } else {
    drop("series");
  }

  // ---- scores

  const SCORES = [
    ["RMSE", "rmse", figure], ["R²", "r2", figure], ["CRPS", "crps", figure], ["pinball", "pinball", figure], ["NLL (nats)", "nll", figure],
    ["CWCE", "cwce", figure], ["width (EPIW)", "epiw", figure], ["inside 80 %", "coverage_80", percent], ["inside 95 %", "coverage_95", percent],
  ];
  const unit = f.unit ? ` in ${f.unit}` : " in the target's unit";
  write("scores-text", `${f.forecasts.toLocaleString("en")} forecasts, the same for all. RMSE, CRPS, pinball and width are${unit}; smaller is better, but for R². A reference is a single number: its CRPS is its absolute error.`);
  table(at("scores-table"), [{name: "forecast", kind: "text"}, ...SCORES.map(([name, , format]) => ({name, kind: "number", format}))],
    f.scores.map((row) => [row.name, ...SCORES.map(([, key]) => row[key] ?? null)]), {label: "Scores"});

  // ---- trust

  const c = f.calibration;
  bandChart(at("calibration"), {
    x: c.expected,
    bands: [{name: "chance", low: c.low, high: c.high, colour: "chance"}],
    lines: [{name: "right", values: c.expected, colour: "reference", dash: [5, 4], width: 1}, {name: "observed", values: c.observed, colour: "mean", width: 2}],
  }, {height: 270, unit: "inside, %", xLabel: "should be inside, %", range: [0, 100], format: points, label: "Observed against expected coverage"});
  const off = (values) => values.map((value, i) => value - c.expected[i]);
  bandChart(at("calibration"), {
    x: c.expected, bands: [{name: "chance", low: off(c.low), high: off(c.high), colour: "chance"}],
    lines: [{name: "observed minus expected", values: off(c.observed), colour: "mean", width: 2}],
  }, {height: 150, unit: "difference, percentage points", label: "Observed minus expected coverage"});
  const bins = f.pit.observed.length, edges = f.pit.observed.map((_, i) => `${(100 * i / bins).toFixed(0)}`);
  bandChart(at("pit"), {
    x: f.pit.observed.map((_, i) => i),
    bands: [{name: "chance", low: f.pit.low, high: f.pit.high, colour: "chance"}],
    lines: [{name: "outcomes", values: f.pit.observed, colour: "bars", kind: "bars"}],
  }, {
    height: 300, unit: "share of outcomes, %", xLabel: "probability below the outcome, %", names: edges, format: points,
    range: [0, Math.max(2 * 100 / bins, 1.1 * Math.max(...f.pit.observed))], label: "PIT histogram",
    title: (i) => `${edges[i]} to ${edges[i + 1] ?? 100} %`,
  });

  const levels = Object.entries(f.coverage).map(([level, one]) => [`${level} %`, one.observed, `${percent(one.low)} to ${percent(one.high)}`]);
  table(at("levels"), [{name: "interval", kind: "text"}, {name: "inside", kind: "number", format: percent}, {name: "chance", kind: "number", format: String}],
    levels, {label: "Coverage by level"});

  const NAMES = {step: "step ahead", hour: "hour of day", weekday: "day of week"};
  for (const [name, t] of Object.entries(f.by)) {
    const x = t.part.map((_, i) => i);
    const names = name === "weekday" ? t.part.map((day) => day.slice(0, 3)) : t.part;
    const title = (i) => `${name === "step" ? "step " : ""}${t.part[i]}, ${t.forecasts[i].toLocaleString("en")} forecasts`;
    for (const kind of ["coverage", "width"]) {
      const box = element("div", {}, element("h3", {}, `${kind === "coverage" ? "Coverage" : "Mean width"} by ${NAMES[name]}`));
      at("by-charts").append(box);
      const rows = [[95, "mean"], [80, "second"]];
      if (kind === "coverage") {
        bandChart(box, {
          x, bands: rows.map(([level]) => ({name: level === 95 ? "chance" : "", low: t[`low_${level}`], high: t[`high_${level}`], colour: "chance"})),
          lines: rows.map(([level, colour]) => ({name: `inside ${level} %`, values: t[`observed_${level}`], colour, spots: true})),
        }, {names, title, unit: "inside, %", format: points, height: 220, label: `Coverage by ${NAMES[name]}`});
      } else {
        bandChart(box, {x, lines: rows.map(([level, colour]) => ({name: `${level} % interval`, values: t[`width_${level}`], colour, spots: true}))},
          {names, title, unit: f.width_unit || f.targets.join(", "), zero: true, height: 220, label: `Mean width by ${NAMES[name]}`});
      }
    }
  }
  if (!Object.keys(f.by).length) drop("by");

  const share = f.shares.epistemic;
  if (share.length > 1) {
    const rest = share.map((s) => 100 - s), most = Math.max(...share), top = most < 25 ? Math.max(1.5 * most, 0.1) : 100;
    bandChart(at("shares-chart"), {
      x: f.shares.time.map(seconds),
      bands: [
        {name: "aleatoric", low: share, high: share.map(() => 100), colour: "aleatoric-area", says: rest},
        {name: "epistemic", low: share.map(() => 0), high: share, colour: "epistemic-area", says: share},
      ],
    }, {...clock, unit: `share of the variance, %${top < 100 ? ` (the axis ends at ${number(top)} %)` : ""}`, range: [0, top], format: points, height: 220, label: "Shares of the variance over time"});
  } else {
    drop("shares");
  }

  // ---- misses, findings, training

  const missColumns = [
    {name: "time", kind: "number", format: when}, ...(several ? [{name: "series", kind: "text"}] : []), ...(f.horizon > 1 ? [{name: "step", kind: "number"}] : []),
    ...["observed", "mean", "95 % from", "to"].map((name) => ({name, kind: "number", format: figure})),
    {name: "deviations", kind: "number", format: (value) => value.toFixed(1)},
  ];
  const missRows = f.misses.map((m) => [m.time, ...(several ? [m.name] : []), ...(f.horizon > 1 ? [m.step] : []), m.y, m.mean, m.low, m.high, m.deviations]);
  table(at("misses-table"), missColumns, missRows, {
    label: "Worst misses",
    pick: (row, index) => {
      const miss = f.misses[index], place = f.lines.lines.findIndex((line) => line.key === miss.key);
      if (place < 0) return;
      if (several) { chart = draw(f.lines.lines[place]); list.choose(place); }
      const x = chart.plot.data[0], each = (x[x.length - 1] - x[0]) / Math.max(x.length - 1, 1);
      chart.show(seconds(miss.time) - 84 * each, seconds(miss.time) + 84 * each);
      at("forecast").scrollIntoView({block: "start"});
    },
  });

  if (f.doctor.findings.length) {
    at("findings").append(element("ol", {}, ...f.doctor.findings.map(([says, remedy]) =>
      element("li", {}, element("p", {}, says), element("p", {class: "muted"}, `Remedy: ${remedy}.`)))));
  } else {
    at("findings").append(element("p", {}, "Nothing stands out: what differs is noise, or too little to matter."));
  }
  write("doctor-text", f.doctor.text);

  const t = f.training;
  write("training-text", `${f.parameters.toLocaleString("en")} parameters; ${t.epoch.length} epoch${t.epoch.length > 1 ? "s" : ""} in ${number(t.seconds)} s (${t.stopped}), of which the weights of epoch ${t.best} were kept. Calibration: ${f.calibrator}.`);
  if (t.epoch.length > 1) {
    bandChart(at("training-chart"), {
      x: t.epoch, lines: [{name: "training", values: t.train, colour: "second", spots: true}, {name: "validation", values: t.validation, colour: "mean", spots: true}],
    }, {height: 220, unit: "loss, nats in the scale of the model", xLabel: "epoch", marks: [{x: t.best, name: "kept"}], whole: true, label: "Training curves"});
  }

  // ---- how to make it again

  const pairs = (rows) => rows.filter(([, value]) => value !== null && value !== undefined);
  const two = [{name: "", kind: "text"}, {name: "", kind: "text"}];
  const d = f.data;
  const about = [["rows", d.rows.toLocaleString("en")], ["series", d.series.toLocaleString("en")], ["step", d.freq], ["first", d.first], ["last", d.last],
    ["trained until", d["trained until"]], ["SHA-256 of series, times, targets", d.sha256]];
  for (const [name, one] of Object.entries(d.targets)) {
    about.push([name, `${number(one.least)} to ${number(one.most)}, mean ${number(one.mean)}, deviation ${number(one.deviation)}, ${one.missing.toLocaleString("en")} missing`]);
  }
  table(at("data-table"), two, pairs(about), {plain: true, label: "Data", page: 40});
  table(at("versions-table"), two, [...Object.entries(f.made.versions), ["seed", String(f.made.seed)]], {plain: true, label: "Versions"});
  write("made-text", "The same rows, settings, seed, versions and number of threads give the same figures.");
  write("settings", f.made.settings);
})();
