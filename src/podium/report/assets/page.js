// Draws every chart of the page: <div class="plot" data-chart="K"> is chart K of the JSON in #charts. Colours come from the
// stylesheet, so a change between light and dark draws anew. Nothing is fetched.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const lines = ["#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#17becf", "#8c564b", "#e377c2"];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (v) => {
    const a = Math.abs(v);
    if (a >= 1e6) return (v / 1e6).toPrecision(3) + "M";
    if (a >= 1e4) return (v / 1e3).toPrecision(3) + "k";
    if (a !== 0 && a < 1e-3) return v.toExponential(1);
    return String(Number(v.toPrecision(4)));
  };
  const formats = { number: short, percent: (v) => Number((v * 100).toPrecision(4)) + " %" };

  function draw(place) {
    const chart = charts[Number(place.dataset.chart)];
    const write = formats[chart.format];
    const value = (v) => (v == null ? "–" : write(v));
    const axis = (label, values) => ({
      label, values, stroke: colour("--quiet"), labelSize: 22, size: 56, font: "12px system-ui", labelFont: "12px system-ui",
      grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 },
    });
    const options = {
      width: place.clientWidth, height: 250,
      scales: { x: { time: false, distr: chart.log_x ? 3 : 1, log: 2 }, y: { distr: chart.log_y ? 3 : 1, range: chart.range } },
      axes: [
        { ...axis(chart.x, (_, ticks) => ticks.map((v) => (v == null ? "" : short(v)))), size: 40 },
        axis(chart.y, (_, ticks) => ticks.map((v) => (v == null ? "" : write(v)))),
      ],
      cursor: { sync: { key: chart.x } },
      series: [
        { label: chart.x, value: (_, v) => (v == null ? "–" : short(v)) },
        ...chart.series.map((s, k) => ({
          label: s.label, stroke: lines[k % lines.length], width: 2, spanGaps: true, dash: s.dashed ? [6, 4] : undefined,
          points: { show: s.x.length < 40, size: 5 }, value: (_, v) => value(v),
        })),
      ],
    };
    if (!chart.range) delete options.scales.y.range;
    const data = uPlot.join(chart.series.map((s) => [s.x, s.y]));
    place.replaceChildren();
    return new uPlot(options, data, place);
  }

  const places = [...document.querySelectorAll(".plot")];
  let drawn = [];
  const drawAll = () => { drawn.forEach((plot) => plot.destroy()); drawn = places.map(draw); };
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("resize", () => drawn.forEach((plot, k) => plot.setSize({ width: places[k].clientWidth, height: 250 })));
  document.documentElement.dataset.drawn = String(drawn.length);
})();
