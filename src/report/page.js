// SPDX-License-Identifier: MIT
// Draws the report from the JSON that stands in the page: charts as SVG, redrawn when the
// width or a control changes. Nothing is fetched.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;
const view = { smooth: 0.8, x: "step", logX: false, logY: false };
const drawn = []; // functions that draw a chart again
const SVG = "http://www.w3.org/2000/svg";
const EXPOSED = "waiting for messages (exposed)"; // one thing, one name on the page
const WHERE = [["compute", "computing"], ["exposed", EXPOSED], ["idle", "idle otherwise"]];

// ---- small things ----

function element(tag, attributes, ...children) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
    e.append(...children);
    return e;
}

function shape(parent, tag, attributes, text) {
    const e = document.createElementNS(SVG, tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    if (text !== undefined) e.textContent = text;
    parent.append(e);
    return e;
}

const color = i => `var(--c${i % 8})`;
const known = v => v !== null && v !== undefined && isFinite(v);

function number(v, digits = 4) {
    if (!known(v)) return "–";
    const a = Math.abs(v);
    if (a !== 0 && (a < 1e-3 || a >= 1e9)) return v.toExponential(digits > 3 ? 2 : 1);
    if (a >= 1e6) return +(v / 1e6).toPrecision(digits) + "M";
    if (a >= 1e4) return +(v / 1e3).toPrecision(digits) + "k";
    return String(+v.toPrecision(digits));
}

function counted(n, word) {
    return `${number(n, 6)} ${word}${n === 1 ? "" : "s"}`;
}

function seconds(s) {
    if (!known(s)) return "–";
    if (s < 1) return number(s * 1e3, 3) + " ms";
    if (s < 120) return number(s, 3) + " s";
    const m = Math.round(s / 60);
    return m < 60 ? m + " min" : Math.floor(m / 60) + " h " + (m % 60) + " min";
}

const percent = v => known(v) ? number(100 * v, 3) + " %" : "–";
const last = list => list[list.length - 1];

// Weighted mean of a value and its neighbours on both sides, each step away counting `keep`
// times as much as the one before: so the curve does not trail behind one that falls. The
// weights of those that are there make 1; at the newest point only older ones are.
function smoothed(y, keep) {
    const pass = list => {
        let sum = 0, weight = 0;
        return list.map(v => {
            sum = keep * sum + (known(v) ? v : 0);
            weight = keep * weight + (known(v) ? 1 : 0);
            return [sum, weight];
        });
    };
    const before = pass(y), after = pass(y.slice().reverse()).reverse();
    return y.map((v, i) => known(v) ? (before[i][0] + after[i][0] - v) /
                                      (before[i][1] + after[i][1] - 1) : null);
}

// ---- scales ----

// At least two, also where round numbers lie far apart.
function niceTicks(low, high, wanted) {
    if (!(high > low)) return [low];
    const step0 = (high - low) / Math.max(1, wanted);
    const power = Math.pow(10, Math.floor(Math.log10(step0)));
    const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= step0 * 0.999);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
        ticks.push(+(i * step).toPrecision(12));
    return ticks.length < 2 ? niceTicks(low, high, 2 * wanted) : ticks;
}

function logTicks(low, high, wanted) {
    const ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
        for (const m of [1, 2, 5]) ticks.push(m * Math.pow(10, e));
    const inside = ticks.filter(t => t >= low * 0.999 && t <= high * 1.001);
    const tens = inside.filter(t => /^1/.test(t.toExponential()));
    if (inside.length < 2) return niceTicks(low, high, wanted).filter(t => t > 0);
    return inside.length > 2 * wanted && tens.length > 1 ? tens : inside;
}

function scale(low, high, from, to, log) {
    const f = log ? Math.log : v => v;
    const a = f(low), b = f(high) > a ? f(high) : a + 1;
    return v => from + (f(v) - a) / (b - a) * (to - from);
}

function extent(lists, keep) {
    let low = Infinity, high = -Infinity;
    for (const list of lists)
        for (const v of list)
            if (known(v) && (!keep || keep(v))) {
                if (v < low) low = v;
                if (v > high) high = v;
            }
    return low <= high ? [low, high] : null;
}

// ---- a chart of lines ----

