"""A list of bad commands and calls: each ends in one sentence, the commands with status 2."""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import bad_input
from nalm.checks import literal


def test_every_bad_command_and_call_ends_in_one_sentence(tmp_path):
    bad_input.spoiled(tmp_path)
    lines, calls = list(bad_input.commands(tmp_path)), list(bad_input.calls())
    assert len(lines) >= 200
    wrong = [(arguments, what) for arguments in lines if (what := bad_input.command_in_process(arguments))]
    wrong += [(name, what) for name, call in calls if (what := bad_input.call_in_process(call))]
    assert wrong == []


def test_python_says_nothing_about_text_that_is_no_number():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert literal("1or 2") == "1or 2"
    assert said == []


def test_a_good_command_and_a_good_call_are_told_from_bad_ones():
    assert "status 0" in bad_input.command_in_process(["list", "tasks"])
    assert bad_input.call_in_process(lambda: 3) == "no error"
    assert "KeyError" in bad_input.call_in_process(lambda: {}["x"])
