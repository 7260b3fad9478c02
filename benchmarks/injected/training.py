"""Advantages, loss, gradient, optimizer and reference: what is done with a batch that is sound."""

import math
from dataclasses import replace

import torch

import algorist.stages.rl as rl
import algorist.stages.worth as worth
import algorist.train.rows as rows_of
from algorist.objective import reduce
from algorist.policy.model import CausalPolicy
from algorist.train.trainer import Assigned, Trainer
from injected.tools import Fault, Patch, after_step, assigned, credit, loss, made, trainer

UPDATE, ROLLOUTS = ("update",), ("rollouts",)
GRPO = ("rl.objective={name: grpo, beta: 0.04}",)
LATE = ("rl.replay.every=10",)


def shifted(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, 1:]], dim=1)


def whitened(c) -> torch.Tensor:
    known = c.advantage[c.mask]
    return torch.where(c.mask, (c.advantage - known.mean()) / (known.std() + 1e-6), 0.0)


def rewards_of(a: Assigned) -> torch.Tensor:
    return torch.where(a.credit.mask, a.rows.reward[:, None].float(), 0.0)


def training_mode(method: str):
    """The policy is switched to training mode when this is called."""
    return lambda p: p.set(
        CausalPolicy, method, lambda old: lambda self, *a, **k: (self.model.train(), old(self, *a, **k))[1]
    )


def rows(**changes):
    """The tensors of a batch are not those of its rollouts."""
    return lambda p: p.set(
        rows_of,
        "from_batch",
        lambda old: lambda b: (lambda r: replace(r, **{k: make(r) for k, make in changes.items()}))(old(b)),
    )


def shaped(change):
    """Rewards are changed once more after they were shaped."""

    def make(old):
        def shape(batch, *a, **k):
            found = old(batch, *a, **k)
            groups = [
                replace(g, rewards=tuple(replace(r, value=change(r.value)) for r in g.rewards))
                for g in found.batch.groups
            ]
            return replace(found, batch=replace(found.batch, groups=tuple(groups)))

        return shape

    return lambda p: p.set(worth, "shape_batch", make)


def against(bare, r):
    parts = {name: value if name in bare.parts else -value for name, value in r.parts.items()}
    return replace(r, value=2 * bare.value - r.value, parts=parts)


def other_sign(p: Patch) -> None:
    def make(old):
        def shape(batch, *a, **k):
            found = old(batch, *a, **k)
            groups = [
                replace(g, rewards=tuple(against(b, r) for b, r in zip(bare.rewards, g.rewards, strict=True)))
                for bare, g in zip(batch.groups, found.batch.groups, strict=True)
            ]
            return replace(found, batch=replace(found.batch, groups=tuple(groups)))

        return shape

    p.set(worth, "shape_batch", make)


def no_step(t: Trainer) -> None:
    t.optimizer.step = lambda *a, **k: None


def uphill(t: Trainer) -> None:
    step = t.optimizer.step

    def climb(*a, **k):
        for p in t.policy.parameters():
            p.grad.neg_()
        return step(*a, **k)

    t.optimizer.step = climb


def twice(t: Trainer) -> None:
    step = t.optimizer.step
    t.optimizer.step = lambda *a, **k: (step(*a, **k), step(*a, **k))


def sgd(t: Trainer) -> None:
    t.optimizer = torch.optim.SGD(t.policy.parameters(), lr=1e-3)