function path(x, y, sx, sy, top) {
    let d = "", pen = false;
    for (let i = 0; i < x.length; i++) {
        const px = sx(x[i]), py = known(y[i]) ? sy(y[i]) : NaN;
        if (!isFinite(px) || !isFinite(py)) { pen = false; continue; }
        d += (pen ? "L" : "M") + px.toFixed(1) + " " +
            Math.max(-2000, Math.min(py, top)).toFixed(1);
        pen = true;
    }
    return d;
}

function nearest(x, at) {
    let low = 0, high = x.length - 1;
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (x[middle] < at) low = middle; else high = middle;
    }
    return Math.abs(x[low] - at) <= Math.abs(x[high] - at) ? low : high;
}

// Parts of one bar or band add up: each begins where the one before ends.
function stack(series) {
    const floor = series[0].y.map(() => 0);
    for (const s of series) {
        s.floor = floor.slice();
        s.top = s.y.map((v, i) => floor[i] += known(v) ? v : 0);
    }
}

function frame(svg, box, xTicks, yTicks, sx, sy, format) {
    for (const t of yTicks) {
        shape(svg, "line", { class: "grid", x1: box.l, x2: box.r, y1: sy(t), y2: sy(t) });
        shape(svg, "text", { x: box.l - 6, y: sy(t) + 4, "text-anchor": "end" }, format(t));
    }
    shape(svg, "line", { class: "axis", x1: box.l, x2: box.r, y1: box.b, y2: box.b });
    for (const t of xTicks)
        shape(svg, "text", { x: sx(t), y: box.b + 16, "text-anchor": "middle" },
              view.x === "hours" ? number(t, 3) : number(t));
}

function drawMarks(svg, marks, box, sx) {
    for (const m of marks) {
        const x = sx(m.x);
        if (!(x >= box.l - 1 && x <= box.r + 1)) continue;
        const e = m.kind === "resume"
            ? shape(svg, "line", { class: "resume", x1: x, x2: x, y1: box.t, y2: box.b })
            : shape(svg, "path", { class: "checkpoint",
                                   d: `M${x - 3.5} ${box.b}h7l-3.5 -6z` });
        shape(e, "title", {}, m.title);
    }
}

function cursor(svg, box, sx, chart, show) {
    const line = shape(svg, "line", { class: "cursor", y1: box.t, y2: box.b,
                                      visibility: "hidden" });
    svg.onpointermove = event => {
        const at = event.clientX - svg.getBoundingClientRect().left;
        const xs = chart.series.map(s => s.x).find(x => x.length);
        const share = xs.map(sx);
        const i = nearest(share, at);
        line.setAttribute("x1", share[i]);
        line.setAttribute("x2", share[i]);
        line.setAttribute("visibility", "visible");
        show(xs[i]);
    };
    svg.onpointerleave = () => { line.setAttribute("visibility", "hidden"); show(null); };
}

function drawLines(svg, series, sx, sy, box) {
    const inside = "clip" + drawLines.count++;
    const clip = shape(shape(svg, "defs", {}), "clipPath", { id: inside });
    shape(clip, "rect", { x: box.l, y: box.t, width: Math.max(0, box.r - box.l),
                          height: box.b - box.t + 1 });
    const g = shape(svg, "g", { "clip-path": `url(#${inside})` });
    for (const s of series) {
        if (s.top) {
            const up = path(s.x, s.top, sx, sy, 9999);
            const back = path(s.x.slice().reverse(), s.floor.slice().reverse(), sx, sy, 9999);
            shape(g, "path", { d: up + back.replace("M", "L") + "Z", fill: s.color });
            continue;
        }
        if (s.faint)
            shape(g, "path", { d: path(s.x, s.faint, sx, sy, 9999), fill: "none",
                               stroke: s.color, "stroke-width": 1, opacity: .28 });
        shape(g, "path", { d: path(s.x, s.y, sx, sy, 9999), fill: "none", stroke: s.color,
                           "stroke-width": 1.8, "stroke-linejoin": "round",
                           "stroke-dasharray": s.dashed ? "6 4" : "none" });
        for (let i = 0; (s.dots || s.x.length === 1) && i < s.x.length; i++)
            if (known(s.y[i]))
                shape(g, "circle", { cx: sx(s.x[i]), cy: sy(s.y[i]), r: 2.6, fill: s.color });
    }
}
drawLines.count = 0;

