"""How far a replaced part leads gradients away: held beside full precision, and beside what the standard part does.

`python -m suite.drivers.pytorch.gradients` reads its request on stdin and answers on stdout, both as JSON; how far it
has come it says on stderr. `fixtures.gradients` asks and judges.
"""

import importlib.util
import json
import math
import os
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import optimizer
from suite.drivers.pytorch.device import Device, EnvironmentProblem
from suite.drivers.pytorch.precision import Precision
from suite.drivers.pytorch.seed import seed_everything
from suite.drivers.pytorch.slots import fill_slots
from suite.drivers.pytorch.task import Task
from suite.drivers.pytorch.tensors import map_tensors

SMALL = 64
"""Tensors of fewer values are looked at together: the rounding of a few values is no statistic."""
DRAWS = 4
"""Gradients of one batch that differ by chance alone."""
FP16_SCALE = 1024.0
"""Losses are multiplied by it in fp16, as a loss scaler would, or small gradients round to 0."""


class Sums:
    """Of one tensor over all batches: squares of the truth, of both errors, and products with the truth."""

    def __init__(self):
        self.truth = self.standard = self.replaced = self.standard_along = self.replaced_along = 0.0

    def add(self, truth, standard, replaced):
        """Three tensors of one shape; computed in float64."""
        truth, standard, replaced = (tensor.detach().double() for tensor in (truth, standard, replaced))
        self.truth += float((truth * truth).sum())
        self.standard += float(((standard - truth) ** 2).sum())
        self.replaced += float(((replaced - truth) ** 2).sum())
        self.standard_along += float((standard * truth).sum())
        self.replaced_along += float((replaced * truth).sum())

    def told(self):
        """The sums, by name; what is not finite as text, which JSON can hold."""
        return {name: _told_number(value) for name, value in vars(self).items()}


