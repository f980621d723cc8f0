"""Adoption: a plain `transitions` machine, unmodified, searched for the run that breaks it.

`gapless adopt MODULE:FACTORY` on the command line, `adopt(factory, ...)` in code.
"""

from statemachines.adoption.adopted_machine import AdoptedMachine as AdoptedMachine
from statemachines.adoption.adopted_machine import AdoptionVerdict as AdoptionVerdict
from statemachines.adoption.adopted_machine import adopt as adopt
from statemachines.adoption.model_value import NotRepeatable as NotRepeatable
from statemachines.adoption.production_log import ProductionLog as ProductionLog
from statemachines.adoption.production_log import logged as logged