// make() gives {series, of, zero, format, log}: asked again at every drawing; of: the runs
// whose checkpoints and starts are marked, all when not given.
function lineChart(parent, title, make, options = {}) {
    const legend = element("div", { class: "legend" });
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", title);
    parent.append(element("section", { class: "card" + (options.wide ? " wide" : "") },
                          element("h2", {}, title), legend, svg));
    drawn.push(() => {
        const chart = make();
        const width = svg.clientWidth || 600, height = options.height || 220;
        const box = { l: 52, r: width - 12, t: 8, b: height - 24 };
        const format = chart.format || number;
        const log = chart.log && view.logY;
        if (chart.stacked) stack(chart.series);
        const ys = extent(chart.series.map(s => s.top || s.y), log ? v => v > 0 : null);
        const xs = extent(chart.series.map(s => s.x), view.logX ? v => v > 0 : null);
        svg.replaceChildren();
        svg.setAttribute("height", height);
        if (!ys || !xs) {
            shape(svg, "text", { x: box.l, y: height / 2 }, "nothing recorded");
            return;
        }
        const margin = log ? 0 : 0.06 * (ys[1] - ys[0] || Math.abs(ys[1]) || 1);
        const low = chart.zero && !log ? 0 : log ? ys[0] / 1.03 : ys[0] - margin;
        const high = log ? ys[1] * 1.03 : ys[1] + margin;
        const sx = scale(xs[0], xs[1], box.l, box.r, view.logX);
        const sy = scale(low, high, box.b, box.t, log);
        const across = Math.max(2, Math.min(8, Math.floor(width / 90)));
        frame(svg, box, view.logX ? logTicks(xs[0], xs[1], across) : niceTicks(xs[0], xs[1], across),
              log ? logTicks(low, high, 5) : niceTicks(low, high, 5), sx, sy, format);
        drawLines(svg, chart.series, sx, sy, box);
        drawMarks(svg, marksOf(chart.of), box, sx);
        const show = at => {
            legend.replaceChildren(...chart.series.filter(s => !s.unnamed).map(s => {
                const i = at === null ? s.x.length - 1 : nearest(s.x, at);
                const chip = element("i", { style: `background:${s.color}` });
                return element("span", {}, chip, s.name + " ",
                               element("b", {}, format(s.y[i])));
            }), at === null ? "" : element("span", {}, `${axisName()} ${number(at)}`));
        };
        show(null);
        cursor(svg, box, sx, chart, show);
    });
}

// ---- what the charts show ----

const axisName = () => ({ step: "step", tokens: "tokens", hours: "hours" })[view.x];

// x of each point and of any step, on the axis that is chosen.
function prepare(run) {
    let sum = 0, before = 0;
    run.hours = run.step.map((s, i) => {
        sum += (s - before) * (run.step_s[i] || 0) / 3600;
        before = s;
        return sum;
    });
    run.hidden_s = run.comm_busy_s.map((v, i) => known(v) ? v - run.comm_exposed_s[i] : null);
    run.share = run.step_s.map((s, i) => s > 0 ? run.comm_exposed_s[i] / s : null);
}

const xOf = run => run[view.x];

function xAt(run, step) {
    if (view.x === "step" || !run.step.length) return step;
    return xOf(run)[nearest(run.step, step)];
}

function marksOf(of = runs) {
    return of.flatMap(run => run.events.filter(
        e => e.event === "checkpoint" || (e.event === "start" && e.step > 0)).map(e => ({
        x: xAt(run, e.step),
        kind: e.event === "start" ? "resume" : "checkpoint",
        title: `${run.name}: ${e.event === "start" ? "resumed at" : "checkpoint of"} step ${e.step}`
    })));
}

function perRun(key, smooth) {
    return runs.map((run, i) => ({
        name: run.name, color: color(i), x: xOf(run),
        y: smooth ? smoothed(run[key], view.smooth) : run[key],
        faint: smooth && view.smooth > 0 ? run[key] : null
    }));
}

