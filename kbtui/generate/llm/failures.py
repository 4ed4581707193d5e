"""What a provider's error means: the one place that maps litellm's exceptions to kinds of failure.

litellm's classes and wordings are not to be trusted alone: 403 is an APIError, a refused connection and a drop before the
first byte are InternalServerErrors, quota and rate limit share a class. So: the code in the body first, then the status, then
the class, and the wording last, for what has no code.
"""

from __future__ import annotations

import email.utils
import json
from collections.abc import Iterable, Mapping
from typing import Any

from kbtui import clock
from kbtui.generate.llm.chat import Failure, FailureKind
from kbtui.text import clean_line, redact

LONGEST_REASON = 300

_BY_CODE: dict[str, FailureKind] = {
    "invalid_api_key": "key",
    "insufficient_quota": "quota",
    "billing_hard_limit_reached": "quota",
    "rate_limit_exceeded": "rate limit",
    "model_not_found": "no model",
    "context_length_exceeded": "too long",
    "content_filter": "filtered",
    "content_policy_violation": "filtered",
    "unsupported_parameter": "parameter",
    "unsupported_value": "parameter",
    "overloaded_error": "overloaded",
}
_BY_STATUS: dict[int, FailureKind] = {
    401: "key",
    402: "quota",
    403: "forbidden",
    404: "no model",
    408: "timeout",
    413: "too long",
    429: "rate limit",
}
_BY_CLASS: dict[str, FailureKind] = {
    "ContextWindowExceededError": "too long",
    "ContentPolicyViolationError": "filtered",
    "UnsupportedParamsError": "parameter",
    "MidStreamFallbackError": "dropped",
    "Timeout": "timeout",
}
_UNREACHABLE = (
    "connection error",
    "cannot connect",
    "connection refused",
    "server disconnected",
    "all connection attempts",
)
_WORDS: tuple[tuple[str, FailureKind], ...] = (
    ("maximum context length", "too long"),
    ("context window", "too long"),
    ("prompt is too long", "too long"),
    ("content management policy", "filtered"),
    ("content policy", "filtered"),
    ("unsupported parameter", "parameter"),
    ("unsupported value", "parameter"),
    ("not supported with this model", "parameter"),
    ("unrecognized request argument", "parameter"),
    ("extra inputs are not permitted", "parameter"),
)


def failure(error: Exception, sent: Iterable[str], partial: str = "") -> Failure:
    """What `error`, raised by litellm, means. `sent` are the names of the optional parameters of the request."""
    status = _status(error)
    message, code, named = _body(error)
    kind = _kind(error, status, message, code)
    parameter = ""
    if kind == "parameter" or (kind == "refused" and named in set(sent)):
        parameter = _parameter(message, named, sent)
        kind = "parameter" if parameter else "refused"
    return Failure(
        kind,
        _reason(kind, status, message),
        status=status,
        wait_s=_retry_after(_headers(error)),
        parameter=parameter,
        partial=partial,
    )


def _kind(error: Exception, status: int | None, message: str, code: str) -> FailureKind:
    if code in _BY_CODE:
        return _BY_CODE[code]
    name = type(error).__name__
    if name in _BY_CLASS:
        return _BY_CLASS[name]
    lowered = message.lower()
    if status in (400, 422):
        return next((kind for words, kind in _WORDS if words in lowered), "refused")
    if status == 429 and "quota" in lowered:
        return "quota"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if "missing credentials" in lowered or "api_key client option must be set" in lowered:
        return "key"
    if any(words in lowered for words in _UNREACHABLE):
        return "unreachable"
    return "overloaded" if status is not None and status >= 500 else "refused"


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _body(error: Exception) -> tuple[str, str, str]:
    """(message, code, parameter) of the provider's own answer, wherever litellm put it; the exception's text without one."""
    text = str(error)
    body = getattr(error, "body", None)
    if not isinstance(body, Mapping):
        body = _json_in(text)
    inner = body.get("error", body)
    if not isinstance(inner, Mapping):
        return str(inner) or text, "", ""
    code = inner.get("code") or inner.get("type") or ""
    return str(inner.get("message") or text), str(code), str(inner.get("param") or "")


def _json_in(text: str) -> Mapping[str, Any]:
    """The JSON object that ends an exception's text, as for servers that litellm reaches without a client library."""
    start = text.find("{")
    if start < 0:
        return {}
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:])
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _parameter(message: str, named: str, sent: Iterable[str]) -> str:
    """The optional parameter of ours that is refused: the one the body names, else the first that the message speaks of."""
    optional = list(sent)
    if named in optional:
        return named
    words = {word.strip("'\"`.,:;()=") for word in message.replace("=", " ").split()}
    return next((name for name in optional if name in words), "")


def _headers(error: Exception) -> Mapping[str, str]:
    headers = getattr(error, "litellm_response_headers", None)
    if headers is None:
        headers = getattr(getattr(error, "response", None), "headers", None)
    return headers if isinstance(headers, Mapping) else {}


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date."""
    value = next((text for name, text in headers.items() if name.lower() == "retry-after"), "").strip()
    if not value:
        return None
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        return max(email.utils.parsedate_to_datetime(value).timestamp() - clock.wall(), 0.0)
    except ValueError:
        return None


_SAYS: dict[FailureKind, str] = {
    "key": "the provider refuses the key",
    "forbidden": "the provider forbids it",
    "no model": "the provider has no such model",
    "quota": "the account's quota is used up",
    "rate limit": "too many requests",
    "overloaded": "the provider fails",
    "timeout": "no answer in time",
    "dropped": "the reply was cut off",
    "empty": "the reply was empty",
    "filtered": "the provider's content filter holds the reply back",
    "too long": "the prompt is longer than the model takes",
    "parameter": "the model refuses a parameter",
    "refused": "the provider refuses the request",
    "unreachable": "the provider cannot be reached",
}


def _reason(kind: FailureKind, status: int | None, message: str) -> str:
    number = f"{status}, " if status is not None and kind not in ("unreachable", "dropped", "timeout") else ""
    detail = clean_line(redact(message), LONGEST_REASON)
    return f"{number}{_SAYS[kind]}: {detail}" if detail else f"{number}{_SAYS[kind]}"
