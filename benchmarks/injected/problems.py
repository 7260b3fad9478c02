"""Problems, prompts and templates."""

from dataclasses import replace
from pathlib import Path

import algorist.stages.rl as rl
from algorist.flow import Prompt
from algorist.launch.prepare import Prepared
from algorist.problems.order import ProblemOrder
from algorist.prompts.render import Renderer
from injected.tools import Fault, Patch, as_json, checkpoint, data, jsonl, prompts_of, prompts_with

RECIPE, TEMPLATE = ("recipe",), ("template",)
SUMS = [{"question": f"{a} + {b}", "answer": str(a + b)} for a in range(10) for b in range(10)]


def sums(**change) -> list[dict[str, str]]:
    return [{**row, **{k: make(row) for k, make in change.items()}} for row in SUMS]


def leaky(row) -> str:
    return f"{row['question']} = {row['answer']}"


def said_in_chat(text: str):
    """A chat template that says this."""

    def edit(folder: Path) -> None:
        (folder / "chat_template.jinja").write_text(text)

    return checkpoint(edit, "prompt={template: chat, answer_format: first_line}")


def says_gold(prepared: Prepared, prompt: Prompt) -> Prompt:
    golds = {p.id: p.gold for p in (*prepared.problems.train, *prepared.problems.heldout)}
    gold = prepared.policy.tokenizer.encode(golds[prompt.problem_id], add_special_tokens=False)
    return replace(prompt, token_ids=(*prompt.token_ids, *gold))


def rolled(p: Patch) -> None:
    """Prompts change places."""

    def make(old):
        def render(self, problems, **limits):
            found = old(self, problems, **limits)
            ids = [q.token_ids for q in found.prompts]
            moved = zip(found.prompts, [*ids[1:], *ids[:1]], strict=True)
            return replace(found, prompts=tuple(replace(q, token_ids=other) for q, other in moved))

        return render

    p.set(Renderer, "render", make)


def targets(change):
    """What SFT imitates."""
    return lambda prepared: replace(prepared, targets=tuple(change(list(prepared.targets))))


def task_train(change, with_heldout: bool = False):
    """The problems of RL, as the task holds them, are not those that were read."""

    def tamper(prepared: Prepared) -> Prepared:
        train = change(prepared.task.train)
        more = prepared.task.heldout if with_heldout else ()
        return replace(prepared, task=replace(prepared.task, train=(*train, *more)))

    return tamper


def rolled_golds(problems):
    return tuple(replace(p, gold=q.gold) for p, q in zip(problems, [*problems[1:], problems[0]], strict=True))


SFT = ("problems.sft_count=20", "sft={target: gold, steps: 2, batch_size: 4, optimizer: {lr: 1e-5}}")


def order_of(at):
    """The loop takes its problems in another order."""

    class Order:
        def __init__(self, ids, seed: int) -> None:
            self.own = ProblemOrder(ids, seed=seed)

        def at(self, index: int, size: int) -> list[str]:
            return at(self.own, index, size)

    return lambda p: p.set(rl, "ProblemOrder", lambda old: Order)


def always_first(p: Patch) -> None:
    p.set(ProblemOrder, "at", lambda old: lambda self, index, size: old(self, 0, size))


