"""The shipped fake keeps the laws of every StepModel, exactly."""

from espalier.engines.fake import FakeStepModel, noise
from tests.step_model_laws import check_step_model

WIDTH = 31


def test_the_fake_keeps_every_law():
    def make():
        return FakeStepModel(lambda tokens: noise(tokens, WIDTH), width=WIDTH, max_positions=64)

    check_step_model(make, tolerance=0.0, batch_tolerance=0.0)
