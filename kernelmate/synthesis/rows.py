from typing import Any
def written(plan: Any, kernel: Any) -> Any:
    from kernelmate.synthesis.plan import Refused
    raise Refused("rows")
