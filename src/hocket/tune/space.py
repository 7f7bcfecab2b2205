"""What is searched: hyperparameters, each with its values, as a dict or as a function that asks for them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from math import exp, isfinite, log
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

Value = float | int | str | bool | None
Config = dict[str, Any]
Traits = dict[str, float | str]
PLACES = 10  # a range of numbers is this long where distances are measured


class SpaceError(ValueError):
    """A search space breaks a rule: says which hyperparameter, which rule and which value."""


class Choice(Struct, frozen=True, tag="choice"):
    """One of some values."""

    values: tuple[Any, ...]

    def check(self, name: str) -> None:
        """Refuse what cannot be chosen from."""
        if not self.values:
            raise SpaceError(f"hyperparameter '{name}': a choice needs at least one value, not none")
        for value in self.values:
            if not isinstance(value, float | int | str | bool | None) or _is_odd(value):
                raise SpaceError(f"hyperparameter '{name}': a choice is of numbers, text, true, false, not {value!r}")

    def draw(self, rng: Random) -> Value:
        """One of them, all as likely."""
        found: Value = rng.choice(self.values)
        return found

    def trait(self, value: Value) -> float | str:
        """The place of a number among all of them; anything else is a category."""
        if all(isinstance(v, float | int) and not isinstance(v, bool) for v in self.values):
            return float(sorted(self.values).index(value))
        return str(value)


class Uniform(Struct, frozen=True, tag="uniform"):
    """A number between two others."""

    low: float
    high: float

    def check(self, name: str) -> None:
        """Refuse an empty range."""
        if not (_is_number(self.low) and _is_number(self.high) and self.low < self.high):
            raise SpaceError(f"hyperparameter '{name}': uniform needs low < high, not {self.low} and {self.high}")

    def draw(self, rng: Random) -> Value:
        """A number between them."""
        return rng.uniform(self.low, self.high)

    def trait(self, value: Value) -> float | str:
        """How far it is from the lower end, in places."""
        return _place(value, self.low, self.high)


class LogUniform(Struct, frozen=True, tag="loguniform"):
    """A positive number whose order of magnitude counts."""

    low: float
    high: float

    def check(self, name: str) -> None:
        """Refuse what has no logarithm."""
        if not (_is_number(self.low) and _is_number(self.high) and 0 < self.low < self.high):
            raise SpaceError(
                f"hyperparameter '{name}': loguniform needs 0 < low < high, not {self.low} and {self.high}"
            )

    def draw(self, rng: Random) -> Value:
        """Its logarithm is anywhere between theirs."""
        return min(max(exp(rng.uniform(log(self.low), log(self.high))), self.low), self.high)

    def trait(self, value: Value) -> float | str:
        """How far its logarithm is from the lower end, in places."""
        assert isinstance(value, float | int)
        return _place(log(value), log(self.low), log(self.high))


class RandInt(Struct, frozen=True, tag="randint"):
    """A whole number between two others, which are among them."""

    low: int
    high: int

    def check(self, name: str) -> None:
        """Refuse an empty range, and ends that are no whole numbers."""
        if any(isinstance(end, bool) or not isinstance(end, int) for end in (self.low, self.high)):
            raise SpaceError(f"hyperparameter '{name}': randint needs whole numbers, not {self.low} and {self.high}")
        if self.low > self.high:
            raise SpaceError(f"hyperparameter '{name}': randint needs low <= high, not {self.low} and {self.high}")

    def draw(self, rng: Random) -> Value:
        """Any of them."""
        return rng.randint(self.low, self.high)

    def trait(self, value: Value) -> float | str:
        """Its place, or in places of a long range."""
        return _place(value, self.low, self.high, min(PLACES, self.high - self.low))


Domain = Choice | Uniform | LogUniform | RandInt


def choice(values: Sequence[Any]) -> Choice:
    """One of these `values`."""
    return Choice(tuple(values))


def uniform(low: float, high: float) -> Uniform:
    """A number from `low` to `high`."""
    return Uniform(low, high)


def loguniform(low: float, high: float) -> LogUniform:
    """A number from `low` to `high`, as likely from 0.001 to 0.01 as from 0.01 to 0.1."""
    return LogUniform(low, high)


def randint(low: int, high: int) -> RandInt:
    """A whole number from `low` to `high`, both included."""
    return RandInt(low, high)


class Suggest:
    """What a space function is given: it asks for one hyperparameter after another, as Optuna's trials are asked."""

    def __init__(self, decide: Callable[[str, Domain], Value]) -> None:
        self._decide = decide
        self.domains: dict[str, Domain] = {}
        self.params: Config = {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """A number from low to high."""
        found = self._suggest(name, LogUniform(low, high) if log else Uniform(low, high))
        assert isinstance(found, float | int)
        return float(found)

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        found = self._suggest(name, RandInt(low, high))
        assert isinstance(found, int)
        return found

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of these values."""
        return self._suggest(name, Choice(tuple(choices)))

    def _suggest(self, name: str, domain: Domain) -> Value:
        if name in self.params:
            if self.domains[name] != domain:
                raise SpaceError(f"hyperparameter '{name}' is asked for twice, with other values")
            return self.params[name]  # type: ignore[no-any-return]
        _check(name, domain)
        self.domains[name] = domain
        self.params[name] = self._decide(name, domain)
        return self.params[name]  # type: ignore[no-any-return]


class Drawn(Struct, frozen=True):
    """One configuration, and where it lies in the space."""

    config: Config
    domains: dict[str, Domain]

    @property
    def traits(self) -> Traits:
        """What distances are measured by."""
        return {name: domain.trait(self.config[name]) for name, domain in self.domains.items()}


Space = Mapping[str, Domain] | Callable[[Any], Any]  # a function asks its argument by `suggest_…`


def check(space: Space) -> None:
    """Refuse a space that nothing can be drawn from."""
    if callable(space):
        drawn(space, lambda _name, domain: domain.draw(Random(0)))
        return
    if not isinstance(space, Mapping):
        raise SpaceError(f"a search space is a dict or a function, not a {type(space).__name__}")
    if not space:
        raise SpaceError("a search space needs at least one hyperparameter, and has none")
    for name, domain in space.items():
        if not isinstance(domain, Domain):
            kinds = "choice, uniform, loguniform or randint"
            raise SpaceError(f"hyperparameter '{name}': {kinds} is needed, not {domain!r}")
        _check(name, domain)


def drawn(space: Space, decide: Callable[[str, Domain], Value]) -> Drawn:
    """A configuration whose values are decided one by one."""
    asked = Suggest(decide)
    if callable(space):
        _ask(space, asked)
        if not asked.domains:
            raise SpaceError("the search space's function asks for no hyperparameter")
    else:
        for name, domain in space.items():
            asked._suggest(name, domain)
    return Drawn(asked.params, asked.domains)


# -- as users type it -------------------------------------------------------------------------------------

_KINDS: dict[str, type[Domain]] = {"choice": Choice, "uniform": Uniform, "loguniform": LogUniform, "randint": RandInt}


def space_of_options(options: Sequence[str]) -> dict[str, Domain]:
    """NAME=KIND:VALUE,VALUE, one option a hyperparameter."""
    found: dict[str, Domain] = {}
    for option in options:
        name, equals, rest = option.partition("=")
        kind, colon, values = rest.partition(":")
        if not (name and equals and colon):
            raise SpaceError(f"--space '{option}' must be NAME=KIND:VALUES, as in rate=loguniform:1e-4,0.1")
        if name in found:
            raise SpaceError(f"hyperparameter '{name}' is there twice in --space")
        found[name] = _domain(name, kind, [_typed(v) for v in values.split(",")] if values else [])
    return found


def space_of_files_and_options(given: Sequence[str]) -> dict[str, Domain]:
    """NAME=KIND:VALUES, or a TOML file whose lines, or those under [space], are NAME = { KIND = [VALUES] }."""
    found: dict[str, Domain] = {}
    for item in given:
        is_file = "=" not in item or Path(item).is_file()
        more = _space_of_file(Path(item)) if is_file else space_of_options([item])
        if twice := found.keys() & more.keys():
            raise SpaceError(f"hyperparameter '{min(twice)}' is there twice in --space")
        found |= more
    check(found)
    return found


def _space_of_file(path: Path) -> dict[str, Domain]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpaceError(
            f"--space '{path}' must be a TOML file or NAME=KIND:VALUES, as in rate=loguniform:1e-4,0.1 "
            f"({error.strerror or error})"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpaceError(f"--space '{path}' is not TOML: {error}") from error
    space = table.get("space")
    if isinstance(space, Mapping) and not space.keys() & _KINDS.keys():  # Else it is a hyperparameter of that name.
        return space_of_table(space)
    return space_of_table(table)


def space_of_table(table: Mapping[str, Any]) -> dict[str, Domain]:
    """NAME = { KIND = [VALUE, VALUE] }, a line a hyperparameter."""
    found: dict[str, Domain] = {}
    for name, entry in table.items():
        if not isinstance(entry, Mapping) or len(entry) != 1:
            raise SpaceError(f"hyperparameter '{name}' must be {{ KIND = [VALUES] }}, not {entry!r}")
        ((kind, values),) = entry.items()
        if not isinstance(values, list):
            raise SpaceError(f"hyperparameter '{name}': {kind} must be a list of values, not {values!r}")
        found[name] = _domain(name, kind, values)
    return found


def _domain(name: str, kind: str, values: Sequence[Any]) -> Domain:
    """One hyperparameter, checked."""
    if kind not in _KINDS:
        raise SpaceError(f"hyperparameter '{name}': '{kind}' is not one of {', '.join(_KINDS)}")
    if kind == "choice":
        made: Domain = Choice(tuple(values))
    else:
        if len(values) != 2 or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            raise SpaceError(f"hyperparameter '{name}': {kind} needs two numbers, low and high, not {list(values)}")
        made = _KINDS[kind](*values)
    made.check(name)
    return made


def _typed(text: str) -> Any:
    """A number, true, false or null as JSON has them; anything else is text."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, int | float | bool | None) else text


# -- details -----------------------------------------------------------------------------------------------


def _ask(space: Callable[[Any], Any], asked: Suggest) -> None:
    """Let a user's function ask; whatever it raises is said in one line."""
    try:
        space(asked)
    except SpaceError:
        raise
    except Exception as error:
        said = (str(error).splitlines() or [""])[0]
        raise SpaceError(f"the search space's function fails: {type(error).__name__}: {said}") from error


def _check(name: Any, domain: Domain) -> None:
    if not isinstance(name, str):
        raise SpaceError(f"a hyperparameter's name is text, not {name!r}")
    domain.check(name)


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and not _is_odd(value)


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not isfinite(value)


def _place(value: Any, low: float, high: float, places: float = PLACES) -> float:
    return (value - low) / (high - low) * places if high > low else 0.0
