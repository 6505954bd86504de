"""Inputs that are drawn to compare modules, and the tolerance of the comparison. Used only in the module's own process."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kernelmate_torch.nesting import leaves, mapped, with_leaves
from kernelmate_torch.program import ModelProgram, sizes_to_try

DISTRIBUTIONS = ("own", "normal", "uniform", "wide")
"""As `get_inputs` gives them; normal; uniform in 0 to 1; normal times 10."""

MARGIN = 16.0
"""Times the deviation of eager float32 from float64 that a module's results may deviate."""

EPSILONS = 64.0
"""Units in the last place of the largest result that are always allowed; another order of a sum changes some."""


UNSTEADY = 1 / 16
"""Part of the largest result by which eager may deviate from float64 in a comparison that counts as evidence: beyond it, as with
indices that are out of range or sums that cancel, `MARGIN` would allow results that have nothing in common with the module's."""


def drawn_inputs(
    program: ModelProgram, inputs: Sequence[Any], size: dict[str, int], distribution: str, seed: int
) -> tuple[Any, ...]:
    """Returns inputs of the module at a size: random tensors of the example's dtypes, and its other values unchanged."""
    generator = torch.Generator().manual_seed(seed)
    specs = {one.target: one.tensor for one in program.nodes if one.kind == "input"}
    made = []
    for name, example in zip(program.inputs, leaves(inputs), strict=True):
        spec = specs.get(name)
        if not torch.is_tensor(example) or spec is None:
            made.append(example)
            continue
        shape = [
            size.get(str(dim), dim if isinstance(dim, int) else extent)
            for dim, extent in zip(spec.shape, example.shape, strict=True)
        ]
        made.append(random_tensor(example, [int(one) for one in shape], distribution, generator))
    return tuple(with_leaves(tuple(inputs), made))


def random_tensor(
    example: torch.Tensor, shape: list[int], distribution: str, generator: torch.Generator
) -> torch.Tensor:
    """Returns a tensor of the example's dtype; what is not a float is drawn from the example's elements."""
    if not example.is_floating_point() or distribution == "own":
        # Elements of the example: what is an index, a mask or a probability stays one.
        flat = example.reshape(-1)
        count = int(torch.tensor(shape).prod()) if shape else 1
        if list(example.shape) == shape and not generator.initial_seed() % 3:
            return example.clone()
        return flat[torch.randint(flat.numel(), (count,), generator=generator)].reshape(shape).clone()
    if distribution == "uniform":
        return torch.rand(shape, generator=generator).to(example.dtype)
    scale = 10.0 if distribution == "wide" else 1.0
    return (torch.randn(shape, generator=generator) * scale).to(example.dtype)


