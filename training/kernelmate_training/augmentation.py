"""Random variations of an example each time that it is drawn, so that a model cannot memorise it.

They do not change which answer is correct: the assignment of placeholders to names, the first line number, the facts in
the prompt and their order; functions and constants that occur equally before and after; and operators in lines that the
answer does not touch. A variation depends only on its random generator, so a resumed run draws the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from kernelmate.suggest.codec.applicable import OFFERS, offer_tokens
from kernelmate.suggest.codec.edits import LINE, MOST_LINES, line_token
from kernelmate.suggest.codec.header import ANSWER, ARGUMENT, CODE, GRID, SAYS, TRIED
from kernelmate.suggest.codec.mixed import WANTS
from kernelmate.suggest.codec.names import LITERALS, NAMES, is_type
from kernelmate.suggest.codec.tags import tag_tokens

Array = np.ndarray[Any, Any]

FUNCTIONS = ("expf", "sinf", "cosf", "logf", "tanhf", "sqrtf", "fabsf", "atanf", "erff", "log1pf", "sinhf", "cbrtf")
"""Functions of one argument that are exchanged for one another.

The first four have an intrinsic with the prefix `__`.
"""
WITH_INTRINSIC = 4
CONSTANTS = ("0.5", "0.25", "0.1", "0.2", "0.75", "0.01", "0.3", "1.5", "3.0", "0.05", "4.0", "0.9")
"""Constants that are exchanged for one another; 0, 1 and 2 are excluded because they often have a meaning."""
MOST_WORDS = 2
"""Largest number of functions, and of constants, exchanged in one example."""
OPERATORS = 0.3
"""Fraction of the lines that the answer does not touch whose operators are exchanged, if they have any."""

_FUNCTION = re.compile(rf"\b(?:__)?({'|'.join(name.removesuffix('f') for name in FUNCTIONS)})(f?)(?=\()")
_CONSTANT = re.compile(rf"(?<![\w.@])({'|'.join(re.escape(one) for one in CONSTANTS)})(?=f?[^\w.])")
_NUMBERED = re.compile(r"@(?:rep|ins|del)((?:@\d+:){1,2})")
_LINES = re.compile(r"@(\d+):([^@\n]*(?:@[vk]\d+[^@\n]*)*)")
_OPERATOR = re.compile(r"(?<=[\w\])])([-+*])(?=[\w(@])")
_STATEMENT = re.compile(
    r"(?!if|for|while|return|else|do\b|case|switch|#|__shared__|extern)[^\[]*(?:\[[^\]]*\][^\[]*)*;\Z"
)


@dataclass(frozen=True, slots=True)
class AugmentationRates:
    """Rates of augmentation: probabilities or fractions between 0 and 1.

    Attributes:
        names: probability that placeholders are renumbered.
        numbers: probability that line numbers begin at another number.
        facts: fraction of the prompt's facts that is left out; also the probability that their order changes, and that
            the prompt requests an optimization that the answer applies.
        words: probability that functions and constants are exchanged, equally before and after.
        lines: probability that operators are exchanged in lines that the answer does not change.
        offers: fraction of the offered rewrites that is left out, except those in the answer.
        code: probability that a random fraction of the kernel's lines is left out if the answer is a choice, so that
            the choice must also follow from the other facts.
    """

    names: float = 0.0
    numbers: float = 0.0
    facts: float = 0.0
    words: float = 0.0
    lines: float = 0.0
    offers: float = 0.0
    code: float = 0.0

    @classmethod
    def of(cls, shares: Mapping[str, float]) -> AugmentationRates:
        """Returns the rates in a table of the configuration.

        Raises:
            ValueError: a key is unknown, or a value is not between 0 and 1.
        """
        known = {field.name for field in fields(cls)}
        for name, share in shares.items():
            if name not in known:
                raise ValueError(f"augment has no {name!r}; it has {', '.join(sorted(known))}")
            if not 0 <= share <= 1:
                raise ValueError(f"augment.{name} = {share} must lie between 0 and 1")
        return cls(**shares)


@dataclass(frozen=True)
class Augmentation:
    """Random variations of encoded examples.

    Attributes:
        how: the rates.
        tokenizer: the text of `tokenizer.json`.
    """

    how: AugmentationRates
    tokenizer: str

    def draw(self, tokens: Array, cut: int, task: str, random: np.random.Generator) -> tuple[Array, int]:
        """Returns a variation of an example, never longer than the example.

        Args:
            tokens: prompt and answer.
            cut: number of tokens of the prompt.
            task: one of `TASKS`.
            random: the random generator.

        Returns:
            The tokens, and the number of tokens of the prompt.
        """
        chances = random.random(6)
        if chances[0] < max(self.how.words, self.how.lines):
            tokens, cut = self._rewritten(tokens, cut, task, random, chances)
        if self.how.offers:
            tokens, cut = self._offered(tokens, cut, random)
        if self.how.code and task == "generate" and random.random() < self.how.code:
            tokens, cut = self._without_lines(tokens, cut, random)
        if self.how.facts:
            tokens, cut = self._retold(tokens, cut, random)
        table = self._ids.identity
        if chances[1] < self.how.names:
            table = self._renamed(random)
        if chances[2] < self.how.numbers:
            table = self._shifted(table, tokens, random)
        return (tokens if table is self._ids.identity else table[tokens].astype(tokens.dtype)), cut

    def renumbered(self, tokens: Array, random: np.random.Generator) -> tuple[Array, Array]:
        """Returns the tokens with permuted placeholders, and the table that maps them back."""
        table = self._renamed(random)
        back = np.empty_like(table)
        back[table] = self._ids.identity
        return table[tokens], back

    def _renamed(self, random: np.random.Generator) -> Array:
        """Returns a table from each token to its replacement, in which placeholders are permuted."""
        table = self._ids.identity.copy()
        for ids in (self._ids.names, self._ids.literals):
            table[ids] = ids[random.permutation(len(ids))]
        return table

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.tokenizer)

    @cached_property
    def _ids(self) -> _Ids:
        return _Ids.of(self._tokenizer)

    def _shifted(self, table: Array, tokens: Array, random: np.random.Generator) -> Array:
        """Returns the table with line numbers that begin at a random number."""
        lines = self._ids.lines
        last = int(self._ids.number[tokens].max())
        room = len(lines) - 1 - last
        if last < 0 or room <= 0:
            return table
        offset = int(random.integers(0, room + 1) * random.random())
        table = table.copy()
        table[lines[: len(lines) - offset]] = lines[offset:]
        return table

    def _retold(self, tokens: Array, cut: int, random: np.random.Generator) -> tuple[Array, int]:
        """Returns the example with some facts left out, and facts and arguments in another order."""
        ids = self._ids
        prompt = tokens[:cut]
        grid, code = _first(prompt, ids.grid), _first(prompt, ids.code)
        if grid is None or code is None or grid < 3:
            return tokens, cut
        said = _first(prompt[:code], ids.says)
        arguments = np.flatnonzero(prompt[:code] == ids.argument)
        facts = prompt[3:grid]
        named = ids.names_means[facts]
        known = facts[~named]
        known = known[random.random(len(known)) >= self.how.facts]
        mixed, asks = random.random(2) < self.how.facts
        wanted = facts[named]
        if asks and ids.wants >= 0:
            means = tokens[cut:][ids.is_means[tokens[cut:]]]
            wanted = np.array([ids.wants, random.choice(means)]) if len(means) else wanted[:0]
        parts = [prompt[:3], wanted, random.permutation(known) if mixed else known]
        end = code if said is None else said
        first = int(arguments[0]) if len(arguments) else end
        parts.append(prompt[grid:first])
        told = np.split(prompt[first:end], arguments[1:] - first) if len(arguments) else []
        parts += [told[at] for at in random.permutation(len(told))] if mixed else told
        made = np.concatenate([*parts, prompt[end:], tokens[cut:]]).astype(tokens.dtype)
        if len(made) > len(tokens):
            return tokens, cut
        return made, cut - (len(tokens) - len(made))

    def _offered(self, tokens: Array, cut: int, random: np.random.Generator) -> tuple[Array, int]:
        """Returns the example with some offers left out, in the same order.

        Offers that the answer takes stay; if no offer is left, the section is removed.
        """
        ids = self._ids
        begin = _first(tokens[:cut], ids.offers)
        if begin is None:
            return tokens, cut
        section = tokens[begin + 1 : cut - 1]
        # The number of variants follows its offer and is removed with it.
        offer = np.cumsum(ids.is_offer[section]) - 1
        starts = section[ids.is_offer[section]]
        kept = (random.random(len(starts)) >= self.how.offers) | np.isin(starts, tokens[cut:])
        told = section[kept[offer]]
        parts = [tokens[:begin], tokens[begin : begin + 1][: len(told)], told, tokens[cut - 1 :]]
        made = np.concatenate(parts)
        return made, cut - (len(tokens) - len(made))

    def _without_lines(self, tokens: Array, cut: int, random: np.random.Generator) -> tuple[Array, int]:
        """Returns the example with some lines of code left out if the answer consists of rewrites.

        The first line stays.
        """
        ids = self._ids
        begin = _first(tokens[:cut], ids.code)
        if begin is None or not ids.is_offer[tokens[cut]]:
            return tokens, cut
        ends = np.flatnonzero(np.isin(tokens[begin:cut], [ids.tried, ids.offers, ids.answer]))
        stop = begin + int(ends[0]) if len(ends) else cut
        code = tokens[begin:stop]
        line = np.cumsum((code == ids.line) | (ids.number[code] >= 0))
        kept = random.random(int(line[-1]) + 1) >= random.random()
        kept[:2] = True
        made = np.concatenate([tokens[:begin], code[kept[line]], tokens[stop:]])
        return made, cut - (len(tokens) - len(made))

    def _rewritten(self, tokens: Array, cut: int, task: str, random: np.random.Generator, chances: Array) -> tuple[Array, int]:  # fmt: skip
        """Returns the example with functions, constants and operators exchanged.

        Unchanged if it would become longer.
        """
        tokenizer = self._tokenizer
        prompt, answer = (
            tokenizer.decode(part.tolist(), skip_special_tokens=False) for part in (tokens[:cut], tokens[cut:])
        )
        before = prompt, answer
        if chances[3] < self.how.words:
            prompt, answer = _exchanged(prompt, answer, task, random)
        if chances[4] < self.how.lines and task == "generate" and "@use-" not in answer:
            prompt = _operated(prompt, answer, random)
        if (prompt, answer) == before:
            return tokens, cut
        made = [tokenizer.encode(text, add_special_tokens=False).ids for text in (prompt, answer)]
        if len(made[0]) + len(made[1]) > len(tokens):
            return tokens, cut
        return np.array([*made[0], *made[1]], dtype=tokens.dtype), len(made[0])


@dataclass(frozen=True, slots=True)
class _Ids:
    """Token ids of special tokens in one vocabulary; -1 for those that it lacks.

    `number` has the line number of each token that is a line number, -1 for others. `is_means` and `names_means` mark
    tokens of optimizations in answers and in prompts; `is_offer` marks tokens of rewrites.
    """

    identity: Array
    names: Array
    literals: Array
    lines: Array
    number: Array
    is_means: Array
    names_means: Array
    is_offer: Array
    offers: int
    wants: int
    grid: int
    argument: int
    says: int
    code: int
    line: int
    tried: int
    answer: int

    @classmethod
    def of(cls, tokenizer: Any) -> _Ids:
        def ids(tokens: Sequence[str]) -> Array:
            found = (tokenizer.token_to_id(token) for token in tokens)
            return np.array([number for number in found if number is not None], dtype=np.int64)

        def one(token: str) -> int:
            number = tokenizer.token_to_id(token)
            return -1 if number is None else int(number)

        size = tokenizer.get_vocab_size()
        lines = ids([line_token(number) for number in range(MOST_LINES + 1)])
        number = np.full(size, -1, dtype=np.int64)
        number[lines] = np.arange(len(lines))
        is_means, names_means, is_offer = (np.zeros(size, dtype=bool) for _ in range(3))
        is_offer[ids([token for token in offer_tokens() if token.startswith("@use-")])] = True
        is_means[ids([token for token in tag_tokens() if token.startswith("@do-")])] = True
        names_means[ids([*tag_tokens(), WANTS])] = True
        return cls(
            np.arange(size, dtype=np.int64),
            ids([f"@v{number}" for number in range(NAMES)]),
            ids([f"@k{number}" for number in range(LITERALS)]),
            lines,
            number,
            is_means,
            names_means,
            is_offer,
            *map(one, (OFFERS, WANTS, GRID, ARGUMENT, SAYS, CODE, LINE, TRIED, ANSWER)),
        )


def _first(tokens: Array, wanted: int) -> int | None:
    found = np.flatnonzero(tokens == wanted)
    return int(found[0]) if len(found) else None


def _exchanged(prompt: str, answer: str, task: str, random: np.random.Generator) -> tuple[str, str]:
    """Returns prompt and answer with functions and constants exchanged for others that do not occur yet.

    For broken kernels, words in the answer are not exchanged: a misspelt name must stay similar to the correct one.
    """
    head, mark, code = prompt.partition(CODE)
    both = code + answer
    has_intrinsic = "__" in both and any(f"__{name}" in both for name in FUNCTIONS)
    stems = [name.removesuffix("f") for name in FUNCTIONS[: WITH_INTRINSIC if has_intrinsic else None]]
    exchanges = {}
    for pattern, others in ((_FUNCTION, stems), (_CONSTANT, CONSTANTS)):
        found = list(dict.fromkeys(match[1] for match in pattern.finditer(code)))
        free = [other for other in others if other not in found]
        for word in found[:MOST_WORDS]:
            if word not in others or not free or (task == "debug" and word in answer):
                continue
            exchanges[word] = free.pop(int(random.integers(len(free))))
    if not exchanges:
        return prompt, answer

    def other(match: re.Match[str]) -> str:
        return match[0].replace(match[1], exchanges.get(match[1], match[1]))

    code, answer = (_CONSTANT.sub(other, _FUNCTION.sub(other, text)) for text in (code, answer))
    return head + mark + code, answer


def _operated(prompt: str, answer: str, random: np.random.Generator) -> str:
    """Returns the prompt with operators exchanged in statements that the answer neither changes nor repeats."""
    head, mark, rest = prompt.partition(CODE)
    code, end, tail = rest.rpartition(TRIED if TRIED in rest else ANSWER)
    touched: set[int] = set()
    for places in _NUMBERED.findall(answer):
        numbers = [int(number) for number in re.findall(r"\d+", places)]
        touched.update(range(numbers[0], numbers[-1] + 1))

    def line(match: re.Match[str]) -> str:
        text = match[2]
        if int(match[1]) in touched or not _STATEMENT.match(text) or random.random() >= OPERATORS:
            return match[0]
        return f"@{match[1]}:{_with_other_operator(text, answer, random)}"

    return head + mark + _LINES.sub(line, code) + end + tail


def _with_other_operator(text: str, answer: str, random: np.random.Generator) -> str:
    places = []
    for match in _OPERATOR.finditer(text):
        at = match.start()
        around = text[max(at - 4, 0) : at + 4]
        word = re.search(r"\w+\Z", text[:at])
        in_index = text.count("[", 0, at) > text.count("]", 0, at)
        declares = word is not None and is_type(word[0])
        if not in_index and not declares and around not in answer and text[at - 1] not in "eE":
            places.append(at)
    if not places:
        return text
    at = places[int(random.integers(len(places)))]
    others = [sign for sign in "+-*" if sign != text[at]]
    return text[:at] + others[int(random.integers(2))] + text[at + 1 :]
