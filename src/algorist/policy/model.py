"""A Hugging Face causal language model as a policy: log-probabilities of stored tokens, and the steps of sampling.

One forward path serves both, so that a sampler and a trainer cannot drift apart by code: the decoder in the compute dtype
(float32, or bfloat16 by autocast), the head always in float32, log-softmax of logits / temperature in float32.
"""

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from algorist.errors import InputError
from algorist.policy import trie as tries_of
from algorist.policy.trie import Trie

Row = tuple[Sequence[int], Sequence[int]]
"""(prompt token ids, response token ids)."""

HEAD_CHUNK = 512
"""Positions whose logits exist at one time: at V = 151,936 in float32 that is 0.3 GiB, against 9.3 GiB for 8 x 2,048."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Log-probabilities of b rows of one micro-batch, right-padded to T response tokens with zeros."""

    rows: list[int]
    """[b] the caller's row numbers."""
    logp: Float[Tensor, "b T"]
    """log pi(token | prefix) in nats under softmax(logits / temperature)."""
    entropy: Float[Tensor, "b T"]
    """Exact entropy of that distribution in nats; no gradient."""
    below: Float[Tensor, "b T"]
    """P(w < token) over token ids w: where the draw by inverse CDF begins that gives this token; no gradient."""
    value: Float[Tensor, "b T"] | None = None
    """Value of the state before each token, where the policy has a value head."""


