"""`algorist eval MODEL_OR_RUN`: a model on sets of problems, with intervals."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from algorist.cli.common import add_json, emit, say
from algorist.cli.run import set_threads
from algorist.errors import InputError

if TYPE_CHECKING:
    from algorist.api.measure import Measured
    from algorist.api.model import OpenModel
    from algorist.digest import JSON
    from algorist.evaluate.config import EvaluateConfig
    from algorist.flow import Problem
    from algorist.prompts.config import PromptConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One set of problems to measure on."""

    name: str
    problems: "tuple[Problem, ...]"
    dropped: tuple[str, ...]
    """What was left out while reading, in words."""
    trained_on: int | None = None
    """Problems that the run learned from; None where the model is no run, or where that cannot be known."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "measure a model or a run on problems with known answers"
    parser = subparsers.add_parser("eval", help=text, description=text)
    parser.add_argument("model", type=Path, help="a run folder, its export, or a Hugging Face model folder")
    parser.add_argument(
        "--problems", type=Path, metavar="FILE", help="jsonl or parquet file; default: a run's own held-out"
    )
    parser.add_argument("--recipe", type=Path, help="use the held-out problems, prompts and settings of a recipe")
    parser.add_argument(
        "--suite", action="append", default=[], metavar="NAME=FILE", help="a named problem file; may be repeated"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder that gets NAME.json per problem set")
    parser.add_argument("--question", metavar="FIELD", help="field with the question (default: guessed, and said)")
    parser.add_argument(
        "--answer", metavar="FIELD", help="field with the reference answer (default: guessed, and said)"
    )
    parser.add_argument("--limit", type=int, help="use only the first so many rows of a file")
    parser.add_argument("--samples", type=int, help="sampled responses per problem, besides the greedy one")
    parser.add_argument("--k", metavar="1,4", help="the k of pass@k and maj@k")
    parser.add_argument("--temperature", type=float, help="of the sampled responses")
    parser.add_argument("--top-p", type=float, help="of the sampled responses")
    parser.add_argument("--response-tokens", type=int, help="most tokens of a response")
    parser.add_argument("--seed", type=int, help="seed of the sampled responses")
    parser.add_argument("--rows", type=int, default=128, help="sequences decoded side by side (memory)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: the cores this process may use)")
    add_json(parser)
    parser.set_defaults(func=evaluate_verb)


def evaluate_verb(arguments: argparse.Namespace) -> int:
    """Measure on each suite; one file, one row of the table each."""
    _refuse_used(arguments)
    from algorist.api.measure import evaluate_model
    from algorist.api.model import open_model
    from algorist.cli.progress import Terminal

    set_threads(arguments.threads)
    prompt, suites = _given_suites(arguments)
    model = open_model(arguments.model, prompt=prompt, prompt_from=f"of {arguments.recipe}")
    suites = _with_training(suites, model) if suites else _own_suite(model, arguments.model)
    cfg = _settings(arguments, model)
    say(f"model: {model.folder}, prompts {model.prompt_from}")
    found: list[tuple[Suite, Measured]] = []
    for suite in suites:
        say(
            f"{suite.name}: {len(suite.problems)} problems, {int(cfg.greedy)} greedy and {cfg.samples} sampled responses each"
        )
        if suite.trained_on:
            say(
                f"  WARNING: {suite.trained_on} of {len(suite.problems)} of these problems were trained on: what follows is "
                "no measure of new problems. A run's own held-out: leave out --problems, or give --recipe"
            )
        for line in suite.dropped[:5]:
            say(f"  left out: {line}")
        if len(suite.dropped) > 5:
            say(f"  left out: {len(suite.dropped) - 5} more")
        with Terminal() as listener:
            measured = evaluate_model(
                model,
                suite.problems,
                name=suite.name,
                cfg=cfg,
                response_tokens=arguments.response_tokens,
                seed=arguments.seed,
                rows=arguments.rows,
                listener=listener,
            )
        for line in measured.dropped:
            say(f"  not shown to the model, {line}")
        _write(arguments.out / f"{suite.name}.json", suite, measured, model)
        found.append((suite, measured))
    if arguments.json:
        emit({"model": str(model.folder), "out": str(arguments.out), "evaluations": _figures(found)})
    else:
        _print_table(found, arguments.out)
    return 0


def _refuse_used(arguments: argparse.Namespace) -> None:
    """Wrong combinations and files that would be overwritten, before anything is loaded."""
    given = [bool(arguments.problems), bool(arguments.recipe), bool(arguments.suite)]
    if sum(given) > 1:
        raise InputError("eval: give one of --problems, --recipe and --suite (which may be repeated), not several.")
    names = [name for name, _ in _named_files(arguments)] or [arguments.recipe.stem if arguments.recipe else "heldout"]
    if len(set(names)) < len(names):
        raise InputError(f"eval: suites must have different names: got {', '.join(names)}. Rename one.")
    for name in names:
        if (arguments.out / f"{name}.json").exists():
            raise InputError(f"{arguments.out / name}.json: exists, and is never overwritten. Choose another --out.")
    if arguments.out.exists() and not arguments.out.is_dir():
        raise InputError(f"{arguments.out}: must be a folder, got a file. Choose another --out.")


def _named_files(arguments: argparse.Namespace) -> list[tuple[str, Path]]:
    """(name, file) of --problems or of every --suite."""
    if arguments.problems:
        return [(arguments.problems.name.split(".")[0] or "problems", arguments.problems)]
    pairs = []
    for text in arguments.suite:
        name, sign, file = text.partition("=")
        if not sign or not file or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise InputError(f"--suite must be NAME=FILE, the name of letters, digits, - and _: got {text!r}.")
        pairs.append((name, Path(file)))
    return pairs


def _given_suites(arguments: argparse.Namespace) -> "tuple[PromptConfig | None, list[Suite]]":
    """Suites from the files or the recipe, with the recipe's prompt settings."""
    from algorist.api.measure import read_problems
    from algorist.cli.look_problems import look_at_problems, source_config

    if arguments.recipe is not None:
        return _recipe_suite(arguments)
    suites = []
    for name, file in _named_files(arguments):
        looked = look_at_problems(file, question=arguments.question, answer=arguments.answer)
        say(f"{file}: question in {looked.question!r}, answer in {looked.answer!r} ({looked.gold.replace('_', ' ')})")
        problems, dropped = read_problems(source_config(looked, file, limit=arguments.limit), Path())
        suites.append(Suite(name=name, problems=problems, dropped=dropped))
    return None, suites


