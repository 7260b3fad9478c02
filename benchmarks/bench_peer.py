"""The main job next to TRL's GRPOTrainer: same start, problems, verdicts, group size, batch and number of updates; seconds per update.

    python benchmarks/bench_peer.py [--updates 8] [--rounds 3] [--learn] [--out benchmarks/results/peer_trl.json]

Needs an importable `trl`. The two take turns, each in a process of its own, and the ratio is of the medians of one session. TRL gets
what is fastest for it on a CPU: the whole batch in one generation and one backward pass, no gradient checkpointing, nothing saved or
reported. Ours keeps its gates, ledger, stored rollouts and replay checks. Where the difference comes from: equal prompts and equal answers
are computed once (docs/decisions/0002), and on this task most answers are equal; with long responses that differ the ratio is smaller.
`--learn` lets both make all 70 updates once and measures both exports with `algorist eval` on the same held-out problems.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "recipes/quickstart.yaml"
SHARED = ("sft=null", "problems.sft_count=0", "record.checkpoint_every=1000000")
"""What both sides start from is the export of the recipe's own SFT."""


def ours(start: Path, out: Path, updates: int, threads: int) -> dict:
    """Our RL loop with all its gates, ledger and replay checks."""
    import torch

    import algorist

    torch.set_num_threads(threads)
    steps = Steps()
    sets = [*SHARED, f"policy={{path: {start}, context: 128}}", f"rl.updates={updates}", "evaluate.problems=1"]
    began = time.monotonic()
    done = algorist.run(RECIPE, out, overrides=sets, listener=steps)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    tokens = [row["tokens/sampled"] for row in rows if row.get("stage") == "rl"]
    return {"seconds": steps.seconds, "tokens": tokens, "whole_s": time.monotonic() - began, "export": str(done.export)}


class Steps:
    """A listener that takes the time between two updates."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last = 0.0

    def begin(self, stage: str, total: int) -> None:
        """The first update starts."""
        self._last = time.monotonic()

    def advance(self, stage: str, done: int, numbers: object) -> None:
        """An update is done."""
        now = time.monotonic()
        if stage == "rl":
            self.seconds.append(now - self._last)
        self._last = now

    def say(self, message: str) -> None:
        """Nothing."""


def theirs(start: Path, out: Path, updates: int, threads: int) -> dict:
    """TRL's loop on the same problems with the same settings; rewards come from our verifier."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    import algorist
    from algorist.launch.prepare import prepare
    from algorist.stages.listener import Silent

    torch.set_num_threads(threads)
    resolved = algorist.load_recipe(RECIPE, [*SHARED, f"policy={{path: {start}, context: 128}}"])
    recipe = resolved.recipe
    prepared = prepare(recipe, base=resolved.base_dir, listener=Silent())
    problems = prepared.problems.train
    prompts = prepared.task.prompts
    rows = [{"prompt": prompts[p.id].text, "gold": p.gold} for p in problems]
    prepared.close()
    tokenizer = AutoTokenizer.from_pretrained(start)
    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    newline = tokenizer.encode("\n", add_special_tokens=False)
    rl, opt = recipe.rl, recipe.rl.optimizer
    config = GRPOConfig(
        output_dir=str(out), max_steps=updates, use_cpu=True, bf16=False, seed=0, report_to=[], save_strategy="no", disable_tqdm=True,
        per_device_train_batch_size=rl.prompts_per_batch * rl.group_size, gradient_accumulation_steps=1,
        num_generations=rl.group_size, max_completion_length=rl.sampling.response_tokens, temperature=rl.sampling.temperature,
        top_p=1.0, top_k=0, generation_kwargs={"eos_token_id": [tokenizer.eos_token_id, *newline]},
        beta=0.0, loss_type="bnpo", scale_rewards="none", gradient_checkpointing=False,
        learning_rate=opt.lr, lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs={"min_lr_rate": 0.1}, warmup_steps=0,
        adam_beta1=opt.betas[0], adam_beta2=opt.betas[1], adam_epsilon=opt.eps, weight_decay=opt.weight_decay,
        max_grad_norm=opt.clip_norm, logging_steps=1,
    )  # fmt: skip
    steps = Steps()

    class Clock(TrainerCallback):
        def on_train_begin(self, *_: object, **__: object) -> None:
            steps.begin("rl", updates)

        def on_step_end(self, *_: object, **__: object) -> None:
            steps.advance("rl", 0, {})

    def paid(completions: list[str], gold: list[str], **_: object) -> list[float]:
        firsts = [text.split("\n")[0].strip() for text in completions]
        return [float(algorist.check(g, t).verdict.value == "correct") for g, t in zip(gold, firsts, strict=True)]

    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, reward_funcs=paid, args=config, train_dataset=Dataset.from_list(rows), callbacks=[Clock()]
    )  # fmt: skip
    began = time.monotonic()
    trainer.train()
    whole = time.monotonic() - began
    batch = rl.prompts_per_batch * rl.group_size
    tokens = [
        round(row["completions/mean_length"] * batch)
        for row in trainer.state.log_history
        if "completions/mean_length" in row
    ]
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return {"seconds": steps.seconds, "tokens": tokens, "whole_s": whole, "export": str(out)}