function lossChart() {
    const series = perRun("loss", true);
    runs.forEach((run, i) => {
        if (run.val.length)
            series.push({ name: (runs.length > 1 ? run.name + " " : "") + "validation",
                          color: runs.length > 1 ? color(i) : color(1), dashed: true,
                          dots: run.val.length < 80,
                          x: run.val.map(v => xAt(run, v[0])), y: run.val.map(v => v[1]) });
    });
    if (runs.length === 1) series[0].name = "training";
    return { series, log: true };
}

function whereTimeGoes(run) {
    return { stacked: true, zero: true, format: seconds, of: [run],
             series: WHERE.map(([key, name]) => ({
                 name, color: `var(--${key})`, x: xOf(run),
                 y: smoothed(run[key === "exposed" ? "comm_exposed_s" : key + "_s"],
                             view.smooth) })) };
}

function messages() {
    if (runs.length > 1)
        return { zero: true, format: percent, series: perRun("share", true) };
    const run = runs[0];
    return { zero: true, format: seconds, series: [
        { name: EXPOSED, color: "var(--exposed)", x: xOf(run),
          y: smoothed(run.comm_exposed_s, view.smooth) },
        { name: "hidden behind computing", color: "var(--hidden)", x: xOf(run),
          y: smoothed(run.hidden_s, view.smooth) }] };
}

// ---- balance of the ranks ----

function balance(parent, run) {
    const svg = document.createElementNS(SVG, "svg");
    const b = run.ranks, n = b.wall_s.length;
    const legend = element("div", { class: "legend" }, ...WHERE.map(([key, name]) =>
        element("span", {}, element("i", { style: `background:var(--${key})` }), name)));
    const left = run.totals.steps - b.steps;
    parent.append(element("section", { class: "card wide" },
        element("h2", {}, `Ranks: where the time of ${counted(b.steps, "step")} went` +
                          (runs.length > 1 ? ` (${run.name})` : "")), legend,
        left > 0 ? element("p", { class: "soft small" }, `Not in it: ${counted(left, "step")} ` +
            "before the number of ranks changed, or the last before a process ended early.") : "",
        svg));
    drawn.push(() => {
        const width = svg.clientWidth || 600, height = 170;
        const box = { l: 52, r: width - 12, t: 8, b: height - 24 };
        const most = Math.max(...b.wall_s) || 1;
        const sy = scale(0, most, box.b, box.t);
        const each = (box.r - box.l) / n, bar = Math.min(46, each * 0.84);
        svg.replaceChildren();
        svg.setAttribute("height", height);
        frame(svg, box, [], niceTicks(0, most, 4), null, sy, seconds);
        for (let r = 0; r < n; r++) {
            const x = box.l + (r + .5) * each - bar / 2;
            const parts = [b.compute_s[r], b.exposed_s[r], b.idle_s[r]];
            let sum = 0;
            parts.forEach((v, k) => {
                const e = shape(svg, "rect", { x, width: bar, y: sy(sum + v),
                    height: Math.max(0, sy(sum) - sy(sum + v)), fill: `var(--${WHERE[k][0]})` });
                shape(e, "title", {}, `rank ${r}: ${WHERE[k][1]} ${seconds(v)}, ` +
                                      percent(v / b.wall_s[r]));
                sum += v;
            });
            if (n <= 32 || r % Math.ceil(n / 16) === 0)
                shape(svg, "text", { x: x + bar / 2, y: box.b + 16, "text-anchor": "middle" }, r);
        }
    });
}

// ---- one step of the timeline ----

const PHASES = ["forward", "head", "backward", "gradient", "update", "other"];
const PHASE_NAMES = ["forward", "head and loss", "backward", "weight gradients", "update, sums",
                     "other"];
const OPERATIONS = [["reduce", "--exposed"], ["return", "--hidden"], ["rows", "--c3"],
                    ["agree", "--c4"]];