def _recipe_suite(arguments: argparse.Namespace) -> "tuple[PromptConfig | None, list[Suite]]":
    from algorist.api.runs import load_recipe
    from algorist.problems.load import load_problems
    from algorist.prompts.text import pick_examples
    from algorist.verify import check_gold

    resolved = load_recipe(arguments.recipe)
    recipe = resolved.recipe
    found = load_problems(recipe.problems, seed=recipe.seed, base_dir=resolved.base_dir, gold_check=check_gold)
    prompt = recipe.prompt
    if isinstance(prompt.examples, int) and prompt.examples:
        examples = pick_examples(prompt, [*found.sft, *found.train], recipe.seed)
        prompt = prompt.model_copy(update={"examples": examples})
    chosen = found.heldout[: recipe.evaluate.problems]
    return prompt, [Suite(name=arguments.recipe.stem, problems=chosen, dropped=tuple(found.report.lines()[1:]))]


def _own_suite(model: "OpenModel", path: Path) -> list[Suite]:
    """The held-out problems of a run, as it measured them itself."""
    from algorist.api.model import own_problems

    if model.recipe is None:
        raise InputError(
            f"{path}: is no run with held-out problems of its own. Say what to measure on: --problems FILE.jsonl, "
            "--recipe RECIPE or --suite NAME=FILE."
        )
    problems = own_problems(model.recipe, model.run).heldout[: model.recipe.evaluate.problems]
    return [Suite(name="heldout", problems=problems, dropped=(), trained_on=0)]


