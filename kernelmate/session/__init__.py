"""Orchestration: finding, compiling, judging, deciding and searching."""

from kernelmate.session.confirming import read_carried
from kernelmate.session.session import Comparison, Session

__all__ = ["Comparison", "Session", "read_carried"]
