"""`kernelmate_torch.replace` swaps modules of a model, and says which it did not swap and why."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

torch: Any = pytest.importorskip(
    "torch", reason="operators need torch: make train-tools, or pip install 'kernelmate[torch]'"
)
nn: Any = torch.nn


def model() -> Any:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.RMSNorm(8, eps=1e-5)
            self.act = nn.SiLU()

        def forward(self, x: Any) -> Any:
            return self.act(self.norm(x))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Layer(), Layer()])
            self.norm = nn.LayerNorm(8)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return self.norm(x)

    torch.manual_seed(0)
    return Model()


class Doubled(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return 2 * x


def test_an_operator_takes_the_parameters_of_the_module_that_it_replaces(operator: Callable[..., ModuleType]) -> None:
    from kernelmate_torch import replace

    rmsnorm = operator("rmsnorm.cu").rmsnorm
    made = model()
    x = torch.randn(3, 8)
    with torch.no_grad():
        for layer in made.layers:
            layer.norm.weight.normal_()
        before, state = made(x), made.state_dict()
        told: list[str] = []
        report = replace(made, {"RMSNorm": rmsnorm}, tell=told.append)
        torch.testing.assert_close(made(x), before)
    assert report.swapped == ("layers.0.norm", "layers.1.norm")
    assert dict(report.left) == {}
    assert told == ["swapped 2: layers.0.norm, layers.1.norm"]
    assert made.state_dict().keys() == state.keys()
    assert "kernelmate::rmsnorm" in str(made)


def test_patterns_match_part_by_part_and_what_is_alike_is_said_to_be_left() -> None:
    from kernelmate_torch import replace

    made = model()
    report = replace(made, {"layers.0.act": Doubled()}, tell=None)
    assert report.swapped == ("layers.0.act",)
    assert report.left == {"layers.1.act": "it is a SiLU, too, and no name matches it"}
    report = replace(made, {"layers.*.norm": lambda old: nn.Identity()}, tell=None)
    assert report.swapped == ("layers.0.norm", "layers.1.norm")
    assert isinstance(made.norm, nn.LayerNorm)


def test_one_module_is_not_put_into_several_places() -> None:
    from kernelmate_torch import replace

    made = model()
    report = replace(made, {"torch.nn.SiLU": Doubled()}, tell=None)
    assert report.swapped == ("layers.0.act",)
    assert "cannot be in several places" in report.left["layers.1.act"]
    assert "not swapped: layers.1.act: one module" in str(report)


def test_a_module_that_does_not_fit_the_operator_stays_with_the_reason(operator: Callable[..., ModuleType]) -> None:
    from kernelmate_torch import replace

    made = model()
    kept = made.norm
    report = replace(made, {"norm": operator("rmsnorm.cu").rmsnorm}, tell=None)
    assert report.swapped == ()
    assert report.left == {"norm": "the operator takes no bias, which the module has"}
    assert made.norm is kept


def test_a_name_without_a_match_raises_and_nothing_is_swapped() -> None:
    from kernelmate_torch import replace

    made = model()
    with pytest.raises(
        LookupError, match=r"'layers\.2\.norm' matches no module of Model: it has layers \(ModuleList\)"
    ):
        replace(made, {"layers.*.act": lambda old: Doubled(), "layers.2.norm": Doubled()}, tell=None)
    assert isinstance(made.layers[0].act, nn.SiLU)
    with pytest.raises(TypeError, match="neither a module, an operator nor a function"):
        replace(made, {"norm": 3}, tell=None)


def test_the_model_itself_and_what_was_swapped_with_its_parent_are_left() -> None:
    from kernelmate_torch import replace

    made = model()
    report = replace(made, {"layers.0": Doubled(), "SiLU": lambda old: Doubled(), "Model": Doubled()}, tell=None)
    assert report.swapped == ("layers.0", "layers.1.act")
    assert report.left["layers.0.act"] == "it is in a module that was swapped"
    assert report.left[""] == "it is the model itself, which cannot be swapped in place"
