"""Whether a model can be asked at all, found out before a run begins and without sending anything."""

from __future__ import annotations

import os

from mutators.faults import no_key
from mutators.llm import ModelSpec


def why_unreachable(spec: ModelSpec) -> str:
    """Why a model surely cannot be asked: a provider that litellm does not know, a key that is not set; else empty.

    Sends nothing. Credentials of other kinds (roles, profiles) are found only when a request is sent.
    """
    from mutators.wire import load_litellm

    litellm = load_litellm()
    try:
        litellm.get_llm_provider(spec.name, api_base=spec.api_base or None)
    except Exception:  # litellm's own
        return f"no provider of {spec.name!r} is known: write PROVIDER/NAME, as openai/{spec.name}"
    if spec.api_key_env:
        return "" if os.environ.get(spec.api_key_env, "").strip() else no_key(spec.name, [spec.api_key_env])
    missing = [] if spec.api_base else litellm.validate_environment(model=spec.name)["missing_keys"]
    return no_key(spec.name, missing) if missing and all(name.endswith("_API_KEY") for name in missing) else ""
