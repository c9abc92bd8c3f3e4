"""Guards: policies around a policy that may turn a change into a hold, and nothing else."""

from penstock.control.guards.bounded import Bounded, forbidden
from penstock.control.guards.change_rate import MaxChangesPerHour
from penstock.control.guards.cooldown import Cooldown
from penstock.control.guards.hysteresis import Hysteresis
from penstock.control.guards.pay_back import PayBack

__all__ = ["Bounded", "Cooldown", "Hysteresis", "MaxChangesPerHour", "PayBack", "forbidden"]
