"""The compiled step: forward, backward, one exchange of all gradients, update."""

import tensorflow as tf

from suite.drivers.events import RunProblem
from suite.drivers.tensorflow2.optimizer import clipped
from suite.drivers.tensorflow2.updates import Updates


class Trainer:
    """Model and optimizer under a strategy. Made on every rank at the same time: variables are exchanged here."""

    def __init__(self, run, task, strategy, world_size, averaged=True):
        self._task, self._strategy, self._world = task, strategy, world_size
        params = run.params
        self._averaged = averaged
        self._clip, self._eager = params["clip_grad_norm"], params["run_eagerly"]
        with strategy.scope():
            tf.random.set_seed(run.seed)
            self.model = task.build()
            self.variables = list(self.model.trainable_variables)
            self.optimizer = task.slots["optimizer"](params, self.variables, task.decays)
            # Counted where it happens, in the optimizer: whoever leaves a step out, or makes one more, does not count.
            self.updates = Updates(self.optimizer)
        self.buffers = [each for each in self.model.variables if not each.trainable]
        self._named = _by_name([*self.variables, *self.buffers, *self.optimizer.state])
        self.compile()

    def compile(self):
        """Compile the step as it is now, at its first use."""
        self._step = self._over_replicas if self._eager else tf.function(self._over_replicas)

    def counts(self):
        """(parameters, trainable parameters): all of a model's parameters train; running statistics are none."""
        count = sum(int(tf.size(each)) for each in self.variables)
        return count, count

    def step(self, micros, rate, chance):
        """One optimizer step on the micro-batches, each nested arrays; its mean loss, not yet waited for.

        `chance` is (seed, number): all randomness of the step comes from it, so a resumed run has the same.
        """
        batches = tf.nest.map_structure(tf.convert_to_tensor, tuple(micros))
        return self._step(batches, tf.constant(rate, tf.float32), tf.constant(chance, tf.int32))

    def _over_replicas(self, batches, rate, chance):
        losses = self._strategy.run(self._of_replica, args=(batches, rate, chance))
        return self._strategy.experimental_local_results(losses)[0]

    def _of_replica(self, batches, rate, chance):
        total, sums = 0.0, None
        for number, batch in enumerate(batches):
            with tf.GradientTape() as tape:
                loss = self._task.loss(self.model, batch, tf.stack([chance[0], chance[1] * len(batches) + number]))
            gradients = tape.gradient(loss, self.variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            sums = gradients if sums is None else [one + other for one, other in zip(sums, gradients)]
            total += loss
        share = 1.0 / len(batches)
        gradients = self._exchanged([share * each for each in sums])
        self.optimizer.apply(clipped(gradients, self._clip), rate)
        return tf.cast(share * total, tf.float32)

    def _exchanged(self, gradients):
        """The mean over all ranks, in one message: hundreds of small ones cost more than they carry."""
        if self._world == 1 or not self._averaged:
            return gradients
        flat = tf.concat([tf.reshape(each, [-1]) for each in gradients], 0)
        flat = tf.distribute.get_replica_context().all_reduce("sum", flat) / self._world
        parts = tf.split(flat, [each.shape.num_elements() for each in gradients])
        return [tf.reshape(part, each.shape) for part, each in zip(parts, gradients)]

    def arrays(self):
        """{name: array} of everything that a resume needs."""
        return {name: each.numpy() for name, each in self._named.items()}

    def restore(self, arrays, where, weights_only=False):
        """Put back what `arrays` gave. Raises RunProblem for one that is missing or of another shape."""
        wanted = _by_name([*self.variables, *self.buffers]) if weights_only else self._named
        for name, variable in wanted.items():
            found = arrays.get(name)
            if found is None or tuple(found.shape) != tuple(variable.shape):
                shape = "absent" if found is None else f"of shape {tuple(found.shape)}"
                raise RunProblem(f"checkpoint {where}: {name} is {shape}, not {tuple(variable.shape)}: name its own")
            variable.assign(found.astype(variable.dtype.as_numpy_dtype))


def _by_name(variables):
    named = {variable.name.partition(":")[0]: variable for variable in variables}
    if len(named) != len(variables):
        raise RunProblem("two variables of the model have one name: give each tf.Variable a name of its own")
    return named