function timeline(parent, step) {
    const svg = document.createElementNS(SVG, "svg");
    const chips = PHASES.map((p, i) => [`var(--${p})`, PHASE_NAMES[i]]).concat(
        OPERATIONS.map(([name, c]) => [`var(${c})`, name]));
    parent.append(element("section", { class: "card wide" },
        element("h2", {}, `Timeline of step ${step.step} (${seconds(step.length_s)})`),
        element("div", { class: "legend" }, ...chips.map(([c, name]) =>
            element("span", {}, element("i", { style: `background:${c}` }), name))),
        element("p", { class: "soft small" }, "Tasks of each worker on top; below them, block " +
            "by block, the messages: thin from the call, thick while they move."), svg));
    drawn.push(() => {
        const width = svg.clientWidth || 600, l = 86, r = width - 12;
        const sx = scale(0, step.length_s, l, r);
        let y = 6;
        svg.replaceChildren();
        for (const rank of step.ranks) {
            rank.workers.forEach((tasks, w) => {
                shape(svg, "text", { x: l - 6, y: y + 12, "text-anchor": "end" },
                      rank.workers.length > 1 ? `rank ${rank.rank} w${w}` : `rank ${rank.rank}`);
                for (const [phase, begin, end] of tasks)
                    shape(svg, "rect", { x: sx(begin), y, height: 16,
                        width: Math.max(.6, sx(end) - sx(begin)), fill: `var(--${PHASES[phase]})` });
                y += 18;
            });
            for (const rows of rank.operations) {
                for (const [kind, posted, begun, end, label] of rows) {
                    const fill = `var(${OPERATIONS[kind][1]})`;
                    const g = shape(svg, "g", {});
                    shape(g, "title", {}, label);
                    shape(g, "rect", { x: sx(posted), y: y + 2, height: 1.5, fill,
                                       width: Math.max(.6, sx(begun) - sx(posted)) });
                    shape(g, "rect", { x: sx(begun), y, height: 5, fill,
                                       width: Math.max(1, sx(end) - sx(begun)) });
                }
                y += 6;
            }
            y += 10;
        }
        for (const t of niceTicks(0, step.length_s, Math.max(3, width / 120)))
            shape(svg, "text", { x: sx(t), y: y + 8, "text-anchor": "middle" }, seconds(t));
        svg.setAttribute("height", y + 14);
    });
}

// ---- text ----

// What a run came to: names and values. The loss is that of the chart's legend; what is
// overall is a share of the time of all steps, as the sums of metrics.jsonl give it.
function summary(run) {
    const best = run.val.length ? Math.min(...run.val.map(v => v[1])) : null;
    const starts = run.events.filter(e => e.event === "start");
    const t = run.totals;
    const rows = [
        ["training loss, smoothed", number(last(smoothed(run.loss, view.smooth)))],
        ["best validation loss", number(best)],
        ["steps", number(last(run.step), 6)],
        ["tokens", number(last(run.tokens), 3)],
        ["time of steps", seconds(t.step_s)],
        ["tokens a second, overall", number(t.tokens_per_s, 3)],
        ["of the peak (MFU), overall", percent(t.mfu)],
        [EXPOSED + ", overall", percent(t.exposed)],
    ];
    if (starts.length)
        rows.push(["ranks × workers", `${last(starts).ranks} × ${last(starts).workers}`]);
    return rows;
}

// One run: a tile a figure; several: a column a run, so that a narrow screen holds them.
function tiles(parent) {
    const done = runs.filter(run => run.step.length);
    if (!done.length) return;
    const place = element("div", {});
    parent.append(place);
    drawn.push(() => {
        const rows = done.map(summary);
        if (runs.length > 1) {
            const names = rows.reduce((a, b) => a.length >= b.length ? a : b).map(r => r[0]);
            place.replaceChildren(element("section", { class: "card summary" },
                table(["", ...done.map(run => run.name)], names.map((name, k) =>
                    [name, ...rows.map(r => r[k] ? r[k][1] : "–")]))));
            return;
        }
        place.replaceChildren(element("div", { class: "tiles" }, ...rows[0].map(([name, value]) =>
            element("div", { class: "tile" }, element("b", {}, value),
                    element("span", { class: "soft small" }, name)))));
    });
}

function table(head, rows) {
    const line = (tag, cells) => element("tr", {}, ...cells.map(c => element(tag, {}, c)));
    return element("div", { class: "scroll" }, element("table", {},
        element("thead", {}, line("th", head)),
        element("tbody", {}, ...rows.map(r => line("td", r)))));
}

