"""Signatures: ours verify in plain Python, one changed bit does not; a missing package is said in words."""

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.digest import sha256
from algorist.errors import InputError
from algorist.qualify import check, receipt
from algorist.record import ledger
from algorist.record.run_folder import RunFolder

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519", reason="signing needs cryptography")


@settings(max_examples=8, deadline=None)
@given(seed=st.binary(min_size=32, max_size=32), message=st.binary(max_size=64), bit=st.integers(0, 511))
def test_plain_python_agrees_with_cryptography_and_refuses_a_changed_bit(seed, message, bit) -> None:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    public, signature = receipt.public_bytes(key), key.sign(message)
    assert check._verify(public, message, signature)
    assert not check._verify(public, message + b"x", signature)
    changed = bytearray(signature)
    changed[bit // 8] ^= 1 << (bit % 8)
    assert not check._verify(public, message, bytes(changed))


def test_the_published_example_of_rfc_8032_verifies() -> None:
    public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert check._verify(public, b"\x72", signature)


def test_a_signed_receipt_holds_for_its_key_and_for_no_other(finished, copy_of, tmp_path, monkeypatch) -> None:
    run = copy_of(finished)
    key, other = tmp_path / "key", tmp_path / "other"
    public, foreign = receipt.new_key(key), receipt.new_key(other)
    assert key.stat().st_mode & 0o077 == 0
    monkeypatch.setenv(receipt.KEY_VARIABLE, str(key))
    for path in (run / "receipts").iterdir():
        path.unlink()
    issued = receipt.issue(RunFolder.open(run), ledger.read(run / "ledger.jsonl"))
    assert issued.signed
    assert check.check(run, public) == []
    assert any("no valid signature" in fault for fault in check.check(run, foreign))
    assert check.read_key(tmp_path / "key.pub") == public


def test_an_unsigned_receipt_does_not_hold_where_a_key_is_asked_for(finished) -> None:
    key = receipt.public_bytes(ed25519.Ed25519PrivateKey.generate())
    assert any("no valid signature" in fault for fault in check.check(finished, key))


def test_the_same_run_gets_no_second_receipt(finished, copy_of) -> None:
    run = copy_of(finished)
    before = receipt.existing(RunFolder.open(run))
    again = receipt.issue(RunFolder.open(run), ledger.read(run / "ledger.jsonl"))
    assert receipt.existing(RunFolder.open(run)) == before == [again.path]


def test_signing_without_the_package_says_what_to_install(finished, copy_of, tmp_path, monkeypatch) -> None:
    for name in [n for n in sys.modules if n.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(InputError, match="needs the package cryptography"):
        receipt.envelope(b"{}", str(tmp_path / "key"))
    assert json.loads(receipt.envelope(b"{}", None))["signatures"] == []


def test_a_receipt_is_named_after_its_bytes(finished) -> None:
    (path,) = (finished / "receipts").iterdir()
    assert path.name == f"0001-{sha256(path.read_bytes())[:16]}.json"


def test_a_key_is_never_overwritten(tmp_path) -> None:
    receipt.new_key(tmp_path / "key")
    with pytest.raises(InputError, match="never overwritten"):
        receipt.new_key(tmp_path / "key")
