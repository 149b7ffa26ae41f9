"""Fine-tunes a causal language model to translate, with LoRA."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import sacrebleu
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments, set_seed
from transformers.utils import logging

IGNORED = -100


@dataclass
class ModelArguments:
    """The base model and its adapters."""

    model_name_or_path: str
    use_peft: bool = False
    lora_rank: int = 16
    lora_alpha: int = 32


@dataclass
class DataArguments:
    """Phrases: one folder a language pair, with train.tsv and test.tsv."""

    mmt_data_path: str
    language_pairs: str = "en-de"
    max_source_length: int = 256
    max_new_tokens: int = 256
    num_beams: int = 1
    ignore_prompt_token_for_loss: bool = field(default=False)


class Phrases:
    """Turns a pair of phrases into tokens."""

    def __init__(self, tokenizer, pair, arguments):
        self.tokenizer, self.arguments = tokenizer, arguments
        source, target = (tokenizer.convert_tokens_to_ids(f"<{language}>") for language in pair.split("-"))
        self.before, self.between = [tokenizer.bos_token_id, source], [target]

    def _ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _prompt(self, source):
        return self.before + self._ids(source)[: self.arguments.max_source_length] + self.between

    def for_training(self, source, target):
        """The prompt and its answer; what is hidden counts for no loss."""
        prompt = self._prompt(source)
        answer = [*self._ids(target), self.tokenizer.eos_token_id]
        hidden = [IGNORED] * len(prompt) if self.arguments.ignore_prompt_token_for_loss else prompt
        return {"input_ids": prompt + answer, "labels": hidden + answer}

    def for_evaluation(self, source, target):
        """The prompt alone, and what should be written."""
        return {"input_ids": self._prompt(source), "labels": self._ids(target)}


class Collator:
    """Pads on the left: what is written goes on from the last token of the prompt."""

    def __init__(self, pad):
        self.pad = pad

    def __call__(self, features):
        ids = [torch.tensor(feature["input_ids"]) for feature in features]
        labels = [torch.tensor(feature["labels"]) for feature in features]
        left = {"batch_first": True, "padding_side": "left"}
        return {
            "input_ids": pad_sequence(ids, padding_value=self.pad, **left),
            "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], **left),
            "labels": pad_sequence(labels, padding_value=IGNORED, **left),
        }


class TranslationTrainer(Trainer):
    """Evaluates by what the model writes."""

    def __init__(self, *positional, writing, **named):
        super().__init__(*positional, **named)
        self.writing = writing

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        prompt = inputs["input_ids"]
        with torch.no_grad():
            written = self.model.generate(input_ids=prompt, attention_mask=inputs["attention_mask"], **self.writing)
        return None, written[:, prompt.shape[1] :].contiguous(), inputs["labels"]


def read(path):
    """Pairs of phrases."""
    return [line.split("\t") for line in Path(path).read_text(encoding="utf-8").splitlines()]


def main():
    """Train as the command line says."""
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_arguments, data_arguments, arguments = parser.parse_args_into_dataclasses()
    if arguments.should_log:
        logging.set_verbosity_info()
    set_seed(arguments.seed)

    tokenizer = AutoTokenizer.from_pretrained(model_arguments.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(model_arguments.model_name_or_path, dtype=torch.float32)
    if model_arguments.use_peft:
        rank, alpha = model_arguments.lora_rank, model_arguments.lora_alpha
        model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear"))
        model.print_trainable_parameters()

    pair = data_arguments.language_pairs
    phrases, folder = Phrases(tokenizer, pair, data_arguments), Path(data_arguments.mmt_data_path, pair)
    train = [phrases.for_training(*row) for row in read(folder / "train.tsv")]
    test = [phrases.for_evaluation(*row) for row in read(folder / "test.tsv")]

    def chrf(prediction):
        def text(rows):
            rows = [[token if token >= 0 else tokenizer.pad_token_id for token in row] for row in rows.tolist()]
            return tokenizer.batch_decode(rows, skip_special_tokens=True)

        return {"chrf": sacrebleu.corpus_chrf(text(prediction.predictions), [text(prediction.label_ids)]).score}

    trainer = TranslationTrainer(
        model,
        arguments,
        train_dataset=train,
        eval_dataset=test,
        data_collator=Collator(tokenizer.pad_token_id),
        compute_metrics=chrf,
        writing={"max_new_tokens": data_arguments.max_new_tokens, "num_beams": data_arguments.num_beams},
    )
    if arguments.do_train:
        trainer.train()
        trainer.save_model()


if __name__ == "__main__":
    sys.exit(main())