@final
class CausalPolicy:
    """A causal LM with its tokenizer on one device.

    `layout` is "trie" where the architecture reproduces its own plain forward pass under a tree mask (checked when the
    policy is made), else "padded": each sequence for itself, which any causal LM can do.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, dtype: Literal["float32", "bfloat16"], device: torch.device
    ) -> None:
        self.model = model.to(device=device, dtype=torch.float32)
        self.model.eval()  # no dropout: the stored log-probabilities must be reproducible
        self.tokenizer = tokenizer
        self.device = device
        self.dtype = dtype
        self.value_head: nn.Module | None = None
        self.context = int(getattr(self.model.config, "max_position_embeddings", 0) or 2**31)
        self._decoder = self.model.get_decoder()
        self._head = self.model.get_output_embeddings()
        names = inspect.signature(self._decoder.forward).parameters  # transformers renamed it in 5.2x
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        self.layout: Literal["trie", "padded"] = "trie"
        self.real: Tensor | None = None
        """[R * N] False at padding, only while the decoder reads tokens: for hooks that count them."""
        self._check_layout()

    # -- what a trainer and a sampler need ------------------------------------------------------------------------

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Trainable parameters with their names, in a fixed order; tied weights once."""
        named = list(self.model.named_parameters())
        if self.value_head is not None:
            named += [(f"value_head.{name}", p) for name, p in self.value_head.named_parameters()]
        return [(name, p) for name, p in named if p.requires_grad]

    def parameters(self) -> list[nn.Parameter]:
        """Trainable parameters in the order of `named_parameters`."""
        return [p for _, p in self.named_parameters()]

    def num_parameters(self) -> int:
        """All parameters, tied weights once."""
        return sum(p.numel() for p in self.model.parameters())

    def row_nodes(self) -> int:
        """Trie size at which attention costs about half of the matrix products: 4 N h per layer against 2 x parameters."""
        if self.layout == "padded":
            return 1
        config = self.model.config
        return min(2048, max(192, self.num_parameters() // (4 * config.hidden_size * config.num_hidden_layers)))

    def micro_batches(self, rows: Sequence[Row], *, max_tokens: int) -> list[list[Trie]]:
        """Tries over prompt + response, at most `max_tokens` padded nodes a micro-batch; every row in exactly one."""
        sequences = [tuple(prompt) + tuple(response[:-1]) for prompt, response in rows]
        max_nodes = min(self.row_nodes(), max_tokens)
        return tries_of.batches(tries_of.build(sequences, max_nodes=max_nodes), max_tokens=max_tokens)

    def paired_micro_batches(self, rows: Sequence[Row], pair: Sequence[int], *, max_tokens: int) -> list[list[Trie]]:
        """The same, with all rows of one pair number in one micro-batch."""
        by_pair: dict[int, list[int]] = {}
        for row, number in enumerate(pair):
            by_pair.setdefault(number, []).append(row)
        chunks: list[list[int]] = []
        size = 0
        for members in by_pair.values():
            tokens = sum(len(rows[m][0]) + len(rows[m][1]) for m in members)
            if not chunks or size + tokens > max_tokens:
                chunks.append([])
                size = 0
            chunks[-1] += members
            size += tokens
        result = []
        for chunk in chunks:
            sequences = [tuple(rows[m][0]) + tuple(rows[m][1][:-1]) for m in chunk]
            built = tries_of.build(sequences, max_nodes=min(self.row_nodes(), max_tokens))
            result.append([replace(t, rows=tuple(chunk[i] for i in t.rows)) for t in built])
        return result

    def add_value_head(self) -> None:
        """A linear value head on the final hidden state, all zeros at first: V = 0 before anything is learned."""
        if self.value_head is None:
            head = nn.Linear(int(self.model.config.hidden_size), 1, device=self.device)
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
            self.value_head = head

    def score(
        self, batch: Sequence[Trie], rows: Sequence[Row], *, temperature: float, num_tokens: int | None = None
    ) -> Scores:
        """log pi(y_t | x, y_<t) = log softmax(logits / temperature)[y_t] for the rows in one micro-batch.

        `rows` is the whole list that `micro_batches` got; `num_tokens` pads T to a common length. Gradient flows to the
        weights unless the caller forbids it.
        """
        hidden = self.hidden(batch)
        members = [(r, row, path) for r, t in enumerate(batch) for row, path in zip(t.rows, t.paths, strict=True)]
        T = num_tokens or max(len(rows[row][1]) for _, row, _ in members)
        width = hidden.shape[1]
        where, target, place = [], [], []
        for b, (r, row, path) in enumerate(members):
            prompt, response = rows[row]
            where.append(r * width + path[len(prompt) - 1 :])
            target.append(np.asarray(response, dtype=np.int64))
            place.append(b * T + np.arange(len(response)))
        sources, source_of = np.unique(np.concatenate(where), return_inverse=True)
        by_source = np.argsort(source_of, kind="stable")
        states = hidden.flatten(0, 1)[self._tensor(sources)]
        logp, entropy, below = self._token_logp(
            states, self._tensor(source_of[by_source]), self._tensor(np.concatenate(target)[by_source]), temperature
        )
        index = self._tensor(np.concatenate(place)[by_source])
        fill = lambda values: values.new_zeros(len(members) * T).index_put((index,), values).view(len(members), T)  # noqa: E731
        value = None
        if self.value_head is not None:
            with torch.autocast(self.device.type, enabled=False):  # in float32, as the head
                value = fill(self.value_head(states.float()).squeeze(-1)[self._tensor(source_of[by_source])])
        return Scores(
            rows=[row for _, row, _ in members], logp=fill(logp), entropy=fill(entropy), below=fill(below), value=value
        )

    def logits(self, hidden: Float[Tensor, "... H"]) -> Float[Tensor, "... V"]:
        """Head in float32 whatever the compute dtype: a bfloat16 head alone moves log-probabilities by 0.03 nats."""
        with torch.autocast(self.device.type, enabled=False):
            bias = None if self._head.bias is None else self._head.bias.float()
            return F.linear(hidden.float(), self._head.weight.float(), bias)

    def hidden(self, batch: Sequence[Trie], cache: Any = None) -> Float[Tensor, "R N H"]:
        """Final hidden states of a batch of tries, right-padded to N nodes; fills `cache` where one is given."""
        R, N = len(batch), max(t.num_nodes for t in batch)
        ids, depth, end = (np.zeros((R, N), dtype=np.int64) for _ in range(3))
        end[:] = np.arange(1, N + 1)  # a padding node sees itself only; nobody sees it
        for r, t in enumerate(batch):
            ids[r, : t.num_nodes], depth[r, : t.num_nodes], end[r, : t.num_nodes] = t.token_ids, t.depth, t.end
        node = torch.arange(N, device=self.device)
        real = node[None, :] < torch.tensor([t.num_nodes for t in batch], device=self.device)[:, None]
        mask = None
        if self.layout == "trie":
            mask = (node[None, None, :] <= node[None, :, None]) & (node[None, :, None] < self._tensor(end)[:, None, :])
            mask = mask[:, None]
        return self._decode(self._tensor(ids), self._tensor(depth), mask, cache, real)

    def step(
        self, ids: Int[Tensor, "B 1"], position: Int[Tensor, "B 1"], visible: Tensor, cache: Any
    ) -> Float[Tensor, "B V"]:
        """One decoding step: logits after `ids`, given a filled cache and the [B, S] keys each row may see.

        A model that is not laid out as a trie builds its own mask from them (a sliding window stays one).
        """
        mask = visible[:, None, None, :] if self.layout == "trie" else visible.long()
        return self.logits(self._decode(ids, position, mask, cache, torch.ones_like(ids, dtype=torch.bool))[:, -1])

    @contextlib.contextmanager
    def compute(self) -> Iterator[None]:
        """Compute dtype for everything inside; one context per phase, so that bfloat16 copies of weights are made once."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.dtype == "bfloat16"):
            yield

    # -- inside -----------------------------------------------------------------------------------------------------

    def _decode(self, ids: Tensor, position: Tensor, mask: Tensor | None, cache: Any, real: Tensor) -> Tensor:
        cached = {} if cache is None else {self._cache_name: cache}
        self.real = real.flatten()
        out = self._decoder(
            input_ids=ids, position_ids=position, attention_mask=mask, use_cache=cache is not None, **cached
        )
        self.real = None
        hidden: Tensor = out.last_hidden_state
        return hidden

    def _token_logp(
        self, states: Tensor, source: Tensor, target: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(log-probability, entropy, mass below) per (source, target) pair, pairs sorted by source; logits chunk by chunk."""
        bounds = list(range(0, len(states), HEAD_CHUNK))
        cuts = torch.searchsorted(source, torch.tensor([*bounds, len(states)], device=source.device)).tolist()
        parts = []
        for start, first, last in zip(bounds, cuts, cuts[1:], strict=False):
            inside, wanted = source[first:last] - start, target[first:last]
            piece = states[start : start + HEAD_CHUNK]
            if torch.is_grad_enabled() and len(bounds) > 1:
                parts.append(checkpoint(self._chunk_logp, piece, inside, wanted, temperature, use_reentrant=False))
            else:
                parts.append(self._chunk_logp(piece, inside, wanted, temperature))
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]), torch.cat([p[2] for p in parts])

    def _chunk_logp(
        self, states: Tensor, source: Tensor, target: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        logp = torch.log_softmax(self.logits(states) / temperature, dim=-1)
        with torch.no_grad():
            mass = logp.exp()
            entropy = torch.special.entr(mass).sum(-1)
            upto = mass.cumsum_(-1)[source, target]  # in place: one more copy of V columns would raise the peak
        return logp[source, target], entropy[source], upto - logp.detach()[source, target].exp()

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    @torch.no_grad()
    def _check_layout(self) -> None:
        """Own head and tree mask against the model's plain forward pass, on sequences that share a prefix."""
        size = int(self.model.config.vocab_size)
        ids = [(7 * i + 3) % min(size, 89) for i in range(9)]
        sequences = [ids[:8], [*ids[:4], ids[8], *ids[:3]]]
        plain = self.model(input_ids=torch.tensor(sequences, device=self.device)).logits.float()
        for layout in ("trie", "padded"):
            self.layout = layout
            built = tries_of.build(sequences, max_nodes=64 if layout == "trie" else 1)
            worst = 0.0
            for t in built:
                own = self.logits(self.hidden([t]))[0]
                for row, path in zip(t.rows, t.paths, strict=True):
                    worst = max(worst, float((own[self._tensor(path)] - plain[row]).abs().max()))
            if worst < 1e-3 * max(1.0, float(plain.abs().max())):  # float32 sums in another order
                return
        raise InputError(
            f"the policy's logits must be its output embedding applied to its last hidden state: {self.model.config.model_type!r} "
            f"differs by {worst:.3g}. Use an architecture without logit scaling or soft-capping."
        )


def pick_device(name: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """auto: CUDA where there is one, else CPU."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("policy.device: cuda was asked for and this machine shows none. Use auto or cpu.")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")
