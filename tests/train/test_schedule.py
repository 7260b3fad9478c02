from hypothesis import given
from hypothesis import strategies as st

from algorist.train.config import OptimizerConfig
from algorist.train.schedule import learning_rate


def test_cosine_by_hand() -> None:
    cfg = OptimizerConfig(lr=2.0, schedule="cosine", final_share=0.1)
    assert learning_rate(cfg, 0, 10) == 2.0
    assert abs(learning_rate(cfg, 5, 10) - 2.0 * 0.55) < 1e-12
    assert abs(learning_rate(cfg, 10, 10) - 0.2) < 1e-12
    assert learning_rate(cfg, 25, 10) == learning_rate(cfg, 10, 10)


def test_multi_step_of_the_paper_drops_to_31_6_and_10_percent() -> None:
    cfg = OptimizerConfig(lr=1.0, schedule="multi_step")
    rates = [learning_rate(cfg, t, 100) for t in (79, 80, 89, 90)]
    assert [round(r, 4) for r in rates] == [1.0, 0.316, 0.316, round(0.316**2, 4)]


@given(st.sampled_from(["constant", "cosine", "multi_step"]), st.integers(0, 50), st.integers(1, 50), st.integers(0, 9))
def test_a_rate_is_positive_never_above_the_peak_and_never_rises_after_the_warm_up(shape, t, total, warmup) -> None:
    cfg = OptimizerConfig(lr=0.5, schedule=shape, warmup_updates=warmup, final_share=0.01)
    rate = learning_rate(cfg, t, total)
    assert 0 < rate <= 0.5
    if t + 1 >= max(1, warmup):
        assert learning_rate(cfg, t + 1, total) <= rate + 1e-15
