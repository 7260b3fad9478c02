"""Wrong recipes: each gives one clear message with file, line, what was got and what to do, and exit code 2."""

from pathlib import Path

import pytest

from algorist.errors import RecipeError
from algorist.recipe.failure import RecipeErrors
from algorist.recipe.load import load

GOOD = """\
name: quick
policy:
  new: {context: 64}
problems:
  source: {kind: arithmetic, families: [add, gcd], count: 100}
  heldout: {count: 20}
rl:
  updates: 4
  prompts_per_batch: 8
  group_size: 4
  sampling: {response_tokens: 8}
  objective: {name: grpo}
  optimizer: {lr: 1e-4}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "r.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load(write(folder, text))
    assert caught.value.exit_code == 2
    assert not isinstance(caught.value, RecipeErrors), f"one fault, several messages: {caught.value}"
    return str(caught.value).replace(f"{folder}/", "")


def test_the_recipe_that_the_others_break_is_right(tmp_path: Path) -> None:
    assert load(write(tmp_path, GOOD)).recipe.rl is not None


# (what is replaced, by what, the message)
WRONG = {
    "unknown key": (
        "  updates: 4",
        "  updats: 4\n  updates: 4",
        "r.yaml:8: unknown key rl.updats. Did you mean updates?",
    ),
    "unknown key at the root": (
        "name: quick",
        "name: quick\nsedd: 1",
        "r.yaml:2: unknown key sedd. Did you mean seed?",
    ),
    "key of another section": (
        "  group_size: 4",
        "  group_size: 4\n  response_tokens: 8",
        "r.yaml:11: unknown key rl.response_tokens. The key exists as rl.sampling.response_tokens and "
        "evaluate.response_tokens.",
    ),
    "unknown key in a union": (
        "count: 100}",
        "cuont: 100}",
        "r.yaml:5: unknown key problems.source.cuont. Did you mean count?",
    ),
    "key given twice": (
        "  updates: 4",
        "  updates: 4\n  updates: 5",
        "r.yaml:9: rl.updates is given twice (first on line 8). Remove one of them.",
    ),
    "missing key": ("  updates: 4\n", "", "r.yaml:7: rl.updates is missing. Add `updates: ...` to rl."),
    "missing section": (
        "  sampling: {response_tokens: 8}\n",
        "",
        "r.yaml:7: rl.sampling is missing. Add `sampling: ...` to rl.",
    ),
    "text for a number": (
        "updates: 4",
        'updates: "4"',
        "r.yaml:8: rl.updates must be a whole number: got '4'. Write a plain number, without quotes or unit.",
    ),
    "number with a unit": (
        "lr: 1e-4",
        "lr: 1e-4 per step",
        "r.yaml:13: rl.optimizer.lr must be a number: got '1e-4 per step'. Write a plain number, without quotes or "
        "unit.",
    ),
    "truth value for a number": (
        "updates: 4",
        "updates: true",
        "r.yaml:8: rl.updates must be a whole number: got true. Change the value.",
    ),
    "fraction for a count": (
        "updates: 4",
        "updates: 4.5",
        "r.yaml:8: rl.updates must be a whole number: got 4.5. Change the value.",
    ),
    "number out of bounds": ("updates: 4", "updates: 0", "r.yaml:8: rl.updates must be >= 1: got 0. Change the value."),
    "number too large for JSON": (
        "name: quick",
        "name: quick\nseed: 9007199254740992",
        "r.yaml:2: a whole number must lie within +-(2^53 - 1): got 9007199254740992. JSON holds no larger one.",
    ),
    "infinite number": (
        "lr: 1e-4",
        "lr: .inf",
        "r.yaml:13: a number must be finite: got .inf. Write null where a limit is to be off.",
    ),
    "unknown choice": (
        "new: {context: 64}",
        "package: smollm3",
        "r.yaml:3: policy.package must be 'smollm2': got 'smollm3'. Did you mean smollm2?",
    ),
    "unknown kind of source": (
        "kind: arithmetic",
        "kind: arithmetik",
        "r.yaml:5: problems.source.kind must be one of 'arithmetic', 'reasoning_gym', 'jsonl', 'parquet', 'datasets': "
        "got 'arithmetik'. Did you mean arithmetic?",
    ),
    "source without a kind": (
        "kind: arithmetic, ",
        "",
        "r.yaml:5: problems.source needs kind, which says what it is. Add `kind: ...`.",
    ),
    "unknown family": (
        "[add, gcd]",
        "[add, gdc]",
        "r.yaml:5: problems.source.families[1] is no family of the arithmetic generator: got 'gdc'. Did you mean gcd?",
    ),
    "two models": (
        "new: {context: 64}",
        "new: {context: 64}\n  path: model",
        "r.yaml:3: policy needs exactly one of path, package, new: got path and new. Keep one of them.",
    ),
    "no model": (
        "  new: {context: 64}",
        "  dtype: float32",
        "r.yaml:2: policy needs exactly one of path, package, new: got none. Add one of them.",
    ),
    "group of one": (
        "group_size: 4",
        "group_size: 1",
        "r.yaml:10: rl.group_size must be >= 2 for grpo (a group of one has no baseline): got 1. Set 2 or more, or use "
        "reinforce.",
    ),
    "top_p in RL": (
        "response_tokens: 8}",
        "response_tokens: 8, top_p: 0.9}",
        "r.yaml:11: rl.sampling.top_p must be 1 in RL, as the trainer does not apply the mask: got 0.9. Set it to 1; "
        "use "
        "evaluate.top_p for evaluation.",
    ),
    "greedy RL": (
        "response_tokens: 8}",
        "response_tokens: 8, temperature: 0.0}",
        "r.yaml:11: rl.sampling.temperature must be > 0 in RL (greedy responses of a group are all the same): got 0. "
        "Use "
        "1.0.",
    ),
    "response longer than the context": (
        "response_tokens: 8}",
        "response_tokens: 64}",
        "r.yaml:11: rl.sampling.response_tokens and the prompt must fit the context of 64 tokens: got 64 after a "
        "prompt of "
        "at least 7. Set it to 57 or less, or raise the context.",
    ),
    "batch larger than the problems": (
        "prompts_per_batch: 8",
        "prompts_per_batch: 81",
        "r.yaml:9: rl.prompts_per_batch must be <= the 80 problems left for RL: got 81. Lower it, or raise the count "
        "of "
        "problems.source.",
    ),
    "held-out problems take all": (
        "heldout: {count: 20}",
        "heldout: {count: 101}",
        "r.yaml:5: held-out and SFT problems must fit into the 100 problems of problems.source: got 101. Lower "
        "problems.heldout or problems.sft_count, or raise the source's count.",
    ),
    "more problems than there are": (
        "[add, gcd], count: 100}",
        "[add], count: 50000}",
        "r.yaml:5: problems.source.count asks for 50000 problems of add, which has 8100 at most. Lower the count, or "
        "widen "
        "the family's digits or ranges.",
    ),
    "k above the samples": (
        "name: quick",
        "name: quick\nevaluate: {samples: 4, ks: [1, 8]}",
        "r.yaml:2: evaluate.ks must not exceed samples (4): got 8. Set samples to 8 or drop that k.",
    ),
    "split by family with one family": (
        "[add, gcd], count: 100}\n  heldout: {count: 20}",
        "[add], count: 100}\n  heldout: {count: 20, by: family}",
        "r.yaml:6: problems.heldout.by: family needs at least two families: got 1 (add). Add a family, or use by: "
        "content.",
    ),
    "split by family without the field": (
        "{kind: arithmetic, families: [add, gcd], count: 100}\n  heldout: {count: 20}",
        "{kind: jsonl, path: a.jsonl}\n  heldout: {count: 20, by: family}",
        "r.yaml:6: problems.heldout.by: family needs problems.source.family, the field that names each row's family. "
        "Name "
        "that field, or use by: content.",
    ),
    "SFT without problems": (
        "rl:\n",
        "sft: {steps: 3, batch_size: 2, optimizer: {lr: 1e-3}}\nrl:\n",
        "r.yaml:7: sft needs problems.sft_count > 0: got 0. Say how many training problems SFT may see.",
    ),
    "SFT problems without SFT": (
        "heldout: {count: 20}",
        "heldout: {count: 20}\n  sft_count: 5",
        "r.yaml:7: problems.sft_count keeps problems out of RL, and there is no sft stage. Add `sft: ...` or set it "
        "to 0.",
    ),
    "SFT on solutions that no field holds": (
        "{kind: arithmetic, families: [add, gcd], count: 100}\n  heldout: {count: 20}\n",
        "{kind: jsonl, path: a.jsonl}\n  heldout: {count: 20}\n  sft_count: 5\n"
        "sft: {steps: 3, batch_size: 2, optimizer: {lr: 1e-3}}\n",
        "r.yaml:8: sft.target: solution needs worked solutions, and problems.source (jsonl) names none. Set "
        "sft.target: "
        "gold, or name the field: problems.source.solution.",
    ),
    "two lengths of SFT": (
        "rl:\n",
        "sft: {steps: 3, epochs: 2.0, batch_size: 2, optimizer: {lr: 1e-3}}\nrl:\n",
        "r.yaml:7: sft needs exactly one of steps, epochs: got steps and epochs. Keep one of them.",
    ),
    "several updates without a ratio": (
        "objective: {name: grpo}",
        "objective: {name: rloo}\n  epochs_per_batch: 2",
        "r.yaml:13: rl.epochs_per_batch must be 1 for rloo, which has no ratio to the sampling policy: got 2. Set it "
        "to 1, "
        "or use an objective with a ratio, such as grpo.",
    ),
    "objective for given answers": (
        "objective: {name: grpo}",
        "objective: {name: sft}",
        "r.yaml:10: rl.group_size must be 1 for sft (one worked solution per problem): got 4. Set it to 1.",
    ),
    "reference of an offline objective": (
        "objective: {name: grpo}",
        "objective: {name: dpo}\n  reference: {reset_every: 2}",
        "r.yaml:13: rl.reference.reset_every is set, and dpo keeps the policy it samples from as its reference. Remove it.",
    ),
    "shaping that nobody reads": (
        "objective: {name: grpo}",
        "objective: {name: online_rft}\n  shaping: [{name: length_deduction}]",
        "r.yaml:13: rl.shaping changes rewards, and online_rft does not read them. "
        "Remove it, or use an objective that does, such as grpo.",
    ),
    "efforts that the prompt does not show": (
        "  heldout: {count: 20}",
        "  heldout: {count: 20}\n  efforts: [20, 80]",
        "r.yaml:7: problems.efforts are set, and the prompt does not show them. "
        "Write {effort} into prompt.format, or into prompt.system of a chat template.",
    ),
    "a prompt that shows efforts which are not set": (
        "problems:",
        'prompt: {format: "{effort} {question}"}\nproblems:',
        "r.yaml:4: the prompt says {effort}, and problems.efforts is empty. Set problems.efforts, for example to [20, 80].",
    ),
    "a price on efforts that are not asked for": (
        "objective: {name: grpo}",
        "objective: {name: grpo}\n  shaping: [{name: effort_length, levels: [20], k0: 1, norm_tokens: 9, maximum: 1, tau: 1}]",
        "r.yaml:13: rl.shaping effort_length prices the levels [20], problems.efforts are []. Name the same levels in both.",
    ),
    "an effort twice": (
        "  heldout: {count: 20}",
        "  heldout: {count: 20}\n  efforts: [20, 20]",
        "r.yaml:7: problems.efforts must differ from each other: got [20, 20]. Name each level once.",
    ),
    "shaping twice": (
        "objective: {name: grpo}",
        "objective: {name: grpo}\n  shaping: [{name: length_deduction}, {name: length_deduction, exponent: 2}]",
        "r.yaml:13: rl.shaping holds length_deduction twice, and each may change the rewards once. Remove one.",
    ),
    "overlong that never begins": (
        "objective: {name: grpo}",
        "objective: {name: grpo}\n  shaping: [{name: overlong, max_tokens: 64, buffer_tokens: 16}]",
        "r.yaml:13: rl.shaping overlong must begin below the response budget of 8 tokens: got 48 "
        "(max_tokens - buffer_tokens). Set max_tokens to 8.",
    ),
    "redistribution without a quality": (
        "objective: {name: grpo}",
        "objective: {name: grpo, redistribution: {}}",
        "r.yaml:12: rl.objective.redistribution needs to know what makes a correct response good: rl.quality is null. "
        "Set rl.quality to brevity or arithmetic.",
    ),
    "quality without redistribution": (
        "objective: {name: grpo}",
        "objective: {name: grpo}\n  quality: brevity",
        "r.yaml:13: rl.quality is read by rl.objective.redistribution only: got brevity without it. "
        "Remove it, or set rl.objective.redistribution to {}.",
    ),
    "steps without step rewards": (
        "objective: {name: grpo}",
        "objective: {name: grpo}\n  process: {unchecked: 0}",
        "r.yaml:13: rl.process scores steps, and grpo has no step rewards. Remove it, or use grpo_process.",
    ),
    "reference without a use": (
        "objective: {name: grpo}",
        "objective: {name: rloo}\n  reference: {reset_every: 2}",
        "r.yaml:13: rl.reference.reset_every is set, and the objective uses no reference (beta is 0). Set "
        "rl.objective.beta above 0, or remove it.",
    ),
    "warm-up longer than the stage": (
        "{lr: 1e-4}",
        "{lr: 1e-4, warmup_updates: 4}",
        "r.yaml:13: rl.optimizer.warmup_updates must be below the stage's 4 updates: got 4. Lower it.",
    ),
    "micro-batch smaller than a row": (
        "  updates: 4",
        "  updates: 4\n  micro_batch_tokens: 10",
        "r.yaml:9: rl.micro_batch_tokens must hold one prompt and response, at least 7 + 8 tokens: got 10. Raise it.",
    ),
    "nothing is trained": (
        GOOD[GOOD.index("rl:") :],
        "evaluate: {response_tokens: 8}\n",
        "r.yaml:1: a recipe needs sft, rl or both: got neither, so nothing would be trained. Add `rl: ...`.",
    ),
    "reward that points into a module": (
        "name: quick",
        "name: quick\nreward: {name: my.module:f}",
        "r.yaml:2: reward.name must be a plain word (letters, digits, _ and -): got 'my.module:f'. A recipe names "
        "code, it "
        "never points into a module.",
    ),
    "few-shot without examples": (
        "name: quick",
        "name: quick\nprompt: {template: few_shot}",
        "r.yaml:2: prompt of template few_shot needs examples: got none. Give pairs, or a number of them.",
    ),
    "format without the question": (
        "name: quick",
        'name: quick\nprompt: {format: "Q:"}',
        "r.yaml:2: prompt.format must hold {question} exactly once: got 'Q:'. Write {question} where it belongs.",
    ),
    "list where a section belongs": (
        "  objective: {name: grpo}",
        "  objective: [grpo]",
        "r.yaml:12: rl.objective must be a mapping: got ['grpo']. Give its keys, indented, on the lines below.",
    ),
    "anchor": (
        "name: quick",
        "name: &n quick\ndescription: *n",
        "r.yaml:1: recipes have no anchors and aliases. Write the value out, or use extends.",
    ),
    "tag": (
        "name: quick",
        "name: !!python/name:os.system quick",
        "r.yaml:1: recipes have no YAML tags: got tag:yaml.org,2002:python/name:os.system. Remove the tag.",
    ),
    "merge key": (
        "name: quick",
        "name: quick\n<<: {seed: 1}",
        "r.yaml:2: a key must be a plain word. Use extends to build on another recipe.",
    ),
    "tab": ("  updates: 4", "\tupdates: 4", "r.yaml:8: YAML does not allow a tab for indentation. Use spaces."),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_recipe_has_one_message_that_names_place_and_fix(name: str, tmp_path: Path) -> None:
    old, new, message = WRONG[name]
    assert GOOD.count(old) == 1, "the case replaces one place"
    assert complaint(tmp_path, GOOD.replace(old, new)) == message


def test_yaml_syntax_error_names_the_line(tmp_path: Path) -> None:
    message = complaint(tmp_path, "name: quick\nrl: {updates: 4\npolicy: x\n")
    assert message.startswith("r.yaml:3: is not YAML 1.2: ")
    assert message.endswith("Check indentation, colons and quotes near this line.")


def test_empty_file_list_and_wrong_bytes_are_named(tmp_path: Path) -> None:
    assert complaint(tmp_path, "# nothing\n") == "r.yaml: the recipe is empty. Start from one in recipes/."
    assert (
        complaint(tmp_path, "- a\n") == "r.yaml:1: a recipe is a mapping of keys to values. Start it with `name: ...`."
    )
    path = tmp_path / "r.yaml"
    path.write_bytes(b"name: a\ndescription: \xff\n")
    with pytest.raises(RecipeError, match=r"r.yaml:2: must be UTF-8\. Save the file as UTF-8\."):
        load(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"none\.yaml: no such recipe file\. Check the path\."):
        load(tmp_path / "none.yaml")


def test_all_faults_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = GOOD.replace("name: quick", "nam: quick").replace("updates: 4", "updates: x").replace("lr: 1e-4", "lr: -1")
    with pytest.raises(RecipeErrors) as caught:
        load(write(tmp_path, text))
    places = [line.split(": ")[0].rsplit("/", 1)[-1] for line in str(caught.value).splitlines()]
    assert places == ["r.yaml:1", "r.yaml:1", "r.yaml:8", "r.yaml:13"]
    assert caught.value.exit_code == 2
    assert "unknown key nam. Did you mean name?" in str(caught.value)
    assert "name is missing" in str(caught.value)


def test_impossible_combinations_are_told_together(tmp_path: Path) -> None:
    text = GOOD.replace("group_size: 4", "group_size: 1").replace("prompts_per_batch: 8", "prompts_per_batch: 500")
    with pytest.raises(RecipeErrors) as caught:
        load(write(tmp_path, text))
    assert len(caught.value.errors) == 2
