"""Consent to send text to another machine, removal of secrets from it, and the limit on what calls cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.records import Cost
from kernelmate.suggest.consent import REMOVED, Consents, redacted, workspace_of
from kernelmate.suggest.prices import OverBudget, SpendingBudget, cost_of, price_of


def test_consent_holds_for_one_workspace_and_one_host(tmp_path: Path) -> None:
    consents = Consents(tmp_path / "deep" / "consent.json")
    assert not consents.given(tmp_path, "api.example.com")
    assert consents.give(tmp_path, "api.example.com")
    again = Consents(consents.path)
    assert again.given(tmp_path, "api.example.com")
    assert not again.given(tmp_path / "other", "api.example.com")
    assert not again.given(tmp_path, "elsewhere.example.com")
    assert again.withdraw(tmp_path)
    assert not consents.given(tmp_path, "api.example.com")


def test_a_file_that_cannot_be_read_holds_no_consent(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"a": 1}', "\udcff"):
        (tmp_path / "consent.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        consents = Consents(tmp_path / "consent.json")
        assert not consents.given(tmp_path, "h")
        assert consents.give(tmp_path, "h")


def test_where_it_cannot_be_kept_it_is_not_given(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    consents = Consents(tmp_path / "file" / "consent.json")
    assert not consents.give(tmp_path, "h")
    assert not consents.given(tmp_path, "h")


def test_a_workspace_is_the_project_else_the_folder(tmp_path: Path) -> None:
    deep = tmp_path / "project" / "src" / "kernels"
    deep.mkdir(parents=True)
    assert workspace_of(deep / "k.cu") == deep
    (tmp_path / "project" / "pyproject.toml").write_text("")
    assert workspace_of(deep / "k.cu") == tmp_path / "project"


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


def test_dated_names_have_the_price_of_their_model() -> None:
    assert price_of("claude-haiku-4-5-20251001") == price_of("claude-haiku-4-5")
    assert price_of("claude-opus-5-5") != price_of("claude-opus-5")
    assert price_of("claude-opus-4-8") == price_of("claude-opus-4")
    assert price_of("gpt-something") is None


def test_each_kind_of_token_has_its_price() -> None:
    cost = cost_of("claude-sonnet-5-5", 1_000_000, 1_000_000, 1_000_000, 1_000_000)
    assert cost.usd == pytest.approx(2.0 + 10.0 + 2.5 + 0.1)
    assert (cost.input_tokens, cost.output_tokens) == (3_000_000, 1_000_000)


def test_a_model_without_a_price_has_an_unknown_cost_and_counts_as_the_dearest() -> None:
    cost = cost_of("claude-new", 1_000_000, 0)
    assert cost.usd is None
    spending = SpendingBudget(100.0)
    spending.pay(cost)
    assert spending.spent_usd == pytest.approx(10.0)


def test_a_call_that_could_pass_the_limit_is_not_made() -> None:
    spending = SpendingBudget(1.0)
    assert spending.check("claude-opus-5-5", 10_000, 10_000) == pytest.approx(0.02 + 0.2)
    spending.pay(Cost(0, 0, 0.9))
    with pytest.raises(OverBudget, match=r"0\.10 of 1\.00 USD are left"):
        spending.check("claude-opus-5-5", 10_000, 10_000)


@pytest.mark.parametrize("moment", ["null", '"yesterday"', "1e9", "-5", "1" + "0" * 30])
def test_a_date_that_no_program_wrote_is_no_consent(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "consent.json"
    path.write_text(f'{{"{tmp_path.as_posix()}": {{"api.example.com": {moment}, "other.example.com": 1700000000}}}}')
    consents = Consents(path)
    assert not consents.given(Path(tmp_path.as_posix()), "api.example.com")
    assert consents.of(tmp_path) == {"other.example.com": 1_700_000_000}
