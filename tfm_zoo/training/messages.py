"""Conversations as rows have them, checked, and as chat templates read them."""

import json
import textwrap
from collections.abc import Mapping
from typing import Any

Message = dict[str, Any]  # at least "role" and "content", both text
#: ShareGPT's names of who speaks
SPEAKERS = {"human": "user", "gpt": "assistant"}


def messages_of(conversation: Any) -> list[Message]:
    """The messages of a conversation, each with "role" and "content": those of a row, of its JSON text, or ShareGPT's,
    which have "from" and "value".

    Raises:
        ValueError: for a conversation without an answer, and for anything else.
    """
    messages = without_nulls(parsed(conversation))
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError(f"a conversation is a list of messages, not {shortened(conversation)}")
    found = [checked(message, number) for number, message in enumerate(messages, 1)]
    if not any(message["role"] == "assistant" for message in found):
        first = found[0]["content"][:40] if found else ""
        raise ValueError(f"the conversation {first!r}... has no answer: no message with the role 'assistant'")
    return found


def checked(message: Mapping[str, Any], number: int) -> Message:
    """A message as chat templates read it. A `ValueError` says what is wrong with message number `number`."""
    if "role" not in message and "from" in message:
        speaker = message["from"]
        role = SPEAKERS.get(speaker, speaker) if isinstance(speaker, str) else speaker
        message = {**message, "role": role, "content": message.get("value")}
    role, content = message.get("role"), message.get("content")
    if role is None:
        raise ValueError(f"message {number} has no role, but {', '.join(message) or 'nothing'}")
    if not isinstance(role, str):
        raise ValueError(f"the role of message {number} is {shortened(role)}, not text")
    if content is None and message.get("tool_calls"):
        content = ""
    if isinstance(content, list):
        for part in (part for part in content if not isinstance(part, str)):
            if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                kind = part.get("type") if isinstance(part, dict) else part
                raise ValueError(f"message {number} has a part {shortened(kind)}, and only texts can be learnt")
        content = "".join(part if isinstance(part, str) else part["text"] for part in content)
    if not isinstance(content, str):
        raise ValueError(f"the content of message {number} ({role}) is {shortened(content)}, not text")
    return {**message, "role": role, "content": content}


def tools_of(tools: Any) -> list[dict] | None:
    """The tools of a row, or of its JSON text."""
    found = without_nulls(parsed(tools)) or None
    if found is not None and not (isinstance(found, list) and all(isinstance(tool, dict) for tool in found)):
        raise ValueError(f"tools are a list of JSON schemas, not {shortened(tools)}")
    return found


def parsed(value: Any) -> Any:
    """The value, or if it is text, what it holds as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(f"a row holds the text {shortened(value)}, which is not JSON") from None


def without_nulls(value: Any) -> Any:
    """The value without fields that are null: a column of a table gives each row the fields of all rows."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def shortened(value: Any) -> str:
    return textwrap.shorten(json.dumps(value, ensure_ascii=False, default=str), 60, placeholder="...")


#: what reads a row of each column of conversations
READERS = {"messages": messages_of, "tools": tools_of}
