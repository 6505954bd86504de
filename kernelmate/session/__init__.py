"""The one orchestrator: find, compile, judge, decide, suggest."""

from kernelmate.session.portable import read_carried
from kernelmate.session.session import Comparison, Session

__all__ = ["Comparison", "Session", "read_carried"]
