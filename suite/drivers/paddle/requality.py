"""Mode `evaluate`: the quality of a saved model, evaluated again by the case's own code; nothing is trained."""

from suite.drivers.events import RunProblem
from suite.drivers.paddle import checkpoint
from suite.drivers.paddle.evaluation import evaluate, meets
from suite.drivers.paddle.seed import seed_everything
from suite.drivers.paddle.weights import weights


def evaluate_again(run, task, precision, group, tell):
    """Evaluate the model in `run.resume`; (step, samples) of its training. `tell` writes an event of rank 0."""
    if not run.resume:
        raise RunProblem("mode evaluate needs a checkpoint: name the file in run.json as resume")
    seed_everything(run.seed)
    model = task.build()
    step, samples = checkpoint.load_model(run.resume, run, model)
    tell("init_stop", parameters=sum(parameter.size for parameter in weights(model).values()))
    task.prepare_data()
    tell("eval_start", step=step)
    found = evaluate(task, model, precision, group)
    tell("eval_stop", step=step)
    tell("eval_result", step=step, samples=samples, **found.told(), met=meets(found.metrics, run.quality))
    return step, samples
