"""Router load is that of real small mixtures: the experts really chosen, padding left out, frozen routers at rest."""

from pathlib import Path

import pytest
import torch
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from algorist.policy.build import build_policy
from algorist.policy.config import NewPolicyConfig, NewTokenizerConfig, PolicyConfig
from algorist.policy.model import CausalPolicy
from algorist.policy.offload import offload_layers
from algorist.policy.tokenizer import train_tokenizer
from algorist.qualify.config import ParametersConfig
from algorist.qualify.policy_gates import freeze, frozen_digest, router_parameters
from algorist.qualify.routers import Load
from algorist.train.config import OptimizerConfig
from algorist.train.optimizer import make_optimizer

EXPERTS, PER_TOKEN, LAYERS = 8, 2, 2
ROWS = [((5, 6, 7), (8, 9, 3)), ((5, 6, 4), (7, 3)), ((9,), (8, 8, 8, 8, 8, 8, 8))]


def mixture(kind: str) -> CausalPolicy:
    """A mixture of each family of routers: softmax before top-k, softmax with shared normalisation, sigmoid with groups."""
    tokenizer = train_tokenizer(NewTokenizerConfig(), ["0123456789+=ab \n"], context=64)
    shape = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": LAYERS,
        "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64, "bos_token_id": None,
        "pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "num_experts_per_tok": PER_TOKEN,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "mixtral":
            model = MixtralForCausalLM(MixtralConfig(**shape, num_local_experts=EXPERTS))
        elif kind == "qwen3_moe":
            model = Qwen3MoeForCausalLM(
                Qwen3MoeConfig(
                    **shape, head_dim=8, moe_intermediate_size=32, num_experts=EXPERTS, decoder_sparse_step=1
                )
            )
        else:
            model = DeepseekV3ForCausalLM(
                DeepseekV3Config(
                    **shape, moe_intermediate_size=32, n_routed_experts=EXPERTS, n_group=2, topk_group=1, n_shared_experts=1,
                    first_k_dense_replace=0, kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
                    v_head_dim=8,
                )
            )  # fmt: skip
    return CausalPolicy(model, tokenizer, dtype="float32", device=torch.device("cpu"))


KINDS = ("mixtral", "qwen3_moe", "deepseek_v3")


def step(policy: CausalPolicy) -> None:
    for batch in policy.micro_batches(ROWS, max_tokens=64):
        (-policy.score(batch, ROWS, temperature=1.0).logp.sum()).backward()


@pytest.mark.parametrize("kind", KINDS)
def test_the_routers_of_each_family_are_found_by_the_pattern_of_the_launch(kind) -> None:
    policy = mixture(kind)
    assert len(router_parameters(policy)) == LAYERS
    assert freeze(policy, ParametersConfig(frozen=("*.mlp.gate.*",))) == LAYERS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offload", [False, True])
def test_frozen_routers_do_not_move_while_the_experts_do(kind, offload) -> None:
    policy = mixture(kind)
    freeze(policy, ParametersConfig(frozen=("*.mlp.gate.*",)))
    if offload:
        offload_layers(policy)
    before, frozen = {n: p.detach().clone() for n, p in policy.model.named_parameters()}, frozen_digest(policy)
    optimizer = make_optimizer(policy, OptimizerConfig(lr=1e-2, weight_decay=0.1))
    step(policy)
    optimizer.step()
    assert frozen_digest(policy) == frozen
    moved = {n for n, p in policy.model.named_parameters() if not torch.equal(p, before[n])}
    assert not moved & set(router_parameters(policy))
    assert any("experts" in name for name in moved)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offload", [False, True])
def test_every_real_token_is_counted_once_for_each_expert_it_reaches_and_padding_never(kind, offload) -> None:
    policy = mixture(kind)
    if offload:
        offload_layers(policy)
    load = Load(policy)
    batches = policy.micro_batches(ROWS, max_tokens=1000)
    step(policy)  # what is computed again in the backward pass is no further token
    nodes = sum(trie.num_nodes for batch in batches for trie in batch)
    assert len(load._counts) == LAYERS
    assert all(int(counts.sum()) == nodes * PER_TOKEN for counts in load._counts.values())
    figures = load.figures()
    assert set(figures) == {"router/max_over_mean", "router/load_cv", "router/cold_share"}
    assert load.figures() == {"router/layers_unread": LAYERS}, "nothing ran since"


def test_padding_is_left_out_where_tries_differ_in_size() -> None:
    policy = mixture("mixtral")
    policy.layout = "padded"  # one row a trie, padded to the longest
    load = Load(policy)
    (batch,) = policy.micro_batches(ROWS, max_tokens=1000)
    assert len({trie.num_nodes for trie in batch}) > 1
    policy.hidden(batch)
    nodes = sum(trie.num_nodes for trie in batch)
    assert all(int(counts.sum()) == nodes * PER_TOKEN for counts in load._counts.values())


def test_the_figures_are_those_of_the_worst_layer() -> None:
    load = Load(mixture("mixtral"))
    load._counts = {"a": torch.tensor([4, 4, 4, 4]), "b": torch.tensor([13, 2, 1, 0])}
    figures = load.figures()
    assert figures["router/max_over_mean"] == 13 / 4
    assert figures["router/cold_share"] == 1 / 4
    assert figures["router/load_cv"] == pytest.approx(1.31101, abs=1e-5)  # sqrt(mean of 81, 4, 9, 16) / 4


def test_the_choice_of_a_router_with_a_bias_is_what_counts_not_its_logits() -> None:
    policy = mixture("deepseek_v3")
    gate = policy.model.model.layers[0].mlp.gate
    gate.e_score_correction_bias[:] = torch.tensor([9.0, 9.0, *([0.0] * 6)])
    load = Load(policy)
    step(policy)
    counts = load._counts["model.layers.0.mlp.experts"]
    assert int(counts[:2].sum()) == int(counts.sum()), "the bias sends every token to the first two experts"


def test_a_dense_policy_has_no_router_figures(policy) -> None:
    load = Load(policy)
    step(policy)
    assert load.figures() == {}


def test_a_new_policy_with_experts_has_routers_and_equal_seeds_give_equal_weights() -> None:
    new = NewPolicyConfig(
        hidden_size=32, intermediate_size=32, num_layers=2, experts=4, experts_per_token=1, context=64
    )
    first, again = (build_policy(PolicyConfig(new=new), base=Path(), texts=["0123456789+="], seed=3) for _ in range(2))
    assert first.layout == "trie"
    assert len(router_parameters(first)) == 2
    for (name, a), (_, b) in zip(first.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(a, b), name