def _with_training(suites: "list[Suite]", model: "OpenModel") -> "list[Suite]":
    """The suites, each with how many of its problems the run learned from."""
    from algorist.api.model import trained_on
    from algorist.problems.split import question_key

    if model.run is None or model.recipe is None:
        return suites
    known = trained_on(model.recipe, model.run)
    counts = [
        sum(p.id in known.ids or question_key(p.question) in known.questions for p in suite.problems)
        for suite in suites
    ]
    if known.unknown:
        say(f"note: {known.unknown}; problems of its SFT are not recognised below")
        some = [count or None for count in counts]  # none found is then no proof
        return [replace(suite, trained_on=count) for suite, count in zip(suites, some, strict=True)]
    return [replace(suite, trained_on=count) for suite, count in zip(suites, counts, strict=True)]


def _settings(arguments: argparse.Namespace, model: "OpenModel") -> "EvaluateConfig":
    """The model's own evaluation settings with what the command line says. Raises InputError for what cannot be."""
    from pydantic import ValidationError

    from algorist.api.runs import load_recipe
    from algorist.evaluate.config import EvaluateConfig

    base = load_recipe(arguments.recipe).recipe.evaluate if arguments.recipe else model.evaluate
    fields = base.model_dump()
    for name in ("samples", "temperature", "top_p", "response_tokens"):
        if getattr(arguments, name) is not None:
            fields[name] = getattr(arguments, name)
    if arguments.k is not None:
        try:
            fields["ks"] = tuple(int(k) for k in arguments.k.split(","))
        except ValueError as error:
            raise InputError(f"--k must be whole numbers with commas, as 1,4: got {arguments.k!r}.") from error
    elif arguments.samples is not None:
        fields["ks"] = tuple(k for k in sorted({*base.ks, arguments.samples}) if 1 <= k <= arguments.samples) or (1,)
    fields["problems"] = None
    try:
        return EvaluateConfig.model_validate(fields)
    except ValidationError as failure:
        first = failure.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"eval: {f'{place}: ' if place else ''}{first['msg']}") from failure


def _write(path: Path, suite: Suite, measured: "Measured", model: "OpenModel") -> None:
    import json

    from algorist.record.commit import atomic_write

    document: dict[str, JSON] = {
        **measured.result.to_json(),
        "dropped": [*suite.dropped, *measured.dropped],
        "prompts": model.prompt_from,
        "trained_on": suite.trained_on,
    }
    atomic_write(path, (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def _figures(found: "Sequence[tuple[Suite, Measured]]") -> "list[JSON]":
    return [
        {
            **{name: value for name, value in measured.result.to_json().items() if name != "per_problem"},
            "dropped": [*suite.dropped, *measured.dropped],
            "trained_on": suite.trained_on,
        }
        for suite, measured in found
    ]


def _print_table(found: "Sequence[tuple[Suite, Measured]]", out: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    first = found[0][1].result
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for suite, _ in found:
        table.add_column(suite.name, justify="right")
    results = [measured.result for _, measured in found]
    rows = [("greedy", [r.greedy for r in results])]
    for label, pick in (("mean", "mean_at"), ("pass", "pass_at"), ("maj", "maj_at")):
        for k in getattr(first, pick):
            rows.append((f"{label}@{k}", [getattr(r, pick).get(k) for r in results]))
    for label, estimates in rows:
        if any(e is not None for e in estimates):
            shown = [f"{e.value:.1%}  [{e.low:.1%}, {e.high:.1%}]" if e else "" for e in estimates]
            table.add_row(label, *shown)
    table.add_section()
    table.add_row("problems", *(str(r.problems) for r in results))
    table.add_row("left out", *(str(len(s.dropped) + m.num_dropped) for s, m in found))
    for label in ("truncated", "unsupported", "errors"):
        table.add_row(label, *(f"{getattr(r, label)} of {r.responses}" for r in results))
    console = Console(stderr=False, highlight=False)
    console.print(table)
    console.print(f"Intervals cover {first.confidence:.0%}. Files: {out}", markup=False, soft_wrap=True)
