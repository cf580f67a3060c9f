"""The routes of a llama-server, typed: health, properties, tokens, completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from espalier.errors import EspalierError, Unavailable, UpstreamError
from espalier.upstream.link import Exchange, ServerLink, excerpt, message_of, parsed

END = "[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Props:
    """What `/props` says. model: the file's name, without its folders. template: the chat template, None without one.
    bos, eos: spellings, "" without one. context: tokens of one slot, 0 if not said. slots: requests at once. build:
    llama.cpp's version."""

    model: str
    template: str | None
    bos: str
    eos: str
    context: int
    slots: int
    build: str

    @staticmethod
    def from_json(data: Any) -> Props:
        """Raises UpstreamError for what llama-server does not say."""
        if not isinstance(data, Mapping) or "default_generation_settings" not in data:
            raise UpstreamError("this server's /props is not llama-server's", hint="check the address and the engine")
        settings = data["default_generation_settings"]
        context = settings.get("n_ctx") if isinstance(settings, Mapping) else None
        template = data.get("chat_template")
        alias, path = _text(data, "model_alias"), _text(data, "model_path")
        name = alias if alias and alias != path else PurePath(path).name
        return Props(
            model=name or "llama-server",
            template=template if isinstance(template, str) and template.strip() else None,
            bos=_text(data, "bos_token"),
            eos=_text(data, "eos_token"),
            context=context if isinstance(context, int) and context > 0 else 0,
            slots=max(1, slots) if isinstance(slots := data.get("total_slots"), int) else 1,
            build=_text(data, "build_info"),
        )


class LlamaServer:
    """A llama-server behind a ServerLink. From any thread. Every method raises what `ServerLink.get` raises."""

    def __init__(self, link: ServerLink) -> None:
        self.link = link

    def health(self) -> None:
        """Returns if the server is ready. Raises Unavailable while it loads its model."""
        said = self.link.get("/health")
        if not isinstance(said, Mapping) or said.get("status") != "ok":
            raise Unavailable(f"{self.link.url} is not ready", hint="wait until its model is loaded")

    def props(self) -> Props:
        return Props.from_json(self.link.get("/props"))

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool = True) -> list[int]:
        """Token ids. add_special: with the BOS that the model's tokenizer adds. parse_special: special tokens spelled
        in the text become their ids."""
        body = {"content": text, "add_special": add_special, "parse_special": parse_special}
        return ids_of(self.link.post("/tokenize", body), self.link.url)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones spelled out."""
        said = self.link.post("/detokenize", {"tokens": list(tokens)})
        return _text(said if isinstance(said, Mapping) else {}, "content")

    def apply_template(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> str:
        """The prompt that the server itself makes of messages. more: further fields, such as tools."""
        said = self.link.post("/apply-template", {"messages": [dict(message) for message in messages], **more})
        if not isinstance(said, Mapping) or not isinstance(said.get("prompt"), str):
            raise UpstreamError(f"{self.link.url} rendered no prompt")
        return str(said["prompt"])

    def complete(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The whole reply of `/completion`."""
        return reply_of(self.link.post("/completion", {**body, "stream": False}), self.link.url)

    def stream(self, body: Mapping[str, Any]) -> CompletionChunks:
        """The chunks of `/completion`. The exchange begins with the first one."""
        return CompletionChunks(self.link.exchange("POST", "/completion", {**body, "stream": True}), self.link.url)


class CompletionChunks:
    """The chunks of one streamed completion; the last one has `"stop": true`. For one reader."""

    def __init__(self, exchange: Exchange, url: str) -> None:
        self._exchange, self._url = exchange, url

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Raises UpstreamError if the stream ends before its last chunk."""
        with self._exchange:
            for text in self._exchange.events():
                if text == END:
                    break
                chunk = reply_of(parsed(self._url, text), self._url)
                yield chunk
                if chunk.get("stop") is True:
                    return
        raise UpstreamError(f"{self._url} broke off before the end of its answer")

    def interrupt(self) -> None:
        """End the stream at once, from any thread."""
        self._exchange.interrupt()

    def close(self) -> None:
        self._exchange.close()


def reply_of(data: Any, url: str) -> Mapping[str, Any]:
    """A reply or chunk that is an object with content. Raises UpstreamError for an error that comes as a reply."""
    if not isinstance(data, Mapping):
        raise UpstreamError(f"{url} answered {type(data).__name__} instead of an object")
    if "error" in data:
        raise _error(data, url)
    if not isinstance(data.get("content"), str):
        raise UpstreamError(f"{url} answered without content", hint="check the address and the engine")
    return data


def ids_of(data: Any, url: str) -> list[int]:
    """The ids of a reply of `/tokenize`. Raises UpstreamError."""
    ids = data.get("tokens") if isinstance(data, Mapping) else None
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise UpstreamError(f"{url} answered no tokens", hint="check the address and the engine")
    return ids


def _error(data: Mapping[str, Any], url: str) -> EspalierError:
    error = data["error"]
    said = error.get("message") if isinstance(error, Mapping) else error
    return UpstreamError(f"{url} failed: {excerpt(said if isinstance(said, str) else message_of(b'null'))}")


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
