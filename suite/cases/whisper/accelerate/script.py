"""Adapts Whisper to a new voice, with LoRA on the query and value projections."""

import sys
from dataclasses import dataclass, field

import jiwer
import torch
from peft import LoraConfig, get_peft_model
from speech import END, PAD, START, WORDS, SpokenDigits, read_voices
from transformers import (
    HfArgumentParser,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    WhisperForConditionalGeneration,
    set_seed,
)
from transformers.utils import logging

IGNORED = -100


@dataclass
class Arguments:
    """The base model, its adapters and the recordings."""

    model_name_or_path: str
    recordings: str
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    train_utterances: int = 1600
    eval_utterances: int = 150
    target_modules: list[str] = field(default_factory=lambda: ["q_proj", "v_proj"])


@dataclass
class SpeechCollator:
    """Features are of one length; labels are padded, and lose the start that the decoder puts before them anyway."""

    start: int
    pad: int

    def __call__(self, features):
        labels = [torch.tensor(feature["labels"]) for feature in features]
        padded = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=IGNORED)
        if (padded[:, 0] == self.start).all():
            padded = padded[:, 1:]
        return {"input_features": torch.stack([feature["input_features"] for feature in features]), "labels": padded}


class AdaptedWhisper(Seq2SeqTrainer):
    """A Trainer whose evaluations write at once what they heard, token by token."""

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None, **options):
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad():
            encoder, whisper = self.model.get_encoder(), self.model.get_base_model()
            heard = encoder(inputs["input_features"])
            written = torch.full((len(inputs["labels"]), 1), START, device=inputs["labels"].device)
            for _ in range(inputs["labels"].shape[1] + 1):
                scores = whisper(encoder_outputs=heard, decoder_input_ids=written).logits[:, -1]
                written = torch.cat([written, scores.argmax(-1, keepdim=True)], 1)
        return None, written[:, 1:].contiguous(), inputs["labels"]


def words(row):
    """What the tokens say, up to the end."""
    row = row.tolist()
    row = row[: row.index(END)] if END in row else row
    return " ".join(WORDS[token] for token in row if 0 <= token < len(WORDS))


def word_error_rate(prediction):
    """Errors per word, as jiwer counts."""
    said = [words(row) for row in prediction.label_ids]
    return {"wer": jiwer.wer(said, [words(row) for row in prediction.predictions])}


def main():
    """Train as the command line says."""
    own, arguments = HfArgumentParser((Arguments, Seq2SeqTrainingArguments)).parse_args_into_dataclasses()
    if arguments.should_log:
        logging.set_verbosity_info()
    set_seed(arguments.seed)

    model = WhisperForConditionalGeneration.from_pretrained(own.model_name_or_path, dtype=torch.float32)
    model.config.use_cache = False
    adapters = LoraConfig(
        r=own.lora_rank,
        lora_alpha=own.lora_alpha,
        target_modules=own.target_modules,
        lora_dropout=own.lora_dropout,
        bias="none",
    )
    model = get_peft_model(model, adapters)
    model.print_trainable_parameters()

    voices = read_voices(own.recordings, "real")
    trainer = AdaptedWhisper(
        model,
        arguments,
        train_dataset=SpokenDigits(voices, own.train_utterances, arguments.seed),
        eval_dataset=SpokenDigits(voices, own.eval_utterances, seed=0),
        data_collator=SpeechCollator(START, PAD),
        compute_metrics=word_error_rate,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    sys.exit(main())