class Double(TorchDispatchMode):
    """What a model makes in float32 whatever its input, it makes in float64."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


class Bench:
    """The planned case twice: with the standard parts, and with those that the vendor fills."""

    def __init__(self, request):
        _say("building the model with the standard parts, with the vendor's, and in float64")
        params = request["params"]
        self.device = Device.open(request["device"], 0, capabilities=request["capabilities"])
        self.low = Precision(params["precision"], self.device)
        self.seed = request["seed"]
        run = SimpleNamespace(
            params=params, seed=self.seed, mode=request["mode"], preset=request["preset"], resume=None,
            data_dir=request["data_dir"], case_dir=request["case_dir"],
        )  # fmt: skip
        task_class = _task_class(Path(request["case_dir"]))
        standard = {"optimizer": optimizer.make_optimizer, **task_class.default_slots()}
        filled = fill_slots(standard, request["extern_dir"], request["slots"])
        self.slots = {"standard": standard, "replaced": filled}
        if missing := sorted(set(request["slots"]) - set(filled.replaced())):
            raise RunProblem(f"extern/ did not fill {', '.join(missing)} on this device; run it where it does")
        seed_everything(self.seed, self.device)
        self.task = task_class(run, self.device, standard, 0, 1)
        self.exact = self.task.build().to(self.device.torch_device).double().train()
        seed_everything(self.seed, self.device)
        # The last one built: a task may keep its model, and train it a little while it prepares its data.
        self.model = self.task.build().to(self.device.torch_device).train()
        self.other_task = task_class(run, self.device, filled, 0, 1)
        self.other = self.other_task.build().to(self.device.torch_device).train()
        self.compiled = torch.compile(self.other) if request["compiled"] else None
        groups = self.task.parameter_groups(self.model) or optimizer.decayed_groups(self.model, params["weight_decay"])
        self.optimizer = optimizer.make_optimizer(params, groups, False)
        self.scale = FP16_SCALE if params["precision"] == "fp16" else 1.0

    def batches(self):
        """Micro-batches on the device, of the case's data in mode converge, else random; epoch after epoch."""
        if self.task.run.mode == "converge":
            self.task.prepare_data()
            epoch = 1
            while True:
                batch = None
                for batch in map(self.device.to, self.task.train_batches(epoch)):
                    yield batch
                if batch is None:
                    raise RunProblem(f"epoch {epoch} of the training data has no batch: lower train_batch_size")
                epoch += 1
        yield from map(self.device.to, self.task.synthetic_batches())

    def look(self, task, model, batch, forward=None):
        """({name: loss}, {name: gradient}, {name: buffer}) of `model`, in float64 where it is the exact one.

        The loss also as in an evaluation, where a part may take another way: normalise by running statistics, say. Not
        so of a `forward` given beside the model, which is the model compiled.
        """
        exact = model is self.exact
        batch = _doubled(batch) if exact else batch
        loss, gradients = self._pass(task, model, batch, self.seed, forward)
        if forward is not None:
            return {"loss": loss.detach()}, gradients, _buffers(model)
        with torch.no_grad(), Double() if exact else self.low.autocast():
            evaluated = task.loss(_evaluating(model), batch)
        model.train()
        losses = {"loss": loss.detach(), "loss in evaluation": evaluated}
        return losses, gradients, _buffers(model)

    def _pass(self, task, model, batch, seed, forward=None):
        """(loss, {name: gradient}) of a batch, with all that chance decides from `seed`."""
        seed_everything(seed, self.device)
        model.zero_grad(set_to_none=True)
        exact = model is self.exact
        scale = 1.0 if exact else self.scale
        with Double() if exact else self.low.autocast():
            loss = task.loss(model if forward is None else forward, batch)
        (loss * scale).backward()
        named = model.named_parameters()
        return loss, {name: one.grad.detach() / scale for name, one in named if one.grad is not None}

    def chance(self, rates, stream, points):
        """Of each parameter that lets chance in, alone and at its rate: what it does to gradients of `points` batches.

        {key: {"standard": …, "replaced": …}}, each {"along": [length along the gradient without chance, as a share of
        it], "apart": [squared distance of two draws, as a share of its square]}, a number for each draw or two.
        """
        batches = [next(stream) for _ in range(points)]
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        return {
            key: {side: self._drawn(key, rate, side, state, batches) for side in self.slots}
            for key, rate in rates.items()
        }

    def _drawn(self, key, rate, side, state, batches):
        run = SimpleNamespace(**{**vars(self.task.run), "params": {**self.task.params, key: rate}})
        task = type(self.task)(run, self.device, self.slots[side], 0, 1)
        model = task.build().to(self.device.torch_device).train()
        along, apart = [], []
        for number, batch in enumerate(batches, 1):
            _say(f"{key}: batch {number} of {len(batches)}, {DRAWS} draws, {side} part")
            plain = self._restored(self.task, self.model, state, batch, self.seed)
            size = _dot(plain, plain) or math.nan  # a gradient of nothing has no direction
            for draw in range(0, DRAWS, 2):
                one, other = (self._restored(task, model, state, batch, self.seed + draw + each) for each in (0, 1))
                along += [_dot(one, plain) / size, _dot(other, plain) / size]
                apart.append(max(0.0, _dot(one, one) + _dot(other, other) - 2 * _dot(one, other)) / size)
        return {"along": [_told_number(value) for value in along], "apart": [_told_number(value) for value in apart]}

    def _restored(self, task, model, state, batch, seed):
        model.load_state_dict(state)
        return {name: gradient.clone() for name, gradient in self._pass(task, model, batch, seed)[1].items()}

    def compare(self, points, between, stream):
        """Sums of each tensor over `points` batches, `between` steps of the standard training apart.

        And the same of the replaced part as compiled, where it is; else None.
        """
        sums, compiled = {}, None if self.compiled is None else {}
        for number in range(1, points + 1):
            label = f"batch {number} of {points}"
            self._point(next(stream), sums, compiled, label)
            _say(f"{label}: {between} steps of the standard training to the next")
            for _ in range(between):
                self._step(next(stream))
        return sums, compiled

    def _point(self, batch, sums, compiled, label):
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        before, found = _buffers(self.model), []
        sides = {
            "float64": (self.task, self.exact),
            "standard part": (self.task, self.model),
            "replaced part": (self.other_task, self.other),
        }
        if compiled is not None:
            sides["replaced part, compiled"] = (self.other_task, self.other, self.compiled)
        for side, (task, model, *forward) in sides.items():
            _say(f"{label}: {side}")
            model.load_state_dict(state)
            found.append(self.look(task, model, batch, *forward))
        self.model.load_state_dict(state)
        complete([gradients for _, gradients, _ in found])
        truth, standard, replaced, *rest = found
        _add(sums, (truth, standard, replaced), before)
        for other in rest:
            _add(compiled, (truth, standard, other), before)
        if not (standard[1] and replaced[1] and torch.isfinite(truth[0]["loss"])):
            raise RunProblem("a batch has no gradient, or no finite loss: lower lr or take another preset")

    def _step(self, batch):
        with self.low.autocast():
            loss = self.task.loss(self.model, batch)
        (loss * self.scale).backward()
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad /= self.scale
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def _add(sums, sides, before):
    """Add what three sides have found, truth first, to the sums of each tensor; `before`, what its buffers held."""
    for kind in (1, 2):
        names = sides[0][kind]
        _same_names([set(side[kind]) for side in sides])
        for name in names:
            if kind == 2 and all(torch.equal(side[2][name].double(), before[name].double()) for side in sides):
                continue  # a constant: masks hold infinities, and no pass computed it
            key = name if names[name].numel() >= SMALL else "small tensors"
            if kind == 2:
                key = f"buffer: {key}"
            sums.setdefault(key, Sums()).add(*(side[kind][name] for side in sides))
    for name in sides[-1][0]:
        sums.setdefault(name, Sums()).add(*(side[0][name] for side in sides))