function differences(parent) {
    const names = [...new Set(runs.flatMap(r => Object.keys(r.options)))].sort();
    const rows = names.map(n => [n, ...runs.map(r => r.options[n] === undefined ? "–" : r.options[n])]);
    const differing = rows.filter(r => new Set(r.slice(1)).size > 1);
    const head = ["option", ...runs.map(r => r.name)];
    const card = element("section", { class: "card wide" });
    if (runs.length > 1) {
        card.append(element("h2", {}, "Options that differ"),
                    differing.length ? table(head, differing)
                                     : element("p", { class: "soft" }, "none"));
        parent.append(card);
    }
    const all = element("section", { class: "card wide" },
        element("details", {}, element("summary", {}, "All options"), table(head, rows)));
    parent.append(all);
}

// 2026-11-30 14:05, in the reader's time.
function date(time) {
    const shift = new Date(time * 1000).getTimezoneOffset() * 60;
    return new Date((time - shift) * 1000).toISOString().slice(0, 16).replace("T", " ");
}

function history(parent) {
    const several = runs.length > 1;
    const rows = runs.flatMap(run => run.events.filter(e => e.event !== "checkpoint").map(e => [
        date(e.time), ...(several ? [run.name] : []),
        e.event === "start" ? (e.step > 0 ? "resumed" : "started") : e.why, number(e.step, 6),
        e.event === "start" ? `${e.ranks} × ${e.workers}, ${e.strategy}, ${e.library}, ` +
            `${e.tasks}, kernels ${e.kernels}, weft ${e.version}` : ""]));
    if (rows.length)
        parent.append(element("section", { class: "card wide history" },
            element("h2", {}, "What happened"),
            table(["when", ...(several ? ["run"] : []), "what", "step", ""], rows)));
}

function controls(parent) {
    const smooth = element("input", { type: "range", min: 0, max: 0.99, step: 0.01,
                                      value: view.smooth, id: "smooth" });
    const axis = element("select", { id: "axis" }, ...["step", "tokens", "hours"].map(v =>
        element("option", { value: v }, v)));
    const logY = element("input", { type: "checkbox", id: "log-y" });
    const logX = element("input", { type: "checkbox", id: "log-x" });
    smooth.oninput = () => { view.smooth = +smooth.value; draw(); };
    axis.onchange = () => { view.x = axis.value; draw(); };
    logY.onchange = () => { view.logY = logY.checked; draw(); };
    logX.onchange = () => { view.logX = logX.checked; draw(); };
    parent.append(element("div", { class: "controls" },
        element("label", {}, "smoothing", smooth), element("label", {}, "over", axis),
        element("label", {}, logY, "log values"), element("label", {}, logX, "log axis"),
        element("span", { class: "soft small" }, "▲ checkpoint, dashed line: resumed; " +
            "numbers above the charts: the newest point, smoothed")));
}

function draw() {
    for (const again of drawn) again();
}

function build() {
    const head = document.getElementById("head"), page = document.getElementById("page");
    const charts = element("div", { class: "charts" });
    runs.forEach(prepare);
    tiles(head);
    controls(page);
    page.append(charts);
    lineChart(charts, "Loss", lossChart, { wide: true, height: 320 });
    lineChart(charts, "Learning rate", () => ({ series: perRun("lr"), zero: true, log: true }));
    lineChart(charts, "Gradient norm", () => ({ series: perRun("grad_norm", true), zero: true,
                                                log: true }));
    lineChart(charts, "Tokens a second", () => ({ series: perRun("tokens_per_s", true),
                                                  zero: true }));
    lineChart(charts, "Share of the peak (MFU)", () => ({ series: perRun("mfu", true), zero: true,
                                                          format: percent }));
    lineChart(charts, runs.length > 1 ? "Exposed communication, share of the step"
                                      : "Communication in a step of rank 0", messages);
    lineChart(charts, "A step of rank 0" + (runs.length > 1 ? ` (${runs[0].name})` : ""),
              () => whereTimeGoes(runs[0]));
    for (const run of runs)
        if (run.ranks) balance(charts, run);
    if (data.timeline) timeline(charts, data.timeline);
    differences(charts);
    history(charts);
    draw();
    let width = document.body.clientWidth;
    addEventListener("resize", () => {
        if (document.body.clientWidth !== width) {
            width = document.body.clientWidth;
            draw();
        }
    });
}

build();
})();
