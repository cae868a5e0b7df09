"""The page in a real browser: it loads alone and in silence, draws, answers to the mouse, and fits a phone."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedfuse.records import record
from fedfuse.reports import report
from fedfuse.reports.watch import server
from tests.reports.written import a_round, a_run, distilled

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="the browser is driven by selenium, which is not installed"
)
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="chromium and its driver are not installed: make browser"),
    pytest.mark.xdist_group("browser"),  # one browser for all of them
]

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PATIENCE = 60  # seconds, on however busy a machine


class Browser:
    """A page and what the browser says about it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        for log in ("browser", "performance"):
            self.driver.get_log(log)  # what an earlier page left
        self.driver.get(address)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str) -> Any:
        """Wait until the expression is true, and give its value."""
        end = time.monotonic() + PATIENCE
        while not (value := self.run(f"return {script}")):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)
        return value

    def draw_all(self) -> int:
        """Scroll through the page and every choice, so that each figure is drawn; how many there are."""
        self.run("document.querySelectorAll('.pane').forEach(p => { p.hidden = false; })")
        self.run("document.querySelectorAll('.plot').forEach(p => p.scrollIntoView())")
        for plot in range(self.run("return document.querySelectorAll('.plot').length")):
            self.run(f"document.querySelectorAll('.plot')[{plot}].scrollIntoView({{behavior: 'instant'}})")
            self.until(f"document.querySelectorAll('.plot')[{plot}].querySelector('svg.main-svg') !== null")
        return int(self.run("return document.querySelectorAll('.plot').length"))

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(BROWSER)
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    driver.set_page_load_timeout(PATIENCE)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A comparison with everything in it: two seeds, distillation, a sweep's trials, refusals and long words."""
    folder = tmp_path_factory.mktemp("compared")
    facts = [distilled(0.2, 0.4, 0.6, 0.5), distilled(0.4, 0.6, 0.8, 0.9)]
    long = "parameter features.stage4.block2.convolution.weight is not finite " * 3
    for seed in (0, 1):
        a_run(folder / f"avg-{seed}", [0.4, 0.7 + seed / 10], seed=seed)
        a_run(folder / f"df-{seed}", [0.5, 0.8], algorithm="feddf", seed=seed, facts=facts, rejected={1: {"1": long}})
    return report(folder, out=folder / "report.html", target=0.75).as_uri()


def test_it_loads_alone_and_in_silence(browser: Browser, page: str) -> None:
    browser.open(page)
    assert browser.draw_all() >= 15
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(("file:", "data:", "blob:"))] == []


def test_curves_are_drawn_with_their_axes(browser: Browser, page: str) -> None:
    browser.open(page)
    figure = "document.querySelector('[data-figure=learning-curves]')"
    browser.until(f"{figure}.querySelectorAll('.scatterlayer .trace').length >= 2")
    titles = browser.run(f"return [...{figure}.querySelectorAll('.xtitle, .ytitle')].map(t => t.textContent)")
    assert titles == ["round", "test accuracy / %"]


