"""One cache for each source: filled from what is built once, kept for the baseline, and never shared between sources."""

from kbtui.evaluate.caches import MOST, Caches


def test_a_source_gets_a_copy_of_what_was_built_for_all(tmp_path):
    caches = Caches(tmp_path, "baseline")
    (caches.own() / "driver").mkdir()
    (caches.own() / "driver" / "cuda_utils.so").write_bytes(b"built once")
    place = caches.of("one")
    assert (place / "driver" / "cuda_utils.so").read_bytes() == b"built once"
    (place / "driver" / "cuda_utils.so").write_bytes(b"changed by a candidate")
    assert (caches.of("two") / "driver" / "cuda_utils.so").read_bytes() == b"built once"
    assert caches.of("one") == place


def test_the_oldest_goes_and_the_baseline_stays(tmp_path):
    caches = Caches(tmp_path, "baseline")
    baseline = caches.of("baseline")
    first = caches.of("0")
    for number in range(1, MOST - 1):
        caches.of(str(number))
    caches.of("0")
    second = caches.of("1")
    later = [caches.of(f"later {number}") for number in range(MOST - 2)]
    assert baseline.exists()
    assert not first.exists()
    assert second.exists()
    assert all(place.exists() for place in later)
    assert len(list(tmp_path.iterdir())) == MOST + 1  # and `own`


def test_a_source_that_is_no_valid_text_has_one_too(tmp_path):
    assert Caches(tmp_path, "").of("x = '\udc80'").is_dir()
