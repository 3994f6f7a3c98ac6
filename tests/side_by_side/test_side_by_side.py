"""The side-by-side benchmark: rounds in turn, and reports, pictures and the README made of what was recorded."""

from __future__ import annotations

import json
import os
import time
import xml.etree.ElementTree as ET
from copy import deepcopy
from pathlib import Path

import pytest
from benchmarks.side_by_side import __main__ as command
from benchmarks.side_by_side import cases, plots, reading, readme, results, table
from benchmarks.side_by_side.case import Case, EndedEarlyError, Measure, make_task, require_whole
from benchmarks.side_by_side.machine import slug
from benchmarks.side_by_side.peers import run
from benchmarks.side_by_side.running import Run
from benchmarks.side_by_side.workplace import FailedError, Workplace

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def recorded():
    return results.read(Path(__file__).parent / "recorded.json")


# ---- what is shown ----


def test_ratios_are_of_numbers_of_the_same_round(recorded):
    case = recorded["cases"][0]
    found = results.ratio(case, "decoding, streamed", "llama-cpp-python")
    assert (found.median, found.least, found.most) == (1.6, 1.0, 2.0)  # not 60 / 50, the ratio of the medians


def test_the_report_has_every_bar_with_what_was_measured(recorded):
    lines = [line for line in table.report(recorded).splitlines() if line.startswith("| one conversation, greedy")]
    assert lines == [
        "| one conversation, greedy: decoding, streamed | llama-bench | at least 0.97 | 0.833 (0.8 to 1) | **missed** |",
        "| one conversation, greedy: decoding, streamed | llama-cpp-python | at least 1.08 | 1.6 (1 to 2) | reached |",
        "| one conversation, greedy: decoding, streamed | node-llama-cpp | at least 2.5 | none | npm is not installed |",
    ]


def test_the_report_tells_what_is_missing_what_differs_and_what_failed(recorded):
    text = table.report(recorded)
    assert "**node-llama-cpp** is missing: npm is not installed." in text
    assert "**llama-cpp-python**: version 1.2.3. What differs: one conversation after another." in text
    assert "- llama-bench: no sampling." in text
    assert 'llama-cpp-python did not do "2 answers while a prompt of 100 tokens comes in": it answers one' in text


def test_the_report_has_times_in_floors(recorded):
    limits = table.report(recorded).partition("## Limits")[2]
    line = next(line for line in limits.splitlines() if line.startswith("| greedy: decoding"))
    assert line == "| greedy: decoding, streamed | 10 ms | 1.67 | 2.00 | 1.67 |"  # 60, 50 and 60 tokens/s


def test_a_busy_machine_is_told_of(recorded):
    assert "busy" not in table.report(recorded)
    recorded["cases"][0]["rounds"][1]["others"] = 0.5
    assert "more than 0.1 in 1 of 7 rounds" in table.report(recorded)


def test_pictures_are_made_of_the_results_alone(recorded, tmp_path):
    first = plots.write(recorded, tmp_path, "a")
    assert [path.name for path in first] == ["a-throughput.svg", "a-turns.svg", "a-latency.svg"]
    assert all(ET.parse(path).getroot().tag.endswith("svg") for path in first)
    assert [path.read_bytes() for path in plots.write(recorded, tmp_path, "b")] == [path.read_bytes() for path in first]


def test_the_readme_shows_the_newest_results_that_have_all_bars(recorded, tmp_path):
    folder = tmp_path / "results"
    older, partial = deepcopy(recorded), deepcopy(recorded)
    older["finished"] = "2025-01-02T04:04:05+00:00"
    partial |= {"complete": False, "finished": "2027-01-02T04:04:05+00:00"}
    for name, data in (("new", recorded), ("old", older), ("partial", partial)):
        results.write(folder / f"{name}.json", data)
    plots.write(recorded, folder, "new")
    file = tmp_path / "README.md"
    file.write_text(f"Before\n{readme.BEGIN}\nold text\n{readme.END}\nAfter\n")
    assert readme.update(file, folder)
    assert not readme.update(file, folder)
    text = file.read_text()
    assert text.startswith("Before\n")
    assert text.endswith("\nAfter\n")
    assert "old text" not in text
    assert "(results/new-throughput.svg)" in text
    assert "Missing: node-llama-cpp (npm is not installed)." in text


def test_the_readme_is_what_the_results_say():
    text = (ROOT / "README.md").read_text()
    assert readme.replaced(text, readme.section(readme.newest())) == text


def test_reports_beside_results_are_what_the_results_say():
    for path in readme.RESULTS.glob("*.json"):
        assert path.with_suffix(".md").read_text() == table.report(results.read(path)), path.name


def test_what_does_not_follow_the_schema_is_refused(recorded, tmp_path):
    recorded["cases"][0]["rounds"][0]["values"]["causerie"]["something else"] = 1.0
    path = tmp_path / "results.json"
    path.write_text(json.dumps(recorded))
    with pytest.raises(results.SchemaError, match="case one conversation: greedy"):
        results.read(path)


# ---- how it is measured ----


class Counting:
    """A reference that tells when it ran, and fails in one round."""

    differs = ""

    def __init__(self, name, log, fails_in=None):
        self.name, self.log, self.fails_in, self.runs = name, log, fails_in, 0

    def run(self, _place):
        self.runs += 1
        self.log.append(self.name)
        if self.runs == self.fails_in:
            raise FailedError("it broke")
        return {"speed": float(self.runs)}


def a_case(**references):
    measure = Measure("speed", "1/s", "higher", lambda figures, _: figures["speed"])
    return Case("group", "case", (measure,), references=references)


