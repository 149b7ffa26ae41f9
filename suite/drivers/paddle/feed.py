"""A rank's micro-batches on their way to the device: opened, built ahead by a thread, and told as they are used."""

from suite.drivers.ahead import Ahead
from suite.drivers.array_fingerprint import of_arrays
from suite.drivers.broken import refuse_random
from suite.drivers.paddle import batches
from suite.drivers.trail import Trail, marked


class Feed:
    """An iterator of Micros with `batch` on the device; it keeps count of what was taken since `take`."""

    def __init__(self, run, task, device, progress, tell, broken):
        self._device, self._progress, self._tell, self._task = device, progress, tell, task
        self._broken, self._trail = broken, Trail()
        self._samples = self._tokens = 0
        self._open_epoch, self._whole = None, False
        micros = self._opened(run, task)
        ahead = run.params["num_workers"]
        self._source = Ahead(micros, ahead) if ahead else micros

    def _opened(self, run, task):
        own = str(run.params.get("train_data", "")).startswith("case:")
        if run.mode != "converge" and run.data_dir is None and not own:
            refuse_random(self._broken, run.sabotage)
            return self._broken.micros(batches.synthetic(task), task)
        task.prepare_data()
        micros = batches.epochs(task, self._progress.epoch, self._progress.micro)
        return marked(self._broken.micros(micros, task), of_arrays)

    def next(self):
        """The next micro-batch's tensors."""
        micro = next(self._source)
        batch = self._device.to(micro.batch)
        self._trail.note(micro)
        self._samples += micro.samples
        self._tokens += micro.tokens
        if micro.epoch != self._open_epoch:
            if self._open_epoch is not None:
                self._tell("epoch_stop", epoch=self._open_epoch)
            # Of the first epoch: the data is open by now, and may show what was estimated before.
            told = flops(self._task) if self._open_epoch is None else {}
            self._tell("epoch_start", epoch=micro.epoch, **told)
            self._open_epoch = micro.epoch
        self._progress.epoch, self._progress.micro = micro.epoch, micro.index + 1
        self._whole = micro.last
        return batch

    def take(self):
        """Keys of the window that ends: `samples`, `tokens`, and what tells its data."""
        taken = {"samples": self._samples, "tokens": self._tokens, **self._trail.take()}
        self._samples = self._tokens = 0
        return taken

    def end(self):
        """The last epoch is over, if it is whole."""
        if self._whole:
            self._tell("epoch_stop", epoch=self._open_epoch)

    def close(self):
        """Stop building."""
        self._source.close()


def flops(task):
    """Keys of run_start and of the first epoch_start."""
    count, formula = task.flops_per_sample() or (None, None)
    return {"flops_per_sample": count, "flops_formula": formula}
