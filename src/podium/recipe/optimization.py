"""The optimizers and learning-rate schedules that a recipe may name, and their fields; `recipe.schema` has the rest."""

from dataclasses import dataclass
from typing import Annotated, Literal

from podium.recipe.bounds import above, also_called, at_least, below

Rate = Annotated[float, above(0), also_called("lr", "base_lr", "rate"), "Learning rate at the end of the warm-up."]
Momentum = Annotated[float, at_least(0), below(1), "Share of the last update that is carried into the next."]
Decay = Annotated[float, at_least(0), also_called("wd"), "Weight decay; batch norm and biases have none."]
Clip = Annotated[
    float,
    at_least(0),
    also_called("grad_clip", "max_grad_norm", "clip_grad_norm"),
    "Longest gradient, over all weights together; a longer one is shortened to it. 0: none is.",
]
ClassifierRate = Annotated[
    float, above(0), "The classifier's learning rate, as a multiple of the other layers'; above 1 where it is new."
]
BiasRate = Annotated[
    float,
    above(0),
    "Learning rate of biases before the classifier (batch norm's, the stem's), as a multiple of the other layers'.",
]


@dataclass(frozen=True)
class Sgd:
    """SGD with momentum. Weight decay is added to the gradient."""

    name: Literal["sgd"]
    learning_rate: Rate
    momentum: Momentum = 0.9
    nesterov: Annotated[bool, "Whether the gradient is taken ahead of the momentum step."] = True
    weight_decay: Decay = 1e-4
    classifier_rate: ClassifierRate = 1.0
    bias_rate: BiasRate = 1.0
    clip_norm: Clip = 0.0


@dataclass(frozen=True)
class Lars:
    """LARS: each layer's step is scaled by its trust ratio. Batch norm and biases take plain momentum steps."""

    name: Literal["lars"]
    learning_rate: Rate
    variant: Annotated[
        Literal["tf", "scaled_momentum"],
        "tf: the learning rate scales the momentum when it is applied; scaled_momentum: it scales what is added to the "
        "momentum, as in MLPerf's reference code.",
    ] = "tf"
    momentum: Momentum = 0.9
    weight_decay: Decay = 1e-4
    trust: Annotated[float, above(0), also_called("eta", "trust_coefficient"), "Trust coefficient η."] = 0.001
    classifier_rate: ClassifierRate = 1.0
    bias_rate: BiasRate = 1.0
    clip_norm: Clip = 0.0


Beta1 = Annotated[float, at_least(0), below(1), "Share of the mean gradient that a step keeps."]
Beta2 = Annotated[float, at_least(0), below(1), "Share of the mean squared gradient that a step keeps."]


@dataclass(frozen=True)
class AdamW:
    """AdamW: each weight's step is scaled by the size of its own gradients. Weight decay is apart from them."""

    name: Literal["adamw"]
    learning_rate: Rate
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    epsilon: Annotated[float, above(0), "Added to the root of the mean squared gradient."] = 1e-8
    weight_decay: Decay = 0.05
    classifier_rate: ClassifierRate = 1.0
    bias_rate: BiasRate = 1.0
    clip_norm: Clip = 0.0


@dataclass(frozen=True)
class Lamb:
    """LAMB: Adam's direction with weight decay, scaled for each layer to the length of its weights. Batch norm and
    biases are not scaled."""

    name: Literal["lamb"]
    learning_rate: Rate
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    epsilon: Annotated[float, above(0), "Added to the root of the mean squared gradient."] = 1e-6
    weight_decay: Decay = 0.02
    classifier_rate: ClassifierRate = 1.0
    bias_rate: BiasRate = 1.0
    clip_norm: Clip = 0.0


@dataclass(frozen=True)
class Muon:
    """Muon: the momentum of each convolution, as a matrix, is made nearly orthogonal (Newton–Schulz) before it is
    applied. All else takes Nesterov's SGD steps. It needs whole matrices, so weights are updated on every chip."""

    name: Literal["muon"]
    learning_rate: Rate
    momentum: Momentum = 0.6
    iterations: Annotated[int, above(0), "Iterations of Newton–Schulz."] = 3
    unit_weights: Annotated[
        bool, "Whether each convolution's weights are scaled before each step so that their mean row has length 1."
    ] = True
    weight_decay: Decay = 0.0
    other_rate: Annotated[
        float, above(0), "Learning rate of all that is no convolution, as a multiple of the convolutions'."
    ] = 1.0
    other_momentum: Annotated[float, at_least(0), below(1), "Momentum of all that is no convolution."] = 0.85
    classifier_rate: ClassifierRate = 1.0
    bias_rate: BiasRate = 1.0
    clip_norm: Clip = 0.0


Warmup = Annotated[
    float, at_least(0), also_called("warmup"), "Epochs in which the learning rate rises from 0, in a straight line."
]


@dataclass(frozen=True)
class Polynomial:
    """The learning rate falls to 0 as a power of the remaining time."""

    decay: Literal["polynomial"]
    warmup_epochs: Warmup = 5.0
    power: Annotated[float, above(0), "1 is a straight line."] = 2.0


@dataclass(frozen=True)
class Cosine:
    """The learning rate falls to 0 along half a cosine."""

    decay: Literal["cosine"]
    warmup_epochs: Warmup = 5.0


@dataclass(frozen=True)
class Steps:
    """The learning rate falls in steps."""

    decay: Literal["steps"]
    warmup_epochs: Warmup = 5.0
    at_epochs: Annotated[
        tuple[float, ...], also_called("milestones"), "Epochs after which the learning rate falls, ascending."
    ] = (30.0, 60.0, 80.0)
    factor: Annotated[
        float, above(0), also_called("gamma"), "The learning rate is multiplied by this at each step."
    ] = 0.1


Optimizer = Sgd | Lars | AdamW | Lamb | Muon
Schedule = Polynomial | Cosine | Steps