def test_hover_tells_the_numbers(browser: Browser, page: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    browser.open(page)
    figure = "document.querySelector('[data-figure=learning-curves]')"
    browser.until(f"{figure}.querySelector('.draglayer .nsewdrag') !== null")
    browser.run(f"{figure}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    area = browser.driver.find_element("css selector", "[data-figure=learning-curves] .nsewdrag")
    ActionChains(browser.driver).move_to_element_with_offset(area, -area.size["width"] // 2 + 25, 0).perform()
    text = browser.until(f"{figure}.querySelector('.hoverlayer').textContent")
    assert "fedavg : 40.00" in text
    assert "feddf : 50.00" in text


def test_the_legend_switches_a_curve_and_its_band(browser: Browser, page: str) -> None:
    browser.open(page)
    figure = "document.querySelector('[data-figure=learning-curves]')"
    figures_and_tables = f"{figure}.querySelectorAll('.scatterlayer .trace').length"
    before = browser.until(figures_and_tables)
    browser.run(f"{figure}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    toggle = browser.driver.find_elements("css selector", "[data-figure=learning-curves] .legendtoggle")[0]
    toggle.click()
    browser.until(f"{figures_and_tables} === {before - 2}")  # the curve of fedavg, and its band


def test_a_choice_shows_another_line(browser: Browser, page: str) -> None:
    browser.open(page)
    choice = "document.querySelector('[data-choice=calibration]')"
    browser.run(f"{choice}.scrollIntoView({{behavior: 'instant'}})")
    browser.run(
        f"const s = {choice}.querySelector('select'); s.selectedIndex = 1; s.dispatchEvent(new Event('change'))"
    )
    browser.until(f"{choice}.querySelectorAll('.pane')[1].querySelector('svg.main-svg') !== null")
    shown = browser.run(f"return [...{choice}.querySelectorAll('.pane')].map(p => p.hidden)")
    assert shown == [True, False]


def test_a_table_is_sorted_by_a_click(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.until("document.querySelector('svg.main-svg') !== null")  # then the page's script has run
    column = "[...document.querySelectorAll('#learning tbody tr')].map(r => r.cells[0].textContent)"
    assert browser.run(f"return {column}") == ["feddf", "fedavg"]  # by result: 80 and 75 %
    browser.run("document.querySelectorAll('#learning th button')[2].click()")  # by the number, not by its text
    assert browser.run(f"return {column}") == ["fedavg", "feddf"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_follows_the_system_and_its_button(browser: Browser, page: str, dark: bool) -> None:
    def brightness() -> int:
        colour = browser.run("return getComputedStyle(document.body).backgroundColor")
        return max(int(part) for part in colour.strip("rgb()").split(","))

    browser.open(page, dark=dark)
    assert (brightness() < 60) is dark
    browser.run("document.getElementById('theme').click()")
    assert (brightness() < 60) is not dark


def test_a_phone_does_not_scroll_sideways(browser: Browser, page: str) -> None:
    browser.open(page, width=375, height=812)
    browser.draw_all()
    assert browser.run("return document.documentElement.scrollWidth") == 375
    wide = "[...document.querySelectorAll('.plot svg.main-svg')].filter(s => s.getBoundingClientRect().right > 376)"
    assert browser.run(f"return {wide}.length") == 0


def test_a_table_that_is_too_wide_says_so(browser: Browser, page: str) -> None:
    hint = "document.querySelector('#learning .hint')"
    browser.open(page, width=375, height=812)
    browser.until(f"{hint}.hidden === false")
    browser.open(page)
    browser.until("document.querySelector('svg.main-svg') !== null")
    assert browser.run(f"return {hint}.hidden") is True


def test_paper_is_light_and_has_every_figure(browser: Browser, page: str) -> None:
    browser.open(page, dark=True)
    browser.until("document.querySelector('svg.main-svg') !== null")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    shown = "[...document.querySelectorAll('.plot')].filter(p => p.offsetParent !== null)"
    assert browser.run(f"return {shown}.every(p => p.querySelector('svg.main-svg') && p.dataset.drawn === 'light')")
    assert browser.run("return document.documentElement.dataset.theme") == "light"
    widths = browser.run(f"return [...new Set({shown}.map(p => p.querySelector('svg.main-svg').clientWidth))].sort()")
    assert widths == [315, 650]
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run("return document.documentElement.dataset.theme") == "dark"


def test_pages_that_share_plotly_draw_or_say_what_is_missing(browser: Browser, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5, 0.6])
    shared = report(run, out=tmp_path / "page.html", shared_assets=True)
    browser.open(shared.as_uri())
    browser.until("document.querySelector('svg.main-svg') !== null")
    assert browser.complaints() == []
    alone = tmp_path / "elsewhere" / shared.name  # elsewhere, since the browser keeps what it has loaded
    alone.parent.mkdir()
    shared.rename(alone)
    browser.open(alone.as_uri())
    browser.until("document.querySelector('.plot').textContent.includes('is not beside this page')")


def test_words_do_not_lie_on_each_other(browser: Browser, page: str) -> None:
    """No two labels of an axis or a legend overlap, at either width. The boxes of turned ones may, and tell nothing."""
    overlap = """
    const found = [];
    for (const plot of document.querySelectorAll('.plot'))
      for (const axis of ['.xtick text', '.ytick text', '.legendtext']) {
        const straight = t => !/rotate\\(-?[1-9]/.test(t.getAttribute('transform'));
        const texts = [...plot.querySelectorAll(axis)].filter(straight);
        const boxes = texts.map(t => t.getBoundingClientRect()).filter(b => b.width);
        boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => {
          if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3 &&
              Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3) found.push(plot.dataset.figure + axis);
        }));
      }
    return [...new Set(found)];
    """
    for width in (1280, 375):
        browser.open(page, width=width)
        browser.draw_all()
        assert browser.run(overlap) == [], f"at {width} pixels"


def test_a_live_page_follows_its_run(browser: Browser, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5], rounds=2)
    serving = server([run])
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    try:
        browser.open(f"http://127.0.0.1:{serving.server_address[1]}/")
        browser.until("document.querySelector('[data-figure=learning-curves] svg.main-svg') !== null")
        browser.until("document.getElementById('live').textContent === 'live'")
        record.append(run / "rounds.jsonl", a_round(2, 0.75))
        browser.until("document.getElementById('live').textContent === 'finished'")
        browser.until("document.body.textContent.includes('75.00 %')")
        browser.until("document.querySelector('[data-figure=learning-curves] svg.main-svg') !== null")
        assert browser.complaints() == []
        own = f"http://127.0.0.1:{serving.server_address[1]}/"
        assert [url for url in browser.requests() if not url.startswith((own, "data:", "blob:"))] == []
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join(timeout=10)