def child(side: str, start: Path, out: Path, updates: int, threads: int) -> dict:
    """One side in a process of its own."""
    call = [sys.executable, __file__, "--side", side, "--start", str(start), "--folder", str(out)]
    call += ["--updates", str(updates), "--threads", str(threads)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "GOMP_SPINCOUNT": "1000"}
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise SystemExit(f"{side}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def start_of(folder: Path) -> Path:
    """The export of the recipe's SFT stage."""
    call = [sys.executable, "-m", "algorist", "sft", str(RECIPE), "--set", "evaluate.problems=1", "--out", str(folder)]
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
    return folder / "export"


def accuracy(export: Path, out: Path) -> dict:
    """Greedy and mean@k of a model on the recipe's held-out problems."""
    call = [sys.executable, "-m", "algorist", "eval", str(export), "--recipe", str(RECIPE), "--out", str(out), "--json"]
    told = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
    return told


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=8, help="updates a turn; the first is left out (warm-up)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side")
    parser.add_argument(
        "--learn",
        action="store_true",
        help="also make all updates of the recipe once on each side and measure the exports",
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--side", choices=["algorist", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        made = (ours if options.side == "algorist" else theirs)(
            options.start, options.folder, options.updates, options.threads
        )
        print(json.dumps(made))
        return
    import torch
    import trl

    sides = ("algorist", "trl")
    with tempfile.TemporaryDirectory() as place:
        start = start_of(Path(place) / "start")
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        tokens: dict[str, list[int]] = {side: [] for side in sides}
        for turn in range(options.rounds):
            for side in sides:
                made = child(side, start, Path(place) / f"{side}-{turn}", options.updates, options.threads)
                seconds[side] += made["seconds"][1:]
                tokens[side] += made["tokens"][1:]
                print(
                    f"round {turn}, {side}: median {statistics.median(made['seconds'][1:]):.2f} s an update",
                    file=sys.stderr,
                )
        result: dict = {
            "recipe": "recipes/quickstart.yaml", "trl_version": trl.__version__, "torch": torch.__version__.split("+")[0],
            "machine": f"{platform.machine()}, {options.threads} threads", "rounds": options.rounds, "updates_a_turn": options.updates,
        }  # fmt: skip
        for side in sides:
            result[side] = {
                "median_s": round(statistics.median(seconds[side]), 3), "fastest_s": round(min(seconds[side]), 3),
                "slowest_s": round(max(seconds[side]), 3), "median_tokens": statistics.median(tokens[side]),
            }  # fmt: skip
        result["ratio"] = round(result["trl"]["median_s"] / result["algorist"]["median_s"], 2)
        if options.learn:
            result["learned"] = {"start": accuracy(start, Path(place) / "start-eval")}
            for side in sides:
                made = child(side, start, Path(place) / f"{side}-learn", 70, options.threads)
                result["learned"][side] = {
                    "training_s": round(made["whole_s"], 1),
                    **accuracy(Path(made["export"]), Path(place) / f"{side}-eval"),
                }
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