def half_of_it(t: Trainer) -> None:
    own = t.policy.parameters()
    t.optimizer = torch.optim.AdamW(own[: len(own) // 2], lr=1e-3)


def scaled_gradients(factor: float):
    """Gradients are divided between backward and clipping, as by a wrong number of micro-batches."""

    def patch(p: Patch) -> None:
        def make(old):
            def clip(parameters, *a, **k):
                for x in parameters:
                    if x.grad is not None:
                        x.grad *= factor
                return old(parameters, *a, **k)

            return clip

        p.set(torch.nn.utils, "clip_grad_norm_", make)

    return patch


def rate(change):
    return lambda p: p.set(Trainer, "lr", lambda old: property(lambda self: change(self, old.fget(self))))


_ASKED = [0]


def by_batches(self: Trainer, lr: float) -> float:
    _ASKED[0] += 1
    return lr * 0.9 ** _ASKED[0]


def frozen_layer(p: Patch) -> None:
    def make(old):
        def init(self, **k):
            for name, parameter in k["policy"].model.named_parameters():
                if "layers.1" in name:
                    parameter.requires_grad_(False)
            old(self, **k)

        return init

    p.set(Trainer, "__init__", make)


def thawed(p: Patch) -> None:
    def make(old):
        def init(self, **k):
            for parameter in k["policy"].model.parameters():
                parameter.requires_grad_(True)
            old(self, **k)

        return init

    p.set(Trainer, "__init__", make)


def nudge(name: str, size: float = 1e-2):
    return lambda t: dict(t.policy.model.named_parameters())[name].add_(size)


def alias(p: Patch) -> None:
    """The reference is the policy itself."""

    def make(old):
        def trainer_of(session, cfg):
            found = old(session, cfg)
            found.reference = session.reference = found.policy
            return found

        return trainer_of

    p.set(rl, "make_trainer", make)


def other_reference(p: Patch) -> None:
    def make(old):
        def trainer_of(session, cfg):
            found = old(session, cfg)
            with torch.no_grad():
                for x in found.reference.model.parameters():
                    x.mul_(1.01)
            return found

        return trainer_of

    p.set(rl, "make_trainer", make)


def reference_at_half(p: Patch) -> None:
    def make(old):
        def score(self, policy, rows, which):
            kept = self.temperature
            self.temperature = 0.5 * kept if policy is self.reference else kept
            try:
                return old(self, policy, rows, which)
            finally:
                self.temperature = kept

        return score

    p.set(Trainer, "_score", make)


def two_steps(p: Patch) -> None:
    def make(old):
        def step(self, a, *, batch, look=None):
            old(self, a, batch=batch, look=look)
            return old(self, a, batch=batch, look=look)

        return step

    p.set(Trainer, "step", make)


def forget(t: Trainer) -> None:
    t.optimizer.state.clear()


def pretend(p: Patch) -> None:
    """A step that only says that it was one."""
    from algorist.flow import Update

    def make(old):
        def step(self, a, *, batch, look=None):
            figures = {"loss": 0.0, "grad_norm": 0.1, "tokens/trained": 1.0}
            return Update(batch=batch, applied=True, policy_version=self.applied, lr=self.lr, metrics=figures), None

        return step

    p.set(Trainer, "step", make)


def sampled_move(p: Patch) -> None:
    """Sampling writes to the weights."""
    from algorist.rollout.local import LocalEngine

    def make(old):
        def generate(self, prompts, **k):
            found = old(self, prompts, **k)
            if k.get("salt", "").startswith("batch") and k["policy_version"] > 0:
                with torch.no_grad():
                    for x in self.policy.parameters():
                        x.mul_(1.0001)
            return found

        return generate

    p.set(LocalEngine, "generate", make)


FAULTS = (
    # what rows are worth
    Fault("advantages of the row before", "A1", UPDATE, "advantage",
          patch=credit(advantage=lambda c: c.advantage.roll(1, 0))),
    Fault("advantages with the other sign", "B33", UPDATE, "rewards give", patch=credit(advantage=lambda c: -c.advantage)),
    Fault("advantages ten times too large", "A5", UPDATE, "rewards give", patch=credit(advantage=lambda c: 10 * c.advantage)),
    Fault("advantages normalised twice", "A11", UPDATE, "rewards give", patch=credit(advantage=whitened)),
    Fault("rewards used as advantages", "B31", UPDATE, "rewards give",
          patch=assigned(lambda a: replace(a, credit=replace(a.credit, advantage=rewards_of(a))))),
    Fault("a flat group gets a little", "A6", UPDATE, "rewards give",
          patch=credit(advantage=lambda c: torch.where(c.mask & (c.advantage == 0), 1e-3, c.advantage))),
    Fault("an advantage is no number", "B20", UPDATE, "finite",
          patch=credit(advantage=lambda c: c.advantage.index_fill(0, torch.tensor([0]), math.nan))),
    Fault("first token of each response left out", "B27", UPDATE, "must train",
          patch=credit(mask=lambda c: shifted(c.mask), advantage=lambda c: torch.where(shifted(c.mask), c.advantage, 0.0))),
    Fault("last token of each response left out", "B26", UPDATE, "must train",
          patch=credit(mask=lambda c: c.mask & shifted(c.mask.flip(1)).flip(1).roll(-1, 1),
                       advantage=lambda c: torch.where(c.mask & shifted(c.mask.flip(1)).flip(1).roll(-1, 1), c.advantage, 0.0))),
    Fault("padding is trained", "B30", ("update", "rollouts"), "",
          patch=credit(mask=lambda c: torch.ones_like(c.mask)), updates=3),
    Fault("every second row left out", "A15", UPDATE, "must train",
          patch=credit(mask=lambda c: c.mask & (torch.arange(len(c.mask)) % 2 == 0)[:, None],
                       advantage=lambda c: c.advantage * (torch.arange(len(c.mask)) % 2 == 0)[:, None])),
    Fault("rewards of the trained rows rolled", "A2", ROLLOUTS, "rewards", patch=rows(reward=lambda r: r.reward.roll(1, 0))),
    Fault("tokens of the trained rows rolled", "A2", ROLLOUTS, "tokens",
          patch=rows(tokens=lambda r: [*r.tokens[1:], r.tokens[0]])),
    Fault("first token masked in the trained rows", "B27", ROLLOUTS, "loss mask", patch=rows(mask=lambda r: shifted(r.mask))),
    Fault("groups numbered by place", "A1", ROLLOUTS, "groups",
          patch=lambda p: p.set(worth, "group_numbers", lambda old: lambda b, *a: torch.arange(len(old(b, *a))) % 6)),
    Fault("a rest in the reward that no part names", "A7", ROLLOUTS, "sum of its named parts",
          overrides=("rl.shaping=[{name: overlong, max_tokens: 4, buffer_tokens: 2}]",), patch=shaped(lambda r: r - 0.1)),
    Fault("shaping with the other sign", "A7", ROLLOUTS, "rl.shaping makes the reward",
          overrides=("rl.shaping=[{name: overlong, max_tokens: 2, buffer_tokens: 1}]",), patch=other_sign),
    Fault("advantages of steps rolled", "A1", UPDATE, "advantage",
          overrides=("rl.objective={name: grpo_process, beta: 0}",), patch=credit(advantage=lambda c: c.advantage.roll(1, 0))),
    Fault("advantages of brevity ten times too large", "A5", UPDATE, "rewards give",
          overrides=("rl.objective={name: grpo, redistribution: {cap: 2}}", "rl.quality=brevity"),
          patch=credit(advantage=lambda c: 10 * c.advantage)),
    # loss and gradient
    Fault("loss with the other sign", "B33", UPDATE, "the loss of rloo", patch=loss(lambda x, b: -x)),
    Fault("loss divided by the accumulation steps", "B18", UPDATE, "the loss of rloo", patch=loss(lambda x, b: x / 4)),
    Fault("loss tenfold from the third update on", "B16", UPDATE, "the loss of rloo",
          patch=loss(lambda x, b: 10 * x, 2), updates=2),
    Fault("loss is no number", "B20", UPDATE, "the loss of rloo", patch=loss(lambda x, b: x * math.nan)),
    Fault("loss without gradient", "B34", UPDATE, "gradient", patch=loss(lambda x, b: x.detach() + 0 * b.logp)),
    Fault("a KL term that no recipe asks for", "B32", UPDATE, "the loss of rloo", patch=loss(lambda x, b: x + 0.1 * b.logp)),
    Fault("weights of a half batch", "B17", UPDATE, "the loss of rloo",
          patch=lambda p: p.set(reduce, "weights_of", lambda old: lambda *a: 2 * old(*a))),
    Fault("every token weighs one", "B16", UPDATE, "the loss of rloo",
          patch=lambda p: p.set(reduce, "weights_of", lambda old: lambda *a: (old(*a) > 0).float())),
    Fault("truncated tokens in the denominator only", "B19", UPDATE, "the loss of rloo",
          patch=lambda p: p.set(reduce, "weights_of", lambda old: lambda *a: old(*a) * 25 / 30)),
    Fault("log-probs at the start taken anew in each epoch", "C46", UPDATE, "the loss of grpo",
          overrides=("rl.objective={name: grpo, beta: 0}", "rl.epochs_per_batch=2"),
          patch=lambda p: p.set(Trainer, "step", lambda old: lambda self, a, *, batch, look=None: old(
              self, replace(a, logp_old=None), batch=batch, look=look)), updates=1),
    Fault("gradients divided by three", "B18", UPDATE, "moments", patch=scaled_gradients(1 / 3)),
    # optimizer and schedule
    Fault("the optimizer does nothing", "E70", UPDATE, "must move weights", patch=trainer(no_step)),
    Fault("the optimizer climbs", "B33", UPDATE, "AdamW", patch=trainer(uphill, 1), updates=1),
    Fault("the optimizer steps twice", "A15", UPDATE, "AdamW", patch=trainer(twice)),
    Fault("another optimizer", "E75", UPDATE, "", patch=trainer(sgd)),
    Fault("the optimizer knows half of the parameters", "E75", UPDATE, "is not in it", patch=trainer(half_of_it)),
    Fault("moments lost between updates", "E75", UPDATE, "", patch=after_step(forget), updates=1),
    Fault("rate ten times too high", "B42", UPDATE, "AdamW's at rate", patch=rate(lambda self, lr: 10 * lr)),
    Fault("rate follows batches, not updates", "B42", UPDATE, "AdamW's at rate", patch=rate(by_batches)),
    Fault("another decay than promised", "B42", UPDATE, "",
          patch=lambda p: p.set(Trainer, "__init__", lambda old: lambda self, **k: (
              old(self, **k), [g.update(weight_decay=0.5) for g in self.optimizer.param_groups])[0])),
    Fault("clipping switched off", "B42", UPDATE, "", overrides=("rl.optimizer.clip_norm=1.0e-4",),
          patch=lambda p: p.set(torch.nn.utils, "clip_grad_norm_", lambda old: lambda ps, m, *a, **k: old(ps, math.inf, *a, **k))),
    Fault("two steps on one batch", "A15", UPDATE, "two steps", patch=two_steps),
    Fault("applied updates are not counted", "B42", UPDATE, "counts", patch=after_step(lambda t: setattr(t, "applied", 0))),
    Fault("an update that never took place", "E70", UPDATE, "nothing was computed", patch=pretend),
    Fault("weights move beside the step", "B41", UPDATE, "", patch=after_step(nudge("model.norm.weight"))),
    Fault("a weight becomes no number in the step", "B20", UPDATE, "",
          patch=after_step(nudge("model.norm.weight", math.nan), 1)),
    Fault("a flat batch moves weights", "B41", UPDATE, "",
          overrides=("qualify.signal.action=report", "problems.source={kind: jsonl, path: hard.jsonl}"),
          patch=after_step(nudge("model.norm.weight"))),
    Fault("sampling moves weights", "C46", UPDATE, "optimizer steps only", overrides=LATE, patch=sampled_move, updates=1),
    Fault("a layer is frozen behind the recipe's back", "seed", UPDATE, "was not declared so", patch=frozen_layer),
    Fault("declared frozen, and thawed", "seed", UPDATE, "declared frozen", overrides=('qualify.parameters.frozen=["*norm*"]',),
          patch=thawed),
    Fault("a frozen parameter moves", "seed", UPDATE, "frozen", overrides=('qualify.parameters.frozen=["*norm*"]',),
          patch=after_step(nudge("model.norm.weight"))),
    Fault("rate that destroys the policy", "B36", ("parameters",), "nothing of the policy would be left",
          overrides=("rl.optimizer.lr=1.0e6",)),
    Fault("rate that is lost in float32", "E70", ("parameters",), "nothing would be learned",
          overrides=("rl.optimizer.lr=1.0e-15",)),
    Fault("decay that takes the weights away", "B36", ("parameters",), "weight_decay",
          overrides=("rl.optimizer.weight_decay=1000",)),
    Fault("learning rate that is far too high", "B36", ("watch", "run", "replay", "counts", "rollouts", "signal"), "",
          overrides=("rl.optimizer.lr=0.2", "rl.optimizer.clip_norm=null", "rl.updates=12", "rl.max_flat_batches=5"), updates=12),
    # reference
    Fault("the reference is the policy itself", "B34", UPDATE, "weights of its own", overrides=GRPO, patch=alias),
    Fault("the reference is another checkpoint", "seed", ("parents",), "reference carries", overrides=GRPO,
          patch=other_reference),
    Fault("the reference follows the policy", "B34", UPDATE, "must stay as it was", overrides=GRPO,
          patch=after_step(lambda t: t.reference.model.load_state_dict(t.policy.model.state_dict())), updates=1),
    Fault("the reference is scored at another temperature", "C44", UPDATE, "same log-probabilities", overrides=GRPO,
          patch=reference_at_half),
    # the end
    Fault("no update is ever applied", "E70, E74", ("counts", "signal"), "",
          overrides=("qualify.signal.action=report", "problems.source={kind: jsonl, path: hard.jsonl}")),
    Fault("advantages all zero", "A13", ("counts",), "no update was applied",
          patch=credit(advantage=lambda c: 0 * c.advantage)),
    Fault("trainer in training mode", "C46", ("replay", "update"), "training mode",
          patch=training_mode("micro_batches")),
    Fault("a temperature of its own for the trainer", "C44", ("replay",), "scores at temperature 0.9",
          patch=made(temperature=0.9)),
)  # fmt: skip
