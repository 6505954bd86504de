"""The one orchestrator: find, compile, judge, decide, suggest."""

from kernelmate.session.session import Comparison, Session

__all__ = ["Comparison", "Session"]
