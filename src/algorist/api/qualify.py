"""Qualification and comparison from Python; the verbs `preflight`, `calibrate`, `audit`, `why` and `compare` call these."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from algorist.api.runs import Never, import_plugin, load_recipe
from algorist.errors import InputError
from algorist.launch import compare as launch_compare
from algorist.launch.audit import audit as audit
from algorist.launch.compare import Compared, Variant
from algorist.launch.preflight import calibration, judge_all
from algorist.launch.prepare import prepare, subject_of
from algorist.qualify.calibrate import Calibration
from algorist.qualify.gate import Gate
from algorist.qualify.subject import Subject
from algorist.qualify.why import why as why
from algorist.recipe.load import Resolved
from algorist.stages.listener import Listener, Silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """Every gate that can be judged before training.

    >>> Preflight(recipe_digest="ab", gates=()).exit_code
    0
    """

    recipe_digest: str
    gates: tuple[Gate, ...]

    @property
    def exit_code(self) -> int:
        """0 where nothing failed, 3 where only memory did, 4 otherwise."""
        failed = [gate for gate in self.gates if not gate.passed]
        return 0 if not failed else 3 if all(gate.name == "memory" for gate in failed) else 4


def preflight(
    recipe: str | Path,
    *,
    overrides: Sequence[str] = (),
    plugin: str | None = None,
    listener: Listener | None = None,
    on_gate: Callable[[Gate], None] | None = None,
) -> Preflight:
    """Judge every gate of a recipe that needs no training; writes nothing. `on_gate` sees each as soon as it is judged.

    Raises InputError and RecipeError (2) for a recipe that cannot be prepared.
    """
    gates = []
    with _subject(recipe, overrides, plugin, listener) as (resolved, subject):
        for gate in judge_all(subject):
            gates.append(gate)
            if on_gate is not None:
                on_gate(gate)
    return Preflight(recipe_digest=resolved.digest, gates=tuple(gates))


def calibrate(
    recipe: str | Path,
    *,
    problems: int = 32,
    samples: int = 16,
    longest: int | None = None,
    overrides: Sequence[str] = (),
    plugin: str | None = None,
    listener: Listener | None = None,
) -> Calibration:
    """Sample `problems` x `samples` responses with a long budget, and recommend budget and group size; writes nothing.

    longest: largest budget in tokens; None: what the context allows. Raises InputError for counts that are too small.
    """
    if min(problems, samples, longest or 1) < 1 or samples < 2:
        raise InputError("calibrate: --problems and --longest must be at least 1, --samples at least 2. Raise them.")
    with _subject(recipe, overrides, plugin, listener) as (_, subject):
        return calibration(subject, problems=problems, samples=samples, longest=longest)


def compare(
    recipe: str | Path,
    methods: Sequence[str],
    out: str | Path,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    overrides: Sequence[str] = (),
    plugin: str | None = None,
    listener: Listener | None = None,
    stop_requested: Callable[[], bool] = Never,
) -> Compared:
    """Run methods on equal terms and write out/compare.html and out/compare.json; the same call goes on where it stopped.

    methods: names as in `algorist explain`, or "LABEL=METHOD key=value ...". Raises InputError for unknown methods,
    labels that repeat and budgets that differ.
    """
    if plugin is not None:
        import_plugin(plugin)
    variants = [Variant.parse(text) for text in methods]
    return launch_compare.compare(
        Path(recipe), variants, seeds, Path(out),
        listener=listener or Silent(), overrides=overrides, plugin=plugin, stop_requested=stop_requested,
    )  # fmt: skip


@contextmanager
def _subject(
    recipe: str | Path, overrides: Sequence[str], plugin: str | None, listener: Listener | None
) -> Iterator[tuple[Resolved, Subject]]:
    """A recipe made ready to be judged, and what it holds given back at the end."""
    if plugin is not None:
        import_plugin(plugin)
    resolved = load_recipe(recipe, overrides)
    prepared = prepare(resolved.recipe, base=resolved.base_dir, plugin=plugin, listener=listener or Silent())
    try:
        yield resolved, subject_of(prepared)
    finally:
        prepared.close()
