"""The shapes that signatures state, checked at run time in a process of their own (the hook must precede the imports)."""

import subprocess
import sys
from pathlib import Path

_CODE = """
import sys
from jaxtyping import install_import_hook

checked = ("advantage kl ratio reduce credit surrogate shaping spec steps sft rft dpo ppo grpo grpo_process rloo reinforce "
           "dr_grpo gspo cispo").split()
with install_import_hook([f"algorist.objective.{name}" for name in checked], "beartype.beartype"):
    from algorist.objective import reduce
    from algorist.objective.registry import METHODS

sys.path.insert(0, sys.argv[1])
import conftest

for name in METHODS:
    case = conftest.make_case(conftest.default(name), 0, P=2, G=3, T=4)
    case.gradient()
    case.method.coefficient(case.tokens, case.cfg)
try:
    reduce.weights("token_mean", case.tokens.mask, case.rows.group[:2])
except Exception as error:
    assert "type-check error" in str(error).lower(), error
else:
    raise SystemExit("two group numbers for six rows went unnoticed")
"""


def test_every_method_keeps_the_shapes_its_signatures_state() -> None:
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", _CODE, here], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
