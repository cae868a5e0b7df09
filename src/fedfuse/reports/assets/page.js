"use strict";
(() => {
  // After Okabe and Ito's colour-blind safe palette, and lighter colours for the dark theme.
  const PALETTES = {
    light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7a5195", "#7f8c95", "#1b1f23", "#a3263a"],
    dark: ["#56b4e9", "#f08a4b", "#3ec79e", "#e39cc2", "#e6c14a", "#9ad1f5", "#b48ad0", "#9fadb9", "#f4f6f8", "#ff8595"],
  };
  const SCALES = {
    light: [[0, "#ffffff"], [0.15, "#d7e8f3"], [0.5, "#6aaed3"], [1, "#08519c"]],
    dark: [[0, "#181f26"], [0.15, "#1d3547"], [0.5, "#2f78a8"], [1, "#9ad1f5"]],
  };
  const SHADES = { light: ["#c6d3dd", "#08519c"], dark: ["#34424e", "#9ad1f5"] };
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  let userTheme = null; // null: follow the system
  let figures = {};
  let printing = false;

  const theme = () => printing ? "light" : userTheme || (prefersDark.matches ? "dark" : "light");
  const css = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

  function colour(name) {
    const [key, amount] = name.slice(1).split("/");
    if (key === "scale") return SCALES[theme()];
    if (key === "shade") {
      const [low, high] = SHADES[theme()].map(channels);
      return `rgb(${low.map((v, i) => Math.round(v + (high[i] - v) * Number(amount))).join(",")})`;
    }
    if (key === "veil") return css("panel");
    if (!/^\d+$/.test(key)) return css(key);
    const palette = PALETTES[theme()];
    const hex = palette[Number(key) % palette.length];
    return amount === undefined ? hex : `rgba(${channels(hex).join(",")},${amount})`;
  }

  // Replace colour names by colours. Past the palette, dashes distinguish lines of the same colour.
  function withColours(value) {
    if (typeof value === "string" && value.startsWith("@")) return colour(value);
    if (Array.isArray(value)) return value.map(withColours);
    if (value === null || typeof value !== "object") return value;
    const result = {};
    for (const [key, inner] of Object.entries(value)) result[key] = withColours(inner);
    const index = typeof value.color === "string" && /^@\d+$/.test(value.color) ? Number(value.color.slice(1)) : 0;
    const colours = PALETTES.light.length;
    if (result.dash === "solid" && index >= colours) result.dash = DASHES[Math.floor(index / colours) % DASHES.length];
    return result;
  }

  // On paper, A4 with the margins of page.css, plots have the widths that page.css gives them.
  const onPaper = (element) => element.matches(".block.whole .plot") && !element.matches(".choice:not(.whole) .plot") ? 650 : 315;

  function layout(own, height, width) {
    const axis = { gridcolor: css("faint"), linecolor: css("faint"), zerolinecolor: css("faint"), tickcolor: css("faint") };
    const settings = withColours(own);
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: css("soft") },
      margin: { l: 12, r: 12, t: 12, b: 12 }, height,
      legend: { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom", font: { size: width < 480 ? 11 : 12.5, color: css("ink") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: css("soft"), activecolor: css("ink") },
      hoverlabel: { bgcolor: css("panel"), bordercolor: css("faint"), font: { color: css("ink") } },
      dragmode: false,
      ...settings,
      xaxis: { ...axis, ...settings.xaxis, fixedrange: true },
      yaxis: { ...axis, ...settings.yaxis, fixedrange: true },
    };
  }

  const CONFIG = {
    displaylogo: false, responsive: true,
    modeBarButtons: [["toImage"]],
  };

  function draw(element) {
    const figure = figures[element.dataset.figure];
    if (!figure || element.offsetParent === null || !window.Plotly) return;
    element.dataset.drawn = theme();
    const width = printing ? onPaper(element) : element.clientWidth;
    const square = figure.layout.yaxis && figure.layout.yaxis.scaleanchor;
    const labelled = figure.data.some((trace) => trace.mode === "markers+text"); // its texts need their room
    const lower = printing && !labelled ? Math.max(220, 0.72 * figure.height) : figure.height;
    const height = square ? Math.min(figure.height, width) : lower;
    element.style.minHeight = `${height}px`;
    const settings = layout(figure.layout, height, width);
    if (printing) settings.width = width;
    Plotly.react(element, withColours(figure.data), settings, CONFIG);
  }

  // A page in one file holds plotly as gzip in base64.
  async function unpackPlotly() {
    const packed = document.getElementById("plotly");
    if (!packed) return;
    const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
    const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
    packed.remove();
  }

  function sayNoFigures() {
    const file = document.querySelector("script[src]");
    const text = file ? `${file.getAttribute("src")} is not beside this page: put it there to see the figures.`
      : "This browser cannot unpack the figures: open the page in one of 2023 or newer.";
    document.querySelectorAll(".plot").forEach((plot) => { plot.textContent = text; plot.style.minHeight = 0; });
  }

  // Say that a table can be scrolled where its columns do not fit.
  const fits = new ResizeObserver((entries) => {
    for (const { target } of entries) target.previousElementSibling.hidden = target.scrollWidth <= target.clientWidth + 1;
  });

  // Draw a figure only when it comes near the screen, so that a long page opens quickly.
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting && entry.target.dataset.drawn !== theme()) draw(entry.target);
  }, { rootMargin: "600px" });

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.order || row.cells[column].textContent.replace(/[>,%\s]/g, "");
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [parseFloat(key(a)), parseFloat(key(b))];
        const order = Number.isNaN(x) || Number.isNaN(y) ? key(a).localeCompare(key(b)) : x - y;
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    }));
  }

  function begin() {
    figures = JSON.parse(document.getElementById("figures").textContent);
    document.querySelectorAll(".plot").forEach((plot) => {
      plot.style.minHeight = `${figures[plot.dataset.figure].height}px`;
      near.observe(plot);
    });
    document.querySelectorAll(".scroll").forEach((box) => fits.observe(box));
    document.querySelectorAll("table").forEach(sortable);
    document.querySelectorAll(".choice").forEach((choice) => {
      const select = choice.querySelector("select"), panes = [...choice.children].filter((e) => e.className === "pane");
      const current = choices[choice.dataset.choice] || 0;
      const show = (index) => {
        choices[choice.dataset.choice] = index;
        select.selectedIndex = index;
        panes.forEach((pane, i) => { pane.hidden = i !== index; });
        panes[index].querySelectorAll(".plot").forEach(draw);
      };
      select.addEventListener("change", () => show(select.selectedIndex));
      if (current && current < panes.length) show(current);
    });
    document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "copied";
    }));
  }
  const choices = {}; // selected option by choice, preserved when a live page updates

  function repaint() {
    root.dataset.theme = theme();
    document.querySelectorAll(".plot[data-drawn]").forEach(draw);
  }
  prefersDark.addEventListener("change", repaint);
  const forPaper = (now) => {
    printing = now;
    root.dataset.theme = theme();
    document.querySelectorAll(".plot").forEach(draw); // also those that were never near the screen
  };
  addEventListener("beforeprint", () => forPaper(true));
  addEventListener("afterprint", () => forPaper(false));
  document.getElementById("theme").addEventListener("click", () => {
    userTheme = theme() === "dark" ? "light" : "dark";
    repaint();
  });

  // A served page polls for new records.
  const live = document.getElementById("live");
  async function follow() {
    let version = null;
    for (;;) {
      try {
        const state = await (await fetch("state.json", { cache: "no-store" })).json();
        live.classList.remove("lost");
        live.textContent = state.finished ? "finished" : "live";
        if (version !== null && state.version !== version) {
          const body = await (await fetch("body.html", { cache: "no-store" })).text();
          const at = scrollY;
          near.disconnect();
          fits.disconnect();
          document.querySelectorAll(".plot[data-drawn]").forEach((plot) => Plotly.purge(plot));
          document.getElementById("body").innerHTML = body;
          begin();
          scrollTo({ top: at, behavior: "instant" });
        }
        version = state.version;
      } catch (error) {
        live.classList.add("lost");
        live.textContent = "disconnected";
      }
      await new Promise((wake) => setTimeout(wake, 1000));
    }
  }

  root.dataset.theme = theme();
  unpackPlotly().catch(() => {}).then(() => {
    begin();
    if (!window.Plotly) sayNoFigures();
    if (live) follow();
  });
})();