def _say(text):
    """How far it has come: of a large model, each line is a matter of minutes."""
    print(text, file=sys.stderr, flush=True)


def _told_number(value):
    """What is not finite as text, which JSON can hold."""
    return value if math.isfinite(value) else str(value)


def _dot(one, other):
    """The product of two gradients of the same parameters, in float64."""
    return sum(float((one[name].double() * other[name].double()).sum()) for name in one.keys() & other.keys())


def _doubled(batch):
    """The batch, its float32 in float64."""
    return map_tensors(lambda tensor: tensor.double() if tensor.dtype == torch.float32 else tensor, batch)


def _evaluating(model):
    """Its leaves as in an evaluation; not the whole, which may then answer by detections where a loss is asked for."""
    for module in model.modules():
        if not any(True for _ in module.children()):
            module.eval()
    return model


def _buffers(model):
    """{name: copy} of its buffers of real numbers."""
    return {name: buffer.detach().clone() for name, buffer in model.named_buffers() if buffer.is_floating_point()}


def complete(sides):
    """A gradient that a part leaves out is none: zeros, where another side has one."""
    every = {name: gradient for gradients in sides for name, gradient in gradients.items()}
    for gradients in sides:
        for name in every.keys() - gradients.keys():
            gradients[name] = torch.zeros_like(every[name])


def _same_names(sets):
    if sets[0] != sets[1] or sets[0] != sets[2]:
        odd = sorted(sets[0] ^ sets[2] or sets[0] ^ sets[1])
        raise RunProblem(f"{', '.join(odd)}: in one of the models alone; leave parameters and buffers as they are")


def _task_class(case):
    """The case's own task, with its siblings importable."""
    sys.path.insert(0, str(case))
    spec = importlib.util.spec_from_file_location("train", case / "train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return next(value for value in vars(module).values() if isinstance(value, type) and Task in value.__bases__)


def _told(problem, extern_dir):
    """What went wrong, in a sentence; where it did, if that is in extern/."""
    said = (str(problem).splitlines() or [""])[0]
    if isinstance(problem, EnvironmentProblem | RunProblem):
        return said
    said = f"{type(problem).__name__}: {said}"
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(extern_dir)]
    if own:
        return f"{own[-1].filename}:{own[-1].lineno}: {said}; mend it there"
    return f"{said} ({frames[-1].filename}:{frames[-1].lineno}); take another preset or --set, or look at extern/"


def main():
    """Answer the request on stdin. What else is written to stdout, by vendors' libraries too, goes to stderr."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(2, 1)
        try:
            bench = Bench(request)
            stream = bench.batches()
            every = bench.compare(request["points"], request["between"], stream)
            chance = bench.chance(request["chance"], stream, request["points"])
        except (Exception, SystemExit) as problem:  # a vendor's code may raise anything
            json.dump({"problem": _told(problem, request["extern_dir"])}, answer)
            return 1
        sums, compiled = (sums and {name: each.told() for name, each in sums.items()} for sums in every)
        versions = {"torch": str(torch.__version__)}
        json.dump({"sums": sums, "compiled": compiled, "chance": chance, "versions": versions}, answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
