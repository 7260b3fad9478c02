"""Equation -> oracle -> production -> test, for docs/paper.md; a test resolves every name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """One row of docs/paper.md.

    Example:
        >>> EQUATIONS[3].label, EQUATIONS[3].oracle
        ('(4)', 'eq_4')
    """

    label: str
    """Number in the paper, or section."""
    oracle: str
    """Function in algorist.paper."""
    production: tuple[str, ...]
    """module:function where the same is computed for tensors."""
    tests: tuple[str, ...]
    """Test functions, as file::name under tests/, or the name alone for tests/objective/test_contract.py."""
    what: str = ""
    """What it says; '' takes the first line of the oracle's docstring."""


_AUTOGRAD = "test_autograd_equals_declared_coefficient"
_PRINTED = "test_autograd_equals_central_differences_of_the_printed_objective"
_PAPER = "test_paper.py::test_each_coefficient_of_the_paper_is_the_methods_coefficient"
_O = "algorist.objective."

EQUATIONS: tuple[Equation, ...] = (
    Equation(label="(1), (15)", oracle="eq_1", production=(_O + "ppo:loss", _O + "ratio:clipped"), tests=(_PRINTED,)),
    Equation(
        label="(2)",
        oracle="eq_2",
        production=(_O + "credit:token_kl", _O + "ppo:credit"),
        tests=("test_paper.py::test_ppo_rewards_carry_the_fee_of_equation_2",),
    ),
    Equation(
        label="(3)", oracle="eq_3", production=(_O + "surrogate:clipped_loss", _O + "reduce:weights"), tests=(_PRINTED,)
    ),
    Equation(
        label="(4)",
        oracle="eq_4",
        production=(_O + "kl:estimate",),
        tests=("objective/test_kl.py::test_k1_and_k3_are_right_on_average_and_k2_is_not",),
    ),
    Equation(
        label="4.1.2",
        oracle="sec_4_1_2",
        production=(_O + "advantage:group_advantage",),
        tests=("test_paper.py::test_group_advantage_is_section_4_1_2",),
    ),
    Equation(
        label="4.1.3",
        oracle="sec_4_1_3",
        production=(_O + "advantage:step_advantage",),
        tests=("test_paper.py::test_step_advantage_is_section_4_1_3",),
    ),
    Equation(
        label="(5)",
        oracle="eq_5",
        production=(_O + "spec:Method",),
        tests=(_AUTOGRAD, "test_paper.py::test_equation_5_is_the_gradient_of_every_method_in_logits"),
    ),
    Equation(label="(6)", oracle="eq_6", production=(_O + "sft:loss",), tests=(_PRINTED,)),
    Equation(label="(7)", oracle="eq_7", production=(_O + "sft:coefficient",), tests=(_PAPER,)),
    Equation(label="(8)", oracle="eq_8", production=(_O + "rft:credit", _O + "sft:loss"), tests=(_PRINTED,)),
    Equation(label="(9)", oracle="eq_9", production=(_O + "rft:credit", _O + "sft:coefficient"), tests=(_PAPER,)),
    Equation(label="(10)", oracle="eq_10", production=(_O + "credit:correct_rows", _O + "rft:credit"), tests=(_PAPER,)),
    Equation(
        label="(11)",
        oracle="eq_11",
        production=(_O + "online_rft:METHOD",),
        tests=(_PAPER,),
        what="Gradient of online RFT: that of RFT on responses of the policy being trained.",
    ),
    Equation(label="(12)", oracle="eq_12", production=(_O + "dpo:loss",), tests=(_PRINTED,)),
    Equation(label="(13)", oracle="eq_13", production=(_O + "dpo:coefficient",), tests=(_AUTOGRAD,)),
    Equation(
        label="(14)",
        oracle="eq_14",
        production=(_O + "dpo:coefficient",),
        tests=(_PAPER, "test_paper.py::test_equation_14_as_printed_is_not_the_gradient_of_equation_12"),
    ),
    Equation(label="(16)", oracle="eq_16", production=(_O + "ppo:loss",), tests=(_PAPER,)),
    Equation(label="(17)", oracle="eq_17", production=(_O + "ppo:coefficient",), tests=(_AUTOGRAD,)),
    Equation(label="(18)", oracle="eq_18", production=(_O + "advantage:gae", _O + "ppo:coefficient"), tests=(_PAPER,)),
    Equation(label="(19)", oracle="eq_19", production=(_O + "surrogate:clipped_loss",), tests=(_PAPER,)),
    Equation(
        label="(20)",
        oracle="eq_20",
        production=(_O + "surrogate:clipped_coefficient", _O + "kl:slope"),
        tests=("test_paper.py::test_equation_21_is_the_slope_of_equation_19_and_3",),
    ),
    Equation(label="(21)", oracle="eq_21", production=(_O + "surrogate:clipped_coefficient",), tests=(_PAPER,)),
    Equation(
        label="Algorithm 1",
        oracle="algorithm_1",
        production=("algorist.stages.rl:train_rl", "algorist.stages.rl:reset_reference"),
        tests=("test_paper.py::test_algorithm_1_refreshes_policy_reference_and_reward_model_when_it_says",),
    ),
)
"""In the order of the paper."""
