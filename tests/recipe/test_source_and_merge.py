"""YAML 1.2 with places; extends and --set."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorist.digest import JSON
from algorist.errors import RecipeError
from algorist.recipe.merge import apply_overrides, load_layers, over
from algorist.recipe.source import Written, read, read_override


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E5", 1e5),
        ("1_000", 1000),
        ("012", 12),
        ("0o17", 15),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("null", None),
        ("~", None),
        ("2026-11-30", "2026-11-30"),
        ("'5'", "5"),
        ("[1, 2]", [1, 2]),
        ("", None),
        ("1:30", "1:30"),
    ],
)
def test_scalars_are_read_as_yaml_1_2_reads_them(text: str, value: object) -> None:
    got = read_override(text, f"a={text}").value
    assert got == value
    assert type(got) is type(value)


def test_every_key_knows_its_line(tmp_path: Path) -> None:
    write(tmp_path, a="name: x\n\nrl:\n  # why\n  updates: 3\n  optimizer: {lr: 1e-3,\n    eps: 1e-8}\n")
    written = read(tmp_path / "a.yaml")
    lines = {key: origin.line for key, origin in written.origins.items()}
    assert lines[("name",)] == 1
    assert lines[("rl",)] == 3
    assert lines[("rl", "updates")] == 5
    assert lines[("rl", "optimizer", "eps")] == 7


def test_extended_values_keep_their_own_place_and_later_files_win(tmp_path: Path) -> None:
    write(
        tmp_path,
        base="name: base\nrl:\n  updates: 3\n  group_size: 4\n",
        mid="extends: base.yaml\nrl: {updates: 5}\n",
        top="extends: [mid.yaml]\nname: top\n",
    )
    written, files = load_layers(tmp_path / "top.yaml", ())
    assert written.value == {"name": "top", "rl": {"updates": 5, "group_size": 4}}
    assert [path.name for path in files] == ["top.yaml", "mid.yaml", "base.yaml"]
    places = {key: f"{o.path and o.path.name}:{o.line}" for key, o in written.origins.items()}
    assert places[("name",)] == "top.yaml:2"
    assert places[("rl", "updates")] == "mid.yaml:2"
    assert places[("rl", "group_size")] == "base.yaml:4"


def test_extends_starts_at_the_file_that_says_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, base="name: base\n")
    write(tmp_path / "sub", child="extends: ../base.yaml\nseed: 1\n")
    assert load_layers(tmp_path / "sub" / "child.yaml", ())[0].value == {"name": "base", "seed": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: a.yaml\n", "a.yaml:1: extends leads back to a.yaml. Break the circle."),
        ("extends: b.yaml\n", "b.yaml:1: extends leads back to a.yaml. Break the circle."),
        ("extends: none.yaml\n", "a.yaml:1: extends names a file that does not exist"),
        ("extends: {a: 1}\n", "a.yaml:1: extends must be a file name or a list of them. Write `extends: other.yaml`."),
    ],
)
def test_a_wrong_extends_is_refused_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, a=text, b="extends: a.yaml\n")
    with pytest.raises(RecipeError) as caught:
        load_layers(tmp_path / "a.yaml", ())
    assert message in str(caught.value)


def test_two_parents_may_share_a_grandparent(tmp_path: Path) -> None:
    write(
        tmp_path,
        root="seed: 1\n",
        a="extends: root.yaml\nx: 1\n",
        b="extends: root.yaml\ny: 2\n",
        top="extends: [a.yaml, b.yaml]\n",
    )
    assert load_layers(tmp_path / "top.yaml", ())[0].value == {"seed": 1, "x": 1, "y": 2}


def test_another_variant_replaces_the_inherited_one_whole() -> None:
    base = Written(value={"objective": {"name": "grpo", "beta": 0.04}, "source": {"kind": "jsonl", "path": "a"}})
    top = Written(value={"objective": {"name": "rloo"}, "source": {"path": "b"}})
    assert over(base, top).value == {"objective": {"name": "rloo"}, "source": {"kind": "jsonl", "path": "b"}}


def test_the_root_name_is_no_variant() -> None:
    assert over(Written(value={"name": "a", "seed": 1}), Written(value={"name": "b"})).value == {"name": "b", "seed": 1}


def test_giving_one_alternative_drops_the_inherited_others() -> None:
    base = Written(value={"policy": {"package": "smollm2", "dtype": "bfloat16"}})
    top = Written(value={"policy": {"path": "m"}})
    expected = {"policy": {"dtype": "bfloat16", "path": "m"}}
    assert over(base, top, [("path", "package", "new")]).value == expected
    assert apply_overrides(base, ["policy.path=m"], [("path", "package", "new")]).value == expected


def test_an_override_replaces_sections_and_reaches_into_lists() -> None:
    base = Written(value={"a": {"b": 1, "c": 2}, "l": [{"x": 1}, {"x": 2}]})
    assert apply_overrides(base, ["a={d: 3}"], ()).value == {"a": {"d": 3}, "l": [{"x": 1}, {"x": 2}]}
    assert apply_overrides(base, ["l.1.x=5", "a.b=null"], ()).value == {
        "a": {"b": None, "c": 2},
        "l": [{"x": 1}, {"x": 5}],
    }


def test_the_last_override_wins_and_each_value_knows_its_text() -> None:
    written = apply_overrides(Written(value={}), ["rl.updates=1", "rl.updates=2"], ())
    assert written.value == {"rl": {"updates": 2}}
    assert str(written.origin(("rl", "updates"))) == "--set rl.updates=2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rl.updates", "--set rl.updates: must look like key.key=value. Write, for example, --set rl.updates=10."),
        ("=3", "--set =3: must look like key.key=value."),
        ("name.x=3", "--set name.x=3: name is a single value, with no key x inside. Shorten the key."),
        ("l.7=3", "--set l.7=3: l is a list of 1. Name one of its positions, from 0 on."),
        ("a=[1", "--set a=[1: is not YAML 1.2: "),
    ],
)
def test_a_wrong_override_is_named(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        apply_overrides(Written(value={"name": "n", "l": [1]}), [text], ())
    assert message in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)
trees = st.dictionaries(st.sampled_from("xyz"), values, max_size=3)


@given(trees, trees)
def test_merging_keeps_the_upper_value_and_every_other_key_of_the_lower(a: dict[str, JSON], b: dict[str, JSON]) -> None:
    merged = over(Written(value=a), Written(value=b)).value
    assert isinstance(merged, dict)
    assert set(merged) == set(a) | set(b)
    for key, value in merged.items():
        if key not in b:
            assert value == a[key]
        elif not (isinstance(b[key], dict) and isinstance(a.get(key), dict)):
            assert value == b[key]
        else:
            assert value == over(Written(value=a[key]), Written(value=b[key])).value


@given(trees)
def test_merging_with_itself_or_nothing_changes_nothing(a: dict[str, JSON]) -> None:
    assert over(Written(value=a), Written(value=a)).value == a
    assert over(Written(value=a), Written(value={})).value == a
    assert over(Written(value={}), Written(value=a)).value == a
