"""What a process that takes a run over must find, besides what the contract already holds."""

from collections.abc import Mapping

from algorist.errors import InputError, ResumeMismatch
from algorist.qualify.policy_gates import config_digest
from algorist.qualify.subject import Subject
from algorist.stages.session import Session


def still_there(subject: Subject, session: Session) -> None:
    """The config that the run began with, and something left to do. Says nothing of a run that only begins.

    Raises ResumeMismatch for another config.json, InputError for fewer batches than are done.
    """
    said = [e.payload["figures"] for e in session.ledger.events if e.payload.get("name") == "parents"]
    config = config_digest(subject.policy.model.config)
    if said and isinstance(said[-1], Mapping) and said[-1].get("config", config) != config:
        raise ResumeMismatch(
            f"{subject.policy_path}: config.json must be the one the run began with: equal weights under another config are another "
            "policy. Put it back, or start a new run."
        )
    rl, done = subject.rl, session.position.batches
    if rl is not None and rl.updates < done:
        raise InputError(
            f"rl.updates must be at least the {done} batches that are done: got {rl.updates}. Set {done} to end here, or more to go on."
        )
    if rl is not None and rl.updates == done and session.restored is not None:
        session.listener.say(f"all {done} batches are done: nothing is left to train")
