"""The embedded engine: batched sampling with a key-value cache, in the process that trains.

Prompts are prefilled once each through the same prefix trie that the trainer uses. Rows whose prefix is equal so far
share one line of the key-value cache; a finished row leaves it at once. A row's random numbers come from its own
seed, so it does not depend on the rows it was batched with (up to the last bits of a matrix product, whose summation
order may follow the batch size).
"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from algorist.errors import InputError
from algorist.flow import Finish, Prompt, Rollout
from algorist.policy import trie as tries_of
from algorist.policy.model import CausalPolicy
from algorist.rollout.engine import SamplingPlan
from algorist.seeds import derive


@final
class LocalEngine:
    """Samples from a `CausalPolicy` with at most `max_rows` rows in the cache."""

    def __init__(self, policy: CausalPolicy, *, max_rows: int = 512) -> None:
        self.policy = policy
        self.max_rows = max_rows

    @torch.no_grad()
    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        num_samples: int,
        plan: SamplingPlan,
        policy_version: int,
        seed: int,
        salt: str = "",
    ) -> list[list[Rollout]]:
        """See `RolloutEngine.generate`. A row whose logits are not finite ends with Finish.ERROR."""
        for prompt in prompts:
            if len(prompt.token_ids) + plan.response_tokens > self.policy.context:
                raise InputError(
                    f"prompt + response must fit the context of {self.policy.context} tokens: problem {prompt.problem_id} has "
                    f"{len(prompt.token_ids)} + {plan.response_tokens}. Shorten the prompt or lower response_tokens."
                )
        per_batch = max(1, self.max_rows // num_samples)
        result: list[list[Rollout]] = []
        with self.policy.compute():
            for first in range(0, len(prompts), per_batch):
                chunk = prompts[first : first + per_batch]
                rows = [(prompt, sample) for prompt in chunk for sample in range(num_samples)]
                seeds = [derive(seed, "rollout", salt, policy_version, p.problem_id, s) for p, s in rows]
                done = self._decode(rows, seeds, plan, policy_version)
                result += [done[i : i + num_samples] for i in range(0, len(done), num_samples)]
        return result

    def _decode(
        self, rows: list[tuple[Prompt, int]], seeds: list[int], plan: SamplingPlan, policy_version: int
    ) -> list[Rollout]:
        B, T = len(rows), plan.response_tokens
        uniform = np.stack([np.random.Generator(np.random.Philox(key=s)).random(T) for s in seeds])
        ids = np.zeros((B, T), dtype=np.int64)
        logp = np.zeros((B, T), dtype=np.float32)
        length = np.zeros(B, dtype=np.int64)
        finish = [Finish.LENGTH] * B
        stop = np.array(sorted(plan.stop_ids), dtype=np.int64)

        logits, cache, visible, position, line = self._prefill([prompt for prompt, _ in rows])
        alive = np.arange(B)  # rows still being sampled; `line` is the cache line each of them reads
        for t in range(T):
            token, token_logp, finite = sample(logits[self._index(line)], uniform[alive, t], plan)
            ids[alive, t], logp[alive, t] = token, token_logp
            length[alive] += 1
            for row in alive[~finite]:
                finish[row], length[row] = Finish.ERROR, t
            stopped = finite & np.isin(token, stop)
            for row in alive[stopped]:
                finish[row] = Finish.STOP
            running = finite & ~stopped
            if t == T - 1 or not running.any():
                break
            alive = alive[running]
            # rows that read the same line and drew the same token go on as one line of the cache
            pairs, line = np.unique(np.stack([line[running], token[running]]), axis=1, return_inverse=True)
            line = line.reshape(-1)
            if not np.array_equal(pairs[0], np.arange(len(visible))):
                parents = self._index(pairs[0])
                cache.batch_select_indices(parents)
                visible, position = visible[parents], position[parents]
            visible = torch.cat([visible, visible.new_ones(len(visible), 1)], dim=1)
            logits = self.policy.step(self._index(pairs[1])[:, None], position[:, None], visible, cache)
            position = position + 1
        texts = self.policy.tokenizer.batch_decode(
            [[i for i in ids[b, : length[b]].tolist() if i not in plan.stop_ids] for b in range(B)],
            skip_special_tokens=True,
        )
        return [
            Rollout(
                problem_id=prompt.problem_id,
                sample=index,
                prompt_ids=prompt.token_ids,
                token_ids=tuple(ids[b, : length[b]].tolist()),
                behaviour_logp=tuple(logp[b, : length[b]].tolist()),
                policy_version=(policy_version,) * int(length[b]),
                loss_mask=(True,) * int(length[b]),
                finish=finish[b],
                text=texts[b],
                seed=seeds[b],
            )
            for b, (prompt, index) in enumerate(rows)
        ]

    def _prefill(self, prompts: list[Prompt]) -> tuple[Tensor, Any, Tensor, Tensor, Int[np.ndarray, "B"]]:
        """One cache line per distinct prompt, left-padded to S keys.

        Returns (logits after each line, cache, visible keys [lines, S], next position [lines], line of each row).
        """
        numbers: dict[tuple[int, ...], int] = {}
        line = np.array([numbers.setdefault(prompt.token_ids, len(numbers)) for prompt in prompts])
        sequences = list(numbers)
        lengths = np.array([len(s) for s in sequences])
        C, S = len(sequences), int(lengths.max())
        last: dict[int, Tensor] = {}
        store: dict[tuple[int, str], Tensor] = {}
        built = tries_of.build(sequences, max_nodes=self.policy.row_nodes())
        for batch in tries_of.batches(built, max_tokens=4096):
            filled = _new_cache()
            hidden = self.policy.hidden(batch, filled)
            for r, t in enumerate(batch):
                path = np.zeros((len(t.rows), S), dtype=np.int64)  # a padding slot copies node 0 and is never visible
                for i, nodes in enumerate(t.paths):
                    path[i, S - len(nodes) :] = nodes
                    last[t.rows[i]] = hidden[r, int(nodes[-1])]
                lines, index = self._index(np.array(t.rows)), self._index(path)
                for depth, layer in enumerate(filled.layers):
                    for name, tensor in (("keys", layer.keys), ("values", layer.values)):
                        if (depth, name) not in store:
                            store[depth, name] = tensor.new_zeros(C, tensor.shape[1], S, tensor.shape[3])
                        store[depth, name][lines] = tensor[r][:, index].transpose(
                            0, 1
                        )  # [Hkv, b, S, d] -> [b, Hkv, S, d]
        cache = _new_cache()
        for depth in range(len(store) // 2):
            cache.update(store[depth, "keys"], store[depth, "values"], depth)
        visible = torch.arange(S, device=self.policy.device)[None, :] >= self._index(S - lengths)[:, None]
        logits = self.policy.logits(torch.stack([last[i] for i in range(C)]))
        return logits, cache, visible, self._index(lengths), line

    def _index(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.policy.device)


def sample(
    logits: Float[Tensor, "B V"], uniform: Float[np.ndarray, "B"], plan: SamplingPlan
) -> tuple[Int[np.ndarray, "B"], Float[np.ndarray, "B"], np.ndarray]:
    """Inverse-CDF draw: y = min{v : sum_(w <= v) p(w) > u}, with p = top-p(softmax(logits / temperature)).

    Returns token ids, their log-probability under p in nats, and which rows had finite logits. Greedy (temperature 0)
    has the log-probability of its point mass, 0.

    >>> plan = SamplingPlan(temperature=1.0, response_tokens=1, stop_ids=frozenset())
    >>> token, logp, finite = sample(torch.zeros(1, 4), np.array([0.6]), plan)
    >>> token.tolist(), round(float(logp[0]), 4), finite.tolist()
    ([2], -1.3863, [True])
    """
    finite = torch.isfinite(logits).all(dim=-1)
    logits = torch.where(finite[:, None], logits, 0.0)
    if plan.temperature == 0:
        token = logits.argmax(dim=-1)
        return token.cpu().numpy(), np.zeros(len(token), dtype=np.float32), finite.cpu().numpy()
    logp = torch.log_softmax(logits.float() / plan.temperature, dim=-1)
    if plan.top_p < 1.0:
        logp = torch.log_softmax(logp.masked_fill(~top_p_mask(logp, plan.top_p), -torch.inf), dim=-1)
    cumulative = logp.double().exp().cumsum(dim=-1)
    threshold = torch.from_numpy(uniform).to(logits.device)[:, None] * cumulative[:, -1:]
    token = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    # a threshold that rounds up to the total would land past the last token with mass: step back to one that has some
    has_mass = torch.isfinite(logp.gather(-1, token[:, None])).squeeze(-1)
    token = torch.where(has_mass, token, logp.argmax(dim=-1))
    chosen = logp.gather(-1, token[:, None]).squeeze(-1)
    return token.cpu().numpy(), chosen.float().cpu().numpy(), finite.cpu().numpy()


def top_p_mask(logp: Float[Tensor, "B V"], top_p: float) -> Tensor:
    """True for the smallest set of most likely tokens whose probability reaches top_p (the token that crosses included).

    >>> top_p_mask(torch.tensor([[0.5, 0.3, 0.2]]).log(), 0.6)
    tensor([[ True,  True, False]])
    """
    ordered, order = logp.sort(dim=-1, descending=True, stable=True)
    before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    return torch.zeros_like(logp, dtype=torch.bool).scatter(-1, order, before < top_p)


def _new_cache() -> Any:
    from transformers import DynamicCache

    return DynamicCache()
