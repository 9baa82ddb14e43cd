"""Rounds of shuffled updates in Flower until a budget is spent: `python examples/flower_rounds.py`.

Each client sends one bit a round: the sign of its update, flipped at random. Needs Flower
(pip install 'metricshuffle[flower]').
"""

from flwr.supercore.privacy_accounting import NeighboringRelation, PrivacyConfig, SamplingMethod

from metricshuffle.interop import FlowerAccountant, ShuffledPrivacyEvent
from metricshuffle.randomizers import BinaryRandomizedResponse


def main(clients: int = 1_000, max_epsilon: float = 1.0) -> FlowerAccountant:
    """Compose rounds while the next one fits the budget, and print what was spent."""
    config = PrivacyConfig(
        target_delta=1e-6,
        population_size=clients,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
        sampling_method=SamplingMethod.WITHOUT_REPLACEMENT,
        max_epsilon=max_epsilon,
    )
    accountant = FlowerAccountant(config)
    event = ShuffledPrivacyEvent(BinaryRandomizedResponse(1.0), clients, clients)
    while not accountant.would_exceed(event):
        # Here the strategy collects a bit of every client, publishes their mean, and then:
        accountant.compose(event)
        spent = accountant.get_privacy_spent()
        print(f"round {spent.num_releases}: epsilon {spent.epsilon:.3f} at delta {spent.delta:g}")
    return accountant


if __name__ == "__main__":
    main()
