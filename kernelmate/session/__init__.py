"""The one orchestrator: find, compile, judge, decide, suggest."""

from kernelmate.session.carrying import read_carried
from kernelmate.session.session import Comparison, Session

__all__ = ["Comparison", "Session", "read_carried"]
