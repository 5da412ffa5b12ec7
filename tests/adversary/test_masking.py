# SPDX-License-Identifier: Apache-2.0
"""What is shown or stored of a config holds no secret, however it is written; what is no secret stays visible."""

import json

import pytest
import yaml
from aiohttp import web

from nemo_gym._config.overrides import parse_overrides
from nemo_gym._rollouts.run_manifest import Counts, InputIdentity, Manifest, find_differences
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym._servers.model_endpoints import wait_for_endpoints
from nemo_gym._transport.call_errors import ServerUnreachable
from nemo_gym._util.secret_names import mask_arguments, mask_url_credentials
from nemo_gym.errors import ConfigError
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.secret_utils import recursively_hide_secrets
from tests.support.in_process import said_by

HIDDEN = "visible-to-nobody"
MODEL = {
    "entrypoint": "app.py",
    "openai_base_url": f"https://user:a/b@{HIDDEN}@host.example/v1?api_key={HIDDEN}&api-version=3",
    "openai_api_key": "${policy_api_key}",
    "openai_model": "m",
    "extra_headers": {"X-Tenant": HIDDEN, "Authorization": f"Bearer {HIDDEN}"},
    "extra_body": {"auth": {"user": HIDDEN}, "max_output_tokens": 7, "note": f"for {HIDDEN}2-of-config"},
}
CONFIG = {
    "policy_api_key": f"{HIDDEN}2-of-config",
    "policy_model": {"responses_api_models": {"openai_model": MODEL}},
}


@pytest.mark.fault(
    place="Config",
    fault="Keys stand in headers, in URL parameters, in URL passwords with `/` and `@`, in `extra_body`",
    outcome="`env resolve`, `ng_dump_config` and `--explain` mask each of them and show `max_output_tokens`.",
)
@pytest.mark.parametrize(
    "command", [("gym", "env", "resolve"), ("ng_dump_config",), ("gym", "env", "resolve", "--explain", "policy_model")]
)
def test_no_command_shows_a_secret_of_the_config(command, tmp_path, monkeypatch, capsys):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    monkeypatch.chdir(tmp_path)
    alias, *words = command
    said = said_by(monkeypatch, capsys, alias, *words, f"+config_paths=[{tmp_path / 'config.yaml'}]")
    assert said.code == 0, said.err
    assert HIDDEN not in said.out + said.err
    for visible in ("max_output_tokens", "7", "host.example/v1", "api-version=3", "X-Tenant", "****"):
        assert visible in said.out


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p/w@x@host.example/v1", "https://****@host.example/v1"),
        ("https://u:12/34@host.example/v1", "https://****@host.example/v1"),
        ("https://u:p/w@vllm:8000/v1", "https://****@vllm:8000/v1"),
        ("https://tok@github.com/o/r@main", "https://****@github.com/o/r@main"),
        ("https://h/v1?token=a&n=1&sig=b#key=c", "https://h/v1?token=****&n=1&sig=****#key=****"),
        ("http://h:80/v1/users/@me?max_tokens=3", "http://h:80/v1/users/@me?max_tokens=3"),
        ("two: https://a:b@c.de, https://d:e@f.gh", "two: https://****@c.de, https://****@f.gh"),
    ],
)
def test_urls_are_masked_where_their_credentials_are(url, shown):
    assert mask_url_credentials(url) == shown


def test_every_header_is_masked_and_every_name_of_one_is_kept():
    config = {"headers": {"X-A": "1", "N": None}, "default_headers": ["X-B: 2"], "csv_headers": ["name", "age"]}
    recursively_hide_secrets(config)
    assert config == {
        "headers": {"X-A": "****", "N": None},
        "default_headers": ["X-B: ****"],
        "csv_headers": ["name", "age"],
    }


@pytest.mark.fault(
    place="`_run.json`",
    fault="A run is resumed that an older version began, which masked less",
    outcome="The headers are not shown as a difference, and not shown at all.",
)
def test_a_resumed_run_is_compared_without_its_secrets():
    def manifest(headers):
        identity = InputIdentity(path="i", size_bytes=0, sha256="")
        return Manifest(counts=Counts(requested=1), input=identity, config={"headers": headers, "n": len(headers)})

    assert find_differences(manifest({"X-A": HIDDEN}), manifest({"X-A": "****"})) == []
    assert HIDDEN not in str(find_differences(manifest({"X-A": HIDDEN}), manifest({})))


@pytest.mark.fault(
    place="Model endpoint",
    fault="It cannot be reached, and its URL holds a password with `/` and a key",
    outcome="The readiness message names the host, not the password or the key.",
)
async def test_a_readiness_message_holds_no_secret():
    url = f"http://user:{HIDDEN}/x@127.0.0.1:9/v1?api_key={HIDDEN}"
    with pytest.raises(ConfigError, match="no model answers") as raised:
        await wait_for_endpoints({url: "base_url"}, 0, print, print, must_answer=True)
    assert "****@127.0.0.1:9/v1?api_key=****" in str(raised.value)
    assert HIDDEN not in str(raised.value)


@pytest.mark.parametrize(
    "override", ["++m.default_headers={X-A: visible-to-nobody", "++u=[https://u:visible-to-nobody@h"]
)
def test_an_override_that_cannot_be_read_is_named_without_its_secret(override):
    with pytest.raises(ConfigError) as raised:
        parse_overrides([override])
    assert HIDDEN not in str(raised.value)


def test_secrets_of_a_command_line_are_masked():
    words = ["--model-api-key", HIDDEN, f"+policy_api_key={HIDDEN}", f"++m={{extra_body: {{api_key: {HIDDEN}, n: 3}}}}"]
    masked = mask_arguments([*words, "--max-output-tokens", "5"])
    assert HIDDEN not in json.dumps(masked)
    assert masked[-3:] == ["++m={extra_body: {api_key: ****, n: 3}}", "--max-output-tokens", "5"]


# --- redirects --------------------------------------------------------------------------------------------------------


async def serve(*routes: web.RouteDef) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


@pytest.mark.fault(
    place="Model endpoint",
    fault="It redirects a call to another server",
    outcome="The call is not repeated there, so that no key or prompt reaches it; a failure names the redirect.",
)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_model_call_is_not_redirected_to_another_server(status):
    reached = []

    async def take(request):
        reached.append(dict(request.headers))
        return web.json_response({})

    thief, elsewhere = await serve(web.post("/v1/responses", take))

    async def redirect(request):
        return web.Response(status=status, headers={"Location": f"{elsewhere}/v1/responses"})

    endpoint, url = await serve(web.post("/v1/responses", redirect))
    try:
        client = NeMoGymAsyncOpenAI(base_url=f"{url}/v1", api_key=HIDDEN, default_headers={"api-key": HIDDEN})
        with pytest.raises(ServerUnreachable, match=f"redirects to {elsewhere}, where the key is not sent") as raised:
            await client.create_response(input="hello")
        assert raised.value.trouble == "redirect"
        assert reached == []
    finally:
        await close_global_aiohttp_client()
        await endpoint.cleanup()
        await thief.cleanup()


async def test_a_redirect_on_the_same_server_is_followed():
    async def answer(request):
        return web.json_response(await request.json())

    async def redirect(request):
        return web.Response(status=308, headers={"Location": "/moved"})

    endpoint, url = await serve(web.post("/v1/responses", redirect), web.post("/moved", answer))
    try:
        client = NeMoGymAsyncOpenAI(base_url=f"{url}/v1", api_key=HIDDEN)
        assert await client.create_response(input="hello") == {"input": "hello"}
    finally:
        await close_global_aiohttp_client()
        await endpoint.cleanup()
