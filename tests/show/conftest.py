"""A real browser for the tests of the pages: Debian's chromium, headless, without a
network.
"""

import shutil

import pytest

from tests.show.made import write_results

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser():
    """A started browser; its tests are skipped, aloud, where there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no chromium here: the pages are not tried in a browser")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=list(FLAGS))
        yield started
        started.close()


class Watched:
    """A page that remembers every complaint and every request that is not its own
    file.
    """

    def __init__(self, page):
        self.page = page
        self.faults: list[str] = []
        page.on("console", lambda message: self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", self._request)

    def _request(self, request):
        if not request.url.startswith(("file:", "data:")):
            self.faults.append(f"request to {request.url}")

    def open(self, path, part=""):
        """Show a part of a page."""
        self.page.goto("about:blank")
        self.page.goto(f"{path.as_uri()}{f'#{part}' if part else ''}")
        self.page.wait_for_selector("html:not(.starting)")
        return self.page


@pytest.fixture
def visit(browser):
    """Open a page in a fresh window: `visit(path, part, width=360,
    color_scheme="dark")`.

    At the end no window may have complained, but for words in `complaints` that all
    must have.
    """
    watched = []

    def open_page(path, part="", *, width=1200, complaints=(), **options):
        context = browser.new_context(
            viewport={"width": width, "height": 800}, offline=True, **options
        )
        context.set_default_timeout(10_000)
        watched.append((Watched(context.new_page()), context, complaints))
        return watched[-1][0].open(path, part)

    yield open_page
    for window, context, complaints in watched:
        unexpected = [
            fault for fault in window.faults if not any(c in fault for c in complaints)
        ]
        assert unexpected == []
        assert bool(window.faults) == bool(complaints)
        context.close()


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """A folder of small finished runs."""
    return write_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="session")
def report(results):
    """The page of those runs."""
    from ropelab.show.page.report import write_report
    from ropelab.show.page.shown import find_runs

    return write_report(find_runs([results]), results / "index.html")
