"""Defaults and names that `--help` shows. A test compares them with those of the code, whose import takes seconds."""

from __future__ import annotations

# of fusion.AdamCosine
STEPS, LR, BATCH_SIZE = 10_000, 1e-3, 128
# of data.generators.training.Trainer
GENERATOR_STEPS, LATENT, WIDTH, GENERATOR_SEED = 1200, 16, 32, 0
TARGETS = ("logits", "probs", "losses", "variance", "median", "entropy-reduction", "ground-truth")
TRACKERS = ("tensorboard", "mlflow", "wandb")
DEVICE = "auto"
