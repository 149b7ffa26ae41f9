"""The data of the preset `full`: parquet or arrow files whose rows are recordings with their transcripts.

A row holds a spectrogram (`input_features`) or a sound (`audio`: bytes of a WAV file, or an array with its
`sampling_rate`), and the tokens of its transcript (`labels`) or the transcript itself (`sentence`, `text` or
`transcription`).
"""

from __future__ import annotations

import io
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from mel import LogMel
from torch import Tensor
from transcripts import Transcripts

from suite.drivers.events import RunProblem
from suite.drivers.pytorch.device import EnvironmentProblem

TEXTS = ("sentence", "text", "transcription")


def find_files(folder: Path, pattern: str, key: str, limit: int = 0) -> list[Path]:
    """The files below `folder` that a parameter names, sorted, the first `limit`. Raises RunProblem for none."""
    found = sorted(path for path in folder.glob(pattern) if path.suffix in (".parquet", ".arrow"))
    if not found:
        raise RunProblem(
            f"{folder / pattern} ({key}) names no .parquet or .arrow file:"
            " python -m tools data status whisper says how to get it"
        )
    return found[:limit] if limit else found


class Rows:
    """The rows of some files, by index. Their columns stay as the library holds them, mapped rather than copied."""

    def __init__(self, paths: Sequence[Path], mel: LogMel, transcripts: Transcripts) -> None:
        self._mel, self._transcripts = mel, transcripts
        self._where = str(paths[0])
        self._table = _read(paths)
        names = self._table.column_names
        self._text = next((name for name in TEXTS if name in names), None)
        if not {"input_features", "audio"} & set(names) or not ({"labels"} & set(names) or self._text):
            raise RunProblem(
                f"{self._where} has the columns {', '.join(names)}:"
                " it needs input_features or audio, and labels or text"
            )
        self._has_features, self._has_labels = "input_features" in names, "labels" in names

    def __len__(self) -> int:
        return self._table.num_rows

    def features(self, indices: Sequence[int]) -> Tensor:
        """[B, mel_bins, audio_frames]."""
        if self._has_features:
            return torch.from_numpy(np.stack([self._spectrogram(int(index)) for index in indices]))
        return self._mel(torch.from_numpy(np.stack([self._clip(int(index)) for index in indices])))

    def labels(self, index: int) -> list[int]:
        """Tokens of a transcript."""
        if self._has_labels:
            return self._table["labels"][int(index)].values.to_pylist()
        return self._transcripts.labels(self._table[self._text][int(index)].as_py())

    def _spectrogram(self, index: int) -> np.ndarray:
        values = self._table["input_features"][index].values
        while hasattr(values, "flatten") and values.type.num_fields:
            values = values.flatten()
        array = values.to_numpy(zero_copy_only=False).astype(np.float32)
        shape = (self._mel.mel_bins, self._mel.audio_frames)
        if array.size != shape[0] * shape[1]:
            raise RunProblem(f"row {index} of {self._where} has {array.size} values, not {shape[0]} x {shape[1]}")
        return array.reshape(shape)

    def _clip(self, index: int) -> np.ndarray:
        audio = self._table["audio"][index].as_py()
        where = f"row {index} of {self._where}"
        if audio.get("bytes"):
            sound, rate = decode_wav(audio["bytes"], where)
        elif audio.get("array") is not None and audio.get("sampling_rate"):
            sound, rate = np.asarray(audio["array"], dtype=np.float32), audio["sampling_rate"]
        else:
            raise RunProblem(f"{where} has a path instead of a sound: embed the WAV bytes in the file")
        if rate != self._mel.sample_rate:
            raise RunProblem(f"{where} has {rate} samples a second, not {self._mel.sample_rate}: resample the data set")
        return np.pad(sound[: self._mel.samples], (0, max(0, self._mel.samples - len(sound))))


def _read(paths: Sequence[Path]):
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError:
        raise EnvironmentProblem(f"{paths[0]} needs the package pyarrow: pip install pyarrow") from None
    tables = []
    for path in paths:
        try:
            if path.suffix == ".parquet":
                tables.append(parquet.read_table(path, memory_map=True))
                continue
            with pyarrow.memory_map(str(path)) as source:
                try:
                    tables.append(ipc.open_file(source).read_all())
                except pyarrow.ArrowInvalid:  # datasets writes streams, which have no footer
                    source.seek(0)
                    tables.append(ipc.open_stream(source).read_all())
        except (pyarrow.ArrowException, OSError) as problem:
            reason = str(problem).splitlines()[0]
            raise RunProblem(f"{path} cannot be read as {path.suffix[1:]} ({reason}): fetch it again") from None
    return pyarrow.concat_tables(tables, promote_options="default")


def decode_wav(content: bytes, where: str) -> tuple[np.ndarray, int]:
    """(samples of -1 to 1, samples a second) of 16-bit PCM; several channels are averaged. Raises RunProblem."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as problem:
        raise RunProblem(f"the audio of {where} is no WAV file ({problem}): convert the data set") from None
    if width != 2:
        raise RunProblem(f"the audio of {where} has {8 * width} bits a sample: convert the data set to 16-bit WAV")
    values = np.frombuffer(frames, dtype="<i2").astype(np.float32) / 32768
    return values.reshape(-1, channels).mean(1), rate


class HeldOutRows:
    """Rows that are asked for, with the words of their transcripts."""

    def __init__(self, rows: Rows, transcripts: Transcripts) -> None:
        self._rows, self._transcripts = rows, transcripts

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, indices: Sequence[int]) -> tuple[Tensor, list[list[str]]]:
        """(spectrograms, words) of some rows."""
        words = [self._transcripts.words(self._rows.labels(index)) for index in indices]
        return self._rows.features(indices), words


class Recordings:
    """The data set as train.py asks for it."""

    def __init__(self, rows: Rows, held_out: Rows, transcripts: Transcripts, epoch_samples: int) -> None:
        if len(rows) < epoch_samples:
            raise RunProblem(
                f"train_data has {len(rows)} rows, epoch_samples is {epoch_samples}: name more files by train_files"
            )
        self._rows, self.size = rows, epoch_samples or len(rows)
        self.held_out = HeldOutRows(held_out, transcripts)
        self._transcripts = transcripts
        self.prompt, self.words = transcripts.prompt, transcripts.words

    def hold_out_training(self, seed: int) -> None:
        """Ask for the rows of the training from now on (a run broken on purpose); no `seed` draws them."""
        self.held_out = HeldOutRows(self._rows, self._transcripts)

    def take(self, seed: int, epoch: int, indices: Sequence[int]) -> tuple[Tensor, list[list[int]]]:
        """(spectrograms, labels) of some rows, the same in every epoch."""
        return self._rows.features(indices), [self._rows.labels(index) for index in indices]

    def mean_work(self) -> tuple[float, float]:
        """(labels, pairs of them that look at each other) of a mean row; a start token that leads is not written."""
        counts = np.zeros(self.size)
        for index in range(self.size):
            labels = self._rows.labels(index)
            counts[index] = len(labels) - (labels[:1] == [self.prompt[0]])
        return float(counts.mean()), float((counts * (counts + 1) / 2).mean())