FAULTS = (
    # data
    Fault("held-out problems are trained on", "C corpus", ("data",), "held-out",
          tamper=data(heldout=lambda p: p.problems.train[:5])),
    Fault("held-out problems are trained on, written otherwise", "C corpus", ("data",), "held-out",
          tamper=data(heldout=lambda p: tuple(replace(q, question=q.question.replace(" ", "") + " ?") for q in p.problems.train[:5]))),
    Fault("held-out problems are trained on, with leading zeros", "C corpus", ("data",), "held-out",
          tamper=data(heldout=lambda p: tuple(replace(q, question="0" + q.question) for q in p.problems.train[:5]))),
    Fault("most golds cannot be checked", "D62", ("data",), "golds",
          overrides=("problems.source={kind: jsonl, path: bad.jsonl}",)),
    Fault("all golds are whole solutions", "D57", RECIPE, "after_hashes", code=2,
          files=jsonl(sums(answer=lambda r: f"so\n#### {r['answer']}"))),
    Fault("golds contradict each other", "D62", RECIPE, "conflicting_gold", code=2,
          files=jsonl(SUMS + sums(answer=lambda r: r["answer"] + "0"))),
    Fault("a gold is empty", "D62", RECIPE, "is empty", code=2, files=jsonl([*SUMS, {"question": "1 + 77", "answer": ""}])),
    Fault("a gold is a list", "D62", RECIPE, "got list", code=2, files=jsonl([*SUMS, {"question": "1 + 77", "answer": [78]}])),
    Fault("all golds are wrong", "D62, reliability C", ("signal",), "gold '7",
          files=jsonl(sums(answer=lambda r: f"70{r['answer']}"))),
    Fault("one question a hundred times", "A15", RECIPE, "duplicate", code=2, files=jsonl([SUMS[0]] * 100)),
    Fault("questions say their answer", "reliability C", ("data",), "say their own answer", files=jsonl(sums(question=leaky))),
    Fault("fields of the data have other names", "E79", RECIPE, "fields here", code=2,
          files=jsonl([{"q": "1 + 1", "a": "2"}] * 3)),
    Fault("problems too hard for any contrast", "D67, E82", ("signal",), "too hard",
          overrides=("problems.source={kind: jsonl, path: hard.jsonl}",)),
    Fault("most prompts do not fit", "E79", ("prompt_lengths",), "cannot be shown",
          overrides=("problems.source={kind: jsonl, path: long.jsonl}",)),
    Fault("no question can be spelt", "E79", RECIPE, "unknown_character", code=2,
          files=jsonl(sums(question=lambda r: r["question"].replace("+", "plus")))),
    Fault("prior-exposure list is missing", "seed", RECIPE, "exclusions", code=2,
          overrides=("qualify.data.exclusions=[absent.txt]",)),
    # prompts
    Fault("every prompt ends with the stop token", "B24", TEMPLATE, "stop token",
          tamper=prompts_of(lambda p: replace(p, token_ids=(*p.token_ids, 1)))),
    Fault("token ids of another tokenizer", "C49", TEMPLATE, "vocabulary",
          tamper=prompts_of(lambda p: replace(p, token_ids=(*p.token_ids, 5000)))),
    Fault("prompts begin twice", "C44", TEMPLATE, "two beginning",
          tamper=prompts_of(lambda p: replace(p, token_ids=(1, 1, *p.token_ids)))),
    Fault("prompts are padded", "B30", TEMPLATE, "padding",
          tamper=prompts_of(lambda p: replace(p, token_ids=(0, 0, *p.token_ids)))),
    Fault("prompts lack their question", "D66", TEMPLATE, "do not show their own question",
          tamper=prompts_of(lambda p: replace(p, token_ids=p.token_ids[-1:]))),
    Fault("one prompt for all problems", "A3", TEMPLATE, "do not show their own question",
          tamper=prompts_with(lambda x, p: replace(p, token_ids=next(iter(x.task.prompts.values())).token_ids))),
    Fault("prompts of other problems", "A2", TEMPLATE, "do not show their own question", patch=rolled),
    Fault("prompts say the gold", "reliability C", TEMPLATE, "can say the answer",
          tamper=prompts_with(says_gold)),
    Fault("chat template leaves the question out", "D66", TEMPLATE, "do not show their own question",
          files=said_in_chat("1 + 1=")),
    Fault("chat template cuts the question", "D66", TEMPLATE, "do not show their own question",
          files=said_in_chat("{{ messages[0]['content'][:-1] }}=")),
    Fault("chat template raises", "D66", RECIPE, "chat template", code=2, files=said_in_chat("{{ raise_exception('no') }}")),
    Fault("a stop string that answers need", "B24", TEMPLATE, "hold a stop token", overrides=("prompt.stop=['1']",)),
    Fault("a stop string that ends the prompt", "B24", TEMPLATE, "stop token", overrides=("prompt.stop=['=']",)),
    Fault("a stop string of two tokens", "B24", RECIPE, "must be one token", code=2, overrides=("prompt.stop=['10']",)),
    Fault("the end token is one that the policy never says", "B23", ("signal",), "none ever sampled a stop token",
          files=checkpoint(as_json("tokenizer_config.json", lambda c: c.update(eos_token="<pad>")))),
    # targets
    Fault("targets without their end", "B23", TEMPLATE, "never to stop", overrides=SFT,
          tamper=targets(lambda rows: [(p, t[:-1]) for p, t in rows])),
    Fault("targets of other problems", "A2", TEMPLATE, "do not say their answer", overrides=SFT,
          tamper=targets(lambda rows: [(p, u[1]) for (p, _), u in zip(rows, [*rows[1:], rows[0]], strict=True)])),
    Fault("targets in another frame", "D66", TEMPLATE, "differs from prompt to prompt", overrides=SFT,
          tamper=targets(lambda rows: [(p[:-1], t) for p, t in rows])),
    Fault("targets that the prompt says already", "reliability C", TEMPLATE, "differs from prompt to prompt", overrides=SFT,
          tamper=targets(lambda rows: [((*p, *t[:-1]), t) for p, t in rows])),
    Fault("targets lost", "A15", TEMPLATE, "targets for", overrides=SFT, tamper=targets(lambda rows: rows[:-1])),
    # behind the data gate
    Fault("golds of the task exchanged after reading", "D62", ("data",), "read otherwise", tamper=task_train(rolled_golds)),
    Fault("golds of held-out problems exchanged after reading", "D62", ("data",), "read otherwise",
          tamper=lambda x: replace(x, task=replace(x.task, heldout=rolled_golds(x.task.heldout)))),
    Fault("held-out problems put into training after reading", "C corpus", ("data", "rollouts"), "in another part",
          tamper=task_train(lambda train: train, with_heldout=True)),
    # order
    Fault("the first problems again and again", "A15, E76", ("rollouts",), "seed and position",
          patch=order_of(lambda o, i, n: o.at(0, n)), updates=1),
    Fault("one problem in all places of a batch", "A15", ("rollouts",), "seed and position",
          patch=order_of(lambda o, i, n: [o.at(i, n)[0]] * n)),
    Fault("problems left out", "E73", ("rollouts",), "seed and position",
          patch=order_of(lambda o, i, n: o.at(2 * i, n)), updates=1),
    Fault("the order itself stands still", "E76", ("rollouts",), "before any is shown again", patch=always_first, updates=2),
)  # fmt: skip
