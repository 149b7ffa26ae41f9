"""tf.distribute as the parameters name it. One process drives one device; several ranks are several workers."""

import os

import tensorflow as tf

from suite.drivers.tensorflow2.cluster import VARIABLE
from suite.drivers.tensorflow2.options import IN_PROCESS, OVER_WORKERS
from suite.drivers.tensorflow2.problem import EnvironmentProblem

PERSISTENT = "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT"


def set_environment(params):
    """Switches that TensorFlow reads when it first computes."""
    os.environ[PERSISTENT] = "1" if params["batchnorm_spatial_persistent"] else "0"


def unchanged():
    """TensorFlow's default strategy, which does nothing: `off`, and where nothing is trained."""
    return tf.distribute.get_strategy()


def make_strategy(params, device):
    """The strategy; TF_CONFIG is set by now."""
    name, algorithm = params["distribution_strategy"], params["all_reduce_alg"]
    if name == "off":
        return unchanged()
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy(device.name_for_tensorflow)
    if name == "mirrored":
        exchange = getattr(tf.distribute, IN_PROCESS[algorithm])() if IN_PROCESS[algorithm] else None
        return tf.distribute.MirroredStrategy([device.name_for_tensorflow], exchange)
    if name == "tpu":
        return _tpu(params["tpu"])
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(implementation=kinds[OVER_WORKERS[algorithm]])
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except tf.errors.UnknownError as problem:
        raise EnvironmentProblem(
            f"{os.environ.get(VARIABLE)}: TensorFlow cannot start its server ({problem.message}): start the run again"
        ) from problem


def _tpu(name):
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except Exception as problem:  # by version and place: a ValueError, a KeyError, or one of tf.errors
        first = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise EnvironmentProblem(
            f"tpu = {name!r}: there is no such TPU here ({first}): plan another device"
        ) from problem
