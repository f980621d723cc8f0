"""An order of a shop, as an ordinary application has it: nothing here knows of gapless."""

from transitions import Machine


class Order:
    """What a customer owes (`price`) and has paid."""

    def __init__(self, price: int = 2) -> None:
        self.price = price
        self.paid = 0

    def take(self, amount: int) -> None:
        """Book a payment."""
        self.paid += amount

    def is_covered(self) -> bool:
        """Whether the goods may leave."""
        return self.paid >= self.price

    def give_back(self) -> None:
        """Book the refund."""
        self.paid -= self.price


TRANSITIONS = [
    {"trigger": "pay", "source": ["new", "paying"], "dest": "paying", "before": "take"},
    {"trigger": "ship", "source": "paying", "dest": "shipped", "conditions": "is_covered"},
    {"trigger": "cancel", "source": ["new", "paying"], "dest": "cancelled"},
    {"trigger": "refund", "source": "cancelled", "dest": "refunded", "after": "give_back"},
    {"trigger": "reopen", "source": "lost", "dest": "new"},
]


def make_order() -> Order:
    """An order on a machine of its own."""
    order = Order()
    states = ["new", "paying", "shipped", "cancelled", "refunded", "lost"]
    Machine(order, states, initial="new", transitions=TRANSITIONS)
    return order
