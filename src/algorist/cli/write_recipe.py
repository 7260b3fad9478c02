"""The recipe that `init` writes: choices from what was found, each with its reason as a comment."""

import json
import os.path
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from algorist.cli.doctor import fast_bfloat16
from algorist.errors import InputError

if TYPE_CHECKING:
    from algorist.cli.init import Lengths
    from algorist.cli.look_model import ModelFacts
    from algorist.cli.look_problems import ProblemFacts

_GROUP = 8
_MOST_HELD_OUT = 256
_SFT_BATCH, _SFT_PASSES = 64, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Everything the text of the recipe depends on."""

    name: str
    policy: tuple[str, ...]
    """Lines of the policy section."""
    source: tuple[str, ...]
    heldout: int
    sft_count: int
    prompt: tuple[str, ...]
    sft: tuple[str, ...]
    """Lines of the sft section; none for a model that can already answer."""
    updates: int
    prompts_per_batch: int
    response_tokens: int
    response_why: str
    lr: str
    notes: tuple[str, ...]


def choose(
    *, out: Path, model: "ModelFacts | None", problems: "ProblemFacts", lengths: "Lengths", file: Path
) -> Choices:
    """Settings that fit what was found. Raises InputError where no recipe can: too few problems, too small a context."""
    usable = len(problems.problems)
    direct = model is not None and answers_directly(model, problems, lengths)
    if usable < 8:
        raise InputError(f"{file}: {usable} usable problems are too few to train and to measure on. Give at least 8.")
    heldout = max(2, min(_MOST_HELD_OUT, usable // 5))
    left = usable - heldout
    sft_count = min(32, left // 4) if direct else _sft_count(model, problems, left)
    left -= sft_count
    prompts_per_batch = min(16 if model else 32, left)
    budget, why = _budget(model, lengths, direct)
    prompt, overhead = _DIRECT if direct else _prompt(model, problems, lengths)
    context = _context(model, lengths, budget, overhead, file)
    per_pass = -(-left // prompts_per_batch)
    notes = []
    if model is None and usable < 1000:
        notes.append(f"a model from random weights wants a few thousand problems; {usable} it may learn by heart")
    elif usable < 200:
        notes.append(f"{usable} problems are few: intervals will be wide, and RL may learn them by heart")
    if model is not None and model.parameters > 1e9:
        notes.append(
            f"{model.parameters / 1e9:.1f} B parameters want a GPU: {model.training_gib:.0f} GiB before activations"
        )
    if problems.kinds.get("text"):
        notes.append(f"{problems.kinds['text']} answers are words; they are compared as text")
    return Choices(
        name=_name(out),
        policy=_policy(out, model, context, direct),
        source=_source(out, problems, file),
        heldout=heldout,
        sft_count=sft_count,
        prompt=prompt,
        sft=_FORMAT_SFT if direct else _sft(problems, sft_count) if sft_count else (),
        updates=60 if direct else max(40, min(100, per_pass * 4)),
        prompts_per_batch=prompts_per_batch,
        response_tokens=budget,
        response_why=why,
        lr="2e-5, schedule: cosine, final_share: 0.1" if direct else _lr(model),
        notes=tuple(notes),
    )


_DIRECT = (
    (
        '  format: "Q: {question}\\nA:"',
        '  stop: ["\\n"]',
        "  answer_format: first_line   # short answers to short questions: the answer alone, without reasoning",
    ),
    8,
)
"""Prompt lines and the tokens around a question, for answers without reasoning."""

_FORMAT_SFT = (
    "  steps: 4                    # just enough to show the format; RL does the rest",
    "  batch_size: 8",
    "  target: gold",
    "  optimizer: {lr: 1e-5}",
)


def answers_directly(model: "ModelFacts", problems: "ProblemFacts", lengths: "Lengths") -> bool:
    """True where questions are short, answers shorter, none is worked out, and a line break is one token."""
    encode = model.tokenizer.encode
    before, after = encode(" 7", add_special_tokens=False), encode(" 7\n", add_special_tokens=False)
    single = len(after) == len(before) + 1 and "\n" in model.tokenizer.decode(after[-1:])
    short = lengths.of == "gold" and lengths.question[2] <= 48 and lengths.answer[2] <= 16
    return short and single and not any("\n" in p.question for p in problems.problems)


def text_of(c: Choices) -> str:
    """The recipe."""
    sft = ["", "sft:", *c.sft] if c.sft else []
    lines = [
        "# Written by `algorist init` from what it found. Every key is explained in docs/recipe.md.",
        f"name: {c.name}",
        "seed: 0                       # every random number of the run derives from it",
        "",
        "policy:",
        *c.policy,
        "",
        "problems:",
        *c.source,
        f"  heldout: {{count: {c.heldout}}}         # never trained on; what before and after are measured with",
        *(
            [f"  sft_count: {c.sft_count}              # of the rest, these go to SFT and not to RL"]
            if c.sft_count
            else []
        ),
        "",
        "prompt:",
        *c.prompt,
        *sft,
        "",
        "rl:",
        f"  updates: {c.updates}                 # rollout batches",
        f"  prompts_per_batch: {c.prompts_per_batch}       # problems per batch",
        f"  group_size: {_GROUP}               # responses per problem; the others of the group are each one's baseline",
        f"  sampling: {{temperature: 1.0, response_tokens: {c.response_tokens}}}   # {c.response_why}",
        "  objective: {name: rloo}     # or grpo, dr_grpo, dapo, gspo, cispo, ...: algorist explain METHOD",
        f"  optimizer: {{lr: {c.lr}}}",
        "",
        "evaluate: {samples: 4, ks: [1, 4]}   # besides one greedy response per held-out problem",
        "record: {checkpoint_every: 20, keep: 2}",
        "",
    ]
    return "\n".join(lines)


def _name(out: Path) -> str:
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in out.name.removesuffix(out.suffix)).lstrip("-_.")
    return name if name.isascii() and name else "mine"


def _relative(path: Path, out: Path) -> str:
    """A path as the recipe writes it: relative to its own folder where both are near, absolute otherwise."""
    relative = os.path.relpath(path, out.parent)
    return str(path.absolute()) if relative.startswith("../../..") else relative


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _policy(out: Path, model: "ModelFacts | None", context: int, direct: bool) -> tuple[str, ...]:
    if model is None:
        return (
            "  new:                        # a Llama of about a million weights, from random ones",
            "    hidden_size: 128",
            "    intermediate_size: 384",
            "    num_layers: 4",
            "    num_heads: 4",
            f"    context: {context}               # longest prompt and response together, in tokens",
            "    tokenizer: {kind: char}   # one token a character of your file",
        )
    dtype = "bfloat16" if fast_bfloat16() and not direct else "float32"
    size = f"{model.parameters / 1e6:,.0f} M parameters, {model.architecture}"
    return (
        f"  path: {_quoted(_relative(model.folder, out))}   # {size}",
        f"  dtype: {dtype:<9}            # of the matrix products; weights and moments stay float32",
        f"  context: {context}               # of the {model.context or '?'} tokens it was made for; less is less memory",
    )


def _source(out: Path, problems: "ProblemFacts", file: Path) -> tuple[str, ...]:
    f = problems.fields
    lines = [
        "  source:",
        f"    kind: {'parquet' if file.suffix == '.parquet' else 'jsonl'}",
        f"    path: {_quoted(_relative(file, out))}   # {len(problems.problems)} of {problems.rows} rows can be used",
        f"    question: {_quoted(f.question)}",
        f"    answer: {_quoted(f.answer)}",
    ]
    if f.solution:
        lines.append(f"    solution: {_quoted(f.solution)}      # worked solutions, for SFT")
    if f.gold != "as_is":
        lines.append(f"    gold: {f.gold}        # the part of the answer field that is the answer")
    if any(row.reason.startswith("no_") or row.reason == "bad_field" for row in problems.dropped):
        lines.append(
            "    on_bad_row: drop          # rows without question or answer are counted and left out; refuse: stop"
        )
    return tuple(lines)


def _sft_count(model: "ModelFacts | None", problems: "ProblemFacts", left: int) -> int:
    """A model from random weights must first be shown what an answer looks like; a trained one starts with RL."""
    if model is not None:
        return 0
    able = problems.num_solutions or left
    return max(1, min(able // 2, left // 2, 1000))


def _sft(problems: "ProblemFacts", count: int) -> tuple[str, ...]:
    target = "solution" if problems.num_solutions else "gold"
    steps = max(60, min(450, _SFT_PASSES * count // _SFT_BATCH))
    return (
        f"  steps: {steps}                  # about {steps * _SFT_BATCH / count:.0f} passes; many more would only learn them by heart",
        f"  batch_size: {_SFT_BATCH}",
        f"  target: {target:<8}            # what is imitated: the worked solution, or the bare answer",
        "  optimizer: {lr: 2e-3, schedule: cosine, warmup_updates: 20}",
    )


def _budget(model: "ModelFacts | None", lengths: "Lengths", direct: bool) -> tuple[int, str]:
    """Response tokens: what the file's own solutions need and half as much again; a guess where it has none."""
    longest = lengths.answer[2]
    if model is None:
        return longest + max(4, longest // 4), f"the longest {lengths.of} has {longest}"
    if direct:
        return longest + 3, f"the longest answer has {longest}; a space and the line break come on top"
    if model.has_chat_template:
        # it reasons in its own words, so the file's solutions are only a lower bound
        tokens = max(256, _round(2 * lengths.answer[1])) if lengths.of == "solution" else 512
        return min(tokens, (model.context or 4096) // 2), "a guess: raise it where the report shows truncation"
    if lengths.of == "solution":
        tokens = _round(lengths.answer[1] * 3 // 2 + 16)
        return tokens, f"95 % of the solutions have {lengths.answer[1]} or fewer"
    return _round(longest + 8), f"one line; the longest answer has {longest}"


def _round(tokens: int) -> int:
    return max(8, -(-tokens // 8) * 8)


def _prompt(model: "ModelFacts | None", problems: "ProblemFacts", lengths: "Lengths") -> tuple[tuple[str, ...], int]:
    """(lines, tokens around the question)."""
    if model is None:
        where = "auto" if lengths.of == "solution" else "first_line"
        note = (
            "the verifier looks for the answer by its rules"
            if where == "auto"
            else "the whole first line is the answer"
        )
        if lengths.of == "solution" and all(_after_equals(p.solution, p.gold) for p in problems.problems if p.solution):
            where, note = "last_number", 'what follows the last "=" is the answer'
        return (
            f'  format: "{{question}}{_separator(problems)}"',
            '  target: "{answer}"',
            f"  answer_format: {where}  # {note}",
        ), 2
    if model.has_chat_template:
        return (
            "  template: chat              # the model's own",
            '  format: "{question}\\nPlease reason step by step, and put your final answer within \\\\boxed{}."',
            "  answer_format: boxed",
        ), 64
    return ('  format: "Question: {question}\\nAnswer:"', "  answer_format: auto"), 16


def _separator(problems: "ProblemFacts") -> str:
    """What tells the question from the answer, as YAML writes it: nothing more where every question ends in a mark."""
    marked = sum(problem.question.rstrip().endswith(("?", "=", ":")) for problem in problems.problems)
    return "" if marked == len(problems.problems) else "\\n" if marked else "?"


def _after_equals(solution: str, gold: str) -> bool:
    return solution.rpartition("=")[2].strip() == gold.strip()


def _context(model: "ModelFacts | None", lengths: "Lengths", budget: int, overhead: int, file: Path) -> int:
    """Room for the longest question with its response."""
    needed = lengths.question[2] + overhead + budget
    if model is None:
        return -(-(needed + 1) // 8) * 8
    needed = -(-needed // 64) * 64
    if model.context and needed > model.context:
        typical = lengths.question[1] + overhead + budget
        if typical > model.context:
            raise InputError(
                f"{file}: 95 % of the questions with a response of {budget} tokens need up to {typical} tokens, and the model "
                f"was made for {model.context}. Give shorter problems or another model."
            )
        return model.context
    return needed


def _lr(model: "ModelFacts | None") -> str:
    if model is None:
        return "1.5e-4"
    return "1e-5" if model.parameters < 1e9 else "1e-6"