def cases(
    program: ModelProgram, inputs: Sequence[Any], seed: int, *, largest: int
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yields descriptions and inputs: each distribution, at each size, with a seed of its own."""
    for place, size in enumerate(sizes_to_try(program, largest=largest)):
        at = ", ".join(map(str, size.values()))
        for number, distribution in enumerate(DISTRIBUTIONS):
            own = seed + 10 * place + number
            described = f"seed {own}, {distribution} inputs{f', free sizes {at}' if at else ''}"
            yield described, drawn_inputs(program, inputs, size, distribution, own)


def example_cases(
    inputs: Sequence[Any], seed: int, *, most: int | None = None
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yields descriptions and inputs at the example's own sizes, with its own integers and masks, in each distribution.

    They serve a module that takes no other integers than such as the example's, as offsets that ascend from 0 do.

    Args:
        inputs: the example.
        seed: of floating tensors.
        most: elements of the example above which nothing is yielded; None for no limit.
    """
    if most is not None and sum(one.numel() for one in leaves(inputs) if torch.is_tensor(one)) > most:
        return
    for number, distribution in enumerate(DISTRIBUTIONS):
        generator = torch.Generator().manual_seed(seed + number)

        def at(one: Any, distribution: str = distribution, generator: torch.Generator = generator) -> Any:
            if not torch.is_tensor(one):
                return one
            if distribution == "own" or not one.is_floating_point():
                return one.clone()
            return random_tensor(one, list(one.shape), distribution, generator)

        yield f"the example's own sizes, seed {seed + number}, {distribution} inputs", tuple(mapped(at, list(inputs)))


def in_double(model: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy of a module that computes in float64."""
    return copy.deepcopy(model).double()


def in_float64(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Returns inputs with floating tensors in float64."""
    return tuple(
        mapped(lambda one: one.double() if torch.is_tensor(one) and one.is_floating_point() else one, list(inputs))
    )


def copies(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Returns inputs of which the tensors are copies."""
    return tuple(mapped(lambda one: one.detach().clone() if torch.is_tensor(one) else one, list(inputs)))


def deviation(made: torch.Tensor, exact: torch.Tensor, eager: torch.Tensor | None) -> tuple[float, str]:
    """Returns the largest deviation, relative to the largest magnitude, and what is wrong: empty if the results agree.

    Args:
        made: the result to be judged.
        exact: float64 eager.
        eager: eager in the module's own dtype, whose deviation bounds that of `made`; None for 1e-9.
    """
    if made.shape != exact.shape:
        return float("inf"), f"has shape {list(made.shape)} in place of {list(exact.shape)}"
    if eager is not None and made.dtype != eager.dtype:
        return float("inf"), f"is {made.dtype} in place of {eager.dtype}"
    if exact.is_complex():
        return deviation(_real(made), _real(exact), None if eager is None else _real(eager))
    if not exact.is_floating_point():
        same = made == exact if eager is None else (made == exact) | (made == eager)
        return 0.0, "" if bool(same.all()) else f"differs in {int((~same).sum())} of {same.numel()} elements"
    got, want = made.double(), exact.double()
    if eager is not None and not torch.equal(torch.isfinite(eager), torch.isfinite(want)):
        return 0.0, ""  # overflow of the dtype, or a value of which float32 has no finite result
    finite = torch.isfinite(want)
    if not torch.equal(torch.isfinite(got), finite) or not torch.equal(torch.isnan(got), torch.isnan(want)):
        return float("inf"), "has NaN or infinity where the module has another value, or the reverse"
    if not bool(finite.any()):
        return 0.0, ""
    error = (got - want)[finite].abs().max().item()
    largest = max(want[finite].abs().max().item(), 1e-30)
    if eager is None:
        allowed = 1e-9 * largest
    else:
        own = (eager.double() - want)[finite].abs().max().item()
        allowed = MARGIN * own + EPSILONS * torch.finfo(made.dtype).eps * largest
    wrong = "" if error <= allowed else f"deviates by {error:.3g}, and {allowed:.3g} is allowed"
    return error / largest, wrong


def _real(value: torch.Tensor) -> torch.Tensor:
    """Returns complex numbers as pairs of real ones."""
    return torch.view_as_real(value.resolve_conj())


def is_unsteady(exact: torch.Tensor, eager: torch.Tensor) -> bool:
    """Returns True if eager's own deviation from float64 is too large for a meaningful comparison with it."""
    if exact.is_complex():
        exact, eager = _real(exact), _real(eager)
    if not exact.is_floating_point():
        return False
    want, own = exact.double(), eager.double()
    finite = torch.isfinite(want) & torch.isfinite(own)
    if not bool(finite.any()):
        return False
    return bool((own - want)[finite].abs().max() > UNSTEADY * want[finite].abs().max().clamp(min=1e-30))


def gradients_agree(
    new: torch.nn.Module, old: torch.nn.Module, inputs: Sequence[Any], seed: int, *, random: bool
) -> tuple[float | None, str]:
    """Compares the gradients of a module's parameters and inputs with those of another one in float64.

    Args:
        new: the module to be judged.
        old: the other one, in its own dtype, whose gradients' deviation from float64 bounds that of `new`.
        inputs: of both.
        seed: of the gradients of results, which are normal, and of numbers that the modules draw.
        random: the modules draw random numbers, so that they are compared in their own dtype.

    Returns:
        The largest deviation, relative to the largest gradient of a tensor, and what is wrong, empty if they agree; None if
        the other module has no gradients for these inputs.
    """
    new.load_state_dict(old.state_dict())
    exact = copy.deepcopy(old) if random else in_double(old)
    try:
        wanted = _gradients(exact, inputs if random else in_float64(inputs), seed)
        usual = _gradients(old, inputs, seed)
    except Exception:  # noqa: BLE001 -- the module itself has no gradients there
        return None, ""
    try:
        made = _gradients(new, inputs, seed)
    except Exception as error:  # noqa: BLE001 -- whatever it is, the new module is wrong
        return 0.0, f"a gradient of the new module raised {type(error).__name__}: {error}"
    most = 0.0
    for name, want in wanted.items():
        got, eager = made[name], usual[name]
        if (got is None) != (want is None):
            return most, f"the gradient of {name} is {'missing' if got is None else 'there, and eager has none'}"
        if got is None or want is None or eager is None:
            continue
        relative, wrong = deviation(got, want, eager)
        if wrong:
            return most, f"the gradient of {name} {wrong}"
        most = max(most, relative)
    return most, ""


def _gradients(model: torch.nn.Module, inputs: Sequence[Any], seed: int) -> dict[str, torch.Tensor | None]:
    """Returns the gradients of a module's floating parameters and inputs, by name."""
    inputs = copies(inputs)
    named = {f"input {place}": one for place, one in enumerate(leaves(inputs))} | dict(model.named_parameters())
    varying = {name: one for name, one in named.items() if torch.is_tensor(one) and one.is_floating_point()}
    for one in varying.values():
        one.requires_grad_()
    torch.manual_seed(seed)
    results = [one for one in leaves(model(*inputs)) if torch.is_tensor(one) and one.requires_grad]
    generator = torch.Generator().manual_seed(seed)
    into = [torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype) for one in results]
    if not results:
        return dict.fromkeys(varying)
    found = torch.autograd.grad(results, list(varying.values()), into, allow_unused=True)
    return dict(zip(varying, found, strict=True))
