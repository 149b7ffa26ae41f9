"""Words to tokens and back, by the tokenizer of the published model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from suite.drivers.events import RunProblem
from suite.drivers.pytorch.device import EnvironmentProblem


class Transcripts:
    """The tokenizer of a file, for one language and one task."""

    def __init__(self, path: Path, language: str, task: str) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise EnvironmentProblem(f"{path} needs the package tokenizers: pip install tokenizers") from None
        self._tokenizer = Tokenizer.from_file(str(path))
        names = ("<|startoftranscript|>", f"<|{language}|>", f"<|{task}|>", "<|notimestamps|>")
        self.prompt = tuple(self._token(name, path) for name in names)
        self._end = self._token("<|endoftext|>", path)

    def _token(self, name: str, path: Path) -> int:
        token = self._tokenizer.token_to_id(name)
        if token is None:
            raise RunProblem(f"{path} has no token {name}: name another language or task, or the model's own file")
        return token

    def labels(self, text: str) -> list[int]:
        """What the decoder shall write: the prompt, the text, the end."""
        return [*self.prompt, *self._tokenizer.encode(text, add_special_tokens=False).ids, self._end]

    def words(self, tokens: Sequence[int]) -> list[str]:
        """The words that tokens say; special tokens say nothing."""
        known = [token for token in tokens if token >= 0]
        return self._tokenizer.decode(known, skip_special_tokens=True).split()
