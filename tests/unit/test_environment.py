"""Variables that children get: the allow-list, and names that say that they hold secrets."""

from __future__ import annotations

import pytest

from kernelmate import environment


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("ANTHROPIC_API_KEY", True),
        ("HF_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("PGPASSWORD", True),
        ("DB_PASSWORD", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("OPENAI_APIKEY", True),
        ("github_token", True),
        ("KEYBOARD_LAYOUT", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("PATH", False),
        ("MONKEY", False),
    ],
)
def test_secrets_are_known_by_their_names(name: str, secret: bool) -> None:
    assert environment.looks_secret(name) is secret
    assert (name in environment.without_secrets({name: "x"})) is not secret


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("PATH", True),
        ("Path", True),
        ("LC_ALL", True),
        ("CUDA_VISIBLE_DEVICES", True),
        ("KERNELMATE_CACHE_DIR", True),
        ("KERNELMATE_API_KEY", False),
        ("SSH_AUTH_SOCK", False),
        ("HTTPS_PROXY", False),
        ("DATABASE_URL", False),
        ("MY_PATH", False),
    ],
)
def test_a_worker_gets_only_what_is_on_the_allow_list(name: str, passes: bool) -> None:
    assert (name in environment.allowed({name: "x"})) is passes
