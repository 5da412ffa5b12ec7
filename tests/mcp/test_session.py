# SPDX-License-Identifier: Apache-2.0
"""Session tokens: whole, or worth nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from itsdangerous import URLSafeSerializer

from nemo_gym._mcp.session import Grant, GrantSigner

SIGNER = GrantSigner("secret")
grants = st.builds(Grant, st.text(), st.none() | st.frozensets(st.text()))


@settings(max_examples=50, deadline=None)
@given(grants)
def test_a_token_gives_back_its_grant(grant: Grant):
    assert SIGNER.read(SIGNER.sign(grant)) == grant


@settings(max_examples=50, deadline=None)
@given(grants)
def test_a_token_fits_into_a_header(grant: Grant):
    token = SIGNER.sign(grant)
    assert token.isascii()
    assert token.isprintable()
    assert " " not in token


@pytest.mark.parametrize("grant", [Grant("s", None), Grant("s", frozenset({"a"}))])
def test_a_token_of_another_secret_is_worth_nothing(grant: Grant):
    assert SIGNER.read(GrantSigner("other").sign(grant)) is None


def test_what_was_signed_for_another_purpose_is_worth_nothing():
    assert SIGNER.read(str(URLSafeSerializer("secret").dumps({"sid": "s", "tools": None}))) is None


@pytest.mark.parametrize("token", ["", ".", "a.b", "é", "\x00"])
def test_noise_is_worth_nothing(token: str):
    assert SIGNER.read(token) is None


def test_no_list_of_tools_allows_all_and_an_empty_one_none():
    assert Grant("s", None).allows("anything")
    assert not Grant("s", frozenset()).allows("anything")
    assert Grant("s", frozenset({"a"})).allows("a")
