"""Guide -> grammar over one vocabulary, compiled beside the engine's steps. Owns the cache and the threads for it.

The only module that names xgrammar, which is imported at the first guided request: it takes seconds, and is an extra.
"""

import json
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

from legato.config.model import ModelConfig
from legato.engine.schema_support import prepared_schema
from legato.errors import RequestError
from legato.flow.guide import Guide, GuideKind
from legato.loading.tokenizer import Tokenizer

MAX_CACHED_BYTES = 256 * 2**20
MAX_CACHED = 256
COMPILING_THREADS = 2
_OBJECT = '{"type": "object"}'

CompiledGrammar = Any
"""An ``xgrammar.CompiledGrammar``."""
Matcher = Any
"""An ``xgrammar.GrammarMatcher``: how far one output has come in its grammar."""


class Grammars:
    """Compiles guides for one model, each once while it is cached. May be used from any thread."""

    def __init__(self, tokenizer: Tokenizer | None, model: ModelConfig) -> None:
        self._tokenizer = tokenizer
        self._model = model
        self._lock = threading.Lock()
        self._cached: OrderedDict[Guide, Future[CompiledGrammar]] = OrderedDict()

    def submit(self, guide: Guide) -> "Future[CompiledGrammar]":
        """Return the grammar of ``guide``, when it is compiled; the future raises RequestError for what has none."""
        with self._lock:
            future = self._cached.get(guide)
            if future is None:
                future = self._cached[guide] = self._threads.submit(self._compile, guide)
            self._cached.move_to_end(guide)
            self._forget_oldest()
        return future

    def check(self, guide: Guide) -> None:
        """Raise RequestError, with the reason, for a guide that cannot be compiled; waits until that is known."""
        try:
            self.submit(guide).result()
        except RequestError as error:  # of whoever asked first, under the name that it had there
            raise RequestError(error.summary, error.details, param=guide.param) from None

    def matcher(self, grammar: CompiledGrammar) -> Matcher:
        """Return a matcher at the start of an output."""
        import xgrammar

        return xgrammar.GrammarMatcher(grammar)

    @cached_property
    def num_words(self) -> int:
        """Words of 32 bits that hold a bit for each token."""
        return -(-self._model.vocab_size // 32)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=COMPILING_THREADS, thread_name_prefix="grammar")

    @cached_property
    def _compiler(self) -> Any:
        """The library's compiler for this vocabulary; raises RequestError where library or vocabulary is lacking."""
        try:
            import xgrammar
        except ImportError as error:
            details = {"found": error, "options": "pip install 'legato[guided]'"}
            raise RequestError("guided output needs xgrammar", details, param="guided") from None
        tokenizer, vocab_size = self._tokenizer, self._model.vocab_size
        if tokenizer is None:
            raise RequestError("guided output needs a tokenizer, and this model has none", param="guided")
        ends = sorted({*self._model.eos_token_ids, *tokenizer.eos_token_ids})
        if not ends:
            raise RequestError("guided output needs an end token, and this model has none", param="guided")
        # A token without bytes is never allowed: special ones have no text, and some ids are of no token at all.
        num_known = min(vocab_size, tokenizer.vocab_size)
        spelled = [b"" if tokenizer.is_special(each) else tokenizer.token_bytes(each) for each in range(num_known)]
        vocabulary = xgrammar.TokenizerInfo(spelled, xgrammar.VocabType.RAW, vocab_size=vocab_size, stop_token_ids=ends)
        return xgrammar.GrammarCompiler(vocabulary, max_threads=1, cache_enabled=False)

    def _compile(self, guide: Guide) -> CompiledGrammar:
        text = guide.text
        if guide.kind is GuideKind.JSON_SCHEMA:
            text = prepared_schema(text, guide.param)
        compiler = self._compiler
        try:
            match guide.kind:
                case GuideKind.JSON_OBJECT:
                    return compiler.compile_json_schema(_OBJECT, any_whitespace=not guide.compact)
                case GuideKind.JSON_SCHEMA:
                    return compiler.compile_json_schema(text, any_whitespace=not guide.compact)
                case GuideKind.REGEX:
                    return compiler.compile_regex(text)
                case GuideKind.CHOICE:
                    return compiler.compile_grammar(_choice_grammar(json.loads(text)))
                case GuideKind.GRAMMAR:
                    return compiler.compile_grammar(text)
        except (RuntimeError, UnicodeDecodeError) as error:  # all that the library raises, and what it makes of that
            details = {"kind": guide.kind, "found": _reason(error)}
            raise RequestError("the guide cannot be compiled", details, param=guide.param) from None

    def _forget_oldest(self) -> None:
        """Keep within the limits; what is compiling now, or was asked for last, stays."""
        num_bytes = sum(map(_num_bytes, self._cached.values()))
        for guide in list(self._cached)[:-1]:
            if len(self._cached) <= MAX_CACHED and num_bytes <= MAX_CACHED_BYTES:
                return
            future = self._cached[guide]
            if future.done():
                num_bytes -= _num_bytes(future)
                del self._cached[guide]


def _num_bytes(future: "Future[CompiledGrammar]") -> int:
    if not future.done() or future.exception() is not None:
        return 0
    return int(future.result().memory_size_bytes)


def _choice_grammar(choices: list[str]) -> str:
    return "root ::= " + " | ".join(_quoted(choice) for choice in choices)


def _quoted(text: str) -> str:
    """Return a literal of EBNF: every character that is not plain, by its number."""
    return '"' + "".join(each if each.isalnum() and each.isascii() else f"\\U{ord(each):08x}" for each in text) + '"'


def _reason(error: RuntimeError | UnicodeDecodeError) -> str:
    """Return what the library says, without its clock and source line."""
    # It names the byte at fault, which may be half a character: then its own error cannot be read as text.
    said = error.object.decode(errors="replace") if isinstance(error, UnicodeDecodeError) else str(error)
    text = said.strip()
    return text.split(": ", 1)[1] if text.startswith("[") and ": " in text else text
