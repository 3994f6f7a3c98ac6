"""What the machine could do at best, and how near to that everyone is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import results
from .prompts import ALONE_TOKENS, QUESTION_TOKENS
from .references import PROBE, compiled
from .workplace import FailedError

if TYPE_CHECKING:
    from .cases import Sizes
    from .workplace import Workplace

Data = dict[str, Any]


def measure(place: Workplace, sizes: Sizes) -> Data:
    """The probe's figures, and the floors that follow for the model; {"missing": reason} where it cannot be compiled.

    The floor for a token: every weight is read once, and every key and value of the tokens before. For a prompt: every
    weight is multiplied with, and added, once for each token.
    """
    try:
        program = compiled(PROBE)
        model = model_facts(place)
        probe = json.loads(place.output_of(program, place.threads, model["bytes"]))
    except FailedError as error:
        return {"missing": str(error)}
    prompt = sizes.shared + ALONE_TOKENS
    return {
        "probe": probe,
        "model": model,
        "token_ms": {
            str(depth): 1e-6 * (model["bytes"] + depth * model["cache_bytes"]) / probe["read_model"]
            for depth in (QUESTION_TOKENS, *(depth for depth in sizes.depths if depth))
        },
        "prompt_ms": {"tokens": prompt, "floor": 1e-6 * 2 * model["parameters"] * prompt / probe["int8"]},
    }


def model_facts(place: Workplace) -> Data:
    """What is read of a model: bytes of its tensors, count of parameters, bytes of keys and values of a token (f16)."""
    from causerie import llama

    with llama.Model(place.model) as model:
        heads = model.n_embd // model.n_head * model.n_head_kv
        return {
            "name": model.desc,
            "file": place.model.name,
            "bytes": model.size,
            "parameters": model.n_params,
            "cache_bytes": 2 * 2 * model.n_layer * heads,
        }


def nearness(data: Data) -> list[Data]:
    """For each floor: what everyone takes, as multiples of it."""
    limits = data["limits"]
    if "probe" not in limits:
        return []
    made = []
    for case in data["cases"]:
        if case["group"] != "one conversation":
            continue
        for measure_ in case["measures"]:
            floor = floor_of(limits, case["name"], measure_["unit"])
            if floor is None:
                continue
            times = {}
            for system in results.systems_of(case):
                found = results.summary(results.numbers(case, measure_["name"], system))
                if found is not None:
                    took = found.median if measure_["unit"] == "ms" else 1e3 / found.median
                    times[system] = {"ms": took, "floors": took / floor}
            made.append({"what": f"{case['name']}: {measure_['name']}", "floor_ms": floor, "systems": times})
    return made


def floor_of(limits: Data, case: str, unit: str) -> float | None:
    """Milliseconds at least, for a token or a prompt; None where none is known."""
    if case.startswith("prompt of ") and unit == "ms":
        return float(limits["prompt_ms"]["floor"])
    if unit != "tokens/s":
        return None
    depth = case.removeprefix("greedy, behind ").removesuffix(" tokens").replace(",", "")
    found = limits["token_ms"].get(depth if depth.isdigit() else str(QUESTION_TOKENS))
    return None if found is None else float(found)