def empty_results():
    machine = {"time": "2026-01-02T03:04:05+00:00"}
    return results.empty({"rounds": 3}, machine)


def test_systems_take_turns_and_each_round_is_saved():
    log, data = [], empty_results()
    case = a_case(a=Counting("a", log), b=Counting("b", log))
    place = Workplace(Path("model"), 1)
    assert Run(place, data, lambda: log.append("saved"), rounds=3).all([case]) == 0
    assert log == ["a", "b", "saved"] * 3
    assert results.numbers(data["cases"][0], "speed", "a") == [1.0, 2.0, 3.0]
    results.check(data)


def test_what_fails_is_told_and_does_not_take_part_again():
    log, data = [], empty_results()
    case = a_case(a=Counting("a", log), b=Counting("b", log, fails_in=2))
    Run(Workplace(Path("model"), 1), data, lambda: None, rounds=3).all([case])
    assert log == ["a", "b", "a", "b", "a"]
    assert data["cases"][0]["failed"] == {"b": "it broke"}
    assert results.numbers(data["cases"][0], "speed", "b") == [1.0]


def test_a_run_goes_on_where_another_one_stopped():
    log, data = [], empty_results()
    case = a_case(a=Counting("a", log))
    place = Workplace(Path("model"), 1)
    assert Run(place, data, lambda: None, rounds=3, deadline=0.0).all([case, case]) == 2
    assert log == []
    Run(place, data, lambda: None, rounds=1).all([case])
    Run(place, data, lambda: None, rounds=3).all([case])
    assert log == ["a"] * 3
    assert len(data["cases"]) == 1


def test_results_of_another_build_are_not_gone_on_with(recorded, tmp_path):
    path = tmp_path / "results.json"
    results.write(path, recorded)
    same = command.opened(path, recorded["settings"], recorded["machine"], fresh=False)
    assert same == recorded
    other = {**recorded["machine"], "llama_commit": "another"}
    with pytest.raises(SystemExit, match="llama_commit"):
        command.opened(path, recorded["settings"], other, fresh=False)
    assert command.opened(path, recorded["settings"], other, fresh=True)["cases"] == []


def test_a_program_that_fails_gives_its_last_line_as_the_reason():
    place = Workplace(Path("model"), 1)
    with pytest.raises(FailedError, match=r"sh failed: no such model"):
        place.output_of("sh", "-c", "echo first >&2; echo no such model >&2; exit 3")


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_program_that_takes_too_long_ends_with_what_it_started(tmp_path):
    place = Workplace(Path("model"), 1, timeout=1.0)
    began = tmp_path / "began"
    with pytest.raises(FailedError, match=r"sh took more than 1 s"):
        place.output_of("sh", "-c", f"sleep 600 & echo $! > {began}; wait")
    deadline = time.monotonic() + 10
    while is_alive(int(began.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)  # its new parent reaps it
    assert not is_alive(int(began.read_text()))


def test_an_installer_that_fails_gives_the_reason(tmp_path):
    with pytest.raises(FailedError, match="ERROR: nothing found"):
        run("sh", "-c", "echo 'ERROR: nothing found'; echo more; exit 1", folder=tmp_path, log=tmp_path / "log")


# ---- what is measured ----


def reply(conversation, asked, times, *, turn=0, finish="length"):
    about = {"conversation": conversation, "turn": turn, "finish": finish, "tokens": len(times)}
    return {**about, "asked": asked, "times": times}


def test_gaps_are_counted_until_the_newcomers_first_token():
    task = make_task([{"turns": ["a"]}, {"turns": ["b"], "after_tokens": 2}])
    running = reply(0, 0.0, [0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 9.0])
    figures = {"replies": [running, reply(1, 3.0, [6.0])]}
    alone, beside = reading.gaps(figures, task)
    assert alone == [1000.0]  # from 2 to 3; the first two tokens warm up
    assert beside == [2000.0, 3000.0]
    assert reading.late_first_token(figures, task) == 3.0


def test_output_is_counted_from_the_start_to_the_last_token_of_all():
    figures = {"replies": [reply(0, 0.0, [1.0, 2.0]), reply(1, 0.0, [1.5, 4.0])]}
    assert reading.output_rate(figures, {}) == 1.0


def test_a_reply_that_ends_early_is_not_compared():
    task = make_task([{"turns": ["a"]}, {"turns": ["b"], "max_tokens": 60}], max_tokens=40)
    for short, whole in ((37, True), (36, False)):
        figures = {"replies": [reply(0, 0.0, [1.0] * short, finish="stop"), reply(1, 0.0, [1.0] * 60)]}
        if whole:
            require_whole(figures, task)
        else:
            with pytest.raises(EndedEarlyError, match="after 96 of 100 tokens"):
                require_whole(figures, task)


@pytest.mark.parametrize("sizes", [cases.Sizes(), cases.QUICK])
def test_cases_have_names_of_their_own_and_bars_against_those_who_take_part(sizes):
    everything = cases.all_cases(sizes)
    assert len({case.key for case in everything}) == len(everything)
    for case in everything:
        assert set(case.everyone) <= set(cases.SYSTEMS)
        for measure in case.measures:
            assert {bar.against for bar in measure.bars} - {""} <= set(case.everyone), case.key


def test_a_cpu_makes_a_part_of_a_files_name():
    assert slug("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz") == "intel-xeon-e5-2680-v4"
    assert slug("AMD EPYC 7B13") == "amd-epyc-7b13"
