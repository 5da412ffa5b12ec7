# SPDX-License-Identifier: Apache-2.0
"""Strangers and foreign web pages who call a running `gym view --token`: by raw bytes, and in a real browser."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import sync_playwright

from tests.support.raw_http import ask
from tests.viewer.browser import rows
from tests.viewer.browser.conftest import BROWSER_FLAGS, CHROMIUM, PATIENCE_MS, READY, gym_view

QUESTION = "/gradio_api/run/predict"
UPLOAD = b'--x\r\ncontent-disposition: form-data; name="files"; filename="a"\r\n\r\nhello\r\n--x--\r\n'
ATTACK = """<script>
const send = (path, body) => fetch(`http://127.0.0.1:PORT${path}`, {method: "POST", mode: "no-cors", body});
const form = new FormData(); form.append("files", new Blob(["hello"]), "a");
Promise.allSettled([send("/gradio_api/run/predict", '{"data": []}'), send("/gradio_api/queue/join", new Blob(["{}"])),
  send("/gradio_api/upload", form)]).then(() => document.title = "done");
</script>"""


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """What `gym view --token` prints."""
    folder = tmp_path_factory.mktemp("view")
    rows.write(folder / "run.jsonl", rows.run(2, 2, seed=1, skill=0.5))
    with gym_view("run.jsonl", "--port", "0", "--token", cwd=folder) as viewer:
        yield viewer.address


@pytest.fixture(scope="module")
def port(address) -> int:
    return urlsplit(address).port


@pytest.fixture(scope="module")
def holder(address) -> dict[str, str]:
    """The header of one who has the token."""
    (token,) = parse_qs(urlsplit(address).query)["token"]
    return {"authorization": f"Bearer {token}"}


@pytest.mark.fault(
    place="Viewer",
    fault="A request under a foreign host name, or a post of a foreign page",
    outcome="421 or 403 with a reason in plain text; nothing is shown.",
)
async def test_the_viewer_answers_only_to_its_own_name_and_page(port, holder):
    assert (await ask(port, "GET", "/", **holder)).status == 200
    rebound = await ask(port, "GET", "/", host=f"evil.example:{port}", **holder)
    assert (rebound.status, b"\nhint: " in rebound.body, b"<" in rebound.body) == (421, True, False)
    for path in (QUESTION, "/gradio_api/queue/join", "/gradio_api/upload"):
        posted = await ask(
            port, "POST", path, b"{}", origin="https://evil.example", content_type="text/plain", **holder
        )
        assert posted.status == 403
    upgrade = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec_websocket_key": "eA==",
        "sec_websocket_version": "13",
    }
    socket = await ask(port, "POST", "/gradio_api/queue/join", origin="https://evil.example", **{**upgrade, **holder})
    assert socket.status == 403


@pytest.mark.fault(
    place="Viewer",
    fault="A file is uploaded, or a command of Gradio is called",
    outcome="403, for those with the token too: it takes only the questions of its page.",
)
async def test_the_viewer_takes_no_uploads(port, holder):
    for path in ("/gradio_api/upload", "/upload", "/gradio_api/component_server", "/gradio_api/queue/join", "/login"):
        reply = await ask(port, "POST", path, UPLOAD, content_type="multipart/form-data; boundary=x", **holder)
        assert (reply.status, b"the viewer takes no uploads" in reply.body) == (403, True)


@pytest.mark.fault(
    place="Viewer",
    fault="A stranger opens a viewer that was started with `--token`",
    outcome="401 on every path; who opens the printed address gets a cookie.",
)
async def test_without_the_token_nothing_is_shown(address, port):
    for path in ("/", "/config", "/gradio_api/info", "/?token=wrong"):
        assert (await ask(port, "GET", path)).status == 401
    assert (await ask(port, "POST", QUESTION, b"{}", content_type="application/json")).status == 401
    opened = await ask(port, "GET", f"/?tab=browse&{urlsplit(address).query}")
    assert opened.status == 303
    assert "location: /?tab=browse\r\n" in opened.headers
    assert "httponly" in opened.headers


@pytest.mark.thorough
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; hint: apt-get install chromium")
@pytest.mark.fault(
    place="Viewer",
    fault="Its user visits a hostile page, or one whose name is rebound to this machine",
    outcome="The browser's posts and uploads get 403, the rebound name 421; the own page works.",
)
def test_in_a_browser_a_hostile_page_reaches_nothing(address, port):
    with hostile_site(ATTACK.replace("PORT", str(port))) as site, sync_playwright() as playwright:
        flags = [*BROWSER_FLAGS, "--host-resolver-rules=MAP *.example 127.0.0.1"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(address)
        page.wait_for_function(READY)
        assert "token" not in page.url
        assert "4 rollouts" in page.inner_text("body")

        answered = []
        page.on(
            "response", lambda reply: answered.append((reply.request.method, urlsplit(reply.url).path, reply.status))
        )
        page.goto(f"http://evil.example:{site}")
        page.wait_for_function("document.title == 'done'")
        posts = {(path, status) for method, path, status in answered if method == "POST"}
        paths = (QUESTION, "/gradio_api/queue/join", "/gradio_api/upload")
        assert posts == {(path, 403) for path in paths}
        assert page.goto(f"http://evil.example:{port}/").status == 421
        browser.close()


@contextmanager
def hostile_site(html: str) -> Iterator[int]:
    """Serve one page; gives its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()
