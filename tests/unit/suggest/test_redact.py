"""Secrets do not leave in text."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.suggest.consent import REMOVED, redacted

SECRET = "Zx81qPlm0aTTv3nB77yy"


@pytest.mark.parametrize(
    "text",
    [
        f"key = sk-ant-api03-{SECRET}",
        f"// ghp_{SECRET}",
        f"hf_{SECRET}",
        "AKIA" + SECRET[:16].upper(),
        f'API_KEY="{SECRET}"',
        f"password: {SECRET}",
        f"Authorization: Bearer {SECRET}",
        f'"my_secret_token": "{SECRET}"',
        f"https://user:{SECRET}@host/x.git",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
    ],
)
def test_secrets_are_removed(text: str) -> None:
    out = redacted(f"before {text} after", Path("/nowhere"))
    assert SECRET.lower() not in out.lower()
    assert REMOVED in out
    assert out.startswith("before")


@pytest.mark.parametrize(
    "text",
    [
        "__shared__ float key[256];",
        "int token = tokens[blockIdx.x * max_tokens + threadIdx.x];",
        "const float* secretly = x;",
        'api_key = os.environ["ANTHROPIC_API_KEY"]',
        "token = get_token(index)",
        "int key_index = threadIdx.x;",
    ],
)
def test_code_stays_as_it_is(text: str) -> None:
    assert redacted(text, Path("/nowhere")) == text


def test_the_home_folder_is_a_tilde() -> None:
    assert redacted("/home/ada/work/k.cu:3", Path("/home/ada")) == "~/work/k.cu:3"
