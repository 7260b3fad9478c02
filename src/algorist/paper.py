"""DeepSeekMath (Shao et al. 2024), executable: every numbered equation as a naive function of plain floats.

This file is the oracle of the tests and is never called in production. It favours the printed form over speed: lists of
floats, loops, one function per equation, in the order of the paper. A response is a list with one entry per token; a
group is a list of responses. Log-probabilities are natural; `pi`, `old`, `ref` hold one per token.

Where the printed paper and its own mathematics part, the docstring says so and `slope` proves it (central differences):
equation 14 against the gradient of equation 12, and Algorithm 1, whose line 11 names equation 21 (a coefficient) as the
objective, which is equation 3.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

Row = Sequence[float]
Rows = Sequence[Row]


def slope(f: Callable[[list[float]], float], x: Row, i: int, h: float = 1e-6) -> float:
    """df/dx_i by central differences; error of order h^2.

    >>> round(slope(lambda x: x[0] ** 2, [3.0], 0), 6)
    6.0
    """
    up, down = list(x), list(x)
    up[i] += h
    down[i] -= h
    return (f(up) - f(down)) / (2 * h)


def clip(x: float, low: float, high: float) -> float:
    """x limited to [low, high].

    >>> clip(1.4, 0.8, 1.2)
    1.2
    """
    return max(low, min(x, high))


def clip_term(ratio: float, advantage: float, eps: float) -> float:
    """min(r A, clip(r, 1 - eps, 1 + eps) A): what stands inside the sums of equations 1 and 3.

    >>> [round(clip_term(r, 0.5, 0.2), 3) for r in (1.1, 1.4)]
    [0.55, 0.6]
    """
    return min(ratio * advantage, clip(ratio, 1 - eps, 1 + eps) * advantage)


def eq_1(ratios: Row, advantages: Row, eps: float) -> float:
    """PPO objective of one response: mean over its tokens of clip_term. Equations 1 and 15.

    >>> round(eq_1([1.1, 1.4], [0.5, 0.5], 0.2), 3)
    0.575
    """
    return statistics.fmean(clip_term(r, a, eps) for r, a in zip(ratios, advantages, strict=True))


def eq_2(score: float, pi: float, ref: float, beta: float) -> float:
    """r_t = r_phi - beta log(pi / pi_ref), from log-probs: PPO's fee for leaving the reference, in the reward.

    >>> round(eq_2(1.0, math.log(0.5), math.log(0.4), 0.04), 3)
    0.991
    """
    return score - beta * (pi - ref)


def eq_3(ratios: Rows, advantages: Rows, kls: Rows, eps: float, beta: float) -> float:
    """GRPO objective of one question: mean over responses of the mean over tokens of clip_term - beta KL.

    >>> ratios, kls = [[1.1, 1.3], [0.9]], [[0.01, 0.02], [0.01]]
    >>> round(eq_3(ratios, [[1.0, 1.0], [-1.0]], kls, 0.2, 0.04), 4)
    0.1245
    >>> [round(eq_3([r], [[a] * len(r)], [k], 0.2, 0.04), 4) for r, a, k in zip(ratios, [1.0, -1.0], kls)]
    [1.1494, -0.9004]
    """
    per_response = [
        statistics.fmean(clip_term(r, a, eps) - beta * k for r, a, k in zip(*row, strict=True))
        for row in zip(ratios, advantages, kls, strict=True)
    ]
    return statistics.fmean(per_response)


def eq_4(pi: float, ref: float) -> float:
    """x - log x - 1, x = pi_ref / pi, from log-probs: never negative, and right on average under pi.

    >>> [round(eq_4(math.log(p), math.log(0.4)), 3) for p in (0.5, 0.3)]
    [0.023, 0.046]
    >>> p, q = [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]
    >>> exact = sum(a * math.log(a / b) for a, b in zip(p, q))
    >>> mean = sum(a * eq_4(math.log(a), math.log(b)) for a, b in zip(p, q))
    >>> round(exact, 4), round(mean, 4)
    (0.0253, 0.0253)
    """
    return math.exp(ref - pi) - (ref - pi) - 1


def sec_4_1_2(rewards: Row, *, sample_std: bool = False) -> list[float]:
    """A_i = (r_i - mean r) / std r: outcome supervision. A group without spread gets 0.

    The paper does not say which standard deviation; population here.

    >>> [round(a, 2) for a in sec_4_1_2([0.9, 0.1, 0.3, 0.7])]
    [1.26, -1.26, -0.63, 0.63]
    >>> [round(a, 2) for a in sec_4_1_2([0.9, 0.1, 0.3, 0.7], sample_std=True)]
    [1.1, -1.1, -0.55, 0.55]
    >>> sec_4_1_2([1.0, 0.0]), sec_4_1_2([0.1, 0.1, 0.1])
    ([1.0, -1.0], [0.0, 0.0, 0.0])
    """
    if max(rewards) == min(rewards):
        return [0.0] * len(rewards)
    std = statistics.stdev(rewards) if sample_std else statistics.pstdev(rewards)
    return [(r - statistics.fmean(rewards)) / std for r in rewards]


def sec_4_1_3(step_rewards: Rows, step_ends: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[list[float]]:
    """A_it = sum of the normalised rewards of the steps j with index(j) >= t: process supervision.

    All step rewards of the group are normalised together. step_ends holds index(j), the last token of step j, from 0.

    >>> rewards, ends = [[0.9, 0.8, 0.9], [0.9, 0.2]], [[0, 1, 2], [0, 1]]
    >>> flat = sum(rewards, [])
    >>> round(statistics.fmean(flat), 2), round(statistics.pstdev(flat), 3)
    (0.74, 0.273)
    >>> [[round(a, 2) for a in row] for row in sec_4_1_3(rewards, ends, [3, 2])]
    [[1.39, 0.81, 0.59], [-1.39, -1.98]]
    """
    flat = [r for row in step_rewards for r in row]
    normal = iter(sec_4_1_2(flat))
    rows = [[next(normal) for _ in row] for row in step_rewards]
    return [
        [sum(r for r, end in zip(row, ends, strict=True) if end >= t) for t in range(length)]
        for row, ends, length in zip(rows, step_ends, lengths, strict=True)
    ]


def softmax_gradient(probabilities: Row, chosen: int) -> list[float]:
    """d log pi(chosen) / d logits = 1[k = chosen] - pi(k).

    >>> softmax_gradient([0.5, 0.3, 0.2], 0)
    [0.5, -0.3, -0.2]
    """
    return [(k == chosen) - p for k, p in enumerate(probabilities)]


def eq_5(coefficients: Row, gradients: Rows) -> list[float]:
    """grad J = (1 / |o|) sum_t GC_t grad log pi_t: one formula for every method; the coefficient is the method.

    >>> [round(g, 2) for g in eq_5([1.26], [softmax_gradient([0.5, 0.3, 0.2], 0)])]
    [0.63, -0.38, -0.25]
    >>> [round(g, 2) for g in eq_5([-1.26], [softmax_gradient([0.5, 0.3, 0.2], 0)])]
    [-0.63, 0.38, 0.25]
    """
    return [
        sum(c * g[k] for c, g in zip(coefficients, gradients, strict=True)) / len(coefficients)
        for k in range(len(gradients[0]))
    ]


def eq_6(pi: Row) -> float:
    """SFT objective of one response: mean token log-probability.

    >>> eq_6([-1.0, -3.0])
    -2.0
    """
    return statistics.fmean(pi)


def eq_7(gradients: Rows) -> list[float]:
    """Gradient of eq_6: every coefficient is 1.

    >>> eq_7([[0.5, -0.5], [0.1, -0.1]])
    [0.3, -0.3]
    """
    return eq_5([1.0] * len(gradients), gradients)


def eq_8(pi: Row, correct: bool) -> float:
    """RFT objective of one response: I(o) times its mean token log-probability.

    >>> eq_8([-1.0, -3.0], True), eq_8([-1.0, -3.0], False)
    (-2.0, 0.0)
    """
    return eq_6(pi) if correct else 0.0


def eq_9(gradients: Rows, correct: bool) -> list[float]:
    """Gradient of eq_8; also equation 11 (online RFT), where only the source of the responses differs.

    >>> eq_9([[0.5, -0.5]], True), eq_9([[0.5, -0.5]], False)
    ([0.5, -0.5], [0.0, 0.0])
    """
    return eq_5([eq_10(correct)] * len(gradients), gradients)


def eq_10(correct: bool) -> float:
    """GC of RFT and online RFT: 1 where the answer is right, else 0.

    >>> [eq_10(c) for c in (True, False, False, True)]
    [1.0, 0.0, 0.0, 1.0]
    """
    return 1.0 if correct else 0.0


eq_11 = eq_9


def sigmoid(z: float) -> float:
    """1 / (1 + exp(-z)).

    >>> sigmoid(0.0)
    0.5
    """
    return 1 / (1 + math.exp(-z))


def eq_12(good: Row, good_ref: Row, bad: Row, bad_ref: Row, beta: float) -> float:
    """DPO objective of one pair: log sigma(beta (mean log ratio of o+ - mean log ratio of o-)).

    The paper averages the log ratios over each response; the original DPO sums them.

    >>> round(eq_12([-1.0], [-1.0], [-2.0], [-2.0], 0.1), 4) == round(math.log(0.5), 4)
    True
    """
    up = statistics.fmean(p - r for p, r in zip(good, good_ref, strict=True))
    down = statistics.fmean(p - r for p, r in zip(bad, bad_ref, strict=True))
    return math.log(sigmoid(beta * (up - down)))


def eq_13(coefficients_good: Row, good: Rows, coefficients_bad: Row, bad: Rows) -> list[float]:
    """Gradient of eq_12: (1 / |o+|) sum GC grad log pi over o+ minus the same over o-.

    >>> eq_13([0.5], [[1.0, -1.0]], [0.5], [[0.2, -0.2]])
    [0.4, -0.4]
    """
    up, down = eq_5(coefficients_good, good), eq_5(coefficients_bad, bad)
    return [a - b for a, b in zip(up, down, strict=True)]


def eq_14(good: Row, good_ref: Row, bad: Row, bad_ref: Row, beta: float) -> float:
    """GC of DPO as equation 12 implies it: beta sigma(beta (mean log ratio of o- - mean log ratio of o+)).

    One number per pair. Central differences of eq_12 agree (the factor |o+| undoes the 1 / |o+| of equation 13):

    >>> good, good_ref, bad, bad_ref = [-1.0, -0.5], [-1.2, -0.7], [-2.0], [-1.5]
    >>> by_hand = 2 * slope(lambda x: eq_12(x, good_ref, bad, bad_ref, 0.5), good, 0)
    >>> round(by_hand, 6) == round(eq_14(good, good_ref, bad, bad_ref, 0.5), 6)
    True
    """
    up = statistics.fmean(p - r for p, r in zip(good, good_ref, strict=True))
    down = statistics.fmean(p - r for p, r in zip(bad, bad_ref, strict=True))
    return beta * sigmoid(beta * (down - up))


def eq_14_printed(good: float, good_ref: float, bad: float, bad_ref: float, beta: float) -> float:
    """Equation 14 as printed: sigma of the log ratios of one token, without the leading beta.

    It is not the gradient of equation 12: at pi = pi_ref it gives 0.5 whatever beta is, where the gradient is beta / 2.

    >>> eq_14_printed(-1.0, -1.0, -2.0, -2.0, 0.04)
    0.5
    >>> round(slope(lambda x: eq_12(x, [-1.0], [-2.0], [-2.0], 0.04), [-1.0], 0), 6)
    0.02
    """
    return sigmoid(beta * (bad - bad_ref) - beta * (good - good_ref))


eq_15 = eq_1


def eq_16(ratios: Row, advantages: Row) -> float:
    """PPO objective with one update per sampling round: pi_old = pi, so the clip never acts.

    >>> round(eq_16([1.0, 1.0], [0.5, 0.7]), 3)
    0.6
    """
    return statistics.fmean(r * a for r, a in zip(ratios, advantages, strict=True))


def eq_17(advantages: Row, gradients: Rows) -> list[float]:
    """Gradient of eq_16 at pi_old = pi.

    >>> eq_17([2.0], [[0.5, -0.5]])
    [1.0, -1.0]
    """
    return eq_5([eq_18(a) for a in advantages], gradients)


def eq_18(advantage: float) -> float:
    """GC of PPO: the advantage (from GAE over the rewards and the value function).

    >>> eq_18(0.5)
    0.5
    """
    return advantage


def eq_19(ratios: Rows, advantages: Rows, pi: Rows, ref: Rows, beta: float) -> float:
    """GRPO objective of one question at pi_old = pi: equation 3 without the clip, KL estimate written out.

    >>> round(eq_19([[1.0]], [[0.5]], [[math.log(0.5)]], [[math.log(0.4)]], 0.04), 4)
    0.4991
    """
    per_response = [
        statistics.fmean(r * a - beta * eq_4(p, q) for r, a, p, q in zip(*row, strict=True))
        for row in zip(ratios, advantages, pi, ref, strict=True)
    ]
    return statistics.fmean(per_response)


def eq_20(advantages: Rows, pi: Rows, ref: Rows, beta: float, gradients: Sequence[Rows]) -> list[float]:
    """Gradient of eq_19: mean over responses of eq_5 with coefficients eq_21.

    >>> [round(g, 3) for g in eq_20([[1.26]], [[-0.7]], [[-0.7]], 0.04, [[[0.5, -0.5]]])]
    [0.63, -0.63]
    """
    rows = [
        eq_5([eq_21(a, p, r, beta) for a, p, r in zip(adv, p_row, r_row, strict=True)], grads)
        for adv, p_row, r_row, grads in zip(advantages, pi, ref, gradients, strict=True)
    ]
    return [statistics.fmean(column) for column in zip(*rows, strict=True)]


def eq_21(advantage: float, pi: float, ref: float, beta: float) -> float:
    """GC of GRPO: A + beta (pi_ref / pi - 1).

    >>> [round(eq_21(a, 0.0, 0.0, 0.04), 2) for a in sec_4_1_2([0.9, 0.1, 0.3, 0.7])]
    [1.26, -1.26, -0.63, 0.63]
    >>> round(eq_21(sec_4_1_2([0.9, 0.1, 0.3, 0.7])[1], math.log(0.5), math.log(0.4), 0.04), 3)
    -1.273

    It is the slope of equation 3 at pi_old = pi (one response of one token):

    >>> old, ref = [math.log(0.5)], math.log(0.4)
    >>> def objective(x): return eq_3([[math.exp(x[0] - old[0])]], [[-1.0]], [[eq_4(x[0], ref)]], 0.2, 0.04)
    >>> abs(slope(objective, old, 0) - eq_21(-1.0, old[0], ref, 0.04)) < 1e-8
    True
    """
    return advantage + beta * (math.exp(ref - pi) - 1)


TABLE_10: tuple[tuple[str, str, str, str], ...] = (
    ("SFT", "q, o ~ P_sft(Q, O)", "-", "1"),
    ("RFT", "q ~ P_sft(Q), o ~ pi_sft(O | q)", "Rule", "equation 10"),
    ("DPO", "q ~ P_sft(Q), o+, o- ~ pi_sft(O | q)", "Rule", "equation 14"),
    ("Online RFT", "q ~ P_sft(Q), o ~ pi_theta(O | q)", "Rule", "equation 10"),
    ("PPO", "q ~ P_sft(Q), o ~ pi_theta(O | q)", "Model", "equation 18"),
    ("GRPO", "q ~ P_sft(Q), {o_i} ~ pi_theta(O | q)", "Model", "equation 21"),
)
"""Method, data source, reward function, gradient coefficient, row by row."""


def algorithm_1(
    policy: Any,
    *,
    iterations: int,
    steps: int,
    mu: int,
    draw: Callable[[int], Any],
    sample: Callable[[Any, Any], Any],
    score: Callable[[Any, Any], Any],
    advantage: Callable[[Any], Any],
    update: Callable[[Any, Any, Any, Any, Any], Any],
    refresh: Callable[[Any, Any], Any],
    reward_model: Any = None,
) -> Any:
    """Iterative GRPO, line by line. I iterations of M steps of mu updates; returns the last policy.

    Line 11 says "maximizing the GRPO objective (Equation 21)"; equation 21 is its gradient coefficient, the objective
    is equation 3. `refresh` (line 12) retrains the reward model once per iteration, as section 4.1.4 describes.

    >>> log = []
    >>> algorithm_1(0, iterations=2, steps=1, mu=2, draw=lambda m: "q", sample=lambda old, q: f"o~{old}",
    ...             score=lambda rm, o: rm, advantage=lambda r: r, refresh=lambda rm, policy: rm + 1, reward_model=7,
    ...             update=lambda policy, old, ref, o, a: log.append((policy, old, ref, o, a)) or policy + 1)
    4
    >>> log
    [(0, 0, 0, 'o~0', 7), (1, 0, 0, 'o~0', 7), (2, 2, 2, 'o~2', 8), (3, 2, 2, 'o~2', 8)]
    """
    for _ in range(iterations):  # line 2
        reference = policy  # line 3
        for step in range(steps):  # line 4
            questions = draw(step)  # line 5
            old = policy  # line 6
            outputs = sample(old, questions)  # line 7
            rewards = score(reward_model, outputs)  # line 8
            advantages = advantage(rewards)  # line 9
            for _ in range(mu):  # line 10
                policy = update(policy, old, reference, outputs, advantages)  # line 11
        reward_model = refresh(reward_model, policy)  # line 12
    return policy
